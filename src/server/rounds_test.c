/*
 * rounds_test.c - gradients of several workers meet in a round: when it closes, what comes out, and
 * what each of them is told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "server/lane_bed.h"

enum { TABLE = 1, ELEMENTS = 4, BYTES = ELEMENTS * sizeof(float) };

/* Gradients are added to what was there: easy to read in a value. */
static void
open_with(struct lane_bed *bed, uint64_t elements, uint32_t staleness, psd_reduce reduce)
{
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};

    open_table(bed, TABLE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "w",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {elements},
                                        .reduce = reduce,
                                        .rule = &rule,
                                        .staleness = staleness});
}

static struct lane_bed *
start(uint32_t workers, uint32_t staleness)
{
    struct lane_bed *bed = lane_bed_start(workers, PSI_DEATH_WAIT);

    open_with(bed, ELEMENTS, staleness, PSD_REDUCE_SUM);
    return bed;
}

static void
push_as(struct lane_bed *bed, struct peer *peer, uint8_t type, uint64_t step, uint32_t request,
        float value)
{
    const float gradient[ELEMENTS] = {value, value, value, value};
    const struct psi_frame frame = {.type = type,
                                    .dtype = PSD_F32,
                                    .seq = request,
                                    .step = step,
                                    .table = TABLE,
                                    .request = request};

    say(bed, peer, frame, gradient, BYTES);
}

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, uint32_t request, float value)
{
    push_as(bed, bed->worker[rank], PSI_FRAME_PUSH, step, request, value);
}

/* Has the request been answered, and how? PSD_PENDING: it has not. */
static psd_status
answer(struct lane_bed *bed, uint32_t rank, uint32_t request)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_ACK);

    if (heard == NULL) {
        return PSD_PENDING;
    }
    assert_int_equal(heard->frame.request, request);
    return (psd_status)heard->frame.status;
}

static void
ask(struct lane_bed *bed, uint32_t rank, uint32_t chunk, uint64_t step)
{
    say(bed, bed->worker[rank],
        (struct psi_frame){
            .type = PSI_FRAME_PULL, .table = TABLE, .chunk = chunk, .step = step, .request = 99},
        NULL, 0);
}

/* The first number of the next VALUE; NAN: there is none. */
static float
value(struct lane_bed *bed, uint32_t rank)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_VALUE);
    float first;

    if (heard == NULL) {
        return NAN;
    }
    assert_true(heard->frame.payload_bytes >= BYTES);
    memcpy(&first, heard->body, sizeof(first));
    return first;
}

static float
pull(struct lane_bed *bed, uint32_t rank, uint64_t step)
{
    ask(bed, rank, 0, step);
    return value(bed, rank);
}

/* ---- when it closes ------------------------------------------------------------------------ */

/* If this fails, a step goes on without somebody's gradient, or waits when all are there. */
static void
test_a_round_closes_with_the_last_gradient(void **state)
{
    struct lane_bed *bed = start(3, 0);

    (void)state;
    push(bed, 2, 0, 1, 4);
    push(bed, 0, 0, 1, 1);
    assert_int_equal(answer(bed, 0, 1), PSD_PENDING);
    assert_int_equal(answer(bed, 2, 1), PSD_PENDING);
    push(bed, 1, 0, 1, 2);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(answer(bed, rank, 1), PSD_OK);
    }
    assert_true(pull(bed, 0, 1) == 7);
    lane_bed_stop(bed);
}

/* If this fails, a read of a step is answered with an earlier version, or never. */
static void
test_a_read_waits_for_its_version(void **state)
{
    struct lane_bed *bed = start(2, 0);

    (void)state;
    assert_true(pull(bed, 0, 0) == 0);
    push(bed, 0, 0, 1, 1);
    assert_true(isnan(pull(bed, 0, 1)));
    push(bed, 1, 0, 1, 2);
    assert_true(value(bed, 0) == 3);
    lane_bed_stop(bed);
}

/* If this fails, push_pull brings the value of before the step, or brings it before all have
 * given. */
static void
test_push_pull_brings_the_new_value(void **state)
{
    struct lane_bed *bed = start(2, 0);

    (void)state;
    push_as(bed, bed->worker[0], PSI_FRAME_PUSH_PULL, 0, 1, 1);
    assert_true(isnan(value(bed, 0)));
    push_as(bed, bed->worker[1], PSI_FRAME_PUSH_PULL, 0, 1, 2);
    assert_true(value(bed, 0) == 3);
    assert_true(value(bed, 1) == 3);
    lane_bed_stop(bed);
}

/* If this fails, a slow chunk holds up the others of its table. */
static void
test_chunks_have_rounds_of_their_own(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);
    float *gradient = calloc(PSD_CHUNK_ELEMENTS, sizeof(*gradient));
    struct psi_frame frame = {
        .type = PSI_FRAME_PUSH, .dtype = PSD_F32, .table = TABLE, .chunk = 1, .request = 1};

    (void)state;
    assert_non_null(gradient);
    open_with(bed, 2 * PSD_CHUNK_ELEMENTS, 0, PSD_REDUCE_SUM);
    gradient[0] = 5;
    say(bed, bed->worker[0], frame, gradient, PSD_CHUNK_ELEMENTS * sizeof(*gradient));
    frame.chunk = 0;
    frame.request = 2;
    say(bed, bed->worker[0], frame, gradient, PSD_CHUNK_ELEMENTS * sizeof(*gradient));
    frame.chunk = 1;
    frame.request = 1;
    say(bed, bed->worker[1], frame, gradient, PSD_CHUNK_ELEMENTS * sizeof(*gradient));
    assert_int_equal(answer(bed, 0, 1), PSD_OK);
    assert_int_equal(answer(bed, 0, 2), PSD_PENDING);
    ask(bed, 0, 1, 1);
    assert_true(value(bed, 0) == 10);
    free(gradient);
    lane_bed_stop(bed);
}

/* If this fails, a worker that runs ahead adds to a step that others are still in. */
static void
test_a_step_too_far_ahead_is_refused(void **state)
{
    struct lane_bed *bed = start(2, 0);

    (void)state;
    push(bed, 0, 1, 1, 1);
    assert_int_equal(answer(bed, 0, 1), PSD_ERR_STEP);
    push(bed, 0, 0, 2, 1);
    push(bed, 1, 0, 1, 2);
    assert_int_equal(answer(bed, 0, 2), PSD_OK);
    assert_true(pull(bed, 0, 1) == 3);
    lane_bed_stop(bed);
}

/* ---- each exactly once --------------------------------------------------------------------- */

/* If this fails, a push that is repeated while its round is open counts twice, or is answered
 * before the round has closed. */
static void
test_a_repeated_push_counts_once(void **state)
{
    struct lane_bed *bed = start(2, 0);

    (void)state;
    push(bed, 0, 0, 1, 1);
    bed->worker[0] = meet(bed, 0, 1); /* after a cut */
    push(bed, 0, 0, 1, 1);
    assert_int_equal(answer(bed, 0, 1), PSD_PENDING);
    push(bed, 1, 0, 1, 2);
    assert_int_equal(answer(bed, 0, 1), PSD_OK);
    assert_true(pull(bed, 0, 1) == 3);
    lane_bed_stop(bed);
}

/* If this fails, a push whose answer was lost changes the model again, or is never answered. */
static void
test_a_push_repeated_after_its_round_is_done(void **state)
{
    struct lane_bed *bed = start(2, 0);

    (void)state;
    push(bed, 0, 0, 1, 1);
    push(bed, 1, 0, 1, 2);
    push_as(bed, meet(bed, 1, 1), PSI_FRAME_PUSH, 0, 1, 2);
    push(bed, 0, 0, 7, 100);
    assert_int_equal(answer(bed, 0, 1), PSD_OK);
    assert_int_equal(answer(bed, 0, 7), PSD_OK);
    assert_true(pull(bed, 0, 1) == 3);
    lane_bed_stop(bed);
}

/* If this fails, a worker that is cut off takes its gradient with it. */
static void
test_a_gradient_outlives_its_connection(void **state)
{
    struct lane_bed *bed = start(2, 0);

    (void)state;
    push(bed, 0, 0, 1, 1);
    world_hang_up(bed->worker[0]->line, "cut");
    push(bed, 1, 0, 1, 2);
    assert_int_equal(answer(bed, 1, 1), PSD_OK);
    assert_true(pull(bed, 1, 1) == 3);
    lane_bed_stop(bed);
}

/* If this fails, half a gradient counts when its connection ends in the middle of it. */
static void
test_half_a_gradient_does_not_count(void **state)
{
    struct lane_bed *bed = start(2, 0);
    const float half[ELEMENTS / 2] = {9, 9};
    const struct psi_frame frame = {.type = PSI_FRAME_PUSH,
                                    .dtype = PSD_F32,
                                    .table = TABLE,
                                    .request = 1,
                                    .incarnation = 1,
                                    .payload_bytes = BYTES};
    uint8_t head[PSI_FRAME_BYTES];

    (void)state;
    psi_frame_encode(&frame, head);
    world_feed(bed->worker[0]->line, head, sizeof(head));
    world_feed(bed->worker[0]->line, (const uint8_t *)half, sizeof(half));
    world_hang_up(bed->worker[0]->line, "cut");
    push(bed, 1, 0, 1, 2);
    assert_int_equal(answer(bed, 1, 1), PSD_PENDING);
    bed->worker[0] = meet(bed, 0, 1);
    push(bed, 0, 0, 1, 1);
    assert_int_equal(answer(bed, 1, 1), PSD_OK);
    assert_true(pull(bed, 1, 1) == 3);
    lane_bed_stop(bed);
}

/* If this fails, an asynchronous push that is repeated after a cut counts again. */
static void
test_an_asynchronous_push_counts_once(void **state)
{
    struct lane_bed *bed = start(2, PSD_STALENESS_UNBOUNDED);

    (void)state;
    push(bed, 0, 0, 1, 1);
    assert_int_equal(answer(bed, 0, 1), PSD_OK); /* nobody is waited for */
    push(bed, 0, 0, 1, 1);
    push(bed, 1, 0, 1, 8); /* the same number of another rank */
    assert_true(pull(bed, 0, 0) == 9);
    push(bed, 0, 0, 2, 1);
    assert_true(pull(bed, 0, 0) == 10);
    lane_bed_stop(bed);
}

/* If this fails, workers of a stale table wait for each other in every step, or drift apart. */
static void
test_a_stale_table_waits_for_the_bound_alone(void **state)
{
    struct lane_bed *bed = start(2, 1);

    (void)state;
    push(bed, 0, 0, 1, 1);
    assert_int_equal(answer(bed, 0, 1), PSD_OK);
    assert_true(pull(bed, 0, 1) == 1);
    push(bed, 0, 1, 2, 1);
    assert_int_equal(answer(bed, 0, 2), PSD_OK);
    assert_true(isnan(pull(bed, 0, 2))); /* worker 1 has not pushed step 0 */
    push(bed, 1, 0, 1, 4);
    assert_true(value(bed, 0) == 6);
    lane_bed_stop(bed);
}

/* ---- what comes out ------------------------------------------------------------------------ */

static float
sum_of_three(const uint32_t order[3], const float gradient[3])
{
    struct lane_bed *bed = start(3, 0);
    float sum;

    for (unsigned i = 0; i < 3; i++) {
        push(bed, order[i], 0, 1, gradient[order[i]]);
    }
    sum = pull(bed, 0, 1);
    lane_bed_stop(bed);
    return sum;
}

/* If this fails, a training ends in other bits when workers are faster or slower. */
static void
test_the_order_of_arrival_changes_no_bit(void **state)
{
    static const uint32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const float gradient[3] = {1e8f, 1, -1e8f}; /* their sum depends on the order of additions */

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        assert_true(sum_of_three(orders[i], gradient) == 0); /* ((1e8 + 1) - 1e8) */
    }
}

/* If this fails, a worker that has nothing to add holds up the step, or makes the mean smaller. */
static void
test_an_empty_gradient_is_present_and_adds_nothing(void **state)
{
    struct lane_bed *bed = lane_bed_start(3, PSI_DEATH_WAIT);
    const struct psi_frame empty = {
        .type = PSI_FRAME_PUSH, .flags = PSI_FLAG_EMPTY, .table = TABLE, .request = 1};

    (void)state;
    open_with(bed, ELEMENTS, 0, PSD_REDUCE_MEAN);
    push(bed, 0, 0, 1, 4);
    say(bed, bed->worker[1], empty, NULL, 0);
    push(bed, 2, 0, 1, 8);
    assert_int_equal(answer(bed, 1, 1), PSD_OK);
    assert_true(pull(bed, 0, 1) == 6);
    lane_bed_stop(bed);
}

/* If this fails, finite gradients make a model of infinities, and nobody hears of it. */
static void
test_a_sum_that_is_not_finite_ends_the_job(void **state)
{
    struct lane_bed *bed = start(2, 0);
    struct psi_verdict verdict;

    (void)state;
    push(bed, 0, 0, 1, 3e38f);
    push(bed, 1, 0, 1, 3e38f);
    verdict = hear_verdict(bed->master, PSI_FRAME_END);
    assert_int_equal(verdict.status, PSD_ERR_NOT_FINITE);
    assert_int_equal(verdict.exit_code, PSI_EXIT_NOT_FINITE);
    assert_non_null(strstr(verdict.text, "table w"));
    assert_int_equal(answer(bed, 0, 1), PSD_PENDING); /* it did not count */
    lane_bed_stop(bed);
}

/* If this fails, a gradient of another size or type is read as numbers of this table. */
static void
test_a_gradient_that_does_not_fit_costs_the_connection(void **state)
{
    struct lane_bed *bed = start(2, 0);
    const float gradient[2 * ELEMENTS] = {0};
    struct psi_frame frame = {
        .type = PSI_FRAME_PUSH, .dtype = PSD_F32, .table = TABLE, .request = 1};

    (void)state;
    say(bed, bed->worker[0], frame, gradient, 2 * BYTES);
    assert_true(is_gone(bed->worker[0]));
    frame.dtype = PSD_F64;
    say(bed, bed->worker[1], frame, gradient, BYTES);
    assert_true(is_gone(bed->worker[1]));
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round_closes_with_the_last_gradient),
        cmocka_unit_test(test_a_read_waits_for_its_version),
        cmocka_unit_test(test_push_pull_brings_the_new_value),
        cmocka_unit_test(test_chunks_have_rounds_of_their_own),
        cmocka_unit_test(test_a_step_too_far_ahead_is_refused),
        cmocka_unit_test(test_a_repeated_push_counts_once),
        cmocka_unit_test(test_a_push_repeated_after_its_round_is_done),
        cmocka_unit_test(test_a_gradient_outlives_its_connection),
        cmocka_unit_test(test_half_a_gradient_does_not_count),
        cmocka_unit_test(test_an_asynchronous_push_counts_once),
        cmocka_unit_test(test_a_stale_table_waits_for_the_bound_alone),
        cmocka_unit_test(test_the_order_of_arrival_changes_no_bit),
        cmocka_unit_test(test_an_empty_gradient_is_present_and_adds_nothing),
        cmocka_unit_test(test_a_sum_that_is_not_finite_ends_the_job),
        cmocka_unit_test(test_a_gradient_that_does_not_fit_costs_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
