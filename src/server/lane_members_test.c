/*
 * lane_members_test.c - a lane between its master and its workers: whose gradients count, when a
 * round may close, and what each worker is told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/exit_code.h"
#include "metric/metric.h"
#include "server/lane_bed.h"
#include "server/state.h"

enum { TABLE = 1, ELEMENTS = 4, BYTES = ELEMENTS * sizeof(float) };

/* Gradients of these workers are added to what was there: easy to read in a value. */
static void
open_sum(struct lane_bed *bed, uint32_t backup)
{
    open_table(bed, TABLE,
               &(struct psd_table_args){
                   .struct_size = sizeof(struct psd_table_args),
                   .name = "w",
                   .dtype = PSD_F32,
                   .dims = 1,
                   .shape = {ELEMENTS},
                   .reduce = PSD_REDUCE_SUM,
                   .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                                   .rule = PSD_RULE_ADD},
                   .backup_workers = backup});
}

static struct psi_frame
push_frame(uint64_t step, uint32_t request)
{
    return (struct psi_frame){.type = PSI_FRAME_PUSH,
                              .dtype = PSD_F32,
                              .seq = request,
                              .step = step,
                              .table = TABLE,
                              .request = request};
}

static void
push(struct lane_bed *bed, struct peer *peer, uint64_t step, uint32_t request, float value)
{
    const float gradient[ELEMENTS] = {value, value, value, value};

    say(bed, peer, push_frame(step, request), gradient, BYTES);
}

/* The answer to a request; none so far: status PSD_PENDING. */
static psd_status
answered(struct peer *peer, uint32_t request)
{
    const struct world_heard *heard = hear(peer, PSI_FRAME_ACK);

    if (heard == NULL) {
        return PSD_PENDING;
    }
    assert_int_equal(heard->frame.request, request);
    return (psd_status)heard->frame.status;
}

static float
pull(struct lane_bed *bed, struct peer *peer, uint64_t step)
{
    const struct world_heard *heard;
    float value;

    say(bed, peer,
        (struct psi_frame){.type = PSI_FRAME_PULL, .table = TABLE, .step = step, .request = 99},
        NULL, 0);
    heard = hear(peer, PSI_FRAME_VALUE);
    assert_non_null(heard);
    assert_int_equal(heard->frame.payload_bytes, BYTES);
    memcpy(&value, heard->body, sizeof(value));
    return value;
}

/* ---- lives -------------------------------------------------------------------------------- */

/* If this fails, a process that the job has gone on without is let in again. */
static void
test_an_older_life_is_fenced(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);
    struct psi_verdict verdict;
    struct peer *old;

    (void)state;
    open_sum(bed, 0);
    propose(bed, 1, false);
    assert_true(is_gone(bed->worker[1]));
    old = meet(bed, 1, 1); /* before the commit ... */
    verdict = hear_verdict(old, PSI_FRAME_REFUSE);
    assert_int_equal(verdict.status, PSD_ERR_FENCED);
    commit(bed, NULL, 1, false);
    old = meet(bed, 1, 1); /* ... and after it */
    verdict = hear_verdict(old, PSI_FRAME_REFUSE);
    assert_int_equal(verdict.status, PSD_ERR_FENCED);
    assert_non_null(strstr(verdict.text, "worker 1 incarnation 1"));
    assert_true(is_gone(old));
    bed->worker[1] = meet(bed, 1, 2);
    assert_non_null(hear(bed->worker[1], PSI_FRAME_WELCOME));
    lane_bed_stop(bed);
}

/* If this fails, a worker pushes in the name of another life, or of another rank. */
static void
test_frames_of_another_life_count_nothing(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);

    (void)state;
    open_sum(bed, 0);
    bed->worker[1]->incarnation = 2; /* it was met as 1 */
    push(bed, bed->worker[1], 0, 1, 8);
    assert_true(is_gone(bed->worker[1]));
    assert_non_null(strstr(bed->warnings, "PUSH as worker 1 incarnation 2, met as worker 1"));
    bed->worker[1] = meet(bed, 1, 1);
    bed->worker[1]->rank = 0;
    push(bed, bed->worker[1], 0, 1, 8);
    assert_true(is_gone(bed->worker[1]));
    push(bed, bed->worker[0], 0, 1, 1);
    assert_int_equal(answered(bed->worker[0], 1), PSD_PENDING); /* nothing came from worker 1 */
    bed->worker[1] = meet(bed, 1, 1);
    push(bed, bed->worker[1], 0, 2, 2);
    assert_int_equal(answered(bed->worker[0], 1), PSD_OK);
    assert_true(pull(bed, bed->worker[0], 1) == 3);
    lane_bed_stop(bed);
}

/* If this fails, a worker that does not know yet who has a chunk now is heard by the new owner. */
static void
test_frames_of_an_older_view_count_nothing(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);
    const float gradient[ELEMENTS] = {1, 1, 1, 1};
    struct psi_frame frame = push_frame(0, 1);

    (void)state;
    open_sum(bed, 0);
    bed->lane->since = 3; /* as if view 3 had brought this lane */
    frame.view = 2;
    say(bed, bed->worker[0], frame, gradient, BYTES);
    assert_true(world_is_closed(bed->worker[0]->line));
    assert_null(strstr(bed->warnings, "view 2")); /* it did nothing wrong */
    bed->worker[0] = meet(bed, 0, 1);             /* it has heard of it, and says it again */
    frame.view = 3;
    say(bed, bed->worker[0], frame, gradient, BYTES);
    say(bed, bed->worker[1], frame, gradient, BYTES);
    assert_int_equal(answered(bed->worker[0], 1), PSD_OK);
    lane_bed_stop(bed);
}

/* ---- bytes -------------------------------------------------------------------------------- */

/* If this fails, payload_checksum=on looks at nothing: a flipped bit becomes part of the model. */
static void
test_a_payload_must_match_its_checksum(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_FAIL);
    float gradient[ELEMENTS] = {1, 2, 3, 4};
    struct psi_frame frame = push_frame(0, 1);

    (void)state;
    open_sum(bed, 0);
    frame.flags = PSI_FLAG_CHECKSUM;
    frame.payload_crc = psi_crc32c(0, gradient, BYTES);
    gradient[2] = 3.5f; /* on the way */
    say(bed, bed->worker[1], frame, gradient, BYTES);
    assert_true(is_gone(bed->worker[1]));
    assert_non_null(strstr(bed->warnings, "payload does not match its checksum"));
    push(bed, bed->worker[0], 0, 1, 1);
    assert_int_equal(answered(bed->worker[0], 1), PSD_PENDING);
    bed->worker[1] = meet(bed, 1, 1); /* it sends it again */
    gradient[2] = 3;
    say(bed, bed->worker[1], frame, gradient, BYTES);
    assert_false(is_gone(bed->worker[1]));
    assert_int_equal(answered(bed->worker[0], 1), PSD_OK);
    lane_bed_stop(bed);
}

/* ---- rounds and views ---------------------------------------------------------------------- */

/* If this fails, two lanes may close one round with two different sets of members. */
static void
test_nothing_closes_between_proposal_and_commit(void **state)
{
    struct lane_bed *bed = lane_bed_start(3, PSI_DEATH_CONTINUE);
    const struct psi_view_table left = {.id = TABLE, .left_at = 0, .drop = true};

    (void)state;
    open_sum(bed, 0);
    push(bed, bed->worker[0], 0, 1, 1);
    push(bed, bed->worker[2], 0, 1, 4);
    propose(bed, 2, true); /* it has given here: the master may hear otherwise elsewhere */
    push(bed, bed->worker[1], 0, 1, 2);
    assert_int_equal(answered(bed->worker[0], 1), PSD_PENDING); /* all three are here */
    assert_int_equal(answered(bed->worker[1], 1), PSD_PENDING);
    commit(bed, &left, 2, true);
    assert_int_equal(answered(bed->worker[0], 1), PSD_OK);
    assert_int_equal(answered(bed->worker[1], 1), PSD_OK);
    assert_true(pull(bed, bed->worker[0], 1) == 3); /* without the 4, as decided */
    lane_bed_stop(bed);
}

/* If this fails, a worker whose gradient was left out believes that it counts,
 * or waits for ever. */
static void
test_who_is_left_out_is_told(void **state)
{
    struct lane_bed *bed = lane_bed_start(3, PSI_DEATH_FAIL);

    (void)state;
    open_sum(bed, 1);
    for (uint32_t rank = 0; rank < 3; rank++) {
        push(bed, bed->worker[rank], 0, 1, (float)(1 << rank));
    }
    assert_int_equal(answered(bed->worker[0], 1), PSD_PENDING); /* the master decides */
    close_round(bed, TABLE, 0, 5);
    assert_int_equal(answered(bed->worker[0], 1), PSD_OK);
    assert_int_equal(answered(bed->worker[1], 1), PSD_ERR_DROPPED);
    assert_int_equal(answered(bed->worker[2], 1), PSD_OK);
    assert_true(pull(bed, bed->worker[1], 1) == 5);
    push(bed, bed->worker[1], 0, 2, 2); /* once more: it is over */
    assert_int_equal(answered(bed->worker[1], 2), PSD_ERR_DROPPED);
    push(bed, bed->worker[1], 1, 3, 2); /* the next one is open to it */
    push(bed, bed->worker[0], 1, 2, 1);
    close_round(bed, TABLE, 1, 3);
    assert_int_equal(answered(bed->worker[1], 3), PSD_OK);
    assert_int_equal(answered(bed->worker[0], 2), PSD_OK);
    assert_true(pull(bed, bed->worker[1], 2) == 8);
    lane_bed_stop(bed);
}

/* If this fails, a save of one step may hold the values of another. */
static void
test_a_save_gets_its_step_or_is_told(void **state)
{
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_FAIL);
    struct psi_frame frame = {.type = PSI_FRAME_STATE_PULL,
                              .flags = PSI_FLAG_EXACT,
                              .table = TABLE,
                              .step = 1,
                              .request = 7};
    struct psi_verdict verdict;

    (void)state;
    open_sum(bed, 0);
    push(bed, bed->worker[0], 0, 1, 1);
    assert_int_equal(answered(bed->worker[0], 1), PSD_OK);
    say(bed, bed->worker[0], frame, NULL, 0);
    assert_non_null(hear(bed->worker[0], PSI_FRAME_VALUE));
    push(bed, bed->worker[0], 1, 2, 1);
    assert_int_equal(answered(bed->worker[0], 2), PSD_OK);
    say(bed, bed->worker[0], frame, NULL, 0);
    verdict = hear_verdict(bed->worker[0], PSI_FRAME_ACK);
    assert_int_equal(verdict.status, PSD_ERR_STEP);
    assert_non_null(strstr(verdict.text, "version 1 is gone, the current one is 2"));
    lane_bed_stop(bed);
}

/* ---- the global step ----------------------------------------------------------------------- */

static uint64_t
add(struct lane_bed *bed, struct peer *peer, uint64_t sequence, uint64_t count)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_STEP_ADD, .seq = sequence, .step = count, .request = 5};
    const struct world_heard *heard;

    say(bed, peer, frame, NULL, 0);
    heard = hear(peer, PSI_FRAME_ACK);
    assert_non_null(heard);
    return heard->frame.step;
}

/* If this fails, an addition whose answer was lost counts twice, or is answered with the number of
 * somebody else's. */
static void
test_a_repeated_addition_has_its_first_answer(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);
    struct peer *again;

    (void)state;
    assert_int_equal(add(bed, bed->worker[0], 1, 2), 2);
    assert_int_equal(add(bed, bed->worker[0], 2, 3), 5);
    assert_int_equal(add(bed, bed->worker[1], 1, 10), 15);
    again = meet(bed, 0, 1); /* after a cut it repeats what it has no answer to */
    assert_int_equal(add(bed, again, 1, 2), 2);
    assert_int_equal(add(bed, again, 2, 3), 5);
    assert_int_equal(add(bed, bed->worker[1], 1, 10), 15);
    assert_int_equal(add(bed, again, 3, 1), 16);
    lane_bed_stop(bed);
}

/* ---- its master ---------------------------------------------------------------------------- */

/* If this fails, a server that was stopped while its connection was cut wakes up and calls the
 * master lost, before it has tried to reach it again. */
static void
test_a_stop_while_cut_is_not_the_masters_silence(void **state)
{
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_WAIT);
    const char *text = "";
    int exit_code = 0;

    (void)state;
    world_hang_up(bed->master->line, "cut");
    bed->world.now_ns += 60000 * WORLD_MS_NS;
    world_settle(&bed->world);
    if (lane_finished(bed->lane, &exit_code, &text)) {
        fail_msg("exit code %d: %s", exit_code, text);
    }
    assert_non_null(world_to(&bed->world, "test://master")); /* it connects again */
    lane_bed_stop(bed);
}

/* ---- counters ------------------------------------------------------------------------------ */

static void
assert_lines_of_their_own(const struct psi_metrics *metrics)
{
    assert_int_equal((uintptr_t)metrics % PSI_COUNTER_LINE, 0);
    assert_int_equal(sizeof(*metrics) % PSI_COUNTER_LINE, 0);
}

/* If this fails, a lane asks ever more of a worker whose line takes nothing, and what the worker waits
 * for comes behind all of it. */
static void
test_a_full_line_is_not_asked_again(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);
    const struct psi_metrics *metrics = lane_metrics(bed->lane);
    struct world_conn *line = bed->worker[1]->line;

    (void)state;
    open_sum(bed, 0);
    push(bed, bed->worker[0], 0, 1, 1);
    world_set_flow(line, WORLD_FLOW_SLOW);
    world_wait(&bed->world, 500);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_WANTS_OUT), 1); /* it is on its way */
    world_set_flow(line, WORLD_FLOW_FAST);
    world_wait(&bed->world, 100);
    assert_true(psi_metric_get(metrics, PSI_METRIC_WANTS_OUT) > 5); /* each may be lost */
    assert_non_null(hear(bed->worker[1], PSI_FRAME_WANT));
    push(bed, bed->worker[1], 0, 1, 1);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_ROUNDS_CLOSED), 1);
    lane_bed_stop(bed);
}

/* If this fails, whoever looks at a lane's counters sees numbers of something else, or slows the
 * lane down by looking. */
static void
test_counters_count_what_happens(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);
    const struct psi_metrics *metrics = lane_metrics(bed->lane);
    struct psi_frame pull = push_frame(1, 2);

    (void)state;
    assert_lines_of_their_own(metrics);
    open_sum(bed, 0);
    push(bed, bed->worker[0], 0, 1, 1);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_ROUNDS_CLOSED), 0);
    push(bed, bed->worker[1], 0, 1, 1);
    pull.type = PSI_FRAME_PULL;
    pull.dtype = 0;
    say(bed, bed->worker[0], pull, NULL, 0);
    assert_non_null(hear(bed->worker[0], PSI_FRAME_VALUE));
    (void)meet(bed, 0, 7); /* no such life */

    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_FRAMES_IN), 3);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_GRADIENTS_IN), 2);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_GRADIENT_BYTES_IN), 2 * BYTES);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_VALUES_OUT), 1);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_VALUE_BYTES_OUT), BYTES);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_ROUNDS_CLOSED), 1);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_REFUSED), 1);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_WANTS_OUT), 0);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_ROUNDS_OPENED), 1);
    lane_bed_stop(bed);
}

/* If this fails, nobody sees when a server's rounds were open, and for whom they waited. */
static void
test_rounds_are_told_with_whom_they_waited_for(void **state)
{
    static struct psi_telling telling;
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_WAIT);
    const struct psi_subscribe subscribe = {.every_ms = 500, .metrics = true};
    const struct world_heard *heard;
    uint64_t opened_ns;

    (void)state;
    open_sum(bed, 0);
    WORLD_SAY(&bed->world, bed->master->line, &(struct psi_frame){.type = PSI_FRAME_SUBSCRIBE},
              subscribe, &subscribe);
    assert_non_null(hear(bed->master, PSI_FRAME_METRICS));
    opened_ns = psi_now_ns(bed->lane->env);
    push(bed, bed->worker[0], 0, 1, 1);
    world_wait(&bed->world, 30);
    push(bed, bed->worker[1], 0, 1, 1);
    world_wait(&bed->world, 500);
    heard = hear(bed->master, PSI_FRAME_METRICS);
    assert_non_null(heard);
    memset(&telling, 0, sizeof(telling));
    assert_int_equal(psi_telling_decode(heard->body, heard->frame.payload_bytes, &telling, NULL),
                     PSD_OK);
    assert_int_equal(telling.spans, 1);
    assert_int_equal(telling.span[0].kind, PSI_SPAN_ROUND);
    assert_int_equal(telling.span[0].what, TABLE);
    assert_int_equal(telling.span[0].step, 0);
    assert_int_equal(telling.span[0].who, 1);
    assert_int_equal(telling.span[0].begin_us, opened_ns / 1000);
    assert_int_equal(telling.span[0].us, 30000);
    assert_int_equal(telling.waited, 1);
    assert_int_equal(telling.wait[0].rank, 1);
    assert_int_equal(telling.wait[0].ns, 30000000);
    lane_bed_stop(bed);
}

/* If this fails, what was decided is lost with the master that decided it. */
static void
test_a_master_that_returned_is_told_all(void **state)
{
    struct lane_bed *bed = lane_bed_start(3, PSI_DEATH_CONTINUE);
    const struct psi_view_table left = {.id = TABLE, .left_at = 4, .drop = true};
    const struct psi_ranks done = {{2}};
    const struct world_heard *heard;
    struct psi_lane_state told;
    struct psi_hello hello;
    struct psi_view view;

    (void)state;
    open_sum(bed, 0);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_TABLE_DROP, .table = 7}, NULL, 0);
    propose(bed, 2, true);
    commit(bed, &left, 2, true);
    {
        uint8_t bytes[64];
        struct psi_pack pack;

        psi_pack_init(&pack, bytes, sizeof(bytes));
        psi_done_encode(&pack, &(struct psi_done){.ranks = done});
        say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_DONE, .seq = 5, .step = 2},
            bytes, pack.used);
    }
    assert_int_equal(hear(bed->master, PSI_FRAME_DONE)->frame.seq, 5);
    propose(bed, 1, true);

    hello = meet_master(bed, 2);
    assert_int_equal(hello.view, 2);
    assert_int_equal(hello.incarnation, 1);
    heard = hear(bed->master, PSI_FRAME_VIEW_COMMIT);
    assert_non_null(heard);
    assert_int_equal(psi_view_decode_new(heard->body, heard->frame.payload_bytes, &view, NULL),
                     PSD_OK);
    assert_int_equal(view.id, 2);
    assert_int_equal(view.change, PSI_VIEW_WORKER_LEFT);
    assert_int_equal(view.who, 2);
    assert_int_equal(view.table[0].left_at, 4);
    psi_view_fini(&view);
    heard = hear(bed->master, PSI_FRAME_TABLE_OPEN);
    assert_int_equal(heard->frame.table, TABLE);
    assert_int_equal(heard->frame.status, PSD_OK);
    assert_int_equal(hear(bed->master, PSI_FRAME_TABLE_DROP)->frame.table, 7);
    heard = hear(bed->master, PSI_FRAME_LANE_STATE);
    assert_int_equal(psi_lane_state_decode(heard->body, heard->frame.payload_bytes, &told, NULL),
                     PSD_OK);
    assert_true(told.frozen);
    assert_int_equal(told.load_barriers, 2);
    assert_true(psi_ranks_has(&told.done, 1));
    assert_int_equal(psi_ranks_count(&told.done), 1);
    lane_bed_stop(bed);
}

/* If this fails, rounds stand still while the master is away; or a lane that a proposal has frozen
 * closes rounds by itself, or never again. */
static void
test_rounds_go_on_without_a_master(void **state)
{
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_CONTINUE);
    struct psi_view_place place = {.address = "test://lane", .incarnation = 1};
    const struct psi_view again = {
        .id = 2 << 20 | 1, .workers = 2, .worker = bed->member, .places = 1, .place = &place};
    uint8_t bytes[512];
    struct psi_pack pack;

    (void)state;
    open_sum(bed, 0);
    bed->world.unreachable = true;
    world_hang_up(bed->master->line, "the master died");
    push(bed, bed->worker[0], 0, 1, 1);
    push(bed, bed->worker[1], 0, 1, 1);
    assert_int_equal(answered(bed->worker[0], 1), PSD_OK);
    assert_int_equal(answered(bed->worker[1], 1), PSD_OK);
    bed->world.unreachable = false;
    (void)meet_master(bed, 2);
    propose_only(bed, 1, true); /* by which worker 1 is kept out */
    push(bed, bed->worker[0], 1, 2, 1);
    assert_int_equal(answered(bed->worker[0], 2), PSD_PENDING);
    (void)meet_master(bed, 3);
    assert_int_equal(answered(bed->worker[0], 2), PSD_PENDING);
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_view_encode(&pack, &again);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT}, bytes, pack.used);
    assert_non_null(hear(bed->master, PSI_FRAME_VIEW_ACK));
    bed->view = again.id;
    bed->worker[1] = meet(bed, 1, 1);
    push(bed, bed->worker[1], 1, 2, 1);
    assert_int_equal(answered(bed->worker[0], 2), PSD_OK);
    lane_bed_stop(bed);
}

/* A lane of another server that has the place of the lost one, and hears nothing of its master any more. */
static struct lane_bed *
lose_the_master_of_a_guest(void)
{
    struct lane_bed *bed = lane_bed_start_standby(2);
    const char *text;
    uint32_t server;
    uint32_t lane;
    int exit_code;

    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_TAKE_PLACE, .step = 1}, NULL, 0);
    assert_true(lane_took_place(bed->lane, &server, &lane));
    (void)meet_master(bed, 1);
    assert_true(lane_has_joined(bed->lane));
    bed->world.unreachable = true;
    world_hang_up(bed->master->line, "the master died");
    for (unsigned s = 0; !lane_finished(bed->lane, &exit_code, &text); s++) {
        assert_true(s < 100);
        world_wait(&bed->world, 1000);
    }
    assert_int_equal(exit_code, PSI_EXIT_MASTER_LOST);
    return bed;
}

/* If this fails, a server fails long after the job has ended well: one of its lanes had the place of another server's by the
 * word of a master that died before anybody else had heard of it. Or a server whose master is lost says that all is well. */
static void
test_a_guest_that_misses_a_good_end_is_no_loss(void **state)
{
    struct lane_bed *bed = lose_the_master_of_a_guest();

    (void)state;
    assert_true(lane_guest_is_no_loss(bed->lane, true));
    assert_false(lane_guest_is_no_loss(bed->lane, false));
    lane_bed_stop(bed);
}

static bool
sees_it_through(struct lane_bed *bed, int exit_code)
{
    const struct psi_verdict verdict = {.exit_code = exit_code};
    uint8_t bytes[512];
    struct psi_pack pack;
    bool saw_it_through;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_verdict_encode(&pack, &verdict);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_END}, bytes, pack.used);
    saw_it_through = lane_saw_it_through(bed->lane);
    lane_bed_stop(bed);
    return saw_it_through;
}

/* If this fails, a lane that has no place, or whose job has failed, passes for one that has seen a good end. */
static void
test_who_has_a_place_sees_the_job_through(void **state)
{
    (void)state;
    assert_true(sees_it_through(lane_bed_start_surviving(2), PSI_EXIT_OK));
    assert_false(sees_it_through(lane_bed_start_surviving(2), PSI_EXIT_WORKER_LOST));
    assert_false(sees_it_through(lane_bed_start_standby(2), PSI_EXIT_OK));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_older_life_is_fenced),
        cmocka_unit_test(test_frames_of_another_life_count_nothing),
        cmocka_unit_test(test_frames_of_an_older_view_count_nothing),
        cmocka_unit_test(test_a_payload_must_match_its_checksum),
        cmocka_unit_test(test_nothing_closes_between_proposal_and_commit),
        cmocka_unit_test(test_who_is_left_out_is_told),
        cmocka_unit_test(test_a_save_gets_its_step_or_is_told),
        cmocka_unit_test(test_a_repeated_addition_has_its_first_answer),
        cmocka_unit_test(test_a_stop_while_cut_is_not_the_masters_silence),
        cmocka_unit_test(test_a_full_line_is_not_asked_again),
        cmocka_unit_test(test_counters_count_what_happens),
        cmocka_unit_test(test_rounds_are_told_with_whom_they_waited_for),
        cmocka_unit_test(test_a_master_that_returned_is_told_all),
        cmocka_unit_test(test_rounds_go_on_without_a_master),
        cmocka_unit_test(test_a_guest_that_misses_a_good_end_is_no_loss),
        cmocka_unit_test(test_who_has_a_place_sees_the_job_through),
    };

    return cmocka_run_group_tests_name("lane_members", tests, NULL, NULL);
}
