/*
 * order_test.c - operations that wait for each other: reads before the pushes that they wait for,
 * tables that workers push in different orders, gradients that no server asks for.
 *
 * All tables are larger than what a worker keeps under way on a lane, so that whatever is blocked
 * shows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "bed.h"

enum {
    COUNT = 12 * PSD_CHUNK_ELEMENTS - 5, /* 3 MiB of f32; a worker's window has 2 */
    STEPS = 3,
    WORKERS_MAX = 3,
};

/* The ways a gradient can take: shared memory, a pool that is too small, tcp, one push per host. */
static const struct bed_config ways[] = {
    {.elsewhere = false},
    {.pool_bytes = 1 << 20},
    {.elsewhere = true, .flat = true},
    {.elsewhere = true},
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static void
run_all_ways(uint32_t workers, enum psi_death_policy policy, worker_fn run, void *user)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct bed_config config = ways[i];
        struct bed *bed;

        config.workers = workers;
        config.policy = policy;
        bed = bed_start(&config);
        bed_run(bed, run, user);
        bed_finish(bed);
    }
}

/* Ones to push, and room for values: for all workers, in memory that outlives an operation that
 * failed. */
static float ones[COUNT];
static float values[WORKERS_MAX][2][COUNT];

static bool
all_are(const float *numbers, float wanted)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (numbers[i] != wanted) {
            return false;
        }
    }
    return true;
}

static void
open_adding(const struct worker *worker, const char *name, psd_table **table_p)
{
    CHECK_OK((struct worker *)worker,
             psd_table_open(worker->context,
                            TABLE(name, PSD_F32, COUNT, .reduce = PSD_REDUCE_SUM,
                                  .rule = RULE(.rule = PSD_RULE_ADD)),
                            table_p));
}

static psd_status
finish(psd_op *op)
{
    const psd_status status = psd_wait(op, PSD_FOREVER);

    psd_op_release(op);
    return status;
}

/* ---- a read before the push that it waits for ---------------------------------------------- */

struct early {
    uint32_t staleness;
    psd_use use;
    psd_rule rule;
    int32_t read_priority;
};

static void
read_early(struct worker *worker)
{
    const struct early *early = worker->user;
    const float workers = (float)psd_size(worker->context);
    float *read = values[worker->rank][0];
    psd_table *table = NULL;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, COUNT, .reduce = PSD_REDUCE_SUM, .use = early->use,
                                  .rule = RULE(.rule = early->rule), .staleness = early->staleness),
                            &table));
    for (uint64_t step = 0; step < STEPS; step++) {
        const float wanted = early->use == PSD_USE_SUM ? workers : workers * (float)(step + 1);
        psd_op *pull_op;
        psd_op *push_op;

        CHECK_OK(worker, psd_pull(table,
                                  TRANSFER(step + 1 + early->staleness, .values = read,
                                           .priority = early->read_priority),
                                  &pull_op));
        CHECK_OK(worker, psd_push(table, TRANSFER(step, .gradient = ones), &push_op));
        CHECK_OK(worker, finish(push_op));
        CHECK_OK(worker, finish(pull_op));
        if (early->staleness == 0) {
            CHECK(worker, all_are(read, wanted));
        } else {
            CHECK(worker, read[0] >= wanted && read[COUNT - 1] >= wanted);
        }
    }
}

/* If this fails, a read of the next step holds up the push that it waits for. */
static void
test_read_before_its_push(void **state)
{
    struct early plain = {.rule = PSD_RULE_ADD};
    struct early urgent = {.rule = PSD_RULE_ADD, .read_priority = 200};
    struct early sums = {.use = PSD_USE_SUM};

    (void)state;
    run_all_ways(2, PSI_DEATH_FAIL, read_early, &plain);
    run_all_ways(2, PSI_DEATH_WAIT, read_early, &urgent);
    run_all_ways(2, PSI_DEATH_FAIL, read_early, &sums);
}

/* If this fails, so does a read of a stale table. */
static void
test_stale_read_before_its_push(void **state)
{
    struct early stale = {.rule = PSD_RULE_ADD, .staleness = 2};

    (void)state;
    run_all_ways(2, PSI_DEATH_FAIL, read_early, &stale);
}

/* With backup workers a read may also wait for the others alone. */
static void
read_early_with_backups(struct worker *worker)
{
    float *read = values[worker->rank][0];
    psd_table *table = NULL;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, COUNT, .reduce = PSD_REDUCE_SUM,
                                          .rule = RULE(.rule = PSD_RULE_ADD), .backup_workers = 1),
                                    &table));
    while (psd_table_step(table) < STEPS) {
        const uint64_t step = psd_table_step(table);
        psd_op *pull_op;
        psd_op *push_op;
        psd_status pushed;

        CHECK_OK(worker, psd_pull(table, TRANSFER(step + 1, .values = read), &pull_op));
        CHECK_OK(worker, psd_push(table, TRANSFER(step, .gradient = ones), &push_op));
        pushed = finish(push_op);
        CHECK(worker, pushed == PSD_OK || pushed == PSD_ERR_DROPPED);
        CHECK_OK(worker, finish(pull_op));
    }
}

/* If this fails, so does a read of a table with backup workers. */
static void
test_read_before_its_push_with_backups(void **state)
{
    (void)state;
    run_all_ways(3, PSI_DEATH_FAIL, read_early_with_backups, NULL);
}

/* ---- a read that waits, before one that need not -------------------------------------------- */

static void
read_other_meanwhile(struct worker *worker)
{
    float *early = values[worker->rank][0];
    float *other = values[worker->rank][1];
    psd_table *a = NULL;
    psd_table *b = NULL;

    open_adding(worker, "a", &a);
    open_adding(worker, "b", &b);
    CHECK(worker, a != NULL && b != NULL);
    for (uint64_t step = 0; step < STEPS; step++) {
        psd_op *op[3];

        CHECK_OK(worker, psd_pull(a, TRANSFER(step + 1, .values = early), &op[0]));
        CHECK_OK(worker, pull(b, step, other));
        CHECK(worker, all_are(other, 2.0f * (float)step));
        CHECK_OK(worker, psd_push(a, TRANSFER(step, .gradient = ones), &op[1]));
        CHECK_OK(worker, psd_push(b, TRANSFER(step, .gradient = ones), &op[2]));
        for (unsigned i = 0; i < 3; i++) {
            CHECK_OK(worker, finish(op[i]));
        }
        CHECK(worker, all_are(early, 2.0f * (float)(step + 1)));
    }
}

/* If this fails, a read that waits for this worker keeps it from reading another table. */
static void
test_read_that_waits_leaves_room(void **state)
{
    (void)state;
    run_all_ways(2, PSI_DEATH_FAIL, read_other_meanwhile, NULL);
}

/* 0 reads what waits for 1, then another table; 1 waits for that before it gives the first. */
static void
read_what_another_gives_last(struct worker *worker)
{
    float *late = values[worker->rank][0];
    float *other = values[worker->rank][1];
    psd_table *a = NULL;
    psd_table *b = NULL;

    open_adding(worker, "a", &a);
    open_adding(worker, "b", &b);
    CHECK(worker, a != NULL && b != NULL);
    for (uint64_t step = 0; step < STEPS; step++) {
        psd_op *op[3];

        if (worker->rank == 1) {
            CHECK_OK(worker, push(b, step, ones));
            CHECK_OK(worker, push(a, step, ones));
            continue;
        }
        CHECK_OK(worker, psd_push(a, TRANSFER(step, .gradient = ones), &op[0]));
        CHECK_OK(worker, psd_pull(a, TRANSFER(step + 1, .values = late), &op[1]));
        CHECK_OK(worker, pull(b, step, other));
        CHECK_OK(worker, psd_push(b, TRANSFER(step, .gradient = ones), &op[2]));
        for (unsigned i = 0; i < 3; i++) {
            CHECK_OK(worker, finish(op[i]));
        }
        CHECK(worker, all_are(late, 2.0f * (float)(step + 1)));
    }
}

/* If this fails, reads that wait for another worker keep all others waiting. */
static void
test_read_that_waits_for_another_leaves_room(void **state)
{
    (void)state;
    run_all_ways(2, PSI_DEATH_FAIL, read_what_another_gives_last, NULL);
}

/* ---- tables in different orders ------------------------------------------------------------- */

/* 0 begins the next step of one table behind this step of the other; 1 ends it before that. */
static void
push_in_different_orders(struct worker *worker)
{
    psd_table *a = NULL;
    psd_table *b = NULL;

    open_adding(worker, "a", &a);
    open_adding(worker, "b", &b);
    CHECK(worker, a != NULL && b != NULL);
    for (uint64_t step = 0; step < 2 * STEPS; step += 2) {
        psd_op *op[4];

        if (worker->rank == 1) {
            CHECK_OK(worker, push(a, step, ones));
            CHECK_OK(worker, push(a, step + 1, ones));
            CHECK_OK(worker, push(b, step, ones));
            CHECK_OK(worker, push(b, step + 1, ones));
            continue;
        }
        CHECK_OK(worker, psd_push(a, TRANSFER(step, .gradient = ones), &op[0]));
        CHECK_OK(worker, psd_push(b, TRANSFER(step, .gradient = ones), &op[1]));
        CHECK_OK(worker, psd_push(a, TRANSFER(step + 1, .gradient = ones), &op[2]));
        CHECK_OK(worker, psd_push(b, TRANSFER(step + 1, .gradient = ones), &op[3]));
        for (unsigned i = 0; i < 4; i++) {
            CHECK_OK(worker, finish(op[i]));
        }
    }
    CHECK_OK(worker, pull(a, 2 * STEPS, values[worker->rank][0]));
    CHECK_OK(worker, pull(b, 2 * STEPS, values[worker->rank][1]));
    CHECK(worker, all_are(values[worker->rank][0], 2.0f * 2 * STEPS));
    CHECK(worker, all_are(values[worker->rank][1], 2.0f * 2 * STEPS));
}

/* If this fails, workers that push their tables in different orders wait for each other for ever,
 * under one policy of deaths or under all. */
static void
test_tables_in_different_orders(void **state)
{
    (void)state;
    run_all_ways(2, PSI_DEATH_WAIT, push_in_different_orders, NULL);
    run_all_ways(2, PSI_DEATH_FAIL, push_in_different_orders, NULL);
    run_all_ways(2, PSI_DEATH_CONTINUE, push_in_different_orders, NULL);
}

/* ---- a gradient that no server asks for ------------------------------------------------------ */

static void
open_stale(const struct worker *worker, const char *name, uint32_t staleness, psd_table **table_p)
{
    CHECK_OK((struct worker *)worker,
             psd_table_open(worker->context,
                            TABLE(name, PSD_F32, COUNT, .reduce = PSD_REDUCE_SUM,
                                  .rule = RULE(.rule = PSD_RULE_ADD), .staleness = staleness),
                            table_p));
}

/* 1 waits for 0's push of b before it gives a;
 * 0 has given a first, and its window is full of it. */
static void
push_behind_a_full_window(struct worker *worker)
{
    const uint32_t *staleness = worker->user;
    float(*read)[COUNT] = values[worker->rank];
    psd_table *a = NULL;
    psd_table *b = NULL;

    open_stale(worker, "a", *staleness, &a);
    open_stale(worker, "b", 1, &b);
    CHECK(worker, a != NULL && b != NULL);
    for (uint64_t step = 0; step < STEPS; step++) {
        psd_op *op[3];

        if (worker->rank == 1) {
            CHECK_OK(worker, push(b, step, ones));
            CHECK_OK(worker, pull(b, step + 2, read[0]));
            CHECK(worker, all_are(read[0], 2.0f * (float)(step + 1)));
            CHECK_OK(worker, push(a, 2 * step, ones));
            CHECK_OK(worker, push(a, 2 * step + 1, ones));
            continue;
        }
        for (unsigned i = 0; i < 2; i++) {
            CHECK_OK(worker,
                     psd_push_pull(a, TRANSFER(2 * step + i, .gradient = ones, .values = read[i]),
                                   &op[i]));
        }
        CHECK_OK(worker, psd_push(b, TRANSFER(step, .gradient = ones), &op[2]));
        for (unsigned i = 0; i < 3; i++) {
            CHECK_OK(worker, finish(op[i]));
        }
    }
}

/* If this fails, gradients of a stale table wait for ever behind others: those of rounds, or of
 * another stale table whose values are awaited. */
static void
test_stale_push_behind_a_full_window(void **state)
{
    uint32_t staleness[] = {0, 1};

    (void)state;
    run_all_ways(2, PSI_DEATH_FAIL, push_behind_a_full_window, &staleness[0]);
    run_all_ways(2, PSI_DEATH_WAIT, push_behind_a_full_window, &staleness[0]);
    run_all_ways(2, PSI_DEATH_FAIL, push_behind_a_full_window, &staleness[1]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_before_its_push),
        cmocka_unit_test(test_stale_read_before_its_push),
        cmocka_unit_test(test_read_before_its_push_with_backups),
        cmocka_unit_test(test_read_that_waits_leaves_room),
        cmocka_unit_test(test_read_that_waits_for_another_leaves_room),
        cmocka_unit_test(test_tables_in_different_orders),
        cmocka_unit_test(test_stale_push_behind_a_full_window),
    };

    for (size_t i = 0; i < COUNT; i++) {
        ones[i] = 1;
    }
    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
