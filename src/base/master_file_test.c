/*
 * master_file_test.c - a file that says where the master is, and files that only look like it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/master_file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/psd-master-file-XXXXXX";
static char path[64];

static int
set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/address", folder);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else is left there */
    return 0;
}

static void
put(const char *text, size_t bytes, mode_t mode)
{
    int fd;

    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
}

static void
expect_refused(const char *why)
{
    struct psi_master_told told = {.term = 7};
    struct psd_error err = {0};

    assert_int_equal(psi_master_file_read(path, &told, &err), PSD_ERR_REFUSED);
    assert_int_equal(told.term, 0);
    assert_non_null(strstr(err.text, path)); /* it is named */
    assert_non_null(strstr(err.text, "PSD_MASTER_FILE"));
    if (strstr(err.text, why) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    }
}

/* If this fails, members do not find a master that is elsewhere, or look where it was two lives ago. */
static void
test_what_was_written_is_read(void **state)
{
    const struct psi_master_told second = {.term = 2, .address = "tcp://10.0.0.3:40001"};
    const struct psi_master_told third = {.term = 999999999, .address = "tcp://[fd00::3]:1"};
    struct psi_master_told told;
    struct stat info;

    (void)state;
    assert_int_equal(psi_master_file_read(path, &told, NULL), PSD_OK);
    assert_int_equal(told.term, 0); /* nobody has said anything */
    assert_int_equal(psi_master_file_write(path, &second, NULL), PSD_OK);
    assert_int_equal(psi_master_file_read(path, &told, NULL), PSD_OK);
    assert_int_equal(told.term, 2);
    assert_string_equal(told.address, second.address);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(psi_master_file_write(path, &third, NULL), PSD_OK);
    assert_int_equal(psi_master_file_read(path, &told, NULL), PSD_OK);
    assert_int_equal(told.term, 999999999);
    assert_string_equal(told.address, third.address);
}

/* If this fails, another user, or half a file, sends the members of a job elsewhere. */
static void
test_others_are_not_believed(void **state)
{
    static const char line[] = "2 tcp://10.0.0.3:40001\n";
    char other[80];

    (void)state;
    put(line, sizeof(line) - 1, 0644);
    expect_refused("mode 0644");
    put(line, sizeof(line) - 1, 0620);
    expect_refused("chmod 600");

    (void)unlink(path);
    snprintf(other, sizeof(other), "%s.other", path);
    put(line, sizeof(line) - 1, 0600);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    expect_refused("it is a link");
    (void)unlink(path);
    (void)unlink(other);

    assert_int_equal(mkfifo(path, 0600), 0); /* and nobody waits for it */
    expect_refused("not a plain file");
    (void)unlink(path);

    if (geteuid() == 0) {
        put(line, sizeof(line) - 1, 0600);
        assert_int_equal(chown(path, 12345, 12345), 0);
        expect_refused("belongs to user 12345");
    }
}

/* If this fails, what is no address is taken for one. */
static void
test_only_a_whole_line_counts(void **state)
{
    static const char *const lines[] = {
        "",
        "\n",
        "2 tcp://10.0.0.3:40001", /* torn */
        "2 \n",
        " 2 tcp://10.0.0.3:1\n",
        "0 tcp://10.0.0.3:1\n",
        "02 tcp://10.0.0.3:1\n",
        "-2 tcp://10.0.0.3:1\n",
        "1234567890 tcp://10.0.0.3:1\n",
        "2\ttcp://10.0.0.3:1\n",
        "2 tcp://10.0.0.3:1 \n",
        "2 tcp://10.0.0.3:1\n3 tcp://10.0.0.4:1\n",
        "2 tcp://10.0.0.\x1b[2J:1\n",
        "2 tcp://0123456789012345678901234567890123456789012345678901234567890123456789:1\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        put(lines[i], strlen(lines[i]), 0600);
        expect_refused("not a line like");
    }
    put("2 tcp://10.0.0.3\0:1\n", 20, 0600);
    expect_refused("not a line like");
}

/* If this fails, a writer that was killed in the middle keeps the next one from telling anybody. */
static void
test_a_half_written_file_is_in_nobodys_way(void **state)
{
    const struct psi_master_told told = {.term = 3, .address = "tcp://10.0.0.3:40001"};
    struct psi_master_told read = {0};
    char next[80];

    (void)state;
    snprintf(next, sizeof(next), "%s.next", path);
    assert_int_equal(symlink("/nonexistent/elsewhere", next), 0);
    assert_int_equal(psi_master_file_write(path, &told, NULL), PSD_OK);
    assert_int_equal(psi_master_file_read(path, &read, NULL), PSD_OK);
    assert_int_equal(read.term, 3);
    assert_int_equal(access(next, F_OK), -1);
    (void)unlink(path);
    assert_int_equal(mkdir(path, 0700), 0); /* it cannot be replaced */
    assert_int_equal(psi_master_file_write(path, &told, NULL), PSD_ERR_IO);
    assert_int_equal(rmdir(path), 0);
}

/* If this fails, whoever looks for the master is sent to one that is dead, because the next one could not be told. */
static void
test_what_is_over_is_not_said(void **state)
{
    const struct psi_master_told second = {.term = 2, .address = "tcp://10.0.0.2:40001"};
    const struct psi_master_told third = {.term = 3, .address = "tcp://10.0.0.3:40001"};
    struct psi_master_told read = {0};
    char next[80];

    (void)state;
    snprintf(next, sizeof(next), "%s.next", path);
    assert_int_equal(psi_master_file_write(path, &second, NULL), PSD_OK);
    assert_int_equal(mkdir(next, 0700), 0); /* in the way of the next one */
    assert_int_equal(psi_master_file_write(path, &third, NULL), PSD_ERR_IO);
    assert_int_equal(psi_master_file_read(path, &read, NULL), PSD_OK);
    assert_int_equal(read.term, 0);
    assert_int_equal(rmdir(next), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_others_are_not_believed),
        cmocka_unit_test(test_only_a_whole_line_counts),
        cmocka_unit_test(test_a_half_written_file_is_in_nobodys_way),
        cmocka_unit_test(test_what_is_over_is_not_said),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
