/*
 * hook_test.c - what a Python worker gets in its environment when it is distributed automatically.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/stat.h>

#include <cmocka.h>

#include "launch/agent/hook.h"
#include "launch/text/variables.h"

static const char directory[] = "/opt/hook";

static void
set(struct words *environment, const char *assignment)
{
    variables_set(environment, assignment);
}

/* If this fails, the hook is not found, or what the user has in PYTHONPATH is lost. */
static void
test_hook_comes_first(void **state)
{
    struct words environment = {0};

    (void)state;
    set(&environment, "PSD_AUTO=on");
    hook_enter(directory, &environment);
    assert_string_equal(variables_get(environment.list, "PYTHONPATH"), "/opt/hook");
    set(&environment, "PYTHONPATH=");
    hook_enter(directory, &environment);
    assert_string_equal(variables_get(environment.list, "PYTHONPATH"), "/opt/hook");
    set(&environment, "PYTHONPATH=/my/own:/more");
    hook_enter(directory, &environment);
    assert_string_equal(variables_get(environment.list, "PYTHONPATH"), "/opt/hook:/my/own:/more");
    words_fini(&environment);
}

/* If this fails, workers of one job number the classes of a set differently, or lose what the user
 * has said. */
static void
test_sets_have_one_order(void **state)
{
    struct words one = {0};
    struct words other = {0};

    (void)state;
    set(&one, "PSD_AUTO=on");
    set(&one, "PSD_JOB_ID=a");
    set(&other, "PSD_AUTO=on");
    set(&other, "PSD_JOB_ID=b");
    hook_enter(directory, &one);
    hook_enter(directory, &other);
    assert_string_equal(variables_get(one.list, "PYTHONHASHSEED"), "3826002220");
    assert_string_not_equal(variables_get(other.list, "PYTHONHASHSEED"), "3826002220");
    set(&other, "PYTHONHASHSEED=random");
    hook_enter(directory, &other);
    assert_string_equal(variables_get(other.list, "PYTHONHASHSEED"), "random");
    words_fini(&one);
    words_fini(&other);
}

/* If this fails, --auto off still changes the environment of workers. */
static void
test_hook_stays_away(void **state)
{
    struct words environment = {0};

    (void)state;
    assert_false(hook_is_on(directory, &environment)); /* nobody said anything */
    set(&environment, "PSD_AUTO=on");
    assert_false(hook_is_on(NULL, &environment)); /* it is not here */
    assert_true(hook_is_on(directory, &environment));
    set(&environment, "PSD_AUTO=off");
    assert_false(hook_is_on(directory, &environment));
    set(&environment, "PYTHONPATH=/mine");
    hook_enter(directory, &environment);
    assert_string_equal(variables_get(environment.list, "PYTHONPATH"), "/mine");
    assert_null(variables_get(environment.list, "PYTHONHASHSEED"));
    words_fini(&environment);
}

/* If this fails, a worker cannot tell the pipe for notes from another file of that number. */
static void
test_note_has_an_identity(void **state)
{
    struct words environment = {0};
    struct stat info;
    char expected[64];
    int pipes[2];

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(fstat(pipes[1], &info), 0);
    snprintf(expected, sizeof(expected), "%d:%llu", pipes[1], (unsigned long long)info.st_ino);
    assert_int_equal(hook_name_note(pipes[1], &environment, NULL), PSD_OK);
    assert_string_equal(variables_get(environment.list, "PSD_NOTE_FD"), expected);
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(hook_name_note(pipes[1], &environment, NULL), PSD_ERR_IO);
    words_fini(&environment);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hook_comes_first),
        cmocka_unit_test(test_sets_have_one_order),
        cmocka_unit_test(test_hook_stays_away),
        cmocka_unit_test(test_note_has_an_identity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
