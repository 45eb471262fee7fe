/*
 * together_test.c - what all workers do together: barriers, the global step, the table of nodes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bed.h"
#include "client/api/observer.h"

/* ---- barriers ----------------------------------------------------------------------------- */

static void
meet_often(struct worker *worker)
{
    _Atomic unsigned *arrived = worker->user;

    for (unsigned round = 1; round <= 50; round++) {
        atomic_fetch_add(arrived, 1);
        CHECK_OK(worker, psd_barrier(worker->context, 15000));
        CHECK(worker, atomic_load(arrived) >= 4 * round); /* everybody had come */
    }
}

/* If this fails, a worker leaves a barrier before another has come to it. */
static void
test_barrier_holds_everybody(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 4});
    _Atomic unsigned arrived = 0;

    (void)state;
    bed_run(bed, meet_often, &arrived);
    bed_finish(bed);
}

static void
wait_in_vain(struct worker *worker)
{
    if (worker->rank == 1) {
        const uint64_t begin_ms = bed_now_ms();

        CHECK_STATUS(worker, psd_barrier(worker->context, 300), PSD_ERR_TIMEOUT);
        CHECK(worker, bed_now_ms() - begin_ms >= 300);
        CHECK_SAYS(worker, psd_last_error()->text, "worker 0");
        CHECK_SAYS(worker, psd_last_error()->text, "worker 2");
        CHECK(worker, strstr(psd_last_error()->text, "worker 1") == NULL);
    }
    bed_meet(worker->bed);
    for (unsigned barrier = 0; barrier < 2; barrier++) { /* 1 has not passed the first yet */
        CHECK_OK(worker, psd_barrier(worker->context, 5000));
    }
    bed_meet(worker->bed); /* nobody waits for those who have left */
}

/* If this fails, a barrier that nobody comes to does not say whom it waits for; or whoever asks
 * again after a timeout waits for the next barrier, and the others for it. */
static void
test_barrier_timeout_names_the_missing(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3});

    (void)state;
    bed_run(bed, wait_in_vain, NULL);
    bed_finish(bed);
}

static void
leave_before_the_barrier(struct worker *worker)
{
    if (worker->rank != 0) {
        CHECK_OK(worker, psd_barrier(worker->context, 15000)); /* 0 is done: nobody waits for it */
    }
}

/* If this fails, a worker that is done holds up the barriers of the others. */
static void
test_barrier_does_not_wait_for_those_who_left(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3});

    (void)state;
    bed_run(bed, leave_before_the_barrier, NULL);
    bed_finish(bed);
}

enum { VISITORS = 4, VISITS = 25 };

struct visitor {
    psd_context *context;
    pthread_t thread;
    unsigned calls;
    uint32_t timeout_ms;
    _Atomic bool *begins; /* (optional) */
    psd_status status;
};

static void *
visit_barriers(void *argument)
{
    struct visitor *visitor = argument;

    if (visitor->begins != NULL) {
        atomic_store(visitor->begins, true);
    }
    for (unsigned i = 0; i < visitor->calls && visitor->status == PSD_OK; i++) {
        visitor->status = psd_barrier(visitor->context, visitor->timeout_ms);
    }
    return NULL;
}

/* 0 comes with all threads at once, 1 with one thread, one barrier after the other. */
static void
meet_from_threads(struct worker *worker)
{
    const unsigned threads = worker->rank == 1 ? 1 : VISITORS;
    struct visitor visitors[VISITORS];

    for (unsigned i = 0; i < threads; i++) {
        visitors[i] = (struct visitor){
            .context = worker->context, .calls = VISITORS * VISITS / threads, .timeout_ms = 15000};
        CHECK(worker, pthread_create(&visitors[i].thread, NULL, visit_barriers, &visitors[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(visitors[i].thread, NULL);
    }
    for (unsigned i = 0; i < threads; i++) {
        CHECK_OK(worker, visitors[i].status);
    }
}

/* If this fails, a thread that waits in a barrier is forgotten
 * when another one comes to the next. */
static void
test_barriers_from_threads(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3});

    (void)state;
    bed_run(bed, meet_from_threads, NULL);
    bed_finish(bed);
}

/* One thread of 0 gives up while another waits behind it. That one then passes with the others. */
static void
give_up_before_another(struct worker *worker)
{
    _Atomic bool begins = false;
    struct visitor early = {
        .context = worker->context, .calls = 1, .timeout_ms = 500, .begins = &begins};
    struct visitor late = {.context = worker->context, .calls = 1, .timeout_ms = 5000};

    if (worker->rank != 0) {
        bed_meet(worker->bed);
        CHECK_OK(worker, psd_barrier(worker->context, 15000));
        bed_meet(worker->bed); /* nobody waits for those who have left */
        return;
    }
    CHECK(worker, pthread_create(&early.thread, NULL, visit_barriers, &early) == 0);
    while (!atomic_load(&begins)) {
    }
    CHECK(worker, pthread_create(&late.thread, NULL, visit_barriers, &late) == 0);
    pthread_join(early.thread, NULL);
    bed_meet(worker->bed);
    pthread_join(late.thread, NULL);
    bed_meet(worker->bed);
    CHECK_STATUS(worker, early.status, PSD_ERR_TIMEOUT);
    CHECK_OK(worker, late.status);
}

/* If this fails, a timeout in one thread makes another wait for a barrier that nobody comes to. */
static void
test_barrier_given_up_before_another(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3});

    (void)state;
    bed_run(bed, give_up_before_another, NULL);
    bed_finish(bed);
}

/* ---- the global step ---------------------------------------------------------------------- */

enum { ADDS = 50, ADDERS = 2 };

struct adder {
    psd_context *context;
    pthread_t thread;
    psd_status status;
};

static void *
add_often(void *argument)
{
    struct adder *adder = argument;
    uint64_t before = 0;
    uint64_t step;

    for (unsigned i = 0; i < ADDS; i++) {
        adder->status = psd_global_step(adder->context, 3, &step);
        if (adder->status != PSD_OK || step < before + 3) {
            adder->status = adder->status != PSD_OK ? adder->status : PSD_ERR_INTERNAL;
            return NULL;
        }
        before = step;
    }
    return NULL;
}

static void
add_from_threads(struct worker *worker)
{
    struct adder adders[ADDERS];
    uint64_t step = 99;

    CHECK_OK(worker, psd_global_step(worker->context, 0, &step));
    CHECK(worker, step % 3 == 0);
    CHECK_STATUS(worker, psd_global_step(worker->context, 1, NULL), PSD_ERR_INVALID);
    for (unsigned i = 0; i < ADDERS; i++) {
        adders[i] = (struct adder){.context = worker->context};
        CHECK(worker, pthread_create(&adders[i].thread, NULL, add_often, &adders[i]) == 0);
    }
    for (unsigned i = 0; i < ADDERS; i++) {
        pthread_join(adders[i].thread, NULL);
        CHECK_OK(worker, adders[i].status);
    }
    CHECK_OK(worker, psd_barrier(worker->context, 15000));
    CHECK_OK(worker, psd_global_step(worker->context, 0, &step));
    CHECK(worker, step == 3 * 3 * ADDERS * ADDS);
}

/* If this fails, additions to the global step are lost or counted twice. */
static void
test_global_step_counts_once(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2});

    (void)state;
    bed_run(bed, add_from_threads, NULL);
    bed_finish(bed);
}

enum { CUT_ADDERS = 24, CUT_ADDS = BED_SANITIZED ? 10 : 40, CUT_WORKERS = 2 };

/* Thread: each of `values` written by the one adder that was told it. */
struct tally {
    _Atomic unsigned told[CUT_WORKERS * CUT_ADDERS * CUT_ADDS + 1];
    _Atomic unsigned wrong;
};

struct cut_adder {
    struct worker *worker;
    struct tally *tally;
    pthread_t thread;
    psd_status status;
};

/* Every addition has a result of its own: no two may be told the same. */
static void *
add_and_tally(void *argument)
{
    struct cut_adder *adder = argument;
    uint64_t step = 0;

    for (unsigned i = 0; i < CUT_ADDS; i++) {
        adder->status = psd_global_step(adder->worker->context, 1, &step);
        if (adder->status != PSD_OK) {
            return NULL;
        }
        if (step == 0 || step > CUT_WORKERS * CUT_ADDERS * CUT_ADDS) {
            atomic_fetch_add(&adder->tally->wrong, 1);
        } else {
            atomic_fetch_add(&adder->tally->told[step], 1);
        }
    }
    return NULL;
}

static void
add_through_cuts(struct worker *worker)
{
    struct tally *tally = worker->user;
    struct cut_adder adders[CUT_ADDERS];
    uint64_t step = 0;

    for (unsigned i = 0; i < CUT_ADDERS; i++) {
        adders[i] = (struct cut_adder){.worker = worker, .tally = tally};
        CHECK(worker, pthread_create(&adders[i].thread, NULL, add_and_tally, &adders[i]) == 0);
    }
    for (uint64_t seen = 0; step < (uint64_t)CUT_WORKERS * CUT_ADDERS * CUT_ADDS / 2;) {
        CHECK_OK(worker, psd_global_step(worker->context, 0, &step));
        if (step > seen) { /* never twice without progress: cuts alone must not stop the job */
            seen = step;
            bed_cut(worker, 0);
        }
    }
    for (unsigned i = 0; i < CUT_ADDERS; i++) {
        pthread_join(adders[i].thread, NULL);
        CHECK_OK(worker, adders[i].status);
    }
}

/* If this fails, an addition that was repeated after a cut counts twice, or is told the result of
 * another one. */
static void
test_global_step_through_cuts(void **state)
{
    static struct tally tally;
    struct bed *bed = bed_start(&(struct bed_config){.workers = CUT_WORKERS});

    (void)state;
    bed_run(bed, add_through_cuts, &tally);
    assert_int_equal(atomic_load(&tally.wrong), 0);
    for (unsigned i = 1; i <= CUT_WORKERS * CUT_ADDERS * CUT_ADDS; i++) {
        if (atomic_load(&tally.told[i]) != 1) {
            fail_msg("step %u: told %u times", i, atomic_load(&tally.told[i]));
        }
    }
    bed_finish(bed);
}

/* ---- nodes and reports -------------------------------------------------------------------- */

enum { NODES = 6 }; /* a master, two servers, three workers */

static void
check_nodes(struct worker *worker, const struct psd_node nodes[NODES])
{
    CHECK(worker, nodes[0].role == PSD_ROLE_MASTER && nodes[0].state == PSD_NODE_RUNNING);
    CHECK(worker, strcmp(nodes[0].address, bed_address(worker->bed)) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(worker, nodes[1 + i].role == PSD_ROLE_SERVER && nodes[1 + i].rank == i);
        CHECK(worker, nodes[1 + i].state == PSD_NODE_RUNNING && nodes[1 + i].incarnation == 1);
        CHECK_SAYS(worker, nodes[1 + i].address, "tcp://127.0.0.1:");
    }
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(worker, nodes[3 + i].role == PSD_ROLE_WORKER && nodes[3 + i].rank == i);
        CHECK(worker, nodes[3 + i].state == PSD_NODE_RUNNING && nodes[3 + i].incarnation == 1);
    }
}

/* A report travels with a heartbeat: asks until it is there. */
static void
wait_for_reports(struct worker *worker, struct psd_node nodes[NODES])
{
    const uint64_t deadline_ms = bed_now_ms() + 10000;
    unsigned reported = 0;
    size_t count;

    while (reported < 3 && bed_now_ms() < deadline_ms) {
        CHECK_OK(worker, psd_nodes(worker->context, nodes, sizeof(struct psd_node), NODES, &count));
        CHECK(worker, count == NODES);
        reported = 0;
        for (uint32_t i = 0; i < 3; i++) {
            reported += nodes[3 + i].step == 100 + i;
        }
    }
    CHECK(worker, reported == 3);
}

/* A program with a shorter struct psd_node, then one with a longer. */
static void
nodes_of_other_versions(struct worker *worker)
{
    const size_t shorter = offsetof(struct psd_node, step);
    uint8_t memory[2 * sizeof(struct psd_node) + 16];
    struct psd_node node;
    size_t count;

    memset(memory, 0x55, sizeof(memory));
    CHECK_OK(worker, psd_nodes(worker->context, (struct psd_node *)memory, shorter, 2, &count));
    memcpy(&node, memory + shorter, shorter);
    CHECK(worker, node.role == PSD_ROLE_SERVER && node.incarnation == 1);
    CHECK(worker, memory[2 * shorter] == 0x55); /* nothing behind the end */

    CHECK_OK(worker,
             psd_nodes(worker->context, (struct psd_node *)memory, sizeof(node) + 16, 1, &count));
    CHECK(worker, memory[sizeof(node)] == 0 && memory[sizeof(node) + 15] == 0);
    CHECK(worker, memory[sizeof(node) + 16] == 0x55);
    CHECK_STATUS(worker,
                 psd_nodes(worker->context, (struct psd_node *)memory, shorter - 1, 1, &count),
                 PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "struct psd_node");
}

static void
report_and_look(struct worker *worker)
{
    struct psd_node nodes[NODES + 2];
    size_t count = 0;

    CHECK_OK(worker,
             psd_report(worker->context, 100 + worker->rank, "loss", 0.5 * (double)worker->rank));
    wait_for_reports(worker, nodes);
    if (worker->failure[0] != '\0') {
        return;
    }
    check_nodes(worker, nodes);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(worker, strcmp(nodes[3 + i].value_name, "loss") == 0);
        CHECK(worker, nodes[3 + i].value == 0.5 * (double)i);
    }
    memset(nodes, 0x55, sizeof(nodes));
    CHECK_OK(worker, psd_nodes(worker->context, nodes, sizeof(struct psd_node), 2, &count));
    CHECK(worker, count == NODES && nodes[1].role == PSD_ROLE_SERVER);
    CHECK(worker, (int)nodes[2].role == 0x55555555); /* beyond the capacity: not written */
    CHECK_OK(worker, psd_nodes(worker->context, NULL, sizeof(struct psd_node), 0, &count));
    CHECK_STATUS(worker, psd_nodes(worker->context, NULL, sizeof(struct psd_node), 1, &count),
                 PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_nodes(worker->context, nodes, sizeof(struct psd_node), 1, NULL),
                 PSD_ERR_INVALID);
    nodes_of_other_versions(worker);
    CHECK_OK(worker, psd_report(worker->context, 1, NULL, (double)NAN));
    CHECK_OK(worker, psd_report(worker->context, 1,
                                "a name that is much longer than there is room for in a node", 1));
    bed_meet(worker->bed);
    if (worker->rank == 2) { /* from outside, while the job runs */
        CHECK_OK(worker, psd_nodes_at(bed_address(worker->bed), 10000, nodes,
                                      sizeof(struct psd_node), NODES + 2, &count));
        CHECK(worker, count == NODES);
        check_nodes(worker, nodes);
    }
    bed_meet(worker->bed);
}

/* If this fails, nobody can see how the job is doing. */
static void
test_nodes_and_reports(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2, .lanes = 2});

    (void)state;
    bed_run(bed, report_and_look, NULL);
    bed_finish(bed);
}

/* Until a table comes in which every worker is in this state. */
static void
watch_until(struct psi_observer *observer, psd_node_state state)
{
    const uint64_t deadline_ms = bed_now_ms() + 20000;
    struct psd_node nodes[NODES];
    struct psd_error err;
    size_t count = 0;

    do {
        const psd_status status = psi_observer_next(observer, 10000, nodes, NODES, &count, &err);

        if (status != PSD_OK) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(count, NODES);
    } while ((nodes[3].state != state || nodes[5].state != state) && bed_now_ms() < deadline_ms);
    assert_int_equal(nodes[5].state, state);
}

/* Waits for news until it is sent away, and says how. */
static void *
watch_to_the_end(void *argument)
{
    static psd_status status;
    struct psd_node nodes[NODES];
    struct psd_error err;
    size_t count;

    do {
        status = psi_observer_next(argument, PSD_FOREVER, nodes, NODES, &count, &err);
    } while (status == PSD_OK);
    return &status;
}

static void
wait_for_the_turn(struct worker *worker)
{
    bed_wait_turn(worker->bed, 1);
}

/* While one thread waits for news another one asks, and then sends it away. */
static void
ask_beside(struct psi_observer *observer)
{
    struct psd_node nodes[2];
    struct psd_error err;
    pthread_t thread;
    size_t count = 0;
    void *status;

    assert_int_equal(pthread_create(&thread, NULL, watch_to_the_end, observer), 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_ok(psi_observer_ask(observer, nodes, 2, &count, &err));
        assert_int_equal(count, NODES);
        assert_int_equal(nodes[1].role, PSD_ROLE_SERVER);
    }
    psi_observer_stop(observer);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal(*(const psd_status *)status, PSD_ERR_CLOSED);
    assert_status(psi_observer_ask(observer, nodes, 2, &count, &err), PSD_ERR_CLOSED);
}

/* If this fails, whoever watches a job misses how it goes on, or cannot stop watching. */
static void
test_observer_follows_the_job(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2, .lanes = 2});
    struct psi_observer *observer;
    struct psd_error err;

    (void)state;
    assert_ok(psi_observer_create(bed_address(bed), 50, 10000, NULL, &observer, &err));
    watch_until(observer, PSD_NODE_MISSING);
    bed_start_workers(bed, wait_for_the_turn, NULL);
    watch_until(observer, PSD_NODE_RUNNING);
    psi_observer_pace(observer, 100);
    watch_until(observer, PSD_NODE_RUNNING);
    ask_beside(observer);
    psi_observer_destroy(observer);
    bed_next_turn(bed);
    bed_join_workers(bed);
    bed_finish(bed);
}

/* If this fails, a job that has not gathered cannot be looked at. */
static void
test_nodes_before_the_start(void **state)
{
    struct bed *bed =
        bed_start(&(struct bed_config){.workers = 2, .servers = 2, .servers_absent = 1});
    const uint64_t deadline_ms = bed_now_ms() + 10000;
    struct psd_node nodes[8];
    size_t count;

    (void)state;
    do {
        assert_ok(psd_nodes_at(bed_address(bed), 10000, nodes, sizeof(struct psd_node), 8, &count));
        assert_int_equal(count, 5);
    } while (nodes[1].state == PSD_NODE_MISSING && bed_now_ms() < deadline_ms);
    assert_int_equal(nodes[1].state, PSD_NODE_JOINED);
    assert_int_equal(nodes[2].state, PSD_NODE_MISSING);
    assert_int_equal(nodes[3].state, PSD_NODE_MISSING);
    assert_int_equal(nodes[4].state, PSD_NODE_MISSING);
    bed_stop(bed);
}

/* If this fails, asking a master that is not there takes for ever, or names no address. */
static void
test_nodes_at_nobody(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});
    struct psd_node node;
    char address[72];
    size_t count;
    uint64_t begin_ms;

    (void)state;
    snprintf(address, sizeof(address), "%s", bed_address(bed));
    bed_stop(bed); /* its port is free now */
    begin_ms = bed_now_ms();
    assert_status(psd_nodes_at(address, 200, &node, sizeof(struct psd_node), 1, &count),
                  PSD_ERR_TIMEOUT);
    assert_says(psd_last_error()->text, address);
    assert_true(bed_now_ms() - begin_ms < 5000);
    assert_status(psd_nodes_at("nonsense", 200, &node, sizeof(struct psd_node), 1, &count),
                  PSD_ERR_INVALID);
    assert_status(psd_nodes_at(address, 200, NULL, sizeof(struct psd_node), 1, &count),
                  PSD_ERR_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier_holds_everybody),
        cmocka_unit_test(test_barrier_timeout_names_the_missing),
        cmocka_unit_test(test_barrier_does_not_wait_for_those_who_left),
        cmocka_unit_test(test_barriers_from_threads),
        cmocka_unit_test(test_barrier_given_up_before_another),
        cmocka_unit_test(test_global_step_counts_once),
        cmocka_unit_test(test_global_step_through_cuts),
        cmocka_unit_test(test_nodes_and_reports),
        cmocka_unit_test(test_observer_follows_the_job),
        cmocka_unit_test(test_nodes_before_the_start),
        cmocka_unit_test(test_nodes_at_nobody),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
