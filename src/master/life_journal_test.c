/*
 * life_journal_test.c - the file that counts the lives of a master: no number is given twice,
 * whatever happens to the file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "master/life_journal.h"

enum { WORKERS = 3, SERVERS = 2, PORT = 5555, FILE_MAX = 1024, LIVES = 3 };

static const struct psi_log quiet = {.write = NULL};

static int
make_directory(void **state)
{
    char *path = strdup("/tmp/psd-journal-XXXXXX");

    *state = path;
    return path != NULL && mkdtemp(path) != NULL ? 0 : -1;
}

static int
remove_directory(void **state)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/journal", (char *)*state);
    unlink(path);
    snprintf(path, sizeof(path), "%s/link", (char *)*state);
    unlink(path);
    rmdir(*state);
    free(*state);
    return 0;
}

static const char *
path_of(void **state)
{
    static char path[64];

    snprintf(path, sizeof(path), "%s/journal", (char *)*state);
    return path;
}

static struct life_journal *
open_journal(const char *path)
{
    struct life_journal *journal;
    struct psd_error err;

    assert_int_equal(life_journal_open(path, WORKERS, SERVERS, &quiet, &journal, &err), PSD_OK);
    return journal;
}

static void
expect_refused(const char *path, psd_status status, const char *text)
{
    struct life_journal *journal;
    struct psd_error err = {0};

    assert_int_equal(life_journal_open(path, WORKERS, SERVERS, &quiet, &journal, &err), status);
    if (strstr(err.text, text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
    }
}

/* A life that is killed: nothing but its beginning is written. */
static uint32_t
live(const char *path)
{
    struct life_journal *journal = open_journal(path);
    const uint32_t term = life_journal_term(journal);
    struct psd_error err;

    assert_int_equal(life_journal_begin(journal, PORT, &err), PSD_OK);
    life_journal_close(journal);
    return term;
}

static size_t
read_all(const char *path, char bytes_p[FILE_MAX])
{
    const int fd = open(path, O_RDONLY);
    const ssize_t bytes = read(fd, bytes_p, FILE_MAX);

    assert_true(bytes >= 0);
    close(fd);
    return (size_t)bytes;
}

static void
write_all(const char *path, const char *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

/* If this fails, two lives of a master have one number, or a job begins as a later life. */
static void
test_lives_are_counted(void **state)
{
    const char *path = path_of(state);
    struct life_journal *journal;

    for (uint32_t term = 1; term <= LIVES; term++) {
        assert_int_equal(live(path), term);
    }
    journal = open_journal(path);
    assert_int_equal(life_journal_term(journal), LIVES + 1);
    assert_int_equal(life_journal_port(journal), PORT);
    life_journal_over(journal);
    life_journal_close(journal);
    assert_int_equal(live(path), 1); /* another job */
}

/* If this fails, two masters of one job run at the same time, and count alike. */
static void
test_one_at_a_time(void **state)
{
    struct life_journal *journal = open_journal(path_of(state));

    expect_refused(path_of(state), PSD_ERR_STATE, "another ps_master of this job is running");
    life_journal_close(journal);
    assert_int_equal(live(path_of(state)), 1);
}

/* If this fails, a damaged bit makes a master take the number of an earlier life. */
static void
test_every_flipped_bit(void **state)
{
    const char *path = path_of(state);
    char whole[FILE_MAX];
    size_t bytes;

    for (uint32_t term = 1; term <= LIVES; term++) {
        live(path);
    }
    bytes = read_all(path, whole);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        char damaged[FILE_MAX];

        memcpy(damaged, whole, bytes);
        damaged[bit / 8] ^= (char)(1 << bit % 8);
        write_all(path, damaged, bytes);
        assert_int_equal(live(path), LIVES + 1);
        assert_int_equal(live(path), LIVES + 2);
    }
}

/* If this fails, a line that a crash tore makes a master take the number of an earlier life, or the
 * next lines cannot be read. */
static void
test_every_torn_line(void **state)
{
    const char *path = path_of(state);
    char whole[FILE_MAX];
    size_t bytes;
    size_t line;

    live(path);
    line = read_all(path, whole);
    live(path);
    bytes = read_all(path, whole);
    for (size_t torn = line + 1; torn < bytes; torn++) {
        write_all(path, whole, torn);
        assert_int_equal(live(path), 3);
        assert_int_equal(live(path), 4);
    }
}

/* If this fails, a master whose file has lost lines never gets into its job again. */
static void
test_lines_that_were_lost(void **state)
{
    struct life_journal *journal;

    live(path_of(state));
    journal = open_journal(path_of(state));
    life_journal_catch_up(journal, 7);
    life_journal_close(journal);
    assert_int_equal(live(path_of(state)), 8);
}

/* If this fails, a file of another job, of another kind or of somebody else is used or
 * overwritten. */
static void
test_other_files(void **state)
{
    const char *path = path_of(state);
    struct life_journal *journal;
    struct psd_error err;
    char link[64];

    live(path);
    assert_int_equal(life_journal_open(path, WORKERS + 1, SERVERS, &quiet, &journal, &err),
                     PSD_ERR_STATE);
    assert_non_null(
        strstr(err.text, "of a job of 3 workers and 2 servers, and this one has 4 and 2"));
    snprintf(link, sizeof(link), "%s/link", (char *)*state);
    assert_int_equal(symlink(path, link), 0);
    expect_refused(link, PSD_ERR_IO, "symbolic link");
    assert_int_equal(chmod(path, 0622), 0);
    expect_refused(path, PSD_ERR_IO, "can be written by others");
    write_all(path, "shopping list", 13);
    assert_int_equal(chmod(path, 0600), 0);
    expect_refused(path, PSD_ERR_STATE, "is not the journal of a master");
    expect_refused(*state, PSD_ERR_IO, "Is a directory");
    expect_refused("/dev/full", PSD_ERR_IO, "is not a file");
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        TEST(test_lives_are_counted), TEST(test_one_at_a_time), TEST(test_every_flipped_bit),
        TEST(test_every_torn_line),   TEST(test_other_files),   TEST(test_lines_that_were_lost),
    };
#undef TEST

    return cmocka_run_group_tests(tests, NULL, NULL);
}
