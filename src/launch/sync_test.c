/*
 * sync_test.c - the mark tells of whole archives alone; tar holds nobody up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "launch/sync.h"

static char base[] = "/tmp/psd_sync_XXXXXX";
static char source[64];
static char copy[64];

static int
make_base(void **state)
{
    (void)state;
    if (mkdtemp(base) == NULL) {
        return -1;
    }
    snprintf(source, sizeof(source), "%s/source", base);
    snprintf(copy, sizeof(copy), "%s/copy", base);
    return mkdir(source, 0755);
}

static int
remove_base(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", base);
    return system(command);
}

static void
write_file(const char *directory, const char *name, const char *text, mode_t mode)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fchmod(fileno(file), mode), 0);
    fclose(file);
}

static bool
has(const char *directory, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

/* Asks whether the copy wants what the source holds now. */
static bool
offer(struct sync *sync_p, struct unpack *unpack)
{
    char *list[] = {copy, sync_p->digest, NULL};
    const struct words words = {.list = list, .count = 2};
    bool wanted = false;

    assert_int_equal(sync_pack(source, sync_p, NULL), PSD_OK);
    assert_int_equal(unpack_begin(unpack, &words, &wanted, NULL), PSD_OK);
    return wanted;
}

static psd_status
give(struct unpack *unpack, const char *bytes, size_t count, struct psd_error *err)
{
    const struct link_message message = {
        .kind = LINK_FILES, .data = bytes, .bytes = (uint32_t)count};
    bool done;

    return unpack_take(unpack, &message, &done, err);
}

static void
expect_shipped(void)
{
    struct sync sync;
    struct unpack unpack;

    assert_true(offer(&sync, &unpack));
    assert_int_equal(give(&unpack, sync.bytes, sync.count, NULL), PSD_OK);
    assert_int_equal(give(&unpack, NULL, 0, NULL), PSD_OK);
    assert_true(has(copy, ".psd_sync"));
    sync_fini(&sync);
}

/* If this fails, a half of two versions passes for the first one, and is never mended. */
static void
test_broken_off(void **state)
{
    struct sync sync;
    struct unpack unpack;

    (void)state;
    write_file(source, "train.py", "one", 0644);
    expect_shipped();
    assert_false(offer(&sync, &unpack));
    sync_fini(&sync);
    write_file(source, "train.py", "two!", 0644);
    assert_true(offer(&sync, &unpack));
    assert_false(has(copy, ".psd_sync"));
    assert_int_equal(give(&unpack, sync.bytes, sync.count / 2, NULL), PSD_OK);
    assert_int_not_equal(give(&unpack, NULL, 0, NULL), PSD_OK); /* the rest never came */
    assert_false(has(copy, ".psd_sync"));
    sync_fini(&sync);
    expect_shipped();
}

/* If this fails, the agent is lost, and with it the machine, when a disk hangs. */
static void
test_tar_that_hangs(void **state)
{
    char *path = strdup(getenv("PATH"));
    char *longer = malloc(strlen(path) + sizeof(base) + 2);
    char *bytes = calloc(1, 1 << 20);
    struct psd_error err = {0};
    struct unpack unpack;
    char digest[SYNC_DIGEST_BYTES] = "other";
    char *list[] = {copy, digest, NULL};
    const struct words words = {.list = list, .count = 2};
    bool wanted = false;
    const time_t began = time(NULL);

    (void)state;
    write_file(base, "tar", "#!/bin/sh\nexec sleep 1000\n", 0755);
    sprintf(longer, "%s:%s", base, path);
    setenv("PATH", longer, 1);
    assert_int_equal(unpack_begin(&unpack, &words, &wanted, NULL), PSD_OK);
    setenv("PATH", path, 1);
    assert_true(wanted);
    assert_int_equal(give(&unpack, bytes, 1 << 20, &err), PSD_ERR_IO);
    assert_true(time(NULL) - began < 10);
    assert_non_null(strstr(err.text, copy));
    assert_int_equal(give(&unpack, bytes, 1, &err), PSD_OK); /* said once, the rest is dropped */
    while (waitpid(-1, NULL, 0) > 0) {                       /* it was killed: this ends */
    }
    free(bytes);
    free(longer);
    free(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_off),
        cmocka_unit_test(test_tar_that_hangs),
    };

    return cmocka_run_group_tests(tests, make_base, remove_base);
}
