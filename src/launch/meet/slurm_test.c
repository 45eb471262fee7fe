/*
 * slurm_test.c - an allocation, a step, and the roles of their tasks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "launch/meet/slurm.h"
#include "launch/plan/roles.h"
#include "launch/prepare/allocation.h"

#define ENVIRONMENT(...) ((char *const[]){__VA_ARGS__, NULL})

/* If this fails, a job runs on other nodes than it was given. */
static void
test_script(void **state)
{
    struct psd_error err = {0};
    struct slurm slurm;

    (void)state;
    assert_int_equal(
        slurm_read(ENVIRONMENT("SLURM_JOB_ID=12", "SLURM_PROCID=0", "SLURM_JOB_NODELIST=host[1-3]",
                               "SLURM_TASKS_PER_NODE=4,2,1", "SLURM_RESTART_COUNT=3"),
                   &slurm, &err),
        PSD_OK);
    assert_false(slurm.is_step); /* a script has SLURM_PROCID, too */
    assert_int_equal(slurm.nodes.count, 3);
    assert_string_equal(slurm.nodes.names[2], "host3");
    assert_int_equal(slurm.tasks, 7);
    assert_int_equal(slurm.restarts, 3);
    assert_int_equal(slurm_task(&slurm, 2, 0), 6);
    slurm_fini(&slurm);
}

/* If this fails, the shell of salloc takes itself for a task. */
static void
test_shell_of_salloc(void **state)
{
    char *const *environment =
        ENVIRONMENT("SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=1(x2)",
                    "SLURM_STEP_ID=4294967290", "SLURM_STEP_NODELIST=n1", "SLURM_STEP_NUM_TASKS=2");
    struct psd_error err = {0};
    struct slurm slurm;

    (void)state;
    assert_false(slurm_is_one_of_many(environment));
    assert_int_equal(slurm_read(environment, &slurm, &err), PSD_OK);
    assert_int_equal(slurm.nodes.count, 2);
    slurm_fini(&slurm);
}

/* If this fails, a step uses the nodes of its job instead of its own. */
static void
test_step(void **state)
{
    char *const *environment =
        ENVIRONMENT("SLURM_JOB_ID=12", "SLURM_STEP_ID=1", "SLURM_JOB_NODELIST=host[1-3]",
                    "SLURM_TASKS_PER_NODE=4,2,1", "SLURM_STEP_NODELIST=host[1,3]",
                    "SLURM_STEP_TASKS_PER_NODE=2,1", "SLURM_STEP_NUM_TASKS=3", "SLURM_NODEID=1",
                    "SLURM_LOCALID=0", "SLURM_STEP_RESV_PORTS=12000-12001");
    struct psd_error err = {0};
    struct slurm slurm;

    (void)state;
    assert_true(slurm_is_one_of_many(environment));
    assert_int_equal(slurm_read(environment, &slurm, &err), PSD_OK);
    assert_true(slurm.is_step);
    assert_string_equal(slurm.nodes.names[1], "host3");
    assert_int_equal(slurm.tasks, 3);
    assert_int_equal(slurm_task(&slurm, slurm.node, slurm.local), 2);
    assert_int_equal(slurm.ports.count, 2);
    assert_int_equal(slurm.ports.numbers[1], 12001);
    slurm_fini(&slurm);
}

static void
expect_wrong(char *const *environment, const char *text)
{
    struct psd_error err = {0};
    struct slurm slurm;

    assert_int_equal(slurm_read(environment, &slurm, &err), PSD_ERR_INVALID);
    assert_string_equal(err.text, text);
}

/* If this fails, a variable that makes no sense is not named. */
static void
test_nonsense(void **state)
{
    (void)state;
    expect_wrong(ENVIRONMENT("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-"),
                 "SLURM_JOB_NODELIST=n[1-: has a bracket that is not closed (column 2)");
    expect_wrong(
        ENVIRONMENT("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_TASKS_PER_NODE=3(x2"),
        "SLURM_TASKS_PER_NODE=3(x2: has a bracket that is not closed (column 5)");
    expect_wrong(
        ENVIRONMENT("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_TASKS_PER_NODE=3(x2)"),
        "SLURM_TASKS_PER_NODE=3(x2): tasks of 2 nodes, but there are 3");
    expect_wrong(ENVIRONMENT("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-2]",
                             "SLURM_TASKS_PER_NODE=65536(x2)"),
                 "SLURM_TASKS_PER_NODE=65536(x2): more than 65536 tasks");
    assert_false(slurm_is_around(ENVIRONMENT("SLURM_JOB_ID=1")));
}

/* "ps" and "worker" as "p" and "w". */
static void
expect_roles(const struct roles *roles, const char *letters)
{
    assert_int_equal(roles->count, strlen(letters));
    for (uint32_t i = 0; i < roles->count; i++) {
        assert_int_equal(roles->list[i] == LAUNCH_SERVER ? 'p' : 'w', letters[i]);
    }
}

static void
expect_placed(uint32_t servers, enum roles_placement placement, const uint32_t *tasks_on,
              uint32_t nodes, const char *letters)
{
    struct psd_error err = {0};
    struct roles roles;

    assert_int_equal(roles_place(servers, placement, tasks_on, nodes, &roles, &err), PSD_OK);
    expect_roles(&roles, letters);
    roles_fini(&roles);
}

/* If this fails, servers are not where the placement says. */
static void
test_placements(void **state)
{
    static const uint32_t even[] = {4, 4};
    static const uint32_t uneven[] = {3, 1, 2};
    struct psd_error err = {0};
    struct roles roles;

    (void)state;
    expect_placed(2, ROLES_PACK, even, 2, "ppwwwwww");
    expect_placed(2, ROLES_SPREAD, even, 2, "pwwwpwww");
    expect_placed(3, ROLES_SPREAD, even, 2, "ppwwpwww");
    expect_placed(4, ROLES_SPREAD, uneven, 3, "ppwppw");
    expect_placed(5, ROLES_SPREAD, uneven, 3, "ppwppp");
    assert_int_equal(roles_place(6, ROLES_PACK, uneven, 3, &roles, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "6 servers among 6 tasks leave no worker"));
}

/* If this fails, a list of roles is read as another one. */
static void
test_lists_of_roles(void **state)
{
    static const char *const wrong[] = {"",   "ps,",      "ps,,worker", "worker*",   "worker*0",
                                        "*3", "worker*x", "chief",      "ps worker", "ps, worker"};
    struct psd_error err = {0};
    struct roles roles;

    (void)state;
    assert_int_equal(roles_parse("ps,server,worker*3", &roles, &err), PSD_OK);
    expect_roles(&roles, "ppwww");
    roles_fini(&roles);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(roles_parse(wrong[i], &roles, &err), PSD_ERR_INVALID);
    }
    assert_int_equal(roles_parse("ps,wrker*3", &roles, &err), PSD_ERR_INVALID);
    assert_string_equal(err.text, "roles \"ps,wrker*3\", column 4: \"wrker*3\" is no role; ps, "
                                  "worker and worker*6 are");
    assert_int_equal(roles_parse("worker*65536,ps", &roles, &err), PSD_ERR_INVALID);
}

/* If this fails, tasks become processes on the wrong nodes. */
static void
test_tasks_become_nodes(void **state)
{
    struct launch_options options = {.workers = LAUNCH_NOT_GIVEN, .servers = LAUNCH_NOT_GIVEN};
    struct psi_cluster cluster = {0};
    struct psd_error err = {0};
    struct slurm slurm;
    struct roles roles;

    (void)state;
    assert_int_equal(slurm_read(ENVIRONMENT("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-2]",
                                            "SLURM_TASKS_PER_NODE=2,1"),
                                &slurm, &err),
                     PSD_OK);
    assert_int_equal(allocation_roles(&options, &cluster, &slurm, &roles, &err), PSD_OK);
    expect_roles(&roles, "www");
    assert_int_equal(allocation_fill(&slurm, &roles, &cluster, &err), PSD_OK);
    assert_int_equal(cluster.worker_count, 3);
    assert_int_equal(cluster.server_count, 2); /* nobody said a word: one on each node */
    assert_string_equal(cluster.workers[1].host, "n1");
    assert_string_equal(cluster.workers[2].host, "n2");
    assert_string_equal(cluster.servers[1].host, "n2");
    assert_string_equal(cluster.master.host, "n1");
    roles_fini(&roles);
    psi_cluster_free(&cluster);

    options.roles = "ps,worker";
    assert_int_equal(allocation_roles(&options, &cluster, &slurm, &roles, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "has 2 entries, but there are 3 tasks"));
    slurm_fini(&slurm);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_script),
        cmocka_unit_test(test_shell_of_salloc),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_lists_of_roles),
        cmocka_unit_test(test_tasks_become_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
