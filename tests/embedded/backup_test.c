/*
 * backup_test.c - several tables with backup workers: who is in a step is decided for all of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "bed.h"

enum { BIG = 2 * PSD_CHUNK_ELEMENTS + 9, SMALL = 3 };

/* No silence of a test's worker is long: only who was chosen is in. */
enum { PATIENT_MS = 60000 };

/* Two tables that are pushed together. A rank adds 8^rank: the sum tells who was in. */
struct pair {
    psd_table *a;
    psd_table *b;
    float *gradient;
    float *values_a;
    float *values_b;
};

static float
mark_of(uint32_t rank)
{
    return (float)(1u << 3 * rank);
}

static psd_status
open_pair(struct worker *worker, struct pair *pair, uint32_t backup_workers)
{
    psd_status status;

    pair->gradient = malloc(BIG * sizeof(float));
    pair->values_a = calloc(BIG, sizeof(float));
    pair->values_b = calloc(BIG, sizeof(float));
    for (size_t i = 0; i < BIG; i++) {
        pair->gradient[i] = mark_of(worker->rank);
    }
    status = psd_table_open(worker->context,
                            TABLE("a", PSD_F32, BIG, .rule = RULE(.rule = PSD_RULE_ADD),
                                  .reduce = PSD_REDUCE_SUM, .backup_workers = backup_workers),
                            &pair->a);
    if (status == PSD_OK) {
        status = psd_table_open(worker->context,
                                TABLE("b", PSD_F32, SMALL, .rule = RULE(.rule = PSD_RULE_ADD),
                                      .reduce = PSD_REDUCE_SUM, .backup_workers = backup_workers),
                                &pair->b);
    }
    return status;
}

static void
free_pair(struct pair *pair)
{
    free(pair->gradient);
    free(pair->values_a);
    free(pair->values_b);
}

static psd_op *
give(const struct pair *pair, psd_table *table, uint64_t step)
{
    psd_op *op = NULL;

    (void)psd_push_pull(table,
                        TRANSFER(step, .gradient = pair->gradient,
                                 .values = table == pair->a ? pair->values_a : pair->values_b),
                        &op);
    return op;
}

static psd_status
end(psd_op *op)
{
    psd_status status;

    if (op == NULL) {
        return psd_last_error()->status;
    }
    status = psd_wait(op, PSD_FOREVER);
    psd_op_release(op);
    return status;
}

static bool
is_answer(psd_status status)
{
    return status == PSD_OK || status == PSD_ERR_DROPPED;
}

/* One step of both tables, pushed together. Both are at one step then, and `as_one`, where nobody
 * stops between the two, both say the same. */
static psd_status
step_both(struct worker *worker, const struct pair *pair, bool as_one)
{
    const uint64_t step = psd_table_step(pair->a);
    psd_op *a = give(pair, pair->a, step);
    psd_op *b = give(pair, pair->b, step);
    const psd_status status_a = end(a);
    const psd_status status_b = end(b);

    if (!is_answer(status_a) || !is_answer(status_b) || (as_one && status_a != status_b) ||
        psd_table_step(pair->a) != psd_table_step(pair->b)) {
        worker_fail(worker, __FILE__, __LINE__, "step %llu: %s and %s, then %llu and %llu: %s",
                    (unsigned long long)step, psd_status_name(status_a), psd_status_name(status_b),
                    (unsigned long long)psd_table_step(pair->a),
                    (unsigned long long)psd_table_step(pair->b), psd_last_error()->text);
        return PSD_ERR_INTERNAL;
    }
    return status_a;
}

/* ---- in and out ---------------------------------------------------------------------------- */

/* Ranks 0 and 1 do three steps, rank 2 is late with the first of them. Then ranks 0 and 2 are the
 * first with one table, ranks 0 and 1 with the other. */
static void
in_and_out(struct worker *worker)
{
    struct pair pair;
    psd_op *a;
    psd_op *b;

    CHECK_OK(worker, open_pair(worker, &pair, 1));
    for (unsigned i = 0; worker->rank < 2 && i < 3; i++) {
        CHECK_OK(worker, step_both(worker, &pair, true));
    }
    bed_meet(worker->bed);
    if (worker->rank == 2) {
        CHECK_STATUS(worker, end(give(&pair, pair.a, 0)), PSD_ERR_DROPPED);
        CHECK(worker, psd_table_step(pair.a) == 3);
        CHECK(worker, psd_table_step(pair.b) == 3); /* nothing of it was pushed yet */
        CHECK_STATUS(worker, end(give(&pair, pair.b, 4)), PSD_ERR_STEP);
        CHECK_SAYS(worker, psd_last_error()->text, "step 4 given, step 3 is next");
        CHECK_STATUS(worker, end(give(&pair, pair.b, 0)), PSD_ERR_DROPPED);
        CHECK(worker, psd_table_step(pair.b) == 3);
    }
    bed_meet(worker->bed);
    if (worker->rank == 0) {
        a = give(&pair, pair.a, 3);
        b = give(&pair, pair.b, 3);
        bed_next_turn(worker->bed);
        CHECK_OK(worker, end(a));
        CHECK_OK(worker, end(b));
    } else if (worker->rank == 2) {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, end(give(&pair, pair.a, 3)));
        bed_next_turn(worker->bed);
        bed_wait_turn(worker->bed, 3);
        CHECK_OK(worker, end(give(&pair, pair.b, 3)));
    } else {
        bed_wait_turn(worker->bed, 2);
        b = give(&pair, pair.b, 3);
        CHECK_STATUS(worker, psd_wait(b, 100), PSD_PENDING);
        bed_next_turn(worker->bed);
        CHECK_STATUS(worker, end(b), PSD_ERR_DROPPED);
        CHECK(worker, psd_table_step(pair.a) == 4);
        CHECK_STATUS(worker, end(give(&pair, pair.a, 3)), PSD_ERR_DROPPED);
    }
    bed_meet(worker->bed);
    CHECK(worker, psd_table_step(pair.a) == 4 && psd_table_step(pair.b) == 4);
    CHECK_OK(worker, pull(pair.a, 4, pair.values_a));
    CHECK_OK(worker, pull(pair.b, 4, pair.values_b));
    for (size_t i = 0; i < BIG; i++) {
        CHECK(worker, pair.values_a[i] == 4 * mark_of(0) + 3 * mark_of(1) + mark_of(2));
    }
    CHECK(worker, memcmp(pair.values_a, pair.values_b, SMALL * sizeof(float)) == 0);
    free_pair(&pair);
}

/* If this fails, a worker is in a step with one table and out of it with another. */
static void
test_in_with_all_tables_or_none(void **state)
{
    struct bed *bed =
        bed_start(&(struct bed_config){.workers = 3, .servers = 2, .heartbeat_ms = PATIENT_MS});

    (void)state;
    bed_run(bed, in_and_out, NULL);
    bed_finish(bed);
}

/* ---- stragglers ---------------------------------------------------------------------------- */

/* Rank 2 is chosen for step 0 and stops between the two tables. */
static void
stop_between(struct worker *worker)
{
    enum { STEPS = 5 };
    struct pair pair;
    psd_op *a;
    psd_op *b;

    CHECK_OK(worker, open_pair(worker, &pair, 1));
    if (worker->rank == 2) {
        a = give(&pair, pair.a, 0);
        bed_next_turn(worker->bed);
        CHECK_OK(worker, end(a));
        bed_wait_turn(worker->bed, 4); /* the others are far ahead */
        CHECK_STATUS(worker, end(give(&pair, pair.b, 0)), PSD_ERR_DROPPED);
        CHECK(worker, psd_table_step(pair.a) >= STEPS && psd_table_step(pair.b) >= STEPS);
        free_pair(&pair);
        return;
    }
    if (worker->rank == 0) {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, end(give(&pair, pair.a, 0)));
        bed_next_turn(worker->bed);
        CHECK_OK(worker, end(give(&pair, pair.b, 0)));
    } else {
        bed_wait_turn(worker->bed, 2);
        a = give(&pair, pair.a, 0);
        b = give(&pair, pair.b, 0);
        CHECK_STATUS(worker, end(a), PSD_ERR_DROPPED);
        CHECK_OK(worker, end(b)); /* in the place of rank 2 */
    }
    while (psd_table_step(pair.a) < STEPS) {
        (void)step_both(worker, &pair, false);
    }
    bed_next_turn(worker->bed);
    free_pair(&pair);
}

/* If this fails, a worker that stops in the middle of a step stops the job, though others can do
 * without it. */
static void
test_straggler_between_two_tables(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2});

    (void)state;
    bed_run(bed, stop_between, NULL);
    bed_finish(bed);
}

/* Rank 2 stops before a step. Nobody ever has to wait for it. */
static void
stop_before(struct worker *worker)
{
    enum { STEPS = 200 };
    struct pair pair;

    CHECK_OK(worker, open_pair(worker, &pair, 1));
    while (psd_table_step(pair.a) < STEPS && (worker->rank < 2 || psd_table_step(pair.a) < 20)) {
        (void)step_both(worker, &pair, true);
    }
    if (worker->rank < 2) {
        bed_next_turn(worker->bed);
    } else {
        bed_wait_turn(worker->bed, 2);
        CHECK_STATUS(worker, step_both(worker, &pair, true), PSD_ERR_DROPPED);
        CHECK(worker, psd_table_step(pair.a) == STEPS);
    }
    free_pair(&pair);
}

/* If this fails, a straggler blocks a job that has a worker to spare. */
static void
test_straggler_with_two_tables(void **state)
{
    struct bed *bed =
        bed_start(&(struct bed_config){.workers = 3, .servers = 2, .heartbeat_ms = PATIENT_MS});

    (void)state;
    bed_run(bed, stop_before, NULL);
    bed_finish(bed);
}

/* ---- deaths -------------------------------------------------------------------------------- */

/* Workers from `*user` on die, one by one, between their two tables; the others go on. */
static void
outlive(struct worker *worker)
{
    enum { STEPS = BED_SANITIZED ? 40 : 120 };
    const uint32_t survivors = *(const uint32_t *)worker->user;
    const uint64_t last = worker->rank < survivors ? STEPS : 5 + 4 * worker->rank;
    struct pair pair;

    CHECK_OK(worker, open_pair(worker, &pair, 2));
    while (psd_table_step(pair.a) < last) {
        (void)step_both(worker, &pair, false);
        CHECK(worker, worker->failure[0] == '\0');
    }
    if (last < STEPS) {
        (void)give(&pair, pair.a, psd_table_step(pair.a));
        psd_abandon(worker->context);
        worker->context = NULL;
    }
    free_pair(&pair);
}

static void
run_deaths(uint32_t survivors)
{
    struct bed *bed = bed_start(&(struct bed_config){
        .workers = 5, .servers = 2, .policy = PSI_DEATH_CONTINUE, .flat = true});

    bed_run(bed, outlive, &survivors);
    bed_finish(bed);
}

/* If this fails, a job with as many deaths as backup workers hangs. */
static void
test_as_many_deaths_as_spares(void **state)
{
    (void)state;
    run_deaths(3);
}

/* If this fails, a job that goes on hangs when more workers have died than it had to spare. */
static void
test_more_deaths_than_spares(void **state)
{
    (void)state;
    run_deaths(2);
}

/* ---- other numbers, other times ------------------------------------------------------------ */

static void
open_two_kinds(struct worker *worker)
{
    const bool goes_on = *(const bool *)worker->user;
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context, TABLE("a", PSD_F32, 1, .backup_workers = 1), &table));
    if (!goes_on) {
        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE("b", PSD_F32, 1, .backup_workers = 2), &table));
        return;
    }
    CHECK_STATUS(
        worker,
        psd_table_open(worker->context, TABLE("b", PSD_F32, 1, .backup_workers = 2), &table),
        PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "backup_workers is 2, and 1 in table a");
    CHECK_SAYS(worker, psd_last_error()->text, "the same number");
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("c", PSD_F32, 1), &table));
}

/* If this fails, tables that may wait for each other are taken, or others are not. */
static void
test_two_numbers_of_backup_workers(void **state)
{
    static const enum psi_death_policy policies[] = {PSI_DEATH_CONTINUE, PSI_DEATH_FAIL};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .policy = policies[i]});
        bool goes_on = policies[i] == PSI_DEATH_CONTINUE;

        bed_run(bed, open_two_kinds, &goes_on);
        bed_finish(bed);
    }
}

static void
open_late(struct worker *worker)
{
    struct pair pair;
    psd_table *late;
    float value = 0;

    CHECK_OK(worker, open_pair(worker, &pair, 1));
    for (unsigned i = 0; worker->rank < 2 && i < 2; i++) {
        CHECK_OK(worker, step_both(worker, &pair, true));
    }
    bed_meet(worker->bed);
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("late", PSD_F32, 1, .rule = RULE(.rule = PSD_RULE_ADD),
                                          .reduce = PSD_REDUCE_SUM, .backup_workers = 1),
                                    &late));
    CHECK(worker, psd_table_step(late) == 2);
    bed_meet(worker->bed);
    if (worker->rank < 2) {
        CHECK_OK(worker, step_both(worker, &pair, true));
        CHECK_OK(worker, push_pull(late, 2, pair.gradient, &value));
        CHECK(worker, value == mark_of(0) + mark_of(1));
        CHECK(worker, psd_table_step(late) == 3);
    }
    bed_meet(worker->bed);
    free_pair(&pair);
}

/* If this fails, a table that is opened in the middle of a job waits for steps that are over. */
static void
test_table_opened_late(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .heartbeat_ms = PATIENT_MS});

    (void)state;
    bed_run(bed, open_late, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_with_all_tables_or_none),
        cmocka_unit_test(test_straggler_between_two_tables),
        cmocka_unit_test(test_straggler_with_two_tables),
        cmocka_unit_test(test_as_many_deaths_as_spares),
        cmocka_unit_test(test_more_deaths_than_spares),
        cmocka_unit_test(test_two_numbers_of_backup_workers),
        cmocka_unit_test(test_table_opened_late),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
