/*
 * lives_test.c - a server is lost and has another life: what a worker sends it, and what is over.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"

enum { WIDE = 64 * BED_CHUNK_BYTES };

/* The server dies, and its other life is there. */
static void
lose(struct client_bed *bed, uint32_t lane)
{
    bed_cut(bed, lane);
    bed_begin_life(bed, lane);
    bed_come_back(bed, lane);
}

/* If this fails, what a lost server had not answered is lost with it, or comes twice. */
static void
test_what_is_unanswered_goes_to_the_other_life(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    struct psd_op *op = bed_push_pull(bed, bed_open_sum(bed, 3), 0);
    const struct psi_frame *again[2];

    (void)state;
    (void)bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0);
    bed_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 1), 5);
    (void)bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 2);
    lose(bed, 0);
    again[0] = bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0);
    again[1] = bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 2);
    assert_null(bed_sent(bed, 0));
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(again[i]->view, bed->view); /* older ones are refused there */
        assert_int_equal(again[i]->step, 0);
        assert_false(psi_op_ended(op));
        bed_value(bed, 0, again[i], 5);
    }
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, gradients that wait for room overtake those that were sent, or never leave. */
static void
test_the_order_stays(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, 2 * BED_CHUNK_BYTES);
    struct psd_table *first = bed_open_sum(bed, 2);
    struct psd_table *second = bed_open_sum(bed, 2);
    struct psd_op *ops[2] = {bed_push_pull(bed, first, 0), bed_push_pull(bed, second, 0)};
    unsigned sent = 0;

    (void)state;
    assert_int_equal(bed_sent_count(bed, 0), 2);
    lose(bed, 0);
    for (const struct psi_frame *frame = bed_sent(bed, 0); frame != NULL;
         frame = bed_sent(bed, 0)) {
        assert_int_equal(frame->table, sent < 2 ? first->id : second->id);
        assert_int_equal(frame->chunk, sent % 2);
        bed_value(bed, 0, frame, 5);
        sent++;
    }
    assert_int_equal(sent, 4);
    bed_end_well(bed, ops[0]);
    bed_end_well(bed, ops[1]);
    client_bed_stop(bed);
}

/* If this fails, a server that has less room than the one before it is sent more than it has memory
 * for. */
static void
test_the_other_life_has_a_window_of_its_own(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    struct psd_op *op = bed_push_pull(bed, bed_open_sum(bed, 3), 0);

    (void)state;
    assert_int_equal(bed_sent_count(bed, 0), 3);
    bed->welcome.window_bytes = BED_CHUNK_BYTES;
    lose(bed, 0);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        const struct psi_frame *frame = bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, chunk);

        assert_null(bed_sent(bed, 0));
        bed_value(bed, 0, frame, 5);
    }
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, workers wait for each other: a round has closed in an earlier life, so that its server
 * does not ask for this worker's gradient, and what fills the window waits for those who wait for this
 * worker to have the result. */
static void
test_what_may_have_counted_leaves_without_being_asked_for(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, BED_CHUNK_BYTES);
    struct psd_table *first = bed_open_sum(bed, 1);
    struct psd_table *second = bed_open_sum(bed, 1);

    (void)state;
    (void)bed_push_pull(bed, first, 0);
    (void)bed_push_pull(bed, second, 0);
    bed_tell(bed, 0, PSI_FRAME_WANT, second, 0, 0); /* it counts, and others have the result */
    assert_int_equal(bed_sent_count(bed, 0), 2);
    lose(bed, 0);
    assert_int_equal(bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0)->table, first->id);
    assert_null(bed_sent(bed, 0)); /* no room */
    world_wait(&bed->world, 100);
    assert_int_equal(bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0)->table, second->id);
    client_bed_stop(bed);
}

/* If this fails, a server that was only silent answers for the one that has its place now. */
static void
test_the_old_life_is_not_heard_any_more(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(2, false, WIDE);
    struct world_conn *old[2] = {bed_lane(bed, 0), bed_lane(bed, 1)};
    struct psd_op *op = bed_push_pull(bed, bed_open_sum(bed, 2), 0);

    (void)state;
    assert_int_equal(bed_sent_count(bed, 0), 1);
    assert_int_equal(bed_sent_count(bed, 1), 1);
    bed_begin_life(bed, 1);
    assert_true(world_is_closed(old[1]));
    assert_false(world_is_closed(old[0])); /* the other one goes on as it is */
    bed_come_back(bed, 1);
    assert_int_equal(bed_sent_count(bed, 0), 0);
    assert_int_equal(bed_sent_count(bed, 1), 1);
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
}

/* If this fails, every view costs the connections to all servers. */
static void
test_a_view_without_another_life_changes_no_link(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    const struct world_conn *before = bed_lane(bed, 0);

    (void)state;
    bed_tell_view(bed);
    assert_ptr_equal(bed_lane(bed, 0), before);
    client_bed_stop(bed);
}

/* If this fails, a caller waits longer than it wanted for a server that does not come back, and does
 * not learn which. */
static void
test_a_deadline_names_the_server_that_is_lost(void **state)
{
    for (unsigned is_back = 0; is_back < 2; is_back++) {
        struct client_bed *bed = client_bed_start_surviving(2, false, WIDE);
        struct psd_op *op = bed_push_pull(bed, bed_open_sum(bed, 2), 0);
        struct psd_error error;

        (void)state;
        bed_value(bed, 0, bed_sent(bed, 0), 5);
        bed->world.unreachable = true;
        bed_cut(bed, 1);
        if (is_back == 1) { /* known to all, and unreachable */
            bed_begin_life(bed, 1);
        }
        world_wait(&bed->world, BED_TIMEOUT_MS + 1);
        error = bed_end(bed, op, NULL);
        assert_int_equal(error.status, PSD_ERR_TIMEOUT);
        assert_non_null(strstr(error.text, "server 1 ("));
        assert_non_null(strstr(error.text, "1 chunks, not connected; waiting for it to come back"));
        assert_null(strstr(error.text, "server 0 ("));
        client_bed_stop(bed);
    }
}

/* If this fails, a request for another worker's state is forgotten with the server that relays it. */
static void
test_a_piece_of_state_is_asked_for_again(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    const struct psi_share share = {.from = 1, .total = 8, .bytes = 8, .name = "w"};
    uint64_t piece = 0;
    struct psd_op *op = NULL;

    (void)state;
    assert_int_equal(psi_client_share_pull(bed->client, &share, &piece, &op, NULL), PSD_OK);
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_SHARE_PULL));
    lose(bed, 0);
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_SHARE_PULL));
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
}

/* If this fails, a result that only a leaving worker has is lost; or a worker that is done comes back
 * again and again to servers that have let it go. */
static void
test_a_leaving_worker_tells_what_it_has(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    struct psd_op *bye = NULL;

    (void)state;
    (void)bed_open_sum(bed, 1);
    assert_int_equal(psi_client_bye(bed->client, &bye, NULL), PSD_OK);
    lose(bed, 0);
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_ADOPT));
    bed_cut(bed, 0);
    world_wait(&bed->world, 100);
    assert_null(bed_lane(bed, 0));
    client_bed_stop(bed);
}

/* If this fails, the global step begins again at 0 when its server is lost, and nobody is told. */
static void
test_the_global_step_is_lost_with_its_server(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(2, false, WIDE);
    struct psd_op *op = NULL;
    const struct psi_frame ack = {.type = PSI_FRAME_ACK, .step = 1};
    struct psi_frame answer = ack;

    (void)state;
    lose(bed, 0);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING); /* it was never used */
    assert_int_equal(psi_client_step_add(bed->client, 1, &op, NULL), PSD_OK);
    answer.request = op->control.request;
    world_say(&bed->world, bed_lane(bed, 0), &answer, NULL);
    bed_end_well(bed, op);
    lose(bed, 1);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING); /* it is not there */
    bed->welcome.barriers = 1; /* a copy of the life that has counted it */
    lose(bed, 0);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING);
    bed->welcome.barriers = 3; /* one that has begun anew */
    lose(bed, 0);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_OVER);
    assert_int_equal(psi_client_error(bed->client)->status, PSD_ERR_PEER_LOST);
    assert_string_equal(psi_client_error(bed->client)->text,
                        "server 0 was lost, and the global step with it");
    client_bed_stop(bed);
}

/* If this fails, a worker deals the data of a step out by a view that others have left behind: it has an
 * answer of a lane that knows who counts, and has not heard it from the master yet. */
static void
test_who_counts_is_not_known_before_the_view(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_CONTINUE, WIDE);
    const struct psd_table *table = bed_open(bed, 1, 0, 0);
    const struct psi_frame frame = {
        .type = PSI_FRAME_WANT, .table = table->id, .view = bed->view + 1};

    (void)state;
    bed_tell(bed, 0, PSI_FRAME_WANT, table, 0, 0);
    assert_true(psi_client_knows_roster(bed->client));
    world_say(&bed->world, bed_lane(bed, 0), &frame, NULL);
    assert_false(psi_client_knows_roster(bed->client));
    bed_tell_view(bed);
    assert_true(psi_client_knows_roster(bed->client));
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_unanswered_goes_to_the_other_life),
        cmocka_unit_test(test_the_order_stays),
        cmocka_unit_test(test_the_other_life_has_a_window_of_its_own),
        cmocka_unit_test(test_what_may_have_counted_leaves_without_being_asked_for),
        cmocka_unit_test(test_the_old_life_is_not_heard_any_more),
        cmocka_unit_test(test_a_view_without_another_life_changes_no_link),
        cmocka_unit_test(test_a_deadline_names_the_server_that_is_lost),
        cmocka_unit_test(test_a_piece_of_state_is_asked_for_again),
        cmocka_unit_test(test_a_leaving_worker_tells_what_it_has),
        cmocka_unit_test(test_the_global_step_is_lost_with_its_server),
        cmocka_unit_test(test_who_counts_is_not_known_before_the_view),
    };

    return cmocka_run_group_tests_name("client_lives", tests, NULL, NULL);
}
