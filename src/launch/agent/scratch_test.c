/*
 * scratch_test.c - what workers write and nobody wants to keep.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "launch/agent/scratch.h"

static char base[] = "/tmp/psd_scratch_XXXXXX";

static int
set_up(void **state)
{
    (void)state;
    return mkdtemp(base) == NULL;
}

static int
tear_down(void **state)
{
    (void)state;
    return rmdir(base); /* fails unless everything was removed */
}

static bool
is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void
fill(const struct scratch *scratch)
{
    char path[SCRATCH_PATH_BYTES + 32];
    int fd;

    snprintf(path, sizeof(path), "%s/folder", scratch->path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/folder/closed", scratch->path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/folder/closed/within", scratch->path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/folder/closed", scratch->path);
    assert_int_equal(chmod(path, 0), 0); /* as overlays leave one */
    snprintf(path, sizeof(path), "%s/folder/file", scratch->path);
    fd = open(path, O_CREAT | O_WRONLY, 0400);
    assert_true(fd >= 0);
    close(fd);
    snprintf(path, sizeof(path), "%s/folder/link", scratch->path);
    assert_int_equal(symlink(base, path), 0);
}

/* If this fails, every job leaves the checkpoints of its workers behind in /tmp. */
static void
it_goes_with_all_that_is_in_it(void **state)
{
    struct scratch scratch = {.lock = -1};

    (void)state;
    assert_int_equal(scratch_create(&scratch, base, NULL), PSD_OK);
    fill(&scratch);
    scratch_destroy(&scratch);
    assert_int_equal(scratch.lock, -1);
}

/* If this fails, what a killed agent leaves stays for ever, or a job loses its files to the next.
 */
static void
forgotten_ones_go_and_those_in_use_stay(void **state)
{
    struct scratch forgotten = {.lock = -1};
    struct scratch used = {.lock = -1};
    struct scratch next = {.lock = -1};

    (void)state;
    assert_int_equal(scratch_create(&forgotten, base, NULL), PSD_OK);
    assert_int_equal(scratch_create(&used, base, NULL), PSD_OK);
    fill(&forgotten);
    fill(&used);
    close(forgotten.lock); /* as the kernel does it for who is killed */
    assert_int_equal(scratch_create(&next, base, NULL), PSD_OK);
    assert_false(is_there(forgotten.path));
    assert_true(is_there(used.path));
    scratch_destroy(&used);
    scratch_destroy(&next);
}

/* If this fails, a machine without /tmp does not say why. */
static void
a_place_that_is_not_there_is_told(void **state)
{
    struct scratch scratch = {.lock = -1};
    struct psd_error err = {0};

    (void)state;
    assert_int_equal(scratch_create(&scratch, "/nowhere", &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "/nowhere"));
    scratch_destroy(&scratch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_with_all_that_is_in_it),
        cmocka_unit_test(forgotten_ones_go_and_those_in_use_stay),
        cmocka_unit_test(a_place_that_is_not_there_is_told),
    };

    const uid_t own = geteuid();
    int failed;

    if (own == 0 && seteuid(65534) != 0) { /* no directory is closed to root */
        return 1;
    }
    failed = cmocka_run_group_tests(tests, set_up, tear_down);
    /* A process that changes its user is not dumpable, and the search for leaks needs that. */
    if (own == 0 && (seteuid(own) != 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)) {
        return 1;
    }
    return failed;
}
