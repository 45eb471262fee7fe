/*
 * make_path_test.c - mkdir -p.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/make_path.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

/* cmocka.h needs the headers above. */
#include <cmocka.h>

enum { PATH_BYTES = 256 };

/* If this fails, -o a/b/c makes no directory, or --rendezvous names the wrong part of its path. */
static void
test_parts(void **state)
{
    char base[] = "/tmp/make_path_test.XXXXXX";
    char path[PATH_BYTES];
    struct stat found;
    size_t failed = 0;

    (void)state;
    assert_non_null(mkdtemp(base));
    snprintf(path, sizeof(path), "%s/a//b/", base);
    assert_int_equal(make_path(path, NULL), 0);
    assert_int_equal(make_path(path, &failed), 0); /* all of it is there */
    assert_int_equal(stat(path, &found), 0);
    assert_true(S_ISDIR(found.st_mode));

    snprintf(path, sizeof(path), "%s/a/file", base);
    fclose(fopen(path, "w"));
    assert_int_equal(make_path(path, NULL), 0); /* for the caller to see */
    strcat(path, "/c/d");
    assert_int_equal(make_path(path, &failed), -1);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(failed, strlen(path) - strlen("/d"));

    assert_int_equal(make_path("", &failed), -1);
    assert_int_equal(errno, ENOENT);

    snprintf(path, sizeof(path), "rm -rf %s", base);
    assert_int_equal(system(path), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
