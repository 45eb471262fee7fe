/*
 * lanes_test.c - what leaves a worker when, and what it makes of what comes back, seen by its
 * servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"

enum { WIDE = 64 * BED_CHUNK_BYTES, ALL_AT_ONCE = PSD_STALENESS_UNBOUNDED };

/* Is every value of the chunk this one? */
static bool
has_value(const struct client_bed *bed, uint32_t chunk, float value)
{
    for (size_t i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        if (bed->values[chunk * (size_t)PSD_CHUNK_ELEMENTS + i] != value) {
            return false;
        }
    }
    return true;
}

/* ---- windows ------------------------------------------------------------------------------- */

/* If this fails, a worker sends a lane more gradients than it has memory for. */
static void
test_gradients_stay_within_the_window(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, 2 * BED_CHUNK_BYTES);
    struct psd_table *table = bed_open(bed, 4, 0, 0);
    struct psd_op *op = bed_push(bed, table, 0);
    const struct psi_frame *first = bed_expect(bed, 0, PSI_FRAME_PUSH, 0);
    const struct psi_frame *second = bed_expect(bed, 0, PSI_FRAME_PUSH, 1);

    (void)state;
    assert_null(bed_sent(bed, 0));
    bed_ack(bed, 0, second);
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 2));
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 3));
    assert_false(psi_op_ended(op));
    bed_ack(bed, 0, first);
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, a chunk that is larger than the window never leaves. */
static void
test_one_gradient_always_fits(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, 4096);
    struct psd_op *op = bed_push(bed, bed_open(bed, 2, 0, 0), 0);
    const struct psi_frame *first = bed_expect(bed, 0, PSI_FRAME_PUSH, 0);

    (void)state;
    assert_null(bed_sent(bed, 0));
    bed_ack(bed, 0, first);
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 1));
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, workers whose windows are full wait for each other's gradients for ever. */
static void
test_a_gradient_that_is_asked_for_needs_no_room(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    struct psd_table *table = bed_open(bed, 3, 0, 0);

    (void)state;
    (void)bed_push(bed, table, 0);
    (void)bed_expect(bed, 0, PSI_FRAME_PUSH, 0);
    assert_null(bed_sent(bed, 0));
    bed_tell(bed, 0, PSI_FRAME_WANT, table, 2, 0);
    (void)bed_expect(bed, 0, PSI_FRAME_PUSH, 2);
    bed_tell(bed, 0, PSI_FRAME_WANT, table, 2, 0); /* it has left already */
    bed_tell(bed, 0, PSI_FRAME_WANT, table, 1, 1); /* a step that is not pushed yet */
    assert_null(bed_sent(bed, 0));
    client_bed_stop(bed);
}

/* If this fails, a lane that let a gradient go never gets it, or gets it twice. */
static void
test_a_gradient_that_was_let_go_comes_again(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open(bed, 2, 0, 0);
    struct psd_op *op = bed_push(bed, table, 0);
    const struct psi_frame *first = bed_expect(bed, 0, PSI_FRAME_PUSH, 0);

    (void)state;
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 1));
    bed_tell(bed, 0, PSI_FRAME_RESEND, table, 1, 0); /* it was answered: nothing to let go */
    assert_null(bed_sent(bed, 0));
    bed_tell(bed, 0, PSI_FRAME_RESEND, table, 0, 0);
    bed_ack(bed, 0, first); /* of the one that was let go: too late */
    assert_false(psi_op_ended(op));
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 0));
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, values that a worker cannot take pile up at its servers. */
static void
test_values_stay_within_the_window(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, 2 * BED_CHUNK_BYTES);
    struct psd_op *op = bed_pull(bed, bed_open(bed, 4, 0, 0), 0);
    const struct psi_frame *first = bed_expect(bed, 0, PSI_FRAME_PULL, 0);

    (void)state;
    (void)bed_expect(bed, 0, PSI_FRAME_PULL, 1);
    assert_null(bed_sent(bed, 0));
    bed_value(bed, 0, first, 1);
    (void)bed_expect(bed, 0, PSI_FRAME_PULL, 2);
    assert_null(bed_sent(bed, 0));
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
}

/* If this fails, reads that wait for a later step at their server keep all others out. */
static void
test_reads_that_wait_give_their_room_back(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    struct psd_table *later = bed_open(bed, 1, 0, 0);
    struct psd_table *now = bed_open(bed, 1, 0, 0);

    (void)state;
    (void)bed_pull(bed, later, 5);
    (void)bed_pull(bed, now, 0);
    assert_int_equal(bed_sent_count(bed, 0), 1);
    world_wait(&bed->world, 5);
    assert_int_equal(bed_sent_count(bed, 0), 0);
    world_wait(&bed->world, 10);
    assert_int_equal(bed_sent_count(bed, 0), 1);
    client_bed_stop(bed);
}

/* If this fails, a read of a later step holds up the push of its own table that it waits for. */
static void
test_a_push_passes_the_read_that_waits_for_it(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    struct psd_table *other = bed_open(bed, 1, 0, 0);
    struct psd_table *table = bed_open(bed, 1, 0, 0);

    (void)state;
    (void)bed_pull(bed, other, 0); /* takes all the room there is to read */
    (void)bed_pull(bed, table, 1);
    (void)bed_push(bed, table, 0);
    (void)bed_expect(bed, 0, PSI_FRAME_PULL, 0);
    (void)bed_expect(bed, 0, PSI_FRAME_PUSH, 0);
    assert_null(bed_sent(bed, 0));
    client_bed_stop(bed);
}

/* If this fails, a tensor that the next layer waits for stands behind a large one. */
static void
test_the_urgent_overtake(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    struct psd_table *large = bed_open(bed, 3, 0, 0);
    struct psd_table *urgent = bed_open(bed, 1, 0, 0);
    const struct psi_frame *first;

    (void)state;
    (void)bed_push(bed, large, 0);
    (void)bed_begin(bed, urgent, &(struct psi_transfer){.type = PSI_FRAME_PUSH, .priority = 9});
    first = bed_expect(bed, 0, PSI_FRAME_PUSH, 0);
    bed_ack(bed, 0, first);
    assert_int_equal(bed_expect(bed, 0, PSI_FRAME_PUSH, 0)->table, urgent->id);
    client_bed_stop(bed);
}

/* If this fails, what was handed to the kernel cannot be overtaken any more. */
static void
test_little_is_handed_to_a_slow_line(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open(bed, BED_CHUNKS_MAX, 0, 0);

    (void)state;
    world_set_flow(bed_lane(bed, 0), WORLD_FLOW_SLOW);
    (void)bed_push(bed, table, 0);
    assert_in_range(bed_sent_count(bed, 0), 1, BED_CHUNKS_MAX - 1);
    world_set_flow(bed_lane(bed, 0), WORLD_FLOW_FAST);
    world_settle(&bed->world);
    assert_in_range(bed_sent_count(bed, 0), 1, BED_CHUNKS_MAX - 1);
    client_bed_stop(bed);
}

/* ---- cuts ---------------------------------------------------------------------------------- */

/* If this fails, a gradient is lost with its connection, or counts twice because it comes under
 * another number. */
static void
test_after_a_cut_everything_unanswered_comes_again(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_push(bed, bed_open(bed, 3, 0, 0), 0);
    const struct psi_frame before[3] = {*bed_expect(bed, 0, PSI_FRAME_PUSH, 0),
                                        *bed_expect(bed, 0, PSI_FRAME_PUSH, 1),
                                        *bed_expect(bed, 0, PSI_FRAME_PUSH, 2)};

    (void)state;
    bed_ack(bed, 0, &before[1]);
    bed_cut(bed, 0);
    bed_come_back(bed, 0);
    for (uint32_t chunk = 0; chunk < 3; chunk += 2) {
        const struct psi_frame *again = bed_expect(bed, 0, PSI_FRAME_PUSH, chunk);

        assert_int_equal(again->seq, before[chunk].seq);
        assert_int_equal(again->request, before[chunk].request);
        assert_int_equal(again->step, 0);
    }
    assert_null(bed_sent(bed, 0));
    bed_ack(bed, 0, &before[0]);
    bed_ack(bed, 0, &before[2]);
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, a newer gradient reaches a server before one that was cut off. */
static void
test_after_a_cut_the_old_come_first(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *old = bed_open(bed, 1, 0, 0);
    struct psd_table *urgent = bed_open(bed, 1, 0, 0);

    (void)state;
    (void)bed_push(bed, old, 0);
    bed_cut(bed, 0);
    (void)bed_begin(bed, urgent, &(struct psi_transfer){.type = PSI_FRAME_PUSH, .priority = 9});
    bed_come_back(bed, 0);
    assert_int_equal(bed_expect(bed, 0, PSI_FRAME_PUSH, 0)->table, old->id);
    assert_int_equal(bed_expect(bed, 0, PSI_FRAME_PUSH, 0)->table, urgent->id);
    client_bed_stop(bed);
}

/* If this fails, one lost server holds up what others could do. */
static void
test_other_lanes_go_on(void **state)
{
    struct client_bed *bed = client_bed_start(2, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open(bed, 4, 0, 0);
    struct psd_op *op;
    const struct psi_frame *frame;

    (void)state;
    bed_cut(bed, 0);
    op = bed_push(bed, table, 0);
    for (frame = bed_sent(bed, 1); frame != NULL; frame = bed_sent(bed, 1)) {
        bed_ack(bed, 1, frame);
    }
    assert_int_equal(op->remaining, 2);
    bed_come_back(bed, 0);
    for (frame = bed_sent(bed, 0); frame != NULL; frame = bed_sent(bed, 0)) {
        bed_ack(bed, 0, frame);
    }
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, a request that the connection did not take is forgotten. */
static void
test_a_send_that_fails_is_repeated(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open(bed, 1, 0, 0);
    struct psd_op *op;

    (void)state;
    world_set_flow(bed_lane(bed, 0), WORLD_FLOW_BROKEN);
    op = bed_push(bed, table, 0);
    assert_null(bed_lane(bed, 0));
    bed_come_back(bed, 0);
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 0));
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* If this fails, an answer that comes twice ends an operation that is not done. */
static void
test_an_answer_counts_once(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_push(bed, bed_open(bed, 2, 0, 0), 0);
    const struct psi_frame *first = bed_expect(bed, 0, PSI_FRAME_PUSH, 0);

    (void)state;
    bed_ack(bed, 0, first);
    bed_ack(bed, 0, first);
    assert_false(psi_op_ended(op));
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 1));
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, a worker computes with another chunk's values. */
static void
test_values_land_where_they_belong(void **state)
{
    struct client_bed *bed = client_bed_start(2, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_pull(bed, bed_open(bed, 4, 0, 0), 0);
    const struct psi_frame *frame;

    (void)state;
    for (uint32_t lane = 0; lane < 2; lane++) {
        while ((frame = bed_sent(bed, lane)) != NULL) {
            bed_value(bed, lane, frame, (float)(10 + frame->chunk));
        }
    }
    bed_end_well(bed, op);
    for (uint32_t chunk = 0; chunk < 4; chunk++) {
        assert_true(has_value(bed, chunk, (float)(10 + chunk)));
    }
    client_bed_stop(bed);
}

/* If this fails, memory that a caller has back is written by an answer that comes late. */
static void
test_a_value_that_comes_too_late_is_thrown_away(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_pull(bed, bed_open(bed, 1, 0, 0), 0);
    const struct psi_frame *frame = bed_expect(bed, 0, PSI_FRAME_PULL, 0);

    (void)state;
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    assert_int_equal(bed_end(bed, op, NULL).status, PSD_ERR_TIMEOUT);
    bed_value(bed, 0, frame, 3);
    assert_true(has_value(bed, 0, -1));
    assert_non_null(bed_lane(bed, 0)); /* the server did nothing wrong */
    client_bed_stop(bed);
}

/* If this fails, memory that a caller has back is written by the rest of a value that was coming in. */
static void
test_a_value_that_is_half_here_is_not_waited_for(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_pull(bed, bed_open(bed, 1, 0, 0), 0);
    struct world_conn *conn = bed_lane(bed, 0);

    (void)state;
    bed_begin_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PULL, 0), 3);
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    assert_int_equal(bed_end(bed, op, NULL).status, PSD_ERR_TIMEOUT);
    assert_true(world_is_closed(conn));
    client_bed_stop(bed);
}

/* If this fails, a server that sends too much writes beyond the caller's memory. */
static void
test_a_value_of_another_size_costs_the_connection(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_pull(bed, bed_open(bed, 1, 0, 0), 0);
    const struct psi_frame *request = bed_expect(bed, 0, PSI_FRAME_PULL, 0);
    const struct psi_frame frame = {
        .type = PSI_FRAME_VALUE, .dtype = PSD_F32, .request = request->request};

    (void)state;
    world_say_bytes(&bed->world, bed_lane(bed, 0), &frame, NULL, bed->gradient,
                    BED_CHUNK_BYTES + 4);
    assert_null(bed_lane(bed, 0));
    assert_false(psi_op_ended(op));
    assert_true(has_value(bed, 0, -1));
    client_bed_stop(bed);
}

/* If this fails, a push that a server refused ends as if it had counted. */
static void
test_a_refusal_ends_the_operation(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_push(bed, bed_open(bed, 2, 0, 0), 0);
    const struct psi_frame *first = bed_expect(bed, 0, PSI_FRAME_PUSH, 0);
    const struct psi_frame refused = {
        .type = PSI_FRAME_ACK, .request = first->request, .status = PSD_ERR_STEP};
    const struct psi_verdict verdict = {.status = PSD_ERR_STEP, .text = "a step too late"};
    struct psd_error error;
    psd_outcome outcome;

    (void)state;
    WORLD_SAY(&bed->world, bed_lane(bed, 0), &refused, verdict, &verdict);
    assert_false(psi_op_ended(op)); /* the other chunk is under way */
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 1));
    error = bed_end(bed, op, &outcome);
    assert_int_equal(error.status, PSD_ERR_STEP);
    assert_non_null(strstr(error.text, "a step too late"));
    assert_int_equal(outcome, PSD_OUTCOME_UNKNOWN); /* one of two counted */
    client_bed_stop(bed);
}

/* ---- deadlines ----------------------------------------------------------------------------- */

/* If this fails, a caller does not learn who keeps it waiting, or that its push may have counted. */
static void
test_a_deadline_names_the_server(void **state)
{
    struct client_bed *bed = client_bed_start(2, PSI_DEATH_FAIL, WIDE);
    struct psd_op *op = bed_push(bed, bed_open(bed, 2, 0, 0), 0);
    const struct psi_frame *frame = bed_sent(bed, 0);
    struct psd_error error;
    psd_outcome outcome;

    (void)state;
    assert_non_null(frame);
    bed_ack(bed, 0, frame);
    world_wait(&bed->world, BED_TIMEOUT_MS - 1);
    assert_false(psi_op_ended(op));
    assert_non_null(world_hear(bed_lane(bed, 1), PSI_FRAME_WHY)); /* it was asked before */
    world_wait(&bed->world, 2);
    error = bed_end(bed, op, &outcome);
    assert_int_equal(error.status, PSD_ERR_TIMEOUT);
    assert_int_equal(outcome, PSD_OUTCOME_UNKNOWN);
    assert_non_null(strstr(error.text, "server 1"));
    assert_null(strstr(error.text, "server 0"));
    assert_non_null(strstr(error.text, "1 of 2 chunks unanswered"));
    client_bed_stop(bed);
}

/* If this fails, a push that never left is reported as one that may have counted. */
static void
test_what_never_left_was_not_applied(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open(bed, 1, 0, 0);
    struct psd_op *op;
    psd_outcome outcome;

    (void)state;
    bed_cut(bed, 0);
    bed->world.unreachable = true;
    op = bed_push(bed, table, 0);
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    assert_int_equal(bed_end(bed, op, &outcome).status, PSD_ERR_TIMEOUT);
    assert_int_equal(outcome, PSD_OUTCOME_NOT_APPLIED);
    assert_int_equal(psi_table_step(table), 0); /* it may be pushed again */
    client_bed_stop(bed);
}

/* If this fails, memory that a caller has back is still read by a line that is slow. */
static void
test_a_gradient_is_the_callers_again_after_its_deadline(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open(bed, 1, 0, 0);
    struct psd_op *op;

    (void)state;
    world_set_flow(bed_lane(bed, 0), WORLD_FLOW_SLOW);
    op = bed_push(bed, table, 0);
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    assert_int_equal(bed_end(bed, op, NULL).status, PSD_ERR_TIMEOUT);
    bed->gradient[0] = 77; /* whoever still borrows it sees that it has changed, and aborts */
    world_set_flow(bed_lane(bed, 0), WORLD_FLOW_FAST);
    client_bed_stop(bed);
}

/* If this fails, the end of a job leaves operations without an outcome. */
static void
test_the_end_of_the_job_ends_everything(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open(bed, 1, 0, 0);
    struct psd_op *sent = bed_push(bed, table, 0);
    struct psd_op *held = bed_push(bed, table, 1);
    const struct psi_frame frame = {.type = PSI_FRAME_END};
    const struct psi_verdict verdict = {.status = PSD_ERR_JOB_FAILED, .text = "worker 1 is lost"};
    psd_outcome outcome;

    (void)state;
    WORLD_SAY(&bed->world, bed_master(bed), &frame, verdict, &verdict);
    assert_non_null(strstr(bed_end(bed, sent, &outcome).text, "worker 1 is lost"));
    assert_int_equal(outcome, PSD_OUTCOME_UNKNOWN);
    assert_int_equal(bed_end(bed, held, &outcome).status, PSD_ERR_JOB_FAILED);
    assert_int_equal(outcome, PSD_OUTCOME_NOT_APPLIED);
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_stay_within_the_window),
        cmocka_unit_test(test_one_gradient_always_fits),
        cmocka_unit_test(test_a_gradient_that_is_asked_for_needs_no_room),
        cmocka_unit_test(test_a_gradient_that_was_let_go_comes_again),
        cmocka_unit_test(test_values_stay_within_the_window),
        cmocka_unit_test(test_reads_that_wait_give_their_room_back),
        cmocka_unit_test(test_a_push_passes_the_read_that_waits_for_it),
        cmocka_unit_test(test_the_urgent_overtake),
        cmocka_unit_test(test_little_is_handed_to_a_slow_line),
        cmocka_unit_test(test_after_a_cut_everything_unanswered_comes_again),
        cmocka_unit_test(test_after_a_cut_the_old_come_first),
        cmocka_unit_test(test_other_lanes_go_on),
        cmocka_unit_test(test_a_send_that_fails_is_repeated),
        cmocka_unit_test(test_an_answer_counts_once),
        cmocka_unit_test(test_values_land_where_they_belong),
        cmocka_unit_test(test_a_value_that_comes_too_late_is_thrown_away),
        cmocka_unit_test(test_a_value_that_is_half_here_is_not_waited_for),
        cmocka_unit_test(test_a_value_of_another_size_costs_the_connection),
        cmocka_unit_test(test_a_refusal_ends_the_operation),
        cmocka_unit_test(test_a_deadline_names_the_server),
        cmocka_unit_test(test_what_never_left_was_not_applied),
        cmocka_unit_test(test_a_gradient_is_the_callers_again_after_its_deadline),
        cmocka_unit_test(test_the_end_of_the_job_ends_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
