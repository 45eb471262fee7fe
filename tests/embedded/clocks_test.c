/*
 * clocks_test.c - tables that are not bulk-synchronous: stale-synchronous, asynchronous, with
 * backup workers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "bed.h"

enum { BIG = 2 * PSD_CHUNK_ELEMENTS + 9 };

#define ADD .rule = RULE(.rule = PSD_RULE_ADD)

/* ---- stale-synchronous -------------------------------------------------------------------- */

static void
run_ahead(struct worker *worker)
{
    const float one = 1;
    float value = 0;
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker,
             psd_table_open(worker->context, TABLE("w", PSD_F32, 1, ADD, .staleness = 2), &table));
    if (worker->rank == 1) {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, push(table, 0, &one));
        return;
    }
    for (uint64_t step = 0; step < 2; step++) {
        CHECK_OK(worker, push_pull(table, step, &one, &value)); /* two steps ahead of worker 1 */
        CHECK(worker, value == (float)(step + 1));
    }
    CHECK_OK(worker, push(table, 2, &one)); /* applied at once; only reading has to wait */
    CHECK_OK(worker, psd_pull(table, TRANSFER(3, .values = &value, .timeout_ms = 200), &op));
    CHECK_STATUS(worker, psd_wait(op, PSD_FOREVER), PSD_ERR_TIMEOUT);
    CHECK_SAYS(worker, psd_op_error(op)->text, "worker 1");
    psd_op_release(op);
    CHECK_OK(worker, psd_pull(table, TRANSFER(3, .values = &value), &op));
    CHECK_STATUS(worker, psd_wait(op, 50), PSD_PENDING);
    bed_next_turn(worker->bed);
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
    CHECK(worker, value == 4);
    psd_op_release(op);
    CHECK_STATUS(worker, push(table, 7, &one), PSD_ERR_STEP);
}

/* If this fails, a fast worker runs further ahead than the table allows,
 * or is held back earlier. */
static void
test_stale_synchronous(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, run_ahead, NULL);
    bed_finish(bed);
}

static void
drift(struct worker *worker)
{
    enum { STEPS = BED_SANITIZED ? 20 : 60 };
    float *gradient = malloc(BIG * sizeof(float));
    float *values = malloc(BIG * sizeof(float));
    psd_table *table;

    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = 1;
    }
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, BIG, ADD, .staleness = 3),
                                    &table));
    for (uint64_t step = 0; step < STEPS; step++) {
        /* Everybody's steps below step + 1 - 3 are in, and all of our own; nobody is more than
         * staleness + 1 steps ahead of us. */
        const uint64_t others = step + 1 > 3 ? step + 1 - 3 : 0;

        CHECK_OK(worker, push_pull(table, step, gradient, values));
        for (size_t i = 0; i < BIG; i++) {
            CHECK(worker, values[i] >= (float)(step + 1 + 2 * others));
            CHECK(worker, values[i] <= (float)(step + 1 + 2 * (step + 1 + 4)));
        }
    }
    CHECK_OK(worker, psd_barrier(worker->context, 15000));
    CHECK_OK(worker, pull(table, STEPS, values));
    for (size_t i = 0; i < BIG; i++) {
        CHECK(worker, values[i] == 3 * STEPS);
    }
    free(gradient);
    free(values);
}

/* If this fails, a stale-synchronous table loses or doubles gradients, or breaks its bound. */
static void
test_stale_synchronous_bounds(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2});

    (void)state;
    bed_run(bed, drift, NULL);
    bed_finish(bed);
}

/* ---- asynchronous ------------------------------------------------------------------------- */

static void
never_wait(struct worker *worker)
{
    enum { PUSHES = BED_SANITIZED ? 15 : 50 };
    float *gradient = malloc(BIG * sizeof(float));
    float *values = malloc(BIG * sizeof(float));
    psd_table *table;
    float least = 0;

    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = 1;
    }
    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, BIG, ADD, .staleness = PSD_STALENESS_UNBOUNDED),
                            &table));
    for (uint64_t i = 0; i < PUSHES; i++) {
        /* any step will do */
        CHECK_OK(worker, push_pull(table, mix(i, worker->rank, 0) % 1000, gradient, values));
        CHECK(worker, values[0] >= (float)(i + 1) && values[0] >= least); /* own pushes are seen */
        least = values[0];
    }
    CHECK_OK(worker, psd_barrier(worker->context, 15000));
    CHECK_OK(worker, pull(table, 0, values));
    for (size_t i = 0; i < BIG; i++) {
        CHECK(worker, values[i] == 4 * PUSHES);
    }
    free(gradient);
    free(values);
}

/* If this fails, an asynchronous table loses or doubles gradients, or waits for somebody. */
static void
test_asynchronous(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 4, .servers = 2, .lanes = 2});

    (void)state;
    bed_run(bed, never_wait, NULL);
    bed_finish(bed);
}

static void
alone(struct worker *worker)
{
    const float one = 1;
    float value;
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, 1, ADD, .staleness = PSD_STALENESS_UNBOUNDED),
                            &table));
    if (worker->rank == 0) {
        for (uint64_t step = 0; step < 20; step++) {
            CHECK_OK(worker, push_pull(table, step, &one, &value));
            CHECK(worker, value == (float)(step + 1));
        }
    }
    bed_meet(worker->bed); /* worker 1 has not pushed anything */
}

/* If this fails, an asynchronous worker waits for one that does nothing. */
static void
test_asynchronous_waits_for_nobody(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, alone, NULL);
    bed_finish(bed);
}

/* ---- backup workers ----------------------------------------------------------------------- */

/* Ranks 0 and 1 do four steps, rank 2 comes late with its step 0. */
static void
one_too_many(struct worker *worker)
{
    float *gradient = malloc(BIG * sizeof(float));
    float *values = calloc(BIG, sizeof(float));
    psd_table *table;

    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = (float)(worker->rank + 1);
    }
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, BIG, ADD, .backup_workers = 1), &table));
    if (worker->rank < 2) {
        for (uint64_t step = 0; step < 4; step++) {
            CHECK_OK(worker, push_pull(table, step, gradient, values));
            for (size_t i = 0; i < BIG; i++) {
                CHECK(worker, values[i] == 1.5f * (float)(step + 1)); /* (1 + 2) / 2 */
            }
        }
    }
    bed_meet(worker->bed);
    if (worker->rank == 2) {
        CHECK_STATUS(worker, push_pull(table, 0, gradient, values), PSD_ERR_DROPPED);
        CHECK_SAYS(worker, psd_last_error()->text, "step 0");
        CHECK(worker, psd_table_step(table) == 4);
    }
    bed_meet(worker->bed);
    if (worker->rank != 1) {
        CHECK_OK(worker, push_pull(table, 4, gradient, values));
        for (size_t i = 0; i < BIG; i++) {
            CHECK(worker, values[i] == 8); /* + (1 + 3) / 2 */
        }
    }
    bed_meet(worker->bed);
    if (worker->rank == 1) {
        CHECK_STATUS(worker, push(table, 4, gradient), PSD_ERR_DROPPED);
        CHECK(worker, psd_table_step(table) == 5);
    }
    free(gradient);
    free(values);
}

/* If this fails, a round with backup workers waits for all, or a dropped worker is not told. */
static void
test_backup_workers(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2});

    (void)state;
    bed_run(bed, one_too_many, NULL);
    bed_finish(bed);
}

/* Everybody at full speed; the contributors of a round must be the same on every chunk. */
static void
race(struct worker *worker)
{
    enum { STEPS = BED_SANITIZED ? 10 : 30 };
    float *gradient = malloc(BIG * sizeof(float));
    float *values = malloc(BIG * sizeof(float));
    psd_table *table;
    unsigned counted = 0;

    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = (float)(1u << 6 * worker->rank); /* counts its rounds: six bits each */
    }
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, BIG, ADD, .reduce = PSD_REDUCE_SUM,
                                          .backup_workers = 1),
                                    &table));
    while (psd_table_step(table) < STEPS) {
        const psd_status status = push_pull(table, psd_table_step(table), gradient, values);

        CHECK(worker, status == PSD_OK || status == PSD_ERR_DROPPED);
        counted += status == PSD_OK;
        for (size_t i = 0; status == PSD_OK && i < BIG; i++) {
            CHECK(worker, values[i] == values[0]);
        }
    }
    bed_meet(worker->bed);
    CHECK_OK(worker, pull(table, STEPS, values));
    CHECK(worker, ((unsigned)values[0] >> 6 * worker->rank & 63) == counted);
    free(gradient);
    free(values);
}

/* If this fails, chunks of one step are made of different workers' gradients, or a worker that was
 * left out believes that it was in. */
static void
test_backup_workers_agree_on_all_chunks(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 4, .servers = 3});

    (void)state;
    bed_run(bed, race, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stale_synchronous),
        cmocka_unit_test(test_stale_synchronous_bounds),
        cmocka_unit_test(test_asynchronous),
        cmocka_unit_test(test_asynchronous_waits_for_nobody),
        cmocka_unit_test(test_backup_workers),
        cmocka_unit_test(test_backup_workers_agree_on_all_chunks),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
