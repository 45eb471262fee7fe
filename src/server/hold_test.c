/*
 * hold_test.c - results that workers hold until everybody has them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <string.h>

#include "server/state.h"
#include "server/sums_bed.h"

enum { KEEPS = PSI_FLAG_KEEPS };

/* All of them give to a round, rank r with flags[r]. */
static void
close_step(struct lane_bed *bed, uint64_t step, const uint16_t *flags)
{
    for (uint32_t rank = 0; rank < bed->workers; rank++) {
        sums_push(bed, rank,
                  (struct sums_push){.step = step,
                                     .request = (uint32_t)step + 1,
                                     .flags = flags[rank],
                                     .value = (float)(1u << rank)});
    }
}

/* If this fails, jobs whose workers keep every result pay for those that do not. */
static void
test_nobody_holds_where_all_keep(void **state)
{
    struct lane_bed *bed = sums_start(2, 1);

    (void)state;
    close_step(bed, 0, (uint16_t[]){KEEPS, KEEPS});
    assert_int_equal(sums_value_flags(bed, 0), 0);
    assert_int_equal(sums_value_flags(bed, 1), 0);
    close_step(bed, 1, (uint16_t[]){KEEPS, KEEPS});
    assert_false(sums_released(bed, 0, 0, 0, 1));
    lane_bed_stop(bed);
}

/* If this fails, jobs that end when a server dies hold results for nothing. */
static void
test_nobody_holds_in_a_job_that_does_not_go_on(void **state)
{
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_CONTINUE);

    (void)state;
    open_table(bed, SUMS_TABLE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "g",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {4},
                                        .use = PSD_USE_SUM});
    assert_null(table_find(bed->lane, SUMS_TABLE)->held);
    say(bed, bed->worker[0],
        (struct psi_frame){.type = PSI_FRAME_PUSH_PULL,
                           .flags = PSI_FLAG_EMPTY,
                           .table = SUMS_TABLE,
                           .request = 1},
        NULL, 0);
    assert_int_equal(sums_value_flags(bed, 0), 0);
    sums_bye(bed, 0); /* nobody says that there */
    assert_true(is_gone(bed->worker[0]));
    lane_bed_stop(bed);
}

/* If this fails, a worker goes on before everybody has the result, and it may be lost. */
static void
test_the_last_got_releases(void **state)
{
    struct lane_bed *bed = sums_start(3, 1);

    (void)state;
    close_step(bed, 0, (uint16_t[]){0, KEEPS, 0});
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(sums_value_flags(bed, rank), PSI_FLAG_HOLD); /* who keeps says GOT, too */
    }
    sums_got(bed, 0, 0, 0);
    sums_got(bed, 2, 0, 0);
    assert_false(sums_released(bed, 0, 0, 0, 1));
    assert_non_null(strstr(sums_why(bed, 0, 0, 1), "held until it has come to worker 1"));
    sums_got(bed, 1, 0, 0);
    assert_true(sums_released(bed, 0, 0, 0, 1));
    assert_true(sums_released(bed, 2, 0, 0, 1));
    assert_false(sums_released(bed, 1, 0, 0, 1)); /* it waits for nothing */
    lane_bed_stop(bed);
}

/* If this fails, a worker that was cut off when it was released waits for ever. */
static void
test_got_again_is_answered(void **state)
{
    struct lane_bed *bed = sums_start(2, 1);

    (void)state;
    close_step(bed, 0, (uint16_t[]){0, 0});
    sums_got(bed, 0, 0, 0);
    sums_got(bed, 0, 0, 0); /* twice, before the other: nothing follows from that */
    assert_false(sums_released(bed, 0, 0, 0, 1));
    world_hang_up(bed->worker[0]->line, "cut");
    world_settle(&bed->world);
    sums_got(bed, 1, 0, 0); /* the RELEASE to worker 0 has nowhere to go */
    assert_true(sums_released(bed, 1, 0, 0, 1));
    bed->worker[0] = meet(bed, 0, 1);
    sums_got(bed, 0, 0, 0);
    assert_true(sums_released(bed, 0, 0, 0, 1));
    close_step(bed, 1, (uint16_t[]){0, 0});
    sums_got(bed, 0, 0, 0); /* of the step before, while another is held */
    assert_true(sums_released(bed, 0, 0, 0, 1));
    assert_false(sums_released(bed, 0, 0, 1, 1));
    lane_bed_stop(bed);
}

/* If this fails, a worker that was cut off before its result came is not awaited, or for ever. */
static void
test_a_repeated_push_is_told_to_hold(void **state)
{
    struct lane_bed *bed = sums_start(2, 1);

    (void)state;
    close_step(bed, 0, (uint16_t[]){0, KEEPS});
    sums_got(bed, 0, 0, 0);
    world_hang_up(bed->worker[1]->line, "cut");
    world_settle(&bed->world);
    bed->worker[1] = meet(bed, 1, 1);
    sums_push(bed, 1, (struct sums_push){.request = 2, .flags = KEEPS, .value = 2});
    assert_int_equal(sums_value_flags(bed, 1), PSI_FLAG_HOLD);
    assert_false(sums_released(bed, 0, 0, 0, 1));
    sums_got(bed, 1, 0, 0);
    assert_true(sums_released(bed, 0, 0, 0, 1));
    lane_bed_stop(bed);
}

/* If this fails, a worker that gave through another of its host, and is cut off from it, gets a result by
 * itself, goes on, and nobody can show that result if the server dies then. */
static void
test_who_comes_by_itself_is_told_to_hold(void **state)
{
    struct lane_bed *bed = sums_start(3, 1);

    (void)state;
    close_step(bed, 0, (uint16_t[]){KEEPS, KEEPS, KEEPS});
    world_hang_up(bed->worker[1]->line, "cut"); /* what it was sent may not have come */
    world_settle(&bed->world);
    sums_push(bed, 2, (struct sums_push){.request = 2, .value = 4});
    assert_int_equal(sums_value_flags(bed, 2), 0); /* that of the round */
    assert_int_equal(sums_value_flags(bed, 2), PSI_FLAG_HOLD);
    sums_got(bed, 2, 0, 0);
    assert_true(sums_asked(bed, 0, 0, 0, 1));
    sums_got(bed, 0, 0, 0);
    bed->worker[1] = meet(bed, 1, 1);
    assert_true(sums_asked(bed, 1, 0, 0, 1));
    assert_false(sums_released(bed, 2, 0, 0, 1));
    sums_got(bed, 1, 0, 0);
    assert_true(sums_released(bed, 2, 0, 0, 1));
    lane_bed_stop(bed);
}

/* If this fails, the same is lost if it comes before its round is over. */
static void
test_who_comes_by_itself_early_is_told_to_hold(void **state)
{
    struct lane_bed *bed = sums_start(2, 1);

    (void)state;
    sums_push(bed, 1, (struct sums_push){.request = 1, .flags = KEEPS, .value = 2});
    sums_push(bed, 1, (struct sums_push){.request = 2, .value = 2});
    sums_push(bed, 0, (struct sums_push){.request = 1, .flags = KEEPS, .value = 1});
    assert_int_equal(sums_value_flags(bed, 0), PSI_FLAG_HOLD);
    assert_int_equal(sums_value_flags(bed, 1), PSI_FLAG_HOLD);
    sums_got(bed, 1, 0, 0);
    assert_false(sums_released(bed, 1, 0, 0, 1));
    sums_got(bed, 0, 0, 0);
    assert_true(sums_released(bed, 1, 0, 0, 1));
    lane_bed_stop(bed);
}

/* If this fails, a GOT that was lost with its connection holds others up although its worker has
 * long gone on. */
static void
test_who_gives_to_the_next_round_has_the_result(void **state)
{
    struct lane_bed *bed = sums_start(2, 1);

    (void)state;
    close_step(bed, 0, (uint16_t[]){0, KEEPS});
    sums_got(bed, 0, 0, 0);
    sums_push(bed, 1, (struct sums_push){.step = 1, .request = 2, .flags = KEEPS, .value = 2});
    assert_true(sums_released(bed, 0, 0, 0, 1));
    lane_bed_stop(bed);
}

/* If this fails, everybody waits for a worker that has left. */
static void
test_who_has_left_is_not_awaited(void **state)
{
    struct lane_bed *bed = sums_start(3, 1);
    const struct psi_view_table left = {.id = SUMS_TABLE, .left_at = 1};

    (void)state;
    close_step(bed, 0, (uint16_t[]){0, 0, 0});
    sums_got(bed, 0, 0, 0);
    sums_got(bed, 1, 0, 0);
    propose(bed, 2, true);
    assert_false(sums_released(bed, 0, 0, 0, 1));
    commit(bed, &left, 2, true);
    assert_true(sums_released(bed, 0, 0, 0, 1));
    assert_true(sums_released(bed, 1, 0, 0, 1));
    lane_bed_stop(bed);
}

/* If this fails, whoever only pushes keeps others waiting for a GOT that never comes. */
static void
test_a_push_without_a_value_holds_nobody_up(void **state)
{
    struct lane_bed *bed = sums_start(2, 1);

    (void)state;
    sums_push(bed, 0, (struct sums_push){.type = PSI_FRAME_PUSH, .request = 1, .value = 1});
    sums_push(bed, 1, (struct sums_push){.request = 1, .value = 2});
    assert_non_null(hear(bed->worker[0], PSI_FRAME_ACK));
    assert_int_equal(sums_value_flags(bed, 1), PSI_FLAG_HOLD);
    sums_got(bed, 1, 0, 0);
    assert_true(sums_released(bed, 1, 0, 0, 1));
    sums_push(bed, 0, (struct sums_push){.type = PSI_FRAME_PUSH, .step = 1, .request = 2});
    sums_push(bed, 1, (struct sums_push){.step = 1, .request = 2, .flags = KEEPS});
    assert_int_equal(sums_value_flags(bed, 1), 0);
    lane_bed_stop(bed);
}

/* If this fails, a worker leaves with the only copy of a result that another still needs. */
static void
test_who_leaves_waits_until_all_have_what_it_keeps(void **state)
{
    struct lane_bed *bed = sums_start(3, 2);

    (void)state;
    sums_bye(bed, 2); /* nobody has been given anything */
    assert_true(sums_may_go(bed, 2));
    close_step(bed, 0, (uint16_t[]){KEEPS, KEEPS, KEEPS});
    sums_bye(bed, 0);
    assert_true(sums_asked(bed, 1, 0, 0, 1));
    assert_true(sums_asked(bed, 2, 0, 0, 1));
    sums_got(bed, 1, 0, 0);
    assert_false(sums_may_go(bed, 0));
    sums_bye(bed, 0); /* again, after a cut, say: all are asked again */
    assert_true(sums_asked(bed, 1, 0, 0, 1));
    sums_got(bed, 2, 0, 0);
    assert_false(sums_may_go(bed, 0));
    sums_got(bed, 1, 0, 0);
    assert_true(sums_may_go(bed, 0));
    lane_bed_stop(bed);
}

/* If this fails, workers that leave together wait for each other, or for those who have gone on. */
static void
test_leaving_waits_for_nobody_who_has_the_result(void **state)
{
    struct lane_bed *bed = sums_start(3, 1);

    (void)state;
    close_step(bed, 0, (uint16_t[]){KEEPS, KEEPS, KEEPS});
    sums_push(bed, 2, (struct sums_push){.step = 1, .request = 2, .flags = KEEPS});
    sums_bye(bed, 0);
    sums_bye(bed, 1);
    assert_true(sums_asked(bed, 0, 0, 0, 1));
    assert_true(sums_asked(bed, 1, 0, 0, 1));
    assert_false(sums_asked(bed, 2, 0, 0, 1)); /* it gives to the next round */
    sums_got(bed, 0, 0, 0);
    sums_got(bed, 1, 0, 0);
    assert_true(sums_may_go(bed, 0));
    assert_true(sums_may_go(bed, 1));
    lane_bed_stop(bed);
}

/* If this fails, a leaving worker waits for ever for one that was cut off, or that has left. */
static void
test_who_was_cut_off_is_asked_again(void **state)
{
    struct lane_bed *bed = sums_start(3, 1);
    const struct psi_view_table left = {.id = SUMS_TABLE, .left_at = 1};

    (void)state;
    close_step(bed, 0, (uint16_t[]){KEEPS, KEEPS, KEEPS});
    world_hang_up(bed->worker[1]->line, "cut");
    world_settle(&bed->world);
    sums_bye(bed, 0);
    bed->worker[1] = meet(bed, 1, 1);
    assert_true(sums_asked(bed, 1, 0, 0, 1));
    sums_push(bed, 1,
              (struct sums_push){.request = 2, .flags = KEEPS, .value = 2}); /* it has not */
    assert_int_equal(sums_value_flags(bed, 1), PSI_FLAG_HOLD);
    assert_false(sums_may_go(bed, 0));
    sums_got(bed, 1, 0, 0);
    assert_false(sums_may_go(bed, 0));
    propose(bed, 2, true);
    commit(bed, &left, 2, true);
    assert_true(sums_may_go(bed, 0));
    lane_bed_stop(bed);
}

static uint8_t *
add_got(uint8_t *at, uint32_t chunk, uint64_t step)
{
    struct psi_result result = {.table = SUMS_TABLE, .chunk = chunk, .step = step};
    const struct psi_results results = {.count = 1, .result = &result};
    const struct psi_frame frame = {.type = PSI_FRAME_GOT, .rank = 1, .incarnation = 1, .view = 1};
    struct psi_frame full = frame;
    struct psi_pack pack;

    psi_pack_init(&pack, at + PSI_FRAME_BYTES, 64);
    psi_results_encode(&pack, &results);
    full.payload_bytes = (uint32_t)pack.used;
    psi_frame_encode(&full, at);
    return at + PSI_FRAME_BYTES + pack.used;
}

/* If this fails, every chunk costs a frame of its own: a model has thousands. */
static void
test_releases_of_a_turn_go_together(void **state)
{
    struct lane_bed *bed = sums_start(2, 2);
    uint8_t bytes[512];
    const uint8_t *end;

    (void)state;
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            sums_push(bed, rank, (struct sums_push){.chunk = chunk, .request = chunk + 1});
        }
        sums_got(bed, 0, chunk, 0);
    }
    end = add_got(add_got(bytes, 0, 0), 1, 0); /* both before the lane's next turn */
    world_feed(bed->worker[1]->line, bytes, (size_t)(end - bytes));
    assert_int_equal(lane_next_ns(bed->lane), 0);
    world_settle(&bed->world);
    assert_true(sums_released(bed, 0, 1, 0, 2));
    assert_null(hear(bed->worker[0], PSI_FRAME_RELEASE));
    lane_bed_stop(bed);
}

/* If this fails, a worker can make the lane believe what it does not know, or read beyond. */
static void
test_a_wrong_got_costs_the_connection(void **state)
{
    struct lane_bed *bed = sums_start(2, 1);

    (void)state;
    sums_got(bed, 0, 0, 0); /* not closed */
    assert_true(is_gone(bed->worker[0]));
    assert_non_null(strstr(bed->warnings, "GOT: the result of step 0 of table g chunk 0"));
    bed->worker[0] = meet(bed, 0, 1);
    sums_got(bed, 0, 1, 0); /* no such chunk */
    assert_true(is_gone(bed->worker[0]));
    bed->worker[0] = meet(bed, 0, 1);
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_GOT}, "\1\0\0\0", 4);
    assert_true(is_gone(bed->worker[0]));
    bed->worker[0] = meet(bed, 0, 1);
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_GOT}, NULL, 0);
    assert_true(is_gone(bed->worker[0]));
    bed->worker[0] = meet(bed, 0, 1);
    sums_show(bed, 0, 0, 0, 1); /* nobody asked: this is the server's first life */
    assert_true(is_gone(bed->worker[0]));
    assert_non_null(strstr(bed->warnings, "nobody asked for it"));
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_holds_where_all_keep),
        cmocka_unit_test(test_nobody_holds_in_a_job_that_does_not_go_on),
        cmocka_unit_test(test_the_last_got_releases),
        cmocka_unit_test(test_got_again_is_answered),
        cmocka_unit_test(test_a_repeated_push_is_told_to_hold),
        cmocka_unit_test(test_who_comes_by_itself_is_told_to_hold),
        cmocka_unit_test(test_who_comes_by_itself_early_is_told_to_hold),
        cmocka_unit_test(test_who_gives_to_the_next_round_has_the_result),
        cmocka_unit_test(test_who_has_left_is_not_awaited),
        cmocka_unit_test(test_a_push_without_a_value_holds_nobody_up),
        cmocka_unit_test(test_who_leaves_waits_until_all_have_what_it_keeps),
        cmocka_unit_test(test_leaving_waits_for_nobody_who_has_the_result),
        cmocka_unit_test(test_who_was_cut_off_is_asked_again),
        cmocka_unit_test(test_releases_of_a_turn_go_together),
        cmocka_unit_test(test_a_wrong_got_costs_the_connection),
    };

    return cmocka_run_group_tests_name("lane_hold", tests, NULL, NULL);
}
