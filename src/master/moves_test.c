/*
 * moves_test.c - a master whose servers come and go, against scripted members, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "master/master.h"
#include "master/master_bed.h"

enum { STANDBY = 700, NEWCOMER = 1 }; /* its lanes that stand by: one life after the other */

/* One server with two lanes and a table; another one has come, with two lanes that stand by. */
struct job {
    struct master_bed *bed;
    struct peer *spare[2];
    uint64_t number;
};

static struct job
begin(psd_use use)
{
    struct job job = {.bed = start_moving_job()};

    open_everywhere(job.bed, "w", use);
    for (uint32_t i = 0; i < 2; i++) {
        job.spare[i] = join_as(job.bed, PSI_ROLE_STANDBY, NEWCOMER, i, NEWCOMER, STANDBY + i);
        assert_int_equal(hear_welcome(job.spare[i]).servers, 3); /* else it would leave */
    }
    pass_ms(job.bed, 100, NULL);
    return job;
}

/* Lane 0 is to move, to the first lane of the newcomer that stands by or the second. */
static struct peer *
hear_move(struct job *job)
{
    const struct world_heard *owner = hear(job->bed->lane[0], PSI_FRAME_PAIR);
    struct psi_pair pair;

    assert_non_null(owner);
    assert_int_equal(owner->frame.step, 1000); /* how fast */
    assert_int_equal(psi_pair_decode(owner->body, owner->frame.payload_bytes, &pair, NULL), PSD_OK);
    assert_int_equal(pair.server, NEWCOMER);
    job->number = owner->frame.seq;
    for (uint32_t i = 0; i < 2; i++) {
        const struct world_heard *copy = hear(job->spare[i], PSI_FRAME_PAIR);

        if (copy != NULL) {
            assert_int_equal(copy->frame.seq, job->number);
            assert_int_equal(pair.life, STANDBY + i);
            return job->spare[i];
        }
    }
    fail_msg("nobody is to be the copy");
    return NULL;
}

static void
call_eligible(struct job *job)
{
    say(job->bed, job->bed->lane[0],
        (struct psi_frame){.type = PSI_FRAME_ELIGIBLE, .seq = job->number}, NULL);
    pass_ms(job->bed, 100, NULL);
}

/* The copy of that number comes for the place of lane 0. */
static struct peer *
come_for_place(struct job *job, uint64_t life)
{
    struct peer *peer = dial(job->bed);
    const struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                                    .rank = 0,
                                    .lanes = 2,
                                    .life = life,
                                    .pair = job->number,
                                    .host = UINT64_C(1) << PSI_PROCESS_INDEX_BITS | NEWCOMER,
                                    .kernel_revision = PSI_KERNEL_REVISION,
                                    .address = "test://copy"};

    peer->life = life;
    say_hello(job->bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    return peer;
}

/* If this fails, a place does not move to a server that has come, or the lane that had it is not told to stand by, or workers
 * do not hear of it. */
static void
test_a_place_moves_to_a_newcomer(void **state)
{
    struct job job = begin(PSD_USE_UPDATE);
    struct psi_view_table tables[1];
    struct peer *copy;

    (void)state;
    copy = hear_move(&job);
    assert_null(hear(job.bed->lane[0], PSI_FRAME_GIVE_PLACE)); /* not before it is whole */
    call_eligible(&job);
    assert_int_equal(hear(job.bed->lane[0], PSI_FRAME_GIVE_PLACE)->frame.seq, job.number);
    assert_null(hear(copy, PSI_FRAME_TAKE_PLACE)); /* the lane says so itself */
    hang_up(copy, "comes again by another name");
    copy = come_for_place(&job, copy->life);
    assert_int_equal(hear_welcome(copy).rank, 0);
    assert_refused(job.bed->lane[0], PSD_ERR_STATE, "stand by");
    assert_null(strstr(job.bed->told, "lost")); /* nobody has died */
    assert_null(strstr(job.bed->told, "awaited"));
    job.bed->lane[0] = copy;
    (void)hear_table(copy, PSI_FRAME_TABLE_OPEN, 0);
    say(job.bed, copy, (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hear_view(job.bed->lane[i], tables).change, PSI_VIEW_SERVER_BACK);
        ack_view(job.bed, i, 2, 2, NULL);
    }
    assert_int_equal(hear_view(job.bed->worker[0], tables).id, 2);
    pass_ms(job.bed, 100, NULL);
    assert_true(logged(job.bed, "PLACE-MOVED lane 0 of server 0 has moved to server 1"));
    assert_non_null(strstr(job.bed->told, "moved server 0 lane 0 to 1"));
    assert_null(strstr(job.bed->told, "copied"));
    pass_ms(job.bed, 1000, NULL);
    assert_null(hear(job.bed->lane[1], PSI_FRAME_PAIR)); /* each has its share */
    master_bed_stop(job.bed);
}

/* If this fails, a lane that did not hear that its place has moved takes its whole process along, or is let in again. */
static void
test_a_lane_that_missed_it_stands_by(void **state)
{
    struct job job = begin(PSD_USE_UPDATE);
    struct peer *copy;
    struct peer *late;

    (void)state;
    copy = hear_move(&job);
    call_eligible(&job);
    hang_up(job.bed->lane[0], "cut");
    hang_up(copy, "comes again by another name");
    copy = come_for_place(&job, copy->life);
    (void)hear_welcome(copy);
    job.bed->lane[0] = copy;
    late = dial(job.bed);
    late->life = 100;
    say_hello(job.bed, late, (struct psi_frame){.type = PSI_FRAME_HELLO},
              &(struct psi_hello){.role = PSI_ROLE_SERVER,
                                  .lanes = 2,
                                  .life = 100,
                                  .incarnation = 1,
                                  .view = 1,
                                  .kernel_revision = PSI_KERNEL_REVISION,
                                  .address = "test://lane0"});
    assert_refused(late, PSD_ERR_STATE, "stand by");
    master_bed_stop(job.bed);
}

/* If this fails, the death of a server that has come ends a job that could do without it, or its place is nowhere. */
static void
test_a_newcomer_that_dies_takes_nothing_along(void **state)
{
    struct job job = begin(PSD_USE_UPDATE);

    (void)state;
    (void)hear_move(&job);
    call_eligible(&job);
    assert_non_null(hear(job.bed->lane[0], PSI_FRAME_GIVE_PLACE));
    for (uint32_t i = 0; i < 2; i++) {
        hang_up(job.spare[i], "killed");
    }
    pass_ms(job.bed, 3000, NULL);
    pass_ms(job.bed, 500, NULL);
    assert_int_equal(hear(job.bed->lane[0], PSI_FRAME_UNPAIR)->frame.seq, job.number);
    assert_false(is_over(job.bed));
    assert_true(logged(job.bed, "MOVE-OFF"));
    assert_refused(come_for_place(&job, STANDBY), PSD_ERR_STATE, "stand by"); /* too late */
    master_bed_stop(job.bed);
}

/* If this fails, who started a server that is to leave ends it while it has something, or never. */
static void
test_a_server_that_leaves_is_drained_first(void **state)
{
    struct job job = begin(PSD_USE_UPDATE);
    struct psi_word leave = {.kind = PSI_WORD_LEAVE,
                             .rank = NEWCOMER,
                             .number = UINT64_C(1) << PSI_PROCESS_INDEX_BITS | NEWCOMER};

    (void)state;
    (void)hear_move(&job);
    master_heed(job.bed->master, &leave);
    pass_ms(job.bed, 500, NULL);
    assert_null(strstr(job.bed->told, "drained")); /* a move to it is under way */
    say_verdict(job.bed, job.bed->lane[0],
                (struct psi_frame){.type = PSI_FRAME_PAIR_LOST, .seq = job.number},
                &(struct psi_verdict){.status = PSD_ERR_PEER_LOST, .text = "not reached"});
    pass_ms(job.bed, 300, NULL);
    pass_ms(job.bed, 1500, NULL);
    assert_non_null(strstr(job.bed->told, "drained server 1"));
    assert_null(hear(job.bed->lane[0], PSI_FRAME_PAIR)); /* nothing moves to who leaves */
    job.bed->told[0] = '\0';
    master_heed(job.bed->master, &leave); /* once more: it is not told twice */
    pass_ms(job.bed, 500, NULL);
    assert_null(strstr(job.bed->told, "drained"));
    master_bed_stop(job.bed);
}

/* If this fails, a place that nobody has room for is copied again and again, as fast as that goes, or not again, or it is
 * not said why it does not move. */
static void
test_a_move_that_cannot_succeed_is_tried_less_and_less(void **state)
{
    struct job job = begin(PSD_USE_UPDATE);
    uint32_t tries[2] = {0};

    (void)state;
    for (uint32_t ms = 0; ms < 60000; ms += 200) {
        for (uint32_t i = 0; i < 2; i++) {
            const struct world_heard *order = hear(job.bed->lane[i], PSI_FRAME_PAIR);

            if (order != NULL) {
                tries[i]++;
                say_verdict(
                    job.bed, job.bed->lane[i],
                    (struct psi_frame){.type = PSI_FRAME_PAIR_LOST, .seq = order->frame.seq},
                    &(struct psi_verdict){.status = PSD_ERR_NO_MEMORY, .text = "no room"});
            }
        }
        for (uint32_t i = 0; i < 2; i++) {
            say_ping(job.bed, job.spare[i], (struct psi_frame){.type = PSI_FRAME_PING},
                     &(struct psi_ping){0});
        }
        pass_ms(job.bed, 200, NULL);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_in_range(tries[i], 3, 10); /* again, at least */
    }
    assert_true(
        logged(job.bed, "MOVE-OFF lane 0 of server 0 does not move to server 1 for now: no room"));
    master_bed_stop(job.bed);
}

/* If this fails, a server with a number that the job has no room for is let in, or is not told why not. */
static void
test_there_is_room_for_so_many(void **state)
{
    struct job job = begin(PSD_USE_SUM);

    (void)state;
    assert_refused(join_as(job.bed, PSI_ROLE_SERVER, 3, 0, 3, 900), PSD_ERR_REFUSED,
                   "the job has room for 3 servers, 0..2 (max_servers)");
    assert_refused(join_as(job.bed, PSI_ROLE_SERVER, 2, 0, 2, 901), PSD_ERR_STATE, "stand by");
    assert_non_null(strstr(job.bed->told, "joined server 2"));
    master_bed_stop(job.bed);
}

/* A lane of the job that the last master knew, by view V, with that incarnation. */
enum { V = 1 << PSI_VIEW_COUNT_BITS | 3, JOB = 77 };

static struct peer *
lane_returns(struct master_bed *bed, uint32_t lane, uint32_t incarnation, uint32_t process)
{
    struct psi_view_worker worker = {.incarnation = 1, .member = true};
    struct psi_view_place place[2] = {
        {.incarnation = 1, .process = 1 << PSI_PROCESS_INDEX_BITS},
        {.lane = 1, .incarnation = 1, .process = 1 << PSI_PROCESS_INDEX_BITS}};
    const struct psi_view view = {
        .id = V, .workers = 1, .worker = &worker, .places = 2, .place = place};
    const struct psi_lane_state state = {0};
    struct peer *peer = dial(bed);

    peer->life = 100 + lane;
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(place[i].address, sizeof(place[i].address), "test://lane%u", i);
    }
    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO},
              &(struct psi_hello){.role = PSI_ROLE_SERVER,
                                  .lane = lane,
                                  .lanes = 2,
                                  .incarnation = (uint16_t)incarnation,
                                  .life = 100 + lane,
                                  .host = UINT64_C(1) << PSI_PROCESS_INDEX_BITS | process,
                                  .kernel_revision = PSI_KERNEL_REVISION,
                                  .job = JOB,
                                  .term = 1,
                                  .view = V,
                                  .address = "test://lane"});
    (void)hear_welcome(peer);
    say_view(bed, peer, (struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT}, &view);
    say_lane_state(bed, peer, (struct psi_frame){.type = PSI_FRAME_LANE_STATE}, &state);
    return peer;
}

/* If this fails, a master that dies in the moment in which a place has moved takes the lanes beside it along: the next one
 * believes that their process had died. */
static void
test_the_next_master_keeps_the_lanes_beside_a_moved_place(void **state)
{
    struct master_bed *bed = start_moving_second_life();

    (void)state;
    bed->lane[1] = lane_returns(bed, 1, 1, 0);
    bed->lane[0] = lane_returns(bed, 0, 2, NEWCOMER); /* let in, and no view had it yet */
    pass_ms(bed, 1000, NULL);
    assert_true(logged(bed, "the master is back"));
    assert_false(is_gone(bed->lane[1]));
    assert_false(is_gone(bed->lane[0]));
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_place_moves_to_a_newcomer),
        cmocka_unit_test(test_a_lane_that_missed_it_stands_by),
        cmocka_unit_test(test_a_newcomer_that_dies_takes_nothing_along),
        cmocka_unit_test(test_a_server_that_leaves_is_drained_first),
        cmocka_unit_test(test_a_move_that_cannot_succeed_is_tried_less_and_less),
        cmocka_unit_test(test_there_is_room_for_so_many),
        cmocka_unit_test(test_the_next_master_keeps_the_lanes_beside_a_moved_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
