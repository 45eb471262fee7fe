/*
 * adopt_test.c - the second life of a server: workers tell where they are, and what was lost is made
 * anew, or shown, or the job fails by name.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "server/state.h"
#include "server/sums_bed.h"

enum { KEEPS = PSI_FLAG_KEEPS };

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, uint16_t flags, float value)
{
    sums_push(bed, rank,
              (struct sums_push){
                  .step = step, .request = (uint32_t)step + 1, .flags = flags, .value = value});
}

static bool
is_asked_again(struct lane_bed *bed, uint32_t rank, uint64_t step)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_RESEND);

    return heard != NULL && heard->frame.step == step;
}

static void
cut(struct lane_bed *bed, uint32_t rank)
{
    world_hang_up(bed->worker[rank]->line, "cut");
    world_settle(&bed->world);
}

static void
pull(struct lane_bed *bed, uint32_t rank, uint64_t step)
{
    say(bed, bed->worker[rank],
        (struct psi_frame){
            .type = PSI_FRAME_PULL, .table = SUMS_TABLE, .step = step, .request = 99},
        NULL, 0);
}

static void
assert_failed(const struct lane_bed *bed, const char *words)
{
    const char *text = "";
    int exit_code = 0;

    assert_true(lane_finished(bed->lane, &exit_code, &text));
    assert_int_equal(exit_code, PSI_EXIT_SERVER_LOST);
    if (strstr(text, words) == NULL) {
        fail_msg("%s: not in: %s", words, text);
    }
}

/* ---- what becomes of a chunk --------------------------------------------------------------- */

/* If this fails, a result that some have is made again with other bits, or those who lack it wait
 * for ever, or those who hold it go on too early. */
static void
test_a_held_result_is_shown_to_those_who_lack_it(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    push(bed, 1, 5, 0, 2);
    assert_int_equal(sums_given(bed, 0), UINT64_MAX); /* worker 2 may have something else to say */
    sums_adopt(bed, 2, 1, 5, PSI_HAS_KEPT);
    assert_int_equal(sums_given(bed, 0), 5);
    sums_show(bed, 0, 0, 5, 42);
    assert_true(is_asked_again(bed, 1, 5));
    push(bed, 1, 5, 0, 2);
    push(bed, 2, 5, KEEPS, 4);
    for (uint32_t rank = 1; rank < 3; rank++) {
        const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_VALUE);
        float value;

        assert_non_null(heard);
        assert_int_equal(heard->frame.flags, PSI_FLAG_HOLD);
        assert_int_equal(heard->frame.step, 6);
        memcpy(&value, heard->body, sizeof(value));
        assert_true(value == 42);
    }
    sums_got(bed, 1, 0, 5);
    assert_false(sums_released(bed, 0, 0, 5, 1));
    sums_got(bed, 2, 0, 5);
    assert_true(sums_released(bed, 0, 0, 5, 1));
    assert_true(sums_released(bed, 1, 0, 5, 1)); /* it does not keep either */
    assert_false(sums_released(bed, 2, 0, 5, 1));
    lane_bed_stop(bed);
}

/* If this fails, workers that keep results and have gone on do not help those who have not. */
static void
test_a_kept_result_is_shown_by_who_has_gone_on(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 1);

    (void)state;
    sums_adopt(bed, 0, 1, 6, PSI_HAS_KEPT);
    push(bed, 0, 6, KEEPS, 1);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_KEPT);
    push(bed, 1, 5, KEEPS, 2);
    assert_int_equal(sums_given(bed, 0), 5);
    sums_show(bed, 0, 0, 5, 42);
    assert_true(is_asked_again(bed, 0, 6));
    assert_true(is_asked_again(bed, 1, 5));
    push(bed, 0, 6, KEEPS, 1);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 1) == 42);
    push(bed, 1, 6, KEEPS, 2); /* and the next round is an ordinary one */
    assert_true(sums_value(bed, 0) == 3);
    assert_true(sums_value(bed, 1) == 3);
    lane_bed_stop(bed);
}

/* If this fails, a worker leaves before another life of a server has been shown what only it has; or
 * it never may. */
static void
test_who_leaves_shows_what_it_keeps(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 2);

    (void)state;
    sums_bye(bed, 0);
    sums_adopt(bed, 0, 2, 6, PSI_HAS_KEPT);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_KEPT);
    assert_int_equal(sums_given(bed, 0), 5);
    assert_false(sums_may_go(bed, 0));
    sums_show(bed, 0, 0, 5, 42);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 1) == 42);
    sums_got(bed, 1, 0, 5);
    assert_false(sums_may_go(bed, 0)); /* the other chunk is not open */
    sums_adopt(bed, 1, 2, 6, PSI_HAS_KEPT);
    assert_true(sums_asked(bed, 1, 1, 5, 1));
    assert_false(sums_may_go(bed, 0));
    sums_got(bed, 1, 1, 5);
    assert_true(sums_may_go(bed, 0));
    lane_bed_stop(bed);
}

/* If this fails, a round that was open when the server died is not closed, or without somebody. */
static void
test_an_open_round_is_given_again(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 1);

    (void)state;
    push(bed, 0, 5, 0, 1); /* before it has told where it is: parked like any other */
    sums_adopt(bed, 0, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_KEPT);
    assert_true(is_asked_again(bed, 0, 5));
    push(bed, 0, 5, 0, 1);
    assert_true(isnan(sums_value(bed, 0)));
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 0) == 3);
    assert_true(sums_value(bed, 1) == 3);
    assert_int_equal(sums_given(bed, 1), UINT64_MAX);
    lane_bed_stop(bed);

    bed = sums_start_again(1, 1); /* the same for the first step of all */
    push(bed, 0, 0, KEEPS, 8);
    sums_adopt(bed, 0, 1, 0, PSI_HAS_PASSED);
    assert_true(is_asked_again(bed, 0, 0));
    push(bed, 0, 0, KEEPS, 8);
    assert_true(sums_value(bed, 0) == 8);
    lane_bed_stop(bed);
}

/* If this fails, workers that hold what everybody has wait for ever. */
static void
test_what_all_have_is_released(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 6, PSI_HAS_PASSED);
    sums_adopt(bed, 2, 1, 6, PSI_HAS_NOTHING);
    assert_true(sums_released(bed, 0, 0, 5, 1));
    for (uint32_t rank = 0; rank < 3; rank++) {
        push(bed, rank, 6, KEEPS, 1);
    }
    assert_true(sums_value(bed, 0) == 3);
    lane_bed_stop(bed);
}

/* If this fails, a read is answered with bytes that were never a sum. */
static void
test_a_lost_value_is_never_read(void **state)
{
    struct lane_bed *bed = sums_start_again(1, 1);
    struct psi_verdict verdict;

    (void)state;
    pull(bed, 0, 6); /* waits */
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    verdict = hear_verdict(bed->worker[0], PSI_FRAME_ACK);
    assert_int_equal(verdict.status, PSD_ERR_STATE);
    assert_non_null(strstr(verdict.text, "the sum of step 5 was lost"));
    assert_non_null(strstr(verdict.text, "psd_push_pull"));
    push(bed, 0, 5, 0, 1); /* a step that it holds: it is not given it again */
    assert_int_equal(hear_verdict(bed->worker[0], PSI_FRAME_ACK).status, PSD_ERR_STATE);
    push(bed, 0, 6, KEEPS, 8);
    assert_true(sums_value(bed, 0) == 8);
    pull(bed, 0, 7);
    assert_true(sums_value(bed, 0) == 8);
    lane_bed_stop(bed);

    bed = sums_start_again(1, 1);
    sums_adopt(bed, 0, 1, 5,
               PSI_HAS_PASSED); /* the round is open, the value of before it is gone */
    pull(bed, 0, 5);
    assert_int_equal(hear_verdict(bed->worker[0], PSI_FRAME_ACK).status, PSD_ERR_STATE);
    lane_bed_stop(bed);

    bed = sums_start_again(1, 1);
    sums_adopt(bed, 0, 1, 0, PSI_HAS_PASSED);
    pull(bed, 0, 0); /* what it begins with is known */
    assert_true(sums_value(bed, 0) == 0);
    lane_bed_stop(bed);

    bed = lane_bed_start_again(1);
    open_table(bed, SUMS_TABLE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "g",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {4},
                                        .use = PSD_USE_SUM,
                                        .init = PSD_INIT_RANK0});
    server_back(bed);
    sums_adopt(bed, 0, 1, 0, PSI_HAS_PASSED);
    pull(bed, 0, 0); /* unless a worker gave it */
    verdict = hear_verdict(bed->worker[0], PSI_FRAME_ACK);
    assert_int_equal(verdict.status, PSD_ERR_STATE);
    assert_non_null(strstr(verdict.text, "the values that worker 0 gave it were lost"));
    say(bed, bed->worker[0],
        (struct psi_frame){
            .type = PSI_FRAME_STATE_PUSH, .flags = PSI_FLAG_EMPTY, .table = SUMS_TABLE},
        NULL, 0); /* a load brings no values */
    assert_non_null(hear(bed->worker[0], PSI_FRAME_ACK));
    pull(bed, 0, 0);
    assert_int_equal(hear_verdict(bed->worker[0], PSI_FRAME_ACK).status, PSD_ERR_STATE);
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_INIT, .table = SUMS_TABLE},
        (const float[]){7, 7, 7, 7}, 4 * sizeof(float)); /* it had not been answered */
    pull(bed, 0, 0);
    assert_true(sums_value(bed, 0) == 7);
    lane_bed_stop(bed);
}

/* If this fails, a step that cannot be made anew is left out in silence, or waited for. */
static void
test_what_cannot_be_made_anew_fails_the_job_by_name(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 2);

    (void)state;
    sums_adopt(bed, 0, 2, 6, PSI_HAS_NOTHING);
    sums_adopt(bed, 1, 2, 5, PSI_HAS_KEPT);
    assert_failed(bed, "table g chunk 0 cannot be made anew: worker 0 has gone on to step 6, "
                       "worker 1 is still in step 5");
    assert_int_equal(hear_verdict(bed->master, PSI_FRAME_END).exit_code, PSI_EXIT_SERVER_LOST);
    lane_bed_stop(bed);

    bed = sums_start_again(2, 1);
    sums_adopt(bed, 0, 1, 7, PSI_HAS_KEPT); /* two steps ahead: nobody has that of step 5 */
    sums_adopt(bed, 1, 1, 5, PSI_HAS_HELD);
    assert_failed(bed, "worker 0 has gone on to step 7, worker 1 is still in step 5");
    lane_bed_stop(bed);
}

/* If this fails, the job ends because one that has joined is taken for one that took part in the steps
 * before its first: "has gone on", and nobody can show their result. */
static void
test_who_has_joined_does_not_speak_for_the_others(void **state)
{
    struct lane_bed *bed = sums_start_again_joined(3, 2, 7);
    int exit_code = 0;
    const char *text = "";

    (void)state;
    sums_adopt(bed, 2, 1, 7, PSI_HAS_PASSED); /* has joined, and given nothing */
    sums_adopt(bed, 0, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    assert_false(lane_finished(bed->lane, &exit_code, &text));
    for (uint64_t step = 5; step < 7; step++) {
        push(bed, 0, step, KEEPS, 1);
        assert_true(isnan(sums_value(bed, 1)));
        push(bed, 1, step, KEEPS, 2);
        assert_true(sums_value(bed, 0) == 3);
        assert_true(sums_value(bed, 1) == 3);
    }
    push(bed, 0, 7, KEEPS, 1);
    push(bed, 1, 7, KEEPS, 2);
    assert_true(isnan(sums_value(bed, 0))); /* in this one it has a part */
    push(bed, 2, 7, KEEPS, 4);
    assert_true(sums_value(bed, 2) == 7);
    lane_bed_stop(bed);
}

/* If this fails, a slow chunk holds up the others, or one worker's words count for another chunk. */
static void
test_each_chunk_is_adopted_by_itself(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 2);
    const uint64_t used = bed->lane->memory_used;

    (void)state;
    sums_adopt(bed, 0, 2, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED); /* of the first chunk alone */
    push(bed, 0, 5, KEEPS, 1);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 0) == 3);
    sums_push(bed, 0, (struct sums_push){.chunk = 1, .step = 5, .request = 7, .value = 1});
    assert_false(is_asked_again(bed, 0, 5));
    assert_int_equal(bed->lane->memory_used, used);
    sums_adopt(bed, 1, 2, 5, PSI_HAS_PASSED);
    assert_true(is_asked_again(bed, 0, 5));
    assert_true(bed->lane->memory_used < used); /* what was told is forgotten */
    lane_bed_stop(bed);
}

/* ---- who tells, and who is asked ----------------------------------------------------------- */

/* If this fails, a chunk opens before it is known what is lost, or nobody says what it waits for. */
static void
test_nothing_moves_before_the_last_has_told(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);

    (void)state;
    assert_non_null(strstr(sums_why(bed, 0, 0, 6), "server 0 was lost, its new life waits for word "
                                                   "from worker 0, worker 1, worker 2"));
    sums_adopt(bed, 0, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 2, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 2, 1, 5, PSI_HAS_PASSED); /* twice: it is still one worker */
    push(bed, 0, 5, KEEPS, 1);
    push(bed, 2, 5, KEEPS, 4);
    assert_non_null(strstr(sums_why(bed, 0, 0, 6), "for word from worker 1"));
    assert_false(is_asked_again(bed, 0, 5));
    cut(bed, 0); /* what it has told stays true */
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    assert_true(is_asked_again(bed, 2, 5));
    lane_bed_stop(bed);
}

/* If this fails, the job waits for a result from a worker that is gone, though another has it. */
static void
test_when_the_asked_one_goes_another_is_asked(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 2, 1, 6, PSI_HAS_KEPT);
    assert_int_equal(sums_given(bed, 0), 5);
    assert_int_equal(sums_given(bed, 2), UINT64_MAX);
    assert_non_null(strstr(sums_why(bed, 1, 0, 6), "for worker 0 to show the result of step 5"));
    cut(bed, 0);
    assert_int_equal(sums_given(bed, 2), 5);
    cut(bed, 2); /* nobody who has it is left for now */
    assert_non_null(strstr(sums_why(bed, 1, 0, 6),
                           "for one of worker 0, worker 2 to come back and show the result of "
                           "step 5"));
    bed->worker[0] = meet(bed, 0, 1);
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    assert_int_equal(sums_given(bed, 0), 5);
    sums_show(bed, 0, 0, 5, 42);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 1) == 42);
    lane_bed_stop(bed);
}

/* If this fails, half of a result becomes a value. */
static void
test_half_a_result_is_none(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);
    const float numbers[4] = {7, 7, 7, 7};
    uint8_t head[PSI_FRAME_BYTES];
    const struct psi_frame frame = {.type = PSI_FRAME_PUSH,
                                    .flags = PSI_FLAG_RESULT,
                                    .dtype = PSD_F32,
                                    .payload_bytes = sizeof(numbers),
                                    .step = 5,
                                    .table = SUMS_TABLE,
                                    .incarnation = 1,
                                    .view = bed->view};

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 2, 1, 5, PSI_HAS_HELD);
    assert_int_equal(sums_given(bed, 0), 5);
    psi_frame_encode(&frame, head);
    world_feed(bed->worker[0]->line, head, sizeof(head));
    world_feed(bed->worker[0]->line, (const uint8_t *)numbers, sizeof(numbers) / 2);
    cut(bed, 0);
    assert_int_equal(sums_given(bed, 2), 5);
    sums_show(bed, 2, 0, 5, 42);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 1) == 42);
    lane_bed_stop(bed);
}

/* If this fails, a worker that lost its connection after all was told again is never released. */
static void
test_who_tells_again_is_released(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 1);

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    cut(bed, 0);
    sums_adopt(bed, 1, 1, 6, PSI_HAS_PASSED); /* everybody has it, and worker 0 is not here */
    bed->worker[0] = meet(bed, 0, 1);
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    assert_true(sums_released(bed, 0, 0, 5, 1));
    lane_bed_stop(bed);

    bed = sums_start_again(2, 1);
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_KEPT);
    sums_show(bed, 0, 0, 5, 42);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 1) == 42);
    cut(bed, 1); /* its GOT is lost; it has gone on, and says so */
    bed->worker[1] = meet(bed, 1, 1);
    sums_adopt(bed, 1, 1, 6, PSI_HAS_KEPT);
    assert_true(sums_released(bed, 0, 0, 5, 1));
    lane_bed_stop(bed);
}

/* If this fails, who pushes through another worker of its host is awaited in vain. */
static void
test_who_speaks_for_a_host_is_awaited_for_it(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);
    const struct psi_meta node = {.has_node = true, .node_first = 0, .node_leaves = 2};
    const struct psi_frame frame = {.type = PSI_FRAME_PUSH_PULL,
                                    .flags = PSI_FLAG_KEEPS,
                                    .dtype = PSD_F32,
                                    .level = 1,
                                    .step = 5,
                                    .table = SUMS_TABLE,
                                    .request = 1};
    const float sum[4] = {3, 3, 3, 3};

    (void)state;
    bed->lane->job.policy = PSI_DEATH_FAIL;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_KEPT);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_KEPT);
    sums_adopt(bed, 2, 1, 5, PSI_HAS_HELD);
    sums_show(bed, 2, 0, 5, 42);
    say_with(bed, bed->worker[0], frame, &node, sum, sizeof(sum)); /* for worker 1, too */
    assert_true(sums_value(bed, 0) == 42);
    sums_got(bed, 0, 0, 5);
    assert_true(sums_released(bed, 2, 0, 5, 1));
    lane_bed_stop(bed);
}

/* ---- members ------------------------------------------------------------------------------- */

static struct psi_given
hear_given(struct lane_bed *bed, uint32_t tables)
{
    const struct world_heard *heard = hear(bed->master, PSI_FRAME_VIEW_ACK);
    static struct psi_given given[PSI_TABLES_MAX];
    struct psi_view_ack ack = {.given = given};

    assert_non_null(heard);
    assert_int_equal(psi_view_ack_decode(heard->body, heard->frame.payload_bytes, &ack, NULL),
                     PSD_OK);
    assert_int_equal(ack.id, bed->view + 1);
    assert_int_equal(ack.tables, tables);
    return given[0];
}

/* If this fails, a worker that died with the server is waited for, or what it gave counts in some
 * chunks of a step and not in others. */
static void
test_a_worker_that_died_with_the_server_leaves(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 2);
    const struct psi_view_table left = {.id = SUMS_TABLE, .left_at = 6, .drop = true};
    struct psi_given given;

    (void)state;
    cut(bed, 2);
    propose_only(bed, 2, true);
    assert_null(hear(bed->master, PSI_FRAME_VIEW_ACK)); /* nobody has told where the table is */
    sums_adopt(bed, 0, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 1, 2, 5, PSI_HAS_PASSED);
    assert_null(
        hear(bed->master, PSI_FRAME_VIEW_ACK)); /* worker 0 knows more of the second chunk */
    sums_adopt(bed, 0, 2, 5, PSI_HAS_PASSED);
    given = hear_given(bed, 1);
    assert_int_equal(given.table, SUMS_TABLE);
    assert_int_equal(given.chunks, 2);
    assert_int_equal(given.next_min, 5);
    assert_int_equal(given.next_max, 5);
    assert_int_equal(given.ahead, 0);
    push(bed, 0, 5, KEEPS, 1);
    assert_false(is_asked_again(bed, 0, 5)); /* all others have told, but it is frozen */
    commit(bed, &left, 2, true);             /* elsewhere it gave step 5: that does not help here */
    assert_true(is_asked_again(bed, 0, 5));
    push(bed, 0, 5, KEEPS, 1);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 0) == 3);
    lane_bed_stop(bed);
}

/* If this fails, the master hears that a worker lacks a step whose result, with its part, is with
 * others. */
static void
test_a_result_that_others_have_counts_as_given(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);
    struct psi_given given;

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    propose_only(bed, 2, true);
    given = hear_given(bed, 1);
    assert_int_equal(given.next_min, 6);
    assert_int_equal(given.closed, 1);
    lane_bed_stop(bed);
}

/* If this fails, the master waits for the lane and the lane for workers that are all dead. */
static void
test_the_master_is_answered_though_nobody_tells(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 1);

    (void)state;
    cut(bed, 0);
    cut(bed, 1);
    propose_only(bed, 1, true);
    assert_null(hear(bed->master, PSI_FRAME_VIEW_ACK));
    assert_true(lane_next_ns(bed->lane) <= bed->world.now_ns + 60000 * WORLD_MS_NS);
    bed->world.now_ns += 60000 * WORLD_MS_NS; /* dead_ms: by now they would have been heard */
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_PONG}, NULL, 0);
    (void)hear_given(bed, 0);
    lane_bed_stop(bed);

    bed = sums_start_again(4, 1); /* three of them are: what the fourth has told is reported */
    cut(bed, 1);
    cut(bed, 2);
    cut(bed, 3);
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    propose_only(bed, 3, true);
    assert_null(hear(bed->master, PSI_FRAME_VIEW_ACK));
    bed->world.now_ns += 60000 * WORLD_MS_NS;
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_PONG}, NULL, 0);
    assert_int_equal(hear_given(bed, 1).next_min, 6);
    commit(bed, NULL, 3, true);
    propose_only(bed, 2, true); /* another one is missing, but was waited for */
    assert_int_equal(hear_given(bed, 1).next_min, 6);
    commit(bed, NULL, 2, true);
    propose(bed, 1, true); /* nobody else is missing */
    commit(bed, NULL, 1, true);
    assert_true(sums_released(bed, 0, 0, 5, 1));
    lane_bed_stop(bed);
}

/* If this fails, chunks stay closed when the one that had not told has left. */
static void
test_who_has_left_is_not_waited_for(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 6, PSI_HAS_PASSED);
    propose(bed, 2, true);
    assert_false(sums_released(bed, 0, 0, 5, 1));
    commit(bed, NULL, 2, true);
    assert_true(sums_released(bed, 0, 0, 5, 1));
    lane_bed_stop(bed);
}

/* Worker 2 has left, and the first step in which it does not count is `until`. */
static struct lane_bed *
start_without_worker_2(uint64_t until)
{
    struct lane_bed *bed = sums_start_again(3, 2);

    propose_only(bed, 2, true);
    bed->member[2].counts_until = until;
    commit(bed, NULL, 2, true);
    return bed;
}

/* If this fails, a worker left and was said to be complete, its gradient of an open round died with the server of
 * sums, and no log says so. */
static void
test_who_left_before_the_server_died_is_missed_by_name(void **state)
{
    struct lane_bed *bed = start_without_worker_2(7);

    (void)state;
    for (uint32_t chunks = 1; chunks <= 2; chunks++) {
        assert_null(strstr(bed->notes, "GIVEN-LOST")); /* one line for the table */
        sums_adopt(bed, 0, chunks, 5, PSI_HAS_PASSED);
        sums_adopt(bed, 1, chunks, 5, PSI_HAS_PASSED);
    }
    assert_non_null(strstr(bed->notes, "GIVEN-LOST worker 2 has left, and does not count in 2 of 2 "
                                       "chunks of step 5 of table g here"));
    assert_null(strstr(bed->notes, "step 6"));
    lane_bed_stop(bed);

    bed = start_without_worker_2(8); /* it alone had the result of step 5, and gave step 6 */
    sums_adopt(bed, 0, 2, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 1, 2, 5, PSI_HAS_PASSED);
    assert_non_null(strstr(bed->notes, "2 of 2 chunks of step 5 of table g"));
    assert_non_null(strstr(bed->notes, "2 of 2 chunks of step 6 of table g"));
    lane_bed_stop(bed);
}

/* If this fails, a worker left while the other life of a server was on its way, and counts there in every step to come: rounds close
 * with nobody in them. */
static void
test_who_left_by_a_view_that_was_missed_counts_no_more(void **state)
{
    struct lane_bed *bed = sums_start_again_without(3, 2);
    const struct table *table = table_find(bed->lane, SUMS_TABLE);
    struct psi_ranks given;

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    push(bed, 0, 5, KEEPS, 1);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 0) == 3);
    given = psi_clock_given(&table->rule, &table->chunks[0].clock, 5);
    assert_int_equal(psi_ranks_count(&given), 2);
    assert_false(psi_ranks_has(&given, 2));
    lane_bed_stop(bed);
}

/* If this fails, the log says of a worker that joined, and left, that something of it was lost in steps before its first. */
static void
test_who_joined_later_is_not_missed(void **state)
{
    const uint64_t first[] = {13, 6, 5}; /* of three jobs */
    const char *step[] = {NULL, NULL, "step 5"};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct lane_bed *bed = sums_start_again_joined(3, 2, first[i]);

        propose_only(bed, 2, true);
        bed->member[2].counts_until = first[i] + 1;
        commit(bed, NULL, 2, true);
        sums_adopt(bed, 0, 1, 5, PSI_HAS_PASSED);
        sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
        if (step[i] == NULL) {
            assert_null(strstr(bed->notes, "GIVEN-LOST"));
        } else {
            assert_non_null(strstr(bed->notes, step[i]));
        }
        lane_bed_stop(bed);
    }
}

/* If this fails, the log tells of losses where there are none: the rounds of who has left had closed. */
static void
test_who_left_long_ago_is_not_missed(void **state)
{
    struct lane_bed *bed = start_without_worker_2(7);

    (void)state;
    sums_adopt(bed, 0, 2, 7, PSI_HAS_PASSED);
    sums_adopt(bed, 1, 2, 7, PSI_HAS_PASSED);
    push(bed, 0, 7, KEEPS, 1);
    push(bed, 1, 7, KEEPS, 2);
    assert_true(sums_value(bed, 0) == 3);
    assert_null(strstr(bed->notes, "GIVEN-LOST"));
    lane_bed_stop(bed);
}

/* If this fails, a change that the master took back leaves the lane frozen. */
static void
test_an_aborted_change_thaws_the_lane(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);
    struct psi_verdict verdict;

    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        sums_adopt(bed, rank, 1, 5, PSI_HAS_PASSED);
    }
    push(bed, 0, 5, KEEPS, 1);
    push(bed, 2, 5, KEEPS, 4);
    propose(bed, 2, true);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(isnan(sums_value(bed, 0)));
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_VIEW_ABORT}, NULL, 0);
    assert_true(sums_value(bed, 0) == 7);
    bed->worker[2] = meet(bed, 2, 1); /* its leave will be proposed again */
    verdict = hear_verdict(bed->worker[2], PSI_FRAME_REFUSE);
    assert_int_equal(verdict.status, PSD_ERR_FENCED);
    lane_bed_stop(bed);

    bed = sums_start_again(3, 1); /* the same before the chunk has opened */
    sums_adopt(bed, 2, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_HELD);
    propose_only(bed, 2, true);
    sums_adopt(bed, 0, 1, 6, PSI_HAS_PASSED);
    assert_false(sums_released(bed, 1, 0, 5, 1));
    assert_non_null(strstr(sums_why(bed, 0, 0, 6), "for the master's word about worker 2"));
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_VIEW_ABORT}, NULL, 0);
    assert_true(sums_released(bed, 1, 0, 5, 1));
    lane_bed_stop(bed);
}

/* If this fails, a result that is shown while the lane is frozen is lost, or opens the chunk. */
static void
test_a_result_while_frozen_is_asked_for_again(void **state)
{
    struct lane_bed *bed = sums_start_again(3, 1);

    (void)state;
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    sums_adopt(bed, 2, 1, 5, PSI_HAS_PASSED);
    assert_int_equal(sums_given(bed, 0), 5);
    propose(bed, 2, true);
    sums_show(bed, 0, 0, 5, 42);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(isnan(sums_value(bed, 1)));
    commit(bed, NULL, 2, true);
    assert_int_equal(sums_given(bed, 0), 5);
    sums_show(bed, 0, 0, 5, 42);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 1) == 42);
    lane_bed_stop(bed);

    bed = sums_start_again(3, 1); /* who lacked it has left: nobody waits for it any more */
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 1, 1, 5, PSI_HAS_HELD);
    sums_adopt(bed, 2, 1, 5, PSI_HAS_PASSED);
    propose(bed, 2, true);
    commit(bed, NULL, 2, true);
    assert_true(sums_released(bed, 0, 0, 5, 1));
    sums_show(bed, 0, 0, 5, 42);
    assert_false(is_gone(bed->worker[0]));
    lane_bed_stop(bed);
}

/* ---- strangers ----------------------------------------------------------------------------- */

/* If this fails, a worker that knows only the server's earlier life speaks to this one, and is
 * answered from nothing. */
static void
test_who_does_not_know_of_the_new_life_is_not_heard(void **state)
{
    struct lane_bed *bed = lane_bed_start_again(1);
    struct peer *early = meet(bed, 0, 1);
    const struct psi_frame add = {.type = PSI_FRAME_STEP_ADD, .seq = 1, .step = 1, .view = 5};

    (void)state;
    assert_true(is_gone(early)); /* it comes again */
    assert_non_null(strstr(bed->warnings, "before the server is back"));
    server_back(bed);
    say(bed, bed->worker[0], add, NULL, 0); /* by the view before this one */
    assert_true(is_gone(bed->worker[0]));
    lane_bed_stop(bed);
}

/* If this fails, a table that cannot be made anew begins again from nothing, in silence. */
static void
test_a_table_that_is_no_sum_is_refused(void **state)
{
    struct lane_bed *bed = lane_bed_start_again(1);
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};

    (void)state;
    open_table(bed, 1, /* it is answered, */
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "w",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {4},
                                        .rule = &rule});
    assert_null(table_find(bed->lane, 1)); /* with no */
    lane_bed_stop(bed);
}

static void
say_runs(struct lane_bed *bed, uint32_t table, struct psi_adopt_run *run, uint32_t runs)
{
    const struct psi_adopt adopt = {.runs = runs, .run = run};
    uint8_t bytes[256];
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_adopt_encode(&pack, &adopt);
    bed->worker[0] = meet(bed, 0, 1);
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_ADOPT, .table = table}, bytes,
        pack.used);
}

/* If this fails, a worker can crash or mislead the lane by what it says of itself. */
static void
test_a_wrong_adopt_costs_the_connection(void **state)
{
    struct lane_bed *bed = sums_start_again(2, 2);
    struct psi_adopt_run bad[][2] = {
        {{.first = 1, .count = 2, .base = 5}},      /* beyond the table */
        {{.count = 1, .base = PSI_STEP_NEVER}},     /* no such step */
        {{.count = 1, .base = PSI_STEP_NEVER - 1}}, /* none behind it */
        {{.count = 1, .has = PSI_HAS_KEPT}},        /* of the step before the first */
        {{.count = 2, .base = 5}, {.first = 1, .count = 1, .base = 6}}, /* twice the same chunk */
    };
    struct psi_adopt_run good = {.count = 2, .base = 5, .has = PSI_HAS_PASSED};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        say_runs(bed, SUMS_TABLE, bad[i], bad[i][1].count > 0 ? 2 : 1);
        assert_true(is_gone(bed->worker[0]));
    }
    say_runs(bed, SUMS_TABLE + 1, &good, 1);
    assert_true(is_gone(bed->worker[0]));
    say_runs(bed, SUMS_TABLE, &good, 1);
    assert_false(is_gone(bed->worker[0]));
    sums_adopt(bed, 1, 2, 5, PSI_HAS_PASSED);
    good.has = PSI_HAS_HELD; /* the round is open now: nobody has its result */
    say_runs(bed, SUMS_TABLE, &good, 1);
    assert_true(is_gone(bed->worker[0]));
    lane_bed_stop(bed);
}

/* If this fails, bytes of any length or kind become the value of a step. */
static void
test_a_wrong_result_costs_the_connection(void **state)
{
    const float numbers[5] = {7, 7, 7, 7, 7};
    const struct psi_frame right = {.type = PSI_FRAME_PUSH,
                                    .flags = PSI_FLAG_RESULT,
                                    .dtype = PSD_F32,
                                    .step = 5,
                                    .table = SUMS_TABLE};
    struct psi_frame frame[6] = {right, right, right, right, right, right};
    struct lane_bed *bed = sums_start_again(2, 1);

    (void)state;
    sums_adopt(bed, 1, 1, 5, PSI_HAS_PASSED);
    frame[1].type = PSI_FRAME_PUSH_PULL;
    frame[2].dtype = PSD_F64;
    frame[3].level = 1;
    frame[4].table = SUMS_TABLE + 1;
    frame[5].chunk = 1;
    for (size_t i = 0; i < 6; i++) {
        sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
        assert_int_equal(sums_given(bed, 0), 5);
        say(bed, bed->worker[0], frame[i], numbers, sizeof(float) * (i == 0 ? 5 : 4));
        assert_true(is_gone(bed->worker[0]));
        bed->worker[0] = meet(bed, 0, 1);
    }
    sums_adopt(bed, 0, 1, 5, PSI_HAS_HELD);
    sums_show(bed, 1, 0, 5, 7); /* not the one that was asked */
    sums_show(bed, 0, 0, 4, 7); /* not the step */
    push(bed, 1, 5, KEEPS, 2);
    assert_true(isnan(sums_value(bed, 1)));
    sums_show(bed, 0, 0, 5, 42);
    push(bed, 1, 5, KEEPS, 2);
    assert_true(sums_value(bed, 1) == 42);
    sums_show(bed, 0, 0, 5, 7); /* once more: nothing changes */
    pull(bed, 1, 6);
    assert_true(sums_value(bed, 1) == 42);
    lane_bed_stop(bed);
}

/* If this fails, a push of a step that cannot be open is kept for ever. */
static void
test_an_early_push_is_refused_when_the_chunk_opens(void **state)
{
    struct lane_bed *bed = sums_start_again(1, 1);

    (void)state;
    push(bed, 0, 9, KEEPS, 1);
    sums_adopt(bed, 0, 1, 5, PSI_HAS_PASSED);
    assert_int_equal(hear_verdict(bed->worker[0], PSI_FRAME_ACK).status, PSD_ERR_STEP);
    lane_bed_stop(bed);
}

/* If this fails, a checkpoint that is loaded while workers tell where they are is half forgotten. */
static void
test_nothing_is_loaded_meanwhile(void **state)
{
    struct lane_bed *bed = sums_start_again(1, 1);

    (void)state;
    say(bed, bed->worker[0],
        (struct psi_frame){.type = PSI_FRAME_STATE_PUSH,
                           .flags = PSI_FLAG_EMPTY,
                           .table = SUMS_TABLE,
                           .step = 3,
                           .request = 1},
        NULL, 0);
    assert_int_equal(hear_verdict(bed->worker[0], PSI_FRAME_ACK).status, PSD_ERR_STATE);
    lane_bed_stop(bed);
}

/* If this fails, whoever started a server whose place was taken takes it for a failure. */
static void
test_a_lane_that_was_replaced_says_so(void **state)
{
    struct lane_bed *bed = sums_start(1, 1);
    const struct psi_verdict verdict = {.status = PSD_ERR_FENCED, .text = "declared dead"};
    const struct psi_frame refuse = {.type = PSI_FRAME_REFUSE};
    const char *text = "";
    int exit_code = 0;

    (void)state;
    world_hang_up(bed->master->line, "cut");
    world_wait(&bed->world, 1000);
    world_settle(&bed->world);
    bed->master->line = world_to(&bed->world, "test://master");
    assert_non_null(bed->master->line);
    WORLD_SAY(&bed->world, bed->master->line, &refuse, verdict, &verdict);
    assert_true(lane_finished(bed->lane, &exit_code, &text));
    assert_int_equal(exit_code, PSI_EXIT_FENCED);
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_held_result_is_shown_to_those_who_lack_it),
        cmocka_unit_test(test_a_kept_result_is_shown_by_who_has_gone_on),
        cmocka_unit_test(test_who_leaves_shows_what_it_keeps),
        cmocka_unit_test(test_an_open_round_is_given_again),
        cmocka_unit_test(test_what_all_have_is_released),
        cmocka_unit_test(test_a_lost_value_is_never_read),
        cmocka_unit_test(test_what_cannot_be_made_anew_fails_the_job_by_name),
        cmocka_unit_test(test_who_has_joined_does_not_speak_for_the_others),
        cmocka_unit_test(test_each_chunk_is_adopted_by_itself),
        cmocka_unit_test(test_nothing_moves_before_the_last_has_told),
        cmocka_unit_test(test_when_the_asked_one_goes_another_is_asked),
        cmocka_unit_test(test_half_a_result_is_none),
        cmocka_unit_test(test_who_tells_again_is_released),
        cmocka_unit_test(test_who_speaks_for_a_host_is_awaited_for_it),
        cmocka_unit_test(test_a_worker_that_died_with_the_server_leaves),
        cmocka_unit_test(test_a_result_that_others_have_counts_as_given),
        cmocka_unit_test(test_the_master_is_answered_though_nobody_tells),
        cmocka_unit_test(test_who_has_left_is_not_waited_for),
        cmocka_unit_test(test_who_left_before_the_server_died_is_missed_by_name),
        cmocka_unit_test(test_who_left_by_a_view_that_was_missed_counts_no_more),
        cmocka_unit_test(test_who_joined_later_is_not_missed),
        cmocka_unit_test(test_who_left_long_ago_is_not_missed),
        cmocka_unit_test(test_an_aborted_change_thaws_the_lane),
        cmocka_unit_test(test_a_result_while_frozen_is_asked_for_again),
        cmocka_unit_test(test_who_does_not_know_of_the_new_life_is_not_heard),
        cmocka_unit_test(test_a_table_that_is_no_sum_is_refused),
        cmocka_unit_test(test_a_wrong_adopt_costs_the_connection),
        cmocka_unit_test(test_a_wrong_result_costs_the_connection),
        cmocka_unit_test(test_an_early_push_is_refused_when_the_chunk_opens),
        cmocka_unit_test(test_nothing_is_loaded_meanwhile),
        cmocka_unit_test(test_a_lane_that_was_replaced_says_so),
    };

    return cmocka_run_group_tests_name("lane_adopt", tests, NULL, NULL);
}
