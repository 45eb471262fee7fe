/*
 * transfer_test.c - push, pull and push_pull: what moves, what is refused, how a deadline ends it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "store/half.h"

enum { CHUNK = PSD_CHUNK_ELEMENTS, BIG = 3 * CHUNK + 5 };

#define ADD .rule = RULE(.rule = PSD_RULE_ADD)

/* ---- values ------------------------------------------------------------------------------- */

static void
mean_and_sum(struct worker *worker)
{
    const float gradient[2] = {(float)(worker->rank + 1), -4.0f * (float)worker->rank};
    psd_table *mean;
    psd_table *sum;
    psd_table *reduced;
    float values[2] = {9, 9};

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("mean", PSD_F32, 2, ADD), &mean));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("sum", PSD_F32, 2, ADD, .reduce = PSD_REDUCE_SUM), &sum));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("reduced", PSD_F32, 2, .use = PSD_USE_SUM), &reduced));
    for (uint64_t step = 0; step < 3; step++) {
        const float n = (float)(step + 1);

        CHECK_OK(worker, push_pull(mean, step, gradient, values));
        CHECK(worker, values[0] == n * 2 && values[1] == n * -4);
        CHECK_OK(worker, push(sum, step, gradient));
        CHECK_OK(worker, pull(sum, step + 1, values));
        CHECK(worker, values[0] == n * 6 && values[1] == n * -12);
        CHECK_OK(worker, push_pull(reduced, step, gradient, values));
        CHECK(worker, values[0] == 2 && values[1] == -4);
    }
}

/* If this fails, the servers' arithmetic is not what the header says. */
static void
test_mean_sum_and_reduce(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2});

    (void)state;
    bed_run(bed, mean_and_sum, NULL);
    bed_finish(bed);
}

static void
misaligned(struct worker *worker)
{
    const psd_dtype dtypes[] = {PSD_F32, PSD_F64, PSD_F16};
    const size_t bytes[] = {4, 8, 2};

    for (size_t i = 0; i < 3; i++) {
        const size_t total = BIG * bytes[i];
        uint8_t *gradient = malloc(total + 8);
        uint8_t *values = malloc(total + 8);
        char name[8];
        psd_table *table;

        snprintf(name, sizeof(name), "w%zu", i);
        CHECK_OK(worker, psd_table_open(worker->context, TABLE(name, dtypes[i], BIG, ADD), &table));
        awkward(dtypes[i], 1, 0, 0, BIG, gradient + 3);
        memset(values, 0x55, total + 8);
        CHECK_OK(worker, push_pull(table, 0, gradient + 3, values + 1));
        CHECK(worker, values[0] == 0x55 && values[total + 1] == 0x55);
        for (size_t at = 0; at < total; at++) { /* -0 + 0 is +0: look past the sign of zeros */
            CHECK(worker, ((values[at + 1] ^ gradient[at + 3]) & 0x7f) == 0);
        }
        free(gradient);
        free(values);
    }
}

/* If this fails, frameworks whose tensors are not aligned crash or get other numbers. */
static void
test_any_alignment(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.servers = 2, .lanes = 2});

    (void)state;
    bed_run(bed, misaligned, NULL);
    bed_finish(bed);
}

/* ---- ranges ------------------------------------------------------------------------------- */

static psd_status
range_op(psd_table *table, uint64_t first, uint64_t count, const float *gradient, float *values)
{
    psd_op *op = NULL;
    psd_status status = psd_push_pull(
        table, TRANSFER(0, .first = first, .count = count, .gradient = gradient, .values = values),
        &op);

    if (status == PSD_OK) {
        status = psd_wait(op, PSD_FOREVER);
        psd_op_release(op);
    }
    return status;
}

static void
ranges(struct worker *worker)
{
    float *gradient = malloc(BIG * sizeof(float));
    float *values = calloc(BIG, sizeof(float));
    float one = 1;
    psd_table *table;

    awkward(PSD_F32, 0, 0, 0, BIG, gradient);
    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = gradient[i] == 0 ? 1 : gradient[i];
    }
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, BIG, ADD), &table));
    CHECK_STATUS(worker, range_op(table, 1, 0, &one, &one), PSD_ERR_INVALID);
    CHECK_STATUS(worker, range_op(table, CHUNK - 1, 1, &one, &one), PSD_ERR_INVALID);
    CHECK_STATUS(worker, range_op(table, 0, CHUNK - 1, &one, &one), PSD_ERR_INVALID);
    CHECK_STATUS(worker, range_op(table, 0, BIG + 1, gradient, values), PSD_ERR_INVALID);
    CHECK_STATUS(worker, range_op(table, 4 * CHUNK, 1, &one, &one), PSD_ERR_INVALID);
    CHECK_STATUS(worker, range_op(table, 0, UINT64_MAX, gradient, values), PSD_ERR_INVALID);
    CHECK_STATUS(worker, range_op(table, CHUNK, UINT64_MAX - CHUNK + 1, gradient, values),
                 PSD_ERR_INVALID);
    CHECK_STATUS(worker, range_op(table, UINT64_MAX - CHUNK + 1, CHUNK, gradient, values),
                 PSD_ERR_INVALID);
    CHECK(worker, psd_table_step(table) == 0);

    CHECK_OK(worker, range_op(table, 2 * CHUNK, 0, gradient + 2 * CHUNK, values + 2 * CHUNK));
    CHECK(worker, psd_table_step(table) == 0);
    CHECK_OK(worker, range_op(table, 0, CHUNK, gradient, values));
    CHECK_OK(worker, range_op(table, CHUNK, CHUNK, gradient + CHUNK, values + CHUNK));
    CHECK(worker, memcmp(values, gradient, BIG * sizeof(float)) == 0);
    CHECK(worker, psd_table_step(table) == 1);
    CHECK_STATUS(worker, range_op(table, CHUNK, CHUNK, gradient, values), PSD_ERR_STEP);
    memset(values, 0, BIG * sizeof(float));
    CHECK_OK(worker, pull(table, 1, values));
    CHECK(worker, memcmp(values, gradient, BIG * sizeof(float)) == 0);
    free(gradient);
    free(values);
}

/* If this fails, streaming a tensor block by block loses, doubles or overwrites something. */
static void
test_ranges_on_and_off_the_grid(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.servers = 3});

    (void)state;
    bed_run(bed, ranges, NULL);
    bed_finish(bed);
}

/* ---- arguments ---------------------------------------------------------------------------- */

static void
bad_arguments(struct worker *worker)
{
    const float gradient[4] = {1, 2, 3, 4};
    struct psd_transfer odd = *TRANSFER(0, .gradient = gradient);
    float values[4];
    psd_op *op = NULL;
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 4, ADD), &table));
    CHECK_STATUS(worker, psd_push(table, TRANSFER(0), &op), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_pull(table, TRANSFER(0), &op), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_push_pull(table, TRANSFER(0, .gradient = gradient), &op),
                 PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_push_pull(table, TRANSFER(0, .values = values), &op), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_push(table, TRANSFER(0, .gradient = gradient, .flags = 1u << 31), &op),
                 PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_push(table, TRANSFER(0, .gradient = gradient, .priority = 256), &op),
                 PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_push(table, TRANSFER(0, .gradient = gradient, .priority = -1), &op),
                 PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_push(table, NULL, &op), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_push(table, TRANSFER(0, .gradient = gradient), NULL), PSD_ERR_INVALID);
    odd.struct_size = 0;
    CHECK_STATUS(worker, psd_push(table, &odd, &op), PSD_ERR_INVALID);
    CHECK(worker, op == NULL && psd_table_step(table) == 0);
    odd.struct_size = offsetof(struct psd_transfer, first); /* an older program */
    odd.first = 77;
    CHECK_OK(worker, psd_push(table, &odd, &op));
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
    psd_op_release(op);
}

/* If this fails, a wrong call does something instead of nothing. */
static void
test_wrong_arguments_change_nothing(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, bad_arguments, NULL);
    bed_finish(bed);
}

static void
wrong_steps(struct worker *worker)
{
    const float gradient[1] = {1};
    float value = 0;
    psd_table *table;
    psd_table *free_table;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, ADD), &table));
    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("a", PSD_F32, 1, ADD, .staleness = PSD_STALENESS_UNBOUNDED),
                            &free_table));
    CHECK_STATUS(worker, push(table, 7, gradient), PSD_ERR_STEP);
    CHECK_SAYS(worker, psd_last_error()->text, "7");
    CHECK_SAYS(worker, psd_last_error()->text, "step 0 is next");
    CHECK_OK(worker, push(table, 0, gradient));
    CHECK_STATUS(worker, push(table, 0, gradient), PSD_ERR_STEP);
    CHECK_SAYS(worker, psd_last_error()->text, "step 1 is next");
    CHECK(worker, psd_table_step(table) == 1);
    CHECK_OK(worker, push_pull(table, 1, gradient, &value));
    CHECK(worker, value == 2);
    CHECK_OK(worker, push(free_table, 7, gradient));
    CHECK_OK(worker, push(free_table, 7, gradient));
    CHECK_OK(worker, push_pull(free_table, 3, gradient, &value));
    CHECK(worker, value == 3);
}

/* If this fails, a step pushed twice counts twice, or one left out is not noticed. */
static void
test_wrong_step_is_refused(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, wrong_steps, NULL);
    bed_finish(bed);
}

/* ---- order and priority ------------------------------------------------------------------- */

static void
pipeline(struct worker *worker)
{
    enum { STEPS = BED_SANITIZED ? 4 : 12 };
    float *gradients = malloc(STEPS * (size_t)BIG * sizeof(float));
    float *values = malloc(STEPS * (size_t)BIG * sizeof(float));
    psd_op *ops[STEPS];
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, BIG, ADD, .reduce = PSD_REDUCE_SUM), &table));
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < BIG; i++) {
            gradients[step * BIG + i] = (float)(step + i % 8);
        }
        CHECK_OK(worker, psd_push_pull(table,
                                       TRANSFER(step, .gradient = gradients + step * BIG,
                                                .values = values + step * BIG),
                                       &ops[step]));
    }
    for (size_t step = STEPS; step > 0; step--) {
        CHECK_OK(worker, psd_wait(ops[step - 1], PSD_FOREVER));
        psd_op_release(ops[step - 1]);
    }
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < BIG; i++) {
            const size_t n = step + 1;

            CHECK(worker, values[step * BIG + i] == (float)(2 * (n * (n - 1) / 2 + n * (i % 8))));
        }
    }
    free(gradients);
    free(values);
}

/* If this fails, operations of one table overtake each other, or a pull sees the wrong step. */
static void
test_many_steps_in_flight(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, pipeline, NULL);
    bed_finish(bed);
}

struct finish_order {
    _Atomic int next;
    int bulk;
    int urgent;
};

static void
note_bulk(psd_op *op, psd_status status, void *user)
{
    struct finish_order *order = user;

    (void)op;
    order->bulk = status == PSD_OK ? ++order->next : -1;
}

static void
note_urgent(psd_op *op, psd_status status, void *user)
{
    struct finish_order *order = user;

    (void)op;
    order->urgent = status == PSD_OK ? ++order->next : -1;
}

/* A thread that loses its core between two calls gives the first one a head start:
 * so a few tries. */
static void
overtake(struct worker *worker)
{
    const uint64_t count = (BED_SANITIZED ? 50 : 200) * (uint64_t)CHUNK;
    float *gradient = calloc(count, sizeof(float));
    const float small[1] = {1};
    struct finish_order orders[10] = {0};
    bool overtaken = false;
    psd_table *bulk;
    psd_table *urgent;
    psd_op *ops[2];

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("bulk", PSD_F32, count), &bulk));
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("urgent", PSD_F32, 1, .priority = 200),
                                    &urgent));
    for (uint64_t step = 0; step < 10; step++) {
        CHECK_OK(worker,
                 psd_push(bulk,
                          TRANSFER(step, .gradient = gradient, .flags = PSD_TRANSFER_CHECKED,
                                   .priority = 1, .done = note_bulk, .user = &orders[step]),
                          &ops[0]));
        CHECK_OK(worker, psd_push(urgent,
                                  TRANSFER(step, .gradient = small, .done = note_urgent,
                                           .user = &orders[step]),
                                  &ops[1]));
        CHECK_OK(worker, psd_wait(ops[0], PSD_FOREVER));
        CHECK_OK(worker, psd_wait(ops[1], PSD_FOREVER));
    }
    CHECK_OK(worker, psd_close(worker->context)); /* after it no callback runs */
    worker->context = NULL;
    for (unsigned i = 0; i < 10; i++) {
        overtaken = overtaken || (orders[i].urgent == 1 && orders[i].bulk == 2);
    }
    CHECK(worker, overtaken);
    free(gradient);
}

/* If this fails, an urgent tensor waits behind megabytes of others. */
static void
test_priority_overtakes(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, overtake, NULL);
    bed_finish(bed);
}

/* ---- deadlines ---------------------------------------------------------------------------- */

static void
late_worker(struct worker *worker)
{
    float *gradient = malloc(BIG * sizeof(float));
    float *values = malloc(BIG * sizeof(float));
    psd_op *op;
    psd_table *table;

    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = (float)(worker->rank + 1);
    }
    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, BIG, ADD, .reduce = PSD_REDUCE_SUM), &table));
    if (worker->rank == 0) {
        CHECK_OK(worker,
                 psd_push(table, TRANSFER(0, .gradient = gradient, .timeout_ms = 300), &op));
        CHECK_STATUS(worker, psd_wait(op, PSD_FOREVER), PSD_ERR_TIMEOUT);
        CHECK_SAYS(worker, psd_op_error(op)->text, "worker 1");
        CHECK_SAYS(worker, psd_op_error(op)->text, "table w step 0");
        CHECK(worker, psd_op_outcome(op) == PSD_OUTCOME_UNKNOWN);
        psd_op_release(op);
        memset(gradient, 0xff, BIG * sizeof(float)); /* ours again: nobody reads it any more */
        CHECK_OK(worker, psd_pull(table, TRANSFER(1, .values = values, .timeout_ms = 300), &op));
        CHECK_STATUS(worker, psd_wait(op, PSD_FOREVER), PSD_ERR_TIMEOUT);
        CHECK_SAYS(worker, psd_op_error(op)->text, "worker 1");
        CHECK(worker, psd_op_outcome(op) == PSD_OUTCOME_NOT_APPLIED);
        psd_op_release(op);
        bed_next_turn(worker->bed);
    }
    bed_wait_turn(worker->bed, 1);
    if (worker->rank == 1) {
        CHECK_OK(worker, push(table, 0, gradient));
    }
    CHECK_OK(worker, pull(table, 1, values));
    for (size_t i = 0; i < BIG; i++) {
        CHECK(worker, values[i] == 3);
    }
    free(gradient);
    free(values);
}

/* If this fails, a round that cannot close waits for ever, names nobody, or keeps the memory. */
static void
test_deadline_names_who_is_missing(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, late_worker, NULL);
    bed_finish(bed);
}

static void
give_up_in_the_middle(struct worker *worker)
{
    const bool *flat = worker->user;
    const uint64_t count = 64 * (uint64_t)CHUNK;
    float *gradient = malloc(count * sizeof(float));
    psd_op *op;
    psd_table *table;

    awkward(PSD_F32, worker->rank, 0, 0, count, gradient);
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, count), &table));
    if (worker->rank == 0) {
        CHECK_OK(worker,
                 psd_push(table, TRANSFER(0, .gradient = gradient, .timeout_ms = 200), &op));
        CHECK_STATUS(worker, psd_wait(op, PSD_FOREVER), PSD_ERR_TIMEOUT);
        CHECK(worker, psd_op_outcome(op) == PSD_OUTCOME_UNKNOWN);
        CHECK_SAYS(worker, psd_op_error(op)->text, "of 64 chunks unanswered");
        CHECK_SAYS(worker, psd_op_error(op)->text, *flat ? "server " : "worker");
    }
    free(gradient); /* with most of it never sent */
    bed_meet(worker->bed);
}

/* If this fails, a push that ran out of time goes on reading freed memory (address sanitizer). */
static void
test_memory_is_free_after_a_timeout(void **state)
{
    (void)state;
    for (unsigned i = 0; i < (bed_lends() ? 2 : 1); i++) {
        bool flat = i == 0; /* else one may push for both */
        struct bed *bed = bed_start(&(struct bed_config){
            .workers = 2, .lanes = 2, .pool_bytes = 1 << 20, .flat = flat, .elsewhere = !flat});

        bed_run(bed, give_up_in_the_middle, &flat);
        bed_finish(bed);
    }
}

static void
pull_in_the_middle(struct worker *worker)
{
    const uint64_t count = 64 * (uint64_t)CHUNK;
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, count), &table));
    for (unsigned i = 0; i < 40; i++) {
        float *values = malloc(count * sizeof(float));
        psd_op *op;
        psd_status status;

        CHECK_OK(worker,
                 psd_pull(table, TRANSFER(0, .values = values, .timeout_ms = 1 + i % 4), &op));
        status = psd_wait(op, PSD_FOREVER);
        CHECK(worker, status == PSD_OK || status == PSD_ERR_TIMEOUT);
        psd_op_release(op);
        free(values);
    }
    {
        float *values = malloc(count * sizeof(float));

        memset(values, 1, count * sizeof(float));
        CHECK_OK(worker, pull(table, 0, values));
        for (uint64_t i = 0; i < count; i++) {
            CHECK(worker, values[i] == 0);
        }
        free(values);
    }
}

/* If this fails, a value arriving after its deadline is written into freed memory, or a cut pull
 * spoils the connection for later ones. */
static void
test_pulls_cut_short(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1, .lanes = 2});

    (void)state;
    bed_run(bed, pull_in_the_middle, NULL);
    bed_finish(bed);
}

/* ---- numbers that are not finite ---------------------------------------------------------- */

static void
reject_nan(struct worker *worker)
{
    float *gradient = malloc(BIG * sizeof(float));
    float *values = calloc(BIG, sizeof(float));
    psd_op *op = NULL;
    psd_table *table;

    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = 1;
    }
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("weights", PSD_F32, BIG, ADD), &table));
    if (worker->rank == 1) {
        gradient[2 * CHUNK + 3] = INFINITY;
        CHECK_STATUS(worker, psd_push(table, TRANSFER(0, .gradient = gradient), &op),
                     PSD_ERR_NOT_FINITE);
        CHECK_SAYS(worker, psd_last_error()->text, "weights");
        CHECK_SAYS(worker, psd_last_error()->text, "worker 1");
        CHECK_SAYS(worker, psd_last_error()->text, "index 131075");
        gradient[2 * CHUNK + 3] = NAN;
        CHECK_STATUS(worker,
                     psd_push_pull(table,
                                   TRANSFER(0, .first = 2 * CHUNK, .gradient = gradient + 2 * CHUNK,
                                            .values = values),
                                   &op),
                     PSD_ERR_NOT_FINITE);
        CHECK_SAYS(worker, psd_last_error()->text, "index 131075");
        CHECK(worker, op == NULL && psd_table_step(table) == 0);
        gradient[2 * CHUNK + 3] = 1;
    }
    CHECK_OK(worker, push_pull(table, 0, gradient, values));
    for (size_t i = 0; i < BIG; i++) {
        CHECK(worker, values[i] == 1);
    }
    free(gradient);
    free(values);
}

/* If this fails, a NaN gets into the model, or a refused one stops the step of the others. */
static void
test_not_finite_is_rejected(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2});

    (void)state;
    bed_run(bed, reject_nan, NULL);
    bed_finish(bed);
}

static void
skip_nan(struct worker *worker)
{
    float gradient[3] = {1, 2, (float)worker->rank};
    float values[3];
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, 3, ADD, .nan_policy = PSD_NAN_SKIP), &table));
    gradient[1] = worker->rank == 1 ? NAN : 2;
    CHECK_OK(worker, push_pull(table, 0, gradient, values));
    CHECK(worker, values[0] == 1 && values[1] == 2 && values[2] == 1); /* (0 + 2) / 2 */
    gradient[1] = NAN;
    CHECK_OK(worker, push_pull(table, 1, gradient, values)); /* nobody gives anything */
    CHECK(worker, values[0] == 1 && values[1] == 2 && values[2] == 1);
    gradient[1] = 2;
    CHECK_OK(worker, push_pull(table, 2, gradient, values));
    CHECK(worker, values[0] == 2 && values[1] == 4 && values[2] == 2);
}

/* If this fails, a skipped gradient adds something, divides the mean, or stops the round. */
static void
test_not_finite_is_skipped(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3});

    (void)state;
    bed_run(bed, skip_nan, NULL);
    bed_finish(bed);
}

static void
allow_nan(struct worker *worker)
{
    const uint32_t canonical = 0x7fc00000;
    const uint32_t strange = 0xffc12345;
    float gradient[3] = {1, 1, worker->rank == 0 ? INFINITY : 1};
    float values[3];
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, 3, ADD, .nan_policy = PSD_NAN_ALLOW), &table));
    if (worker->rank == 1) {
        memcpy(&gradient[1], &strange, sizeof(strange));
    }
    CHECK_OK(worker, push_pull(table, 0, gradient, values));
    CHECK(worker, values[0] == 1 && isinf(values[2]));
    CHECK(worker, memcmp(&values[1], &canonical, sizeof(canonical)) == 0);
}

/* If this fails, programs that want NaN and infinity to pass do not get them. */
static void
test_not_finite_is_allowed(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, allow_nan, NULL);
    bed_finish(bed);
}

static void
overflow(struct worker *worker)
{
    const float gradient[2] = {1, 3e38f};
    float values[2];
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("weights", PSD_F32, 2), &table));
    CHECK_STATUS(worker, push_pull(table, 0, gradient, values), PSD_ERR_NOT_FINITE);
    CHECK_SAYS(worker, psd_last_error()->text, "weights");
    CHECK_SAYS(worker, psd_last_error()->text, "index 1");
    CHECK_STATUS(worker, push(table, 1, gradient), PSD_ERR_NOT_FINITE); /* the job is over */
    psd_abandon(worker->context);
    worker->context = NULL;
}

/* If this fails, finite gradients that overflow in the sum spoil the model in silence. */
static void
test_overflowing_sum_fails_the_job(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, overflow, NULL);
    bed_finish_failed(bed, 74);
}

/* Two gradients that f16 holds, and whose sum it does not. */
static void
overflow_in_f16(struct worker *worker)
{
    const psd_use use = *(const psd_use *)worker->user;
    const uint16_t gradient[2] = {0, f16_from_float(40000)};
    uint16_t values[2] = {0};
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("narrow", PSD_F16, 2, .use = use, .reduce = PSD_REDUCE_SUM,
                                  .rule = RULE(.rule = use == PSD_USE_UPDATE ? PSD_RULE_ADD : 0)),
                            &table));
    CHECK_STATUS(worker, push_pull(table, 0, gradient, values), PSD_ERR_NOT_FINITE);
    CHECK_SAYS(worker, psd_last_error()->text, "narrow");
    CHECK_SAYS(worker, psd_last_error()->text, "index 1");
    CHECK_SAYS(worker, psd_last_error()->text, "f16");
    psd_abandon(worker->context);
    worker->context = NULL;
}

/* If this fails, a sum that is finite in f32 is delivered as an infinity of f16. */
static void
test_sum_too_large_for_its_type_fails_the_job(void **state)
{
    static psd_use uses[] = {PSD_USE_SUM, PSD_USE_UPDATE};

    (void)state;
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

        bed_run(bed, overflow_in_f16, &uses[i]);
        bed_finish_failed(bed, 74);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_sum_and_reduce),
        cmocka_unit_test(test_any_alignment),
        cmocka_unit_test(test_ranges_on_and_off_the_grid),
        cmocka_unit_test(test_wrong_arguments_change_nothing),
        cmocka_unit_test(test_wrong_step_is_refused),
        cmocka_unit_test(test_many_steps_in_flight),
        cmocka_unit_test(test_priority_overtakes),
        cmocka_unit_test(test_deadline_names_who_is_missing),
        cmocka_unit_test(test_memory_is_free_after_a_timeout),
        cmocka_unit_test(test_pulls_cut_short),
        cmocka_unit_test(test_not_finite_is_rejected),
        cmocka_unit_test(test_not_finite_is_skipped),
        cmocka_unit_test(test_not_finite_is_allowed),
        cmocka_unit_test(test_overflowing_sum_fails_the_job),
        cmocka_unit_test(test_sum_too_large_for_its_type_fails_the_job),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
