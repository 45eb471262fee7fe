/*
 * lane_join_test.c - a worker joins while the others push: what a lane closes, and with whom.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include <psd/psd.h>

#include "server/lane_bed.h"
#include "server/state.h"

enum { TABLE = 7, ELEMENTS = 4, BYTES = ELEMENTS * sizeof(float) };

static void
open_means(struct lane_bed *bed, uint32_t staleness)
{
    open_table(bed, TABLE,
               &(struct psd_table_args){
                   .struct_size = sizeof(struct psd_table_args),
                   .name = "w",
                   .dtype = PSD_F32,
                   .dims = 1,
                   .shape = {ELEMENTS},
                   .reduce = PSD_REDUCE_MEAN,
                   .staleness = staleness,
                   .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                                   .rule = PSD_RULE_ADD}});
}

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, float value)
{
    const float gradient[ELEMENTS] = {value, value, value, value};

    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_PUSH,
                           .dtype = PSD_F32,
                           .seq = step + 1,
                           .step = step,
                           .table = TABLE,
                           .request = (uint32_t)step + 1},
        gradient, BYTES);
}

/* The value of that step; -1: not yet. */
static float
pull(struct lane_bed *bed, uint32_t rank, uint64_t step)
{
    const struct world_heard *heard;
    float value = -1;

    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_PULL, .table = TABLE, .step = step, .request = 99},
        NULL, 0);
    heard = hear(bed->worker[rank], PSI_FRAME_VALUE);
    if (heard != NULL) {
        memcpy(&value, heard->body, sizeof(value));
    }
    return value;
}

static uint64_t
version(const struct lane_bed *bed)
{
    return bed->lane->tables->chunks[0].clock.version;
}

/* If this fails, a step is closed by one lane with the worker that joins and by another without it; or the
 * others stop while it joins. */
static void
test_what_is_promised_is_not_closed(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 0);
    for (uint64_t step = 0; step < 4; step++) {
        push(bed, 0, step, 1);
        push(bed, 1, step, 1);
    }
    assert_int_equal(version(bed), 4);
    push(bed, 0, 4, 1);
    assert_int_equal(propose_join(bed, 2), 6); /* step 4 is open; one more may come and go */
    push(bed, 1, 4, 1);
    push(bed, 0, 5, 1);
    push(bed, 1, 5, 1);
    assert_int_equal(version(bed), 6);
    push(bed, 0, 6, 1);
    push(bed, 1, 6, 1);
    assert_int_equal(version(bed), 6); /* it may begin with this one */
    commit_join(bed, 2, TABLE, 6);
    assert_int_equal(version(bed), 6);
    push(bed, 2, 6, 4);
    assert_int_equal(version(bed), 7);
    assert_true(pull(bed, 0, 7) == 6 + 2); /* (1 + 1 + 4) / 3: the mean divides by who was there */
    lane_bed_stop(bed);
}

/* If this fails, rounds wait for a worker that has no part in them, or it is told that it came too early
 * and its gradient is lost. */
static void
test_one_that_is_early_waits_for_its_step(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 0);
    push(bed, 0, 0, 1);
    push(bed, 1, 0, 1);
    assert_int_equal(propose_join(bed, 2), 2);
    commit_join(bed, 2, TABLE, 2);
    push(bed, 2, 2, 4);
    assert_null(hear(bed->worker[2], PSI_FRAME_ACK));
    push(bed, 0, 1, 1);
    push(bed, 1, 1, 1);
    assert_int_equal(version(bed), 2); /* without it */
    assert_non_null(hear(bed->worker[2], PSI_FRAME_RESEND));
    push(bed, 0, 2, 1);
    push(bed, 1, 2, 1);
    assert_int_equal(version(bed), 2);
    push(bed, 2, 2, 4);
    assert_int_equal(version(bed), 3);
    assert_int_equal(hear(bed->worker[2], PSI_FRAME_ACK)->frame.status, PSD_OK);
    push(bed, 2, 1, 4); /* in that one it had no part */
    assert_int_equal(hear(bed->worker[2], PSI_FRAME_ACK)->frame.status, PSD_ERR_DROPPED);
    lane_bed_stop(bed);
}

/* If this fails, a worker whose first step is that of another table, which is ahead, is told that it came too early when
 * this table comes nearer. */
static void
test_one_that_is_early_by_several_steps_waits(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 0);
    push(bed, 0, 0, 1);
    push(bed, 1, 0, 1);
    assert_int_equal(propose_join(bed, 2), 2);
    commit_join(bed, 2, TABLE, 4);
    push(bed, 2, 4, 4);
    for (uint64_t step = 1; step < 4; step++) {
        assert_null(hear(bed->worker[2], PSI_FRAME_ACK));
        push(bed, 0, step, 1);
        push(bed, 1, step, 1);
    }
    assert_int_equal(version(bed), 4);
    assert_non_null(hear(bed->worker[2], PSI_FRAME_RESEND));
    push(bed, 0, 4, 1);
    push(bed, 1, 4, 1);
    push(bed, 2, 4, 4);
    assert_int_equal(version(bed), 5);
    assert_int_equal(hear(bed->worker[2], PSI_FRAME_ACK)->frame.status, PSD_OK);
    lane_bed_stop(bed);
}

/* If this fails, a worker that joins before anybody trains misses the first steps. */
static void
test_nothing_has_begun(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 0);
    assert_int_equal(propose_join(bed, 2), 0);
    push(bed, 0, 0, 1);
    push(bed, 1, 0, 1);
    assert_int_equal(version(bed), 0);
    commit_join(bed, 2, TABLE, 0);
    push(bed, 2, 0, 1);
    assert_int_equal(version(bed), 1);
    lane_bed_stop(bed);
}

/* If this fails, a worker that has joined waits for ever for those who have left since. */
static void
test_all_others_have_left(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(2, 1, PSI_DEATH_FAIL);
    const struct psi_view_table left = {.id = TABLE, .left_at = 1};

    (void)state;
    open_means(bed, 0);
    push(bed, 0, 0, 1);
    assert_int_equal(propose_join(bed, 1), 2);
    commit_join(bed, 1, TABLE, 2);
    assert_true(pull(bed, 1, 2) == -1);
    propose(bed, 0, true);
    commit(bed, &left, 0, true);
    assert_non_null(
        hear(bed->worker[1], PSI_FRAME_VALUE)); /* nobody is in step 1: nothing changes */
    assert_int_equal(bed->lane->tables->chunks[0].updates, 1);
    push(bed, 1, 2, 1);
    assert_true(pull(bed, 1, 3) == 2);
    lane_bed_stop(bed);
}

/* If this fails, a server's other life, which came while the worker joined, takes nothing from it. */
static void
test_who_joined_is_known_without_that_view(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 0);
    say(bed, bed->master,
        (struct psi_frame){.type = PSI_FRAME_TABLE_RESUME, .table = TABLE, .rank = 2, .step = 1},
        NULL, 0);
    bed->member[2] = (struct psi_view_worker){.incarnation = 1, .member = true};
    server_back(bed); /* a view of another kind, the next that it hears of */
    push(bed, 0, 0, 1);
    push(bed, 1, 0, 1);
    assert_int_equal(version(bed), 1);
    push(bed, 0, 1, 1);
    push(bed, 1, 1, 1);
    assert_int_equal(version(bed), 1);
    push(bed, 2, 1, 1);
    assert_int_equal(version(bed), 2);
    lane_bed_stop(bed);
}

/* If this fails, a server's other life, which came while a worker left, waits for that worker for ever. */
static void
test_who_left_is_known_without_that_view(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 3, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 0);
    bed->member[2].member = false;
    server_back(bed); /* a view of another kind, the next that it hears of */
    push(bed, 0, 0, 1);
    push(bed, 1, 0, 1);
    assert_int_equal(version(bed), 1);
    lane_bed_stop(bed);
}

/* If this fails, lanes go on counting on a worker whose joining was called off. */
static void
test_a_join_is_called_off(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 0);
    push(bed, 0, 0, 1);
    push(bed, 1, 0, 1);
    assert_int_equal(propose_join(bed, 2), 2);
    for (uint64_t step = 1; step < 4; step++) {
        push(bed, 0, step, 1);
        push(bed, 1, step, 1);
    }
    assert_int_equal(version(bed), 2);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_VIEW_ABORT}, NULL, 0);
    assert_int_equal(version(bed), 3); /* step 3 was too early, and is not here */
    lane_bed_stop(bed);
}

/* If this fails, a lane that was cut off while a join was called off answers the next question, what a dead
 * worker has given, with its promise to the one that joined: then others wait for ever for steps that nobody
 * gave. */
static void
test_a_join_is_called_off_unheard(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);
    const struct psi_propose leave = {.id = bed->view + 2, .rank = 1, .leaves = true};
    struct psi_given given[1];
    struct psi_view_ack ack = {.given = given};
    const struct world_heard *heard;
    struct psi_pack pack;
    uint8_t bytes[64];

    (void)state;
    open_means(bed, 2);
    push(bed, 0, 0, 1);
    assert_int_equal(propose_join(bed, 2), 2);
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_propose_encode(&pack, &leave);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_VIEW_PROPOSE}, bytes, pack.used);
    heard = hear(bed->master, PSI_FRAME_VIEW_ACK);
    assert_non_null(heard);
    assert_int_equal(psi_view_ack_decode(heard->body, heard->frame.payload_bytes, &ack, NULL),
                     PSD_OK);
    assert_int_equal(ack.id, leave.id);
    assert_int_equal(ack.tables, 1);
    assert_int_equal(given[0].next_max, 0);
    lane_bed_stop(bed);
}

/* If this fails, workers run further ahead of one that has joined than the staleness allows, or it is
 * behind from its first step on. */
static void
test_the_bound_holds_for_one_that_joins(void **state)
{
    struct lane_bed *bed = lane_bed_start_elastic(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_means(bed, 1);
    for (uint64_t step = 0; step < 3; step++) {
        push(bed, 0, step, 1);
        push(bed, 1, step, 1);
    }
    assert_int_equal(propose_join(bed, 2),
                     4); /* the furthest has given three, and gives one more */
    for (uint64_t step = 3; step < 6; step++) {
        push(bed, 0, step, 1);
        push(bed, 1, step, 1);
    }
    assert_true(pull(bed, 0, 5) > 0);
    assert_true(pull(bed, 0, 6) == -1); /* it may have to be waited for */
    commit_join(bed, 2, TABLE, 4);
    assert_null(hear(bed->worker[0], PSI_FRAME_VALUE));
    push(bed, 2, 4, 1);
    assert_non_null(hear(bed->worker[0], PSI_FRAME_VALUE));
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_promised_is_not_closed),
        cmocka_unit_test(test_one_that_is_early_waits_for_its_step),
        cmocka_unit_test(test_one_that_is_early_by_several_steps_waits),
        cmocka_unit_test(test_nothing_has_begun),
        cmocka_unit_test(test_all_others_have_left),
        cmocka_unit_test(test_who_joined_is_known_without_that_view),
        cmocka_unit_test(test_who_left_is_known_without_that_view),
        cmocka_unit_test(test_a_join_is_called_off),
        cmocka_unit_test(test_a_join_is_called_off_unheard),
        cmocka_unit_test(test_the_bound_holds_for_one_that_joins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
