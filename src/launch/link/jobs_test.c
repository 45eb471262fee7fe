/*
 * jobs_test.c - names of jobs: taken by one at a time, freed by their owner alone.
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
#include <unistd.h>

#include <sys/wait.h>

#include <cmocka.h>

#include "launch/link/jobs.h"

enum { CROWD = 6, ROUNDS = 150 };

static char runtime[] = "/tmp/psd_jobs_XXXXXX";

static int
make_runtime(void **state)
{
    (void)state;
    return mkdtemp(runtime) == NULL || setenv("XDG_RUNTIME_DIR", runtime, 1) != 0;
}

static int
remove_runtime(void **state)
{
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "%s/poseidon", runtime);
    return rmdir(path) != 0 || rmdir(runtime) != 0; /* fails if a test left anything */
}

static bool
is_listed(const char *name)
{
    struct words names = {0};
    bool found = false;

    if (jobs_list(&names, NULL) == PSD_OK) {
        for (size_t i = 0; i < names.count; i++) {
            found = found || strcmp(names.list[i], name) == 0;
        }
    }
    words_fini(&names);
    return found;
}

static psd_status
enter(const char *name, bool exact, struct jobs_entry *entry_p)
{
    struct psd_error err = {0};

    return jobs_enter(name, exact, entry_p, &err);
}

/* If this fails, one of two jobs with the same name cannot be found. */
static void
test_a_name_is_taken_once(void **state)
{
    struct jobs_entry first;
    struct jobs_entry second;

    (void)state;
    assert_int_equal(enter("train", true, &first), PSD_OK);
    assert_int_equal(enter("train", true, &second), PSD_ERR_STATE);
    assert_int_equal(enter("train", false, &second), PSD_OK);
    assert_string_equal(second.name, "train-2");
    assert_true(is_listed("train") && is_listed("train-2"));
    jobs_leave(&first);
    assert_true(!is_listed("train") && is_listed("train-2"));
    jobs_leave(&second);
    assert_false(is_listed("train-2"));
}

/* If this fails, a job that ends takes the socket of another one with it. */
static void
test_a_job_removes_only_its_own_socket(void **state)
{
    struct jobs_entry first;
    struct jobs_entry second;

    (void)state;
    assert_int_equal(enter("train", true, &first), PSD_OK);
    assert_int_equal(unlink(first.path), 0); /* as those do who tidy /tmp */
    assert_int_equal(enter("train", true, &second), PSD_OK);
    jobs_leave(&first);
    assert_true(is_listed("train"));
    jobs_leave(&second);
}

/* If this fails, a job that was killed blocks its name for good. */
static void
test_a_dead_socket_gives_way(void **state)
{
    struct jobs_entry entry;

    (void)state;
    assert_int_equal(enter("train", true, &entry), PSD_OK);
    close(entry.listener); /* as the system does for one that was killed */
    assert_int_equal(enter("train", true, &entry), PSD_OK);
    assert_true(is_listed("train"));
    close(entry.listener);
    assert_false(is_listed("train"));
    assert_int_not_equal(access(entry.path, F_OK), 0);
}

/* If this fails, a job that is stopped is taken for a dead one once many have asked for it. */
static void
test_a_job_that_answers_nobody_is_alive(void **state)
{
    struct jobs_entry first;
    struct jobs_entry second;

    (void)state;
    assert_int_equal(enter("train", true, &first), PSD_OK);
    for (int i = 0; i < 64; i++) {
        assert_true(is_listed("train"));
    }
    assert_int_equal(enter("train", true, &second), PSD_ERR_STATE);
    jobs_leave(&first);
}

/* Comes and goes; returns how often it was there and could not be found. */
static int
come_and_go(void)
{
    int lost = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct jobs_entry entry;

        if (enter("train", false, &entry) != PSD_OK || !is_listed(entry.name)) {
            lost++;
        }
        if (i % 3 == 0 && entry.listener >= 0) {
            close(entry.listener); /* killed: others clear it away */
        } else {
            jobs_leave(&entry);
        }
    }
    return lost < 100 ? lost : 100;
}

/* If this fails, jobs that begin at the same moment take each other's sockets away. */
static void
test_many_come_and_go_at_once(void **state)
{
    pid_t pids[CROWD];
    struct words names = {0};

    (void)state;
    for (int i = 0; i < CROWD; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            _exit(come_and_go());
        }
        assert_true(pids[i] > 0);
    }
    for (int i = 0; i < CROWD; i++) {
        int status = -1;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(jobs_list(&names, NULL), PSD_OK); /* and clears the dead away */
    assert_int_equal(names.count, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_is_taken_once),
        cmocka_unit_test(test_a_job_removes_only_its_own_socket),
        cmocka_unit_test(test_a_dead_socket_gives_way),
        cmocka_unit_test(test_a_job_that_answers_nobody_is_alive),
        cmocka_unit_test(test_many_come_and_go_at_once),
    };

    return cmocka_run_group_tests(tests, make_runtime, remove_runtime);
}
