/*
 * filters_test.c - who stands between a worker and its pipe, with real processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include <cmocka.h>

#include "launch/agent/filters.h"

/* leader | sed | cat > ours, and one that reads a pipe, but prints elsewhere. */
struct scene {
    int ours[2];
    int middle[2];
    int last[2];
    int other[2];
    pid_t leader;
    pid_t sed;
    pid_t cat;
    pid_t stranger;
};

/* Runs a program with these as 0 and 1; -1: /dev/null. Returns when it runs. */
static pid_t
run(int in, int out, char *const *argv)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(in >= 0 ? in : nothing, STDIN_FILENO);
        dup2(out >= 0 ? out : nothing, STDOUT_FILENO);
        dup2(nothing, STDERR_FILENO);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 0);
    close(ready[0]);
    close(nothing);
    return pid;
}

static int
set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    assert_int_equal(pipe2(scene->ours, O_CLOEXEC), 0);
    assert_int_equal(pipe2(scene->middle, O_CLOEXEC), 0);
    assert_int_equal(pipe2(scene->last, O_CLOEXEC), 0);
    assert_int_equal(pipe2(scene->other, O_CLOEXEC), 0);
    scene->leader = run(-1, scene->middle[1], (char *[]){"sleep", "100", NULL});
    scene->sed = run(scene->middle[0], scene->last[1], (char *[]){"sed", "s/a/a/", NULL});
    scene->cat =
        run(scene->last[0], scene->ours[1], (char *[]){"cat", "-", "--", "password=xyz", NULL});
    scene->stranger = run(scene->other[0], -1, (char *[]){"cat", NULL});
    *state = scene;
    return 0;
}

static int
tear_down(void **state)
{
    struct scene *scene = *state;
    const pid_t pids[] = {scene->leader, scene->sed, scene->cat, scene->stranger};

    for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    for (size_t i = 0; i < 2; i++) {
        close(scene->ours[i]);
        close(scene->middle[i]);
        close(scene->last[i]);
        close(scene->other[i]);
    }
    free(scene);
    return 0;
}

/* If this fails, a signal for a worker costs its last lines, or others are spared it. */
static void
test_filters_up_to_the_pipe(void **state)
{
    const struct scene *scene = *state;
    struct filters_pipes pipes = {0};
    struct tree_pids leaders = {0};
    struct tree_pids found = {0};

    tree_pids_add(&leaders, scene->leader);
    filters_pipes_add(&pipes, scene->ours[0]);
    filters_pipes_add(&pipes, -1);
    filters_find(getpid(), &leaders, &pipes, &found);
    assert_int_equal(found.count, 2);
    assert_true(tree_pids_have(&found, scene->sed));
    assert_true(tree_pids_have(&found, scene->cat));
    tree_pids_fini(&found);
    tree_pids_fini(&leaders);
    filters_pipes_fini(&pipes);
}

/* If this fails, the wrong process is blamed for a pipe that stays open, or its password told. */
static void
test_holders_by_name(void **state)
{
    const struct scene *scene = *state;
    struct filters_pipes pipes = {0};
    struct tree_pids found = {0};
    char wanted[128];
    char text[256];

    filters_describe(&found, text, sizeof(text));
    assert_string_equal(text, "");
    filters_pipes_add(&pipes, scene->ours[0]);
    filters_find_holders(getpid(), &pipes, &found);
    assert_int_equal(found.count, 1);
    filters_describe(&found, text, sizeof(text));
    snprintf(wanted, sizeof(wanted), "pid %d (cat - -- password=***)", (int)scene->cat);
    assert_string_equal(text, wanted);
    for (int i = 0; i < 4; i++) {
        tree_pids_add(&found, scene->sed);
    }
    filters_describe(&found, text, sizeof(text));
    assert_non_null(strstr(text, "(sed s/a/a/) and 2 more"));
    tree_pids_fini(&found);
    filters_pipes_fini(&pipes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_filters_up_to_the_pipe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_holders_by_name, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("filters", tests, NULL, NULL);
}
