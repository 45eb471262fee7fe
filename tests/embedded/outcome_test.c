/*
 * outcome_test.c - what an operation says about itself is true: "not applied" never of a gradient
 * that counts, however many other requests wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "bed.h"

/* Reads that a server lets wait on one chunk, and some more. */
enum { READS_KEPT = 256, READS = READS_KEPT + 44, REPEATS = 300 };

#define ADD .rule = RULE(.rule = PSD_RULE_ADD)

static void
start_reads(struct worker *worker, psd_table *table, uint64_t step, psd_op *ops[READS],
            float values[READS])
{
    for (size_t i = 0; i < READS; i++) {
        CHECK_OK(worker, psd_pull(table, TRANSFER(step, .values = &values[i]), &ops[i]));
    }
}

/* As many as the server keeps are answered; the others are told so, and nothing else. */
static void
end_reads(struct worker *worker, psd_op *ops[READS], const float values[READS], float expected)
{
    size_t answered = 0;

    for (size_t i = 0; i < READS; i++) {
        const psd_status status = psd_wait(ops[i], PSD_FOREVER);

        CHECK(worker, status == PSD_OK || status == PSD_ERR_BUSY);
        CHECK(worker, status == PSD_OK || psd_op_outcome(ops[i]) == PSD_OUTCOME_NOT_APPLIED);
        CHECK(worker, status != PSD_OK || values[i] == expected);
        answered += status == PSD_OK;
        psd_op_release(ops[i]);
    }
    CHECK(worker, answered >= READS_KEPT);
}

/* ---- reads of a later step, then the push that they wait for ------------------------------- */

static void
push_behind_reads(struct worker *worker)
{
    const float one = 1;
    float values[READS];
    float value = 0;
    psd_op *reads[READS];
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, 1, ADD, .reduce = PSD_REDUCE_SUM), &table));
    if (worker->rank == 0) {
        start_reads(worker, table, 1, reads, values);
        CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = &one), &op));
        CHECK_STATUS(worker, psd_wait(op, 50), PSD_PENDING); /* not refused, in particular */
        bed_next_turn(worker->bed);
        CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
        CHECK(worker, psd_op_outcome(op) == PSD_OUTCOME_DONE);
        psd_op_release(op);
        end_reads(worker, reads, values, 2);
    } else {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, push(table, 0, &one));
    }
    CHECK_OK(worker, push_pull(table, 1, &one, &value));
    CHECK(worker, value == 4);
}

/* If this fails, a gradient counts and its worker is told that it does not. */
static void
test_push_behind_many_reads(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, push_behind_reads, NULL);
    bed_finish(bed);
}

static void
push_pull_behind_reads(struct worker *worker)
{
    const float one = 1;
    float values[READS];
    float value = 0;
    psd_op *reads[READS];
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker,
             psd_table_open(worker->context, TABLE("w", PSD_F32, 1, ADD, .staleness = 1), &table));
    if (worker->rank == 0) {
        CHECK_OK(worker, push(table, 0, &one));
        start_reads(worker, table, 3, reads, values);
        /* Applied at once; only its read has to wait for the other worker. */
        CHECK_OK(worker,
                 psd_push_pull(table, TRANSFER(1, .gradient = &one, .values = &value), &op));
        CHECK_STATUS(worker, psd_wait(op, 50), PSD_PENDING);
        bed_next_turn(worker->bed);
        CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
        CHECK(worker, value == 3);
        psd_op_release(op);
        bed_next_turn(worker->bed);
        end_reads(worker, reads, values, 4);
    } else {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, push(table, 0, &one));
        bed_wait_turn(worker->bed, 2);
        CHECK_OK(worker, push(table, 1, &one));
    }
}

/* If this fails, the same of a table whose gradients are applied one by one. */
static void
test_push_pull_behind_many_reads(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, push_pull_behind_reads, NULL);
    bed_finish(bed);
}

/* ---- a push that is given up and repeated, again and again --------------------------------- */

static void
repeat_a_push(struct worker *worker)
{
    const float one = 1;
    float value = 0;
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, 1, ADD, .reduce = PSD_REDUCE_SUM), &table));
    if (worker->rank == 0) {
        for (unsigned i = 0; i < REPEATS; i++) {
            CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = &one, .timeout_ms = 1), &op));
            CHECK_STATUS(worker, psd_wait(op, PSD_FOREVER), PSD_ERR_TIMEOUT);
            CHECK(worker, i > 0 || psd_op_outcome(op) == PSD_OUTCOME_UNKNOWN);
            psd_op_release(op);
        }
        CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = &one), &op));
        CHECK_STATUS(worker, psd_wait(op, 50), PSD_PENDING);
        bed_next_turn(worker->bed);
        CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
    } else {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, push(table, 0, &one));
    }
    CHECK_OK(worker, pull(table, 1, &value));
    CHECK(worker, value == 2);
}

/* If this fails, a gradient that was given counts, and repeating it says that it does not. */
static void
test_push_repeated_without_end(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, repeat_a_push, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push_behind_many_reads),
        cmocka_unit_test(test_push_pull_behind_many_reads),
        cmocka_unit_test(test_push_repeated_without_end),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
