/*
 * rebuild_test.c - a master in its second life, against scripted members that went on without it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "master/master_bed.h"
#include "table/spec.h"

enum {
    JOB = 77,
    V3 = 1 << 20 | 3, /* views of the first life */
    V4 = 1 << 20 | 4,
    OURS = 2 << 20 | 1, /* the first of the second */
};

/* A view of the first life, of two workers and two servers of one lane. */
struct told {
    struct psi_view view;
    struct psi_view_worker worker[2];
    struct psi_view_place place[2];
    struct psi_view_table table[1];
};

static void
make_view(struct told *told, uint32_t id)
{
    *told = (struct told){
        .view = {.id = id, .workers = 2, .places = 2},
        .worker = {{.incarnation = 1, .member = true}, {.incarnation = 1, .member = true}},
        .place = {{.server = 0, .incarnation = 1}, {.server = 1, .incarnation = 1}},
    };
    told->view.worker = told->worker;
    told->view.place = told->place;
    told->view.table = told->table;
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(told->place[i].address, sizeof(told->place[i].address), "test://lane%u", i);
    }
}

/* ... in which worker 1 left. */
static void
make_leave(struct told *told, uint32_t id)
{
    make_view(told, id);
    told->worker[1].member = false;
    told->view.change = PSI_VIEW_WORKER_LEFT;
    told->view.who = 1;
    told->view.tables = 1;
    told->table[0] = (struct psi_view_table){.id = 0, .left_at = 7, .drop = true};
}

static struct peer *
knock(struct master_bed *bed, uint8_t role, uint32_t rank, uint32_t view)
{
    struct peer *peer = dial(bed);
    struct psi_hello hello = {.role = role,
                              .rank = rank,
                              .lanes = role == PSI_ROLE_SERVER ? 1 : 0,
                              .incarnation = 1,
                              .life = (role == PSI_ROLE_SERVER ? 100 : 200) + rank,
                              .kernel_revision = PSI_KERNEL_REVISION,
                              .job = JOB,
                              .term = 1,
                              .view = view,
                              .recalls = role == PSI_ROLE_WORKER};

    if (role == PSI_ROLE_SERVER) {
        snprintf(hello.address, sizeof(hello.address), "test://lane%u", rank);
    }
    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    return peer;
}

/* What a lane knows besides its view. */
struct known {
    bool frozen;
    uint64_t done;
    const struct psi_table_info *table;
    bool pending;
    uint64_t pair; /* number of its copy, which is eligible; 0: none */
    struct psi_crossed crossed;
};

static void
lane_returns(struct master_bed *bed, uint32_t server, const struct told *told, struct known known)
{
    const struct psi_lane_state state = {.frozen = known.frozen,
                                         .done = {{known.done}},
                                         .pair = known.pair,
                                         .is_eligible = known.pair != 0,
                                         .crossed = known.crossed};
    struct peer *lane = knock(bed, PSI_ROLE_SERVER, server, told->view.id);
    const struct psi_welcome welcome = hear_welcome(lane);

    assert_int_equal(welcome.term, 2);
    assert_int_equal(welcome.view, 0);
    assert_int_equal(welcome.incarnation, 1);
    bed->lane[server] = lane;
    say_view(bed, lane, (struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT}, &told->view);
    if (known.table != NULL) {
        say_table_info(bed, lane,
                       (struct psi_frame){.type = PSI_FRAME_TABLE_OPEN,
                                          .table = known.table->id,
                                          .status = known.pending ? PSD_PENDING : PSD_OK},
                       known.table);
    }
    say_lane_state(bed, lane, (struct psi_frame){.type = PSI_FRAME_LANE_STATE}, &state);
}

static void
worker_returns(struct master_bed *bed, uint32_t rank, uint32_t view)
{
    bed->worker[rank] = knock(bed, PSI_ROLE_WORKER, rank, view);
}

/* Both lanes and both workers, as if nothing had happened. */
static struct master_bed *
return_all(enum psi_death_policy policy, struct known known)
{
    struct master_bed *bed = start_second_life(2, 2, policy);
    struct told told;

    make_view(&told, V3);
    for (uint32_t i = 0; i < 2; i++) {
        lane_returns(bed, i, &told, known);
        worker_returns(bed, i, V3);
    }
    return bed;
}

/* A table that the first life had opened. */
static struct psi_table_info
known_table(psd_use use, uint32_t backup_workers)
{
    const struct psd_table_args args = {.struct_size = sizeof(args),
                                        .name = "w",
                                        .dtype = PSD_F32,
                                        .use = use,
                                        .backup_workers = backup_workers,
                                        .dims = 1,
                                        .shape = {65536 * 8}};
    const uint32_t lanes[2] = {1, 1};
    struct psi_table_info info = {.id = 5};

    assert_int_equal(psi_spec_init(&info.spec, &args, 2, NULL), PSD_OK);
    psi_loads_init(&info.loads, 2, lanes);
    return info;
}

/* ------------------------------------------------------------------------------------ tests --- */

/* If this fails, a master that returns disturbs a job in which nothing was under way, or numbers
 * its own changes below those of its first life. */
static void
test_a_calm_job_goes_on_as_it_is(void **state)
{
    struct master_bed *bed = return_all(PSI_DEATH_CONTINUE, (struct known){0});
    struct psi_view_table tables[1];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_null(hear(bed->lane[i], PSI_FRAME_VIEW_COMMIT));
        assert_int_equal(hear_welcome(bed->worker[i]).job, JOB);
        assert_int_equal(hear_view(bed->worker[i], tables).id, V3);
    }
    assert_true(logged(bed, "the master is back, in its life 2"));
    pass_ms(bed, 20000, NULL);
    assert_false(is_over(bed));
    give_up(bed, bed->worker[1], 0, "crashed");
    bed->worker[1] = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        assert_non_null(hear(bed->lane[i], PSI_FRAME_VIEW_PROPOSE));
        ack_view(bed, i, OURS, V3, NULL);
    }
    assert_int_equal(hear_view(bed->lane[0], tables).id, OURS);
    master_bed_stop(bed);
}

/* If this fails, what the first life had decided is lost, or workers hear of it before every lane
 * has, or the lane that came first is believed. */
static void
test_the_highest_view_is_the_truth(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_CONTINUE);
    struct psi_view_table tables[1];
    struct told before;
    struct told after;
    struct psi_view view;

    (void)state;
    make_view(&before, V3);
    make_leave(&after, V4);
    lane_returns(bed, 0, &before, (struct known){.frozen = true});
    pass_ms(bed, 1000, NULL);
    worker_returns(bed, 0, V3);
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT)); /* another one may know more */
    lane_returns(bed, 1, &after, (struct known){0});
    for (uint32_t i = 0; i < 2; i++) {
        view = hear_view(bed->lane[i], tables);
        assert_int_equal(view.id, OURS);
        assert_int_equal(view.change, PSI_VIEW_WORKER_LEFT);
        assert_int_equal(view.who, 1);
        assert_false(view.worker[1].member);
        assert_int_equal(tables[0].left_at, 7);
        assert_true(tables[0].drop);
    }
    pass_ms(bed, 100, NULL);
    assert_non_null(hear(bed->worker[0], PSI_FRAME_WELCOME));
    ack_view(bed, 0, OURS, OURS, NULL);
    assert_null(hear(bed->worker[0], PSI_FRAME_VIEW_COMMIT));
    ack_view(bed, 1, OURS, OURS, NULL);
    assert_int_equal(hear_view(bed->worker[0], tables).id, OURS);
    pass_ms(bed, 20000, NULL);
    assert_false(is_over(bed)); /* worker 1 is not missed */
    master_bed_stop(bed);
}

/* If this fails, rounds never close again where the first life had stopped them. */
static void
test_what_was_only_proposed_is_given_up(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_CONTINUE);
    struct psi_view_table tables[1];
    struct told told;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){0});
    lane_returns(bed, 1, &told, (struct known){.frozen = true});
    for (uint32_t i = 0; i < 2; i++) {
        const struct psi_view view = hear_view(bed->lane[i], tables);

        assert_int_equal(view.id, OURS);
        assert_true(view.worker[1].member);
        ack_view(bed, i, OURS, OURS, NULL);
    }
    worker_returns(bed, 1, V3);
    assert_int_equal(hear_view(bed->worker[1], tables).id, OURS);
    master_bed_stop(bed);
}

/* If this fails, a lane that is cut off while the view is said again gets it without what it
 * decided. */
static void
test_a_lane_that_is_cut_hears_the_decision(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_CONTINUE);
    struct psi_view_table tables[1];
    struct psi_view view;
    struct told told;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){0});
    hang_up(bed->lane[0], "cut");
    make_leave(&told, V4);
    lane_returns(bed, 1, &told, (struct known){0});
    bed->lane[0] = knock(bed, PSI_ROLE_SERVER, 0, V3);
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.id, OURS);
    assert_int_equal(view.change, PSI_VIEW_WORKER_LEFT);
    assert_int_equal(tables[0].left_at, 7);
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT));
    master_bed_stop(bed);
}

/* If this fails, a server that died together with the master is waited for in vain, or its death
 * is taken lightly where it had values. */
static void
test_a_server_that_stays_away_is_lost(void **state)
{
    const struct psi_table_info sums = known_table(PSD_USE_SUM, 0);
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);
    struct psi_view_table tables[1];
    struct master_bed *bed;
    struct told told;

    (void)state;
    make_view(&told, V3);
    for (unsigned i = 0; i < 2; i++) {
        bed = start_second_life(2, 2, PSI_DEATH_FAIL);
        lane_returns(bed, 0, &told, (struct known){.table = i == 0 ? &values : &sums});
        pass_ms(bed, 6900, NULL);
        assert_false(is_over(bed));
        for (uint32_t rank = 0; rank < 2; rank++) {
            worker_returns(bed, rank, V3);
            assert_null(hear(bed->worker[rank], PSI_FRAME_WELCOME));
        }
        bed->world.now_ns += 200 * MS_NS;
        master_tick(bed->master);
        if (i == 0) {
            assert_over(bed, PSI_EXIT_SERVER_LOST,
                        "server 1 (test://lane1) lost: not back since the master returned");
            master_bed_stop(bed);
        }
    }
    assert_non_null(strstr(bed->told, "awaited"));
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 900);
    assert_true(hear_table(bed->lane[1], PSI_FRAME_TABLE_OPEN, 0).again);
    say(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 5}, NULL);
    assert_int_equal(hear_view(bed->lane[0], tables).change, PSI_VIEW_SERVER_BACK);
    assert_refused(knock(bed, PSI_ROLE_SERVER, 1, V3), PSD_ERR_REFUSED, "is taken by");
    master_bed_stop(bed);
}

/* If this fails, the death of a worker goes unnoticed because the master died, too. */
static void
test_a_worker_that_stays_away_is_lost(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){0});
    lane_returns(bed, 1, &told, (struct known){0});
    worker_returns(bed, 0, V3);
    pass_ms(bed, 6900, NULL);
    assert_false(is_over(bed));
    pass_ms(bed, 200, NULL);
    assert_over(bed, PSI_EXIT_WORKER_LOST,
                "worker 1 (not back yet) lost: not back since the master returned");
    master_bed_stop(bed);
}

/* If this fails, a master that began while the last one still had all members takes those for dead who come
 * a moment after the first, when that one is gone at last. */
static void
test_members_that_come_late_come_together(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    pass_ms(bed, 12000, NULL);
    lane_returns(bed, 0, &told, (struct known){0});
    pass_ms(bed, 100, NULL);
    lane_returns(bed, 1, &told, (struct known){0});
    worker_returns(bed, 0, V3);
    worker_returns(bed, 1, V3);
    pass_ms(bed, 100, NULL);
    assert_false(is_over(bed));
    assert_false(is_gone(bed->lane[0]) || is_gone(bed->lane[1]));
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT)); /* nobody was lost */
    assert_null(hear(bed->lane[1], PSI_FRAME_VIEW_COMMIT));
    master_bed_stop(bed);
}

/* If this fails, a job stands still for seconds to wait for a worker whose end psd_run has seen, or one that
 * is only slow is taken for dead with it. */
static void
test_a_worker_that_is_known_to_be_dead_is_not_waited_for(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    master_heed(bed->master, &(struct psi_word){.kind = PSI_WORD_DEAD, .rank = 1});
    lane_returns(bed, 0, &told, (struct known){0});
    lane_returns(bed, 1, &told, (struct known){0});
    assert_false(is_over(bed));
    pass_ms(bed, 1000, NULL); /* worker 0 is not here either, but nobody says that it is dead */
    assert_over(bed, PSI_EXIT_WORKER_LOST, "worker 1 (not back yet) lost: ");
    master_bed_stop(bed);
}

/* If this fails, a worker that gave up waiting for WELCOME in the moment in which it was sent, and has to find the
 * master once more, is taken for dead meanwhile; or one that has spoken to this master is spared, too. */
static void
test_who_missed_the_welcome_has_time_to_knock_again(void **state)
{
    struct master_bed *bed = return_all(PSI_DEATH_FAIL, (struct known){0});

    (void)state;
    assert_int_equal(hear_welcome(bed->worker[1]).job, JOB);
    hang_up(bed->worker[1], "no WELCOME in time");
    bed->worker[1] = NULL;
    pass_ms(bed, 5000, NULL);
    assert_false(is_over(bed));
    worker_returns(bed, 1, V3);
    assert_int_equal(hear_welcome(bed->worker[1]).job, JOB);
    pass_ms(bed, 500, NULL); /* it says that it is there */
    hang_up(bed->worker[1], "cut");
    bed->worker[1] = NULL;
    pass_ms(bed, 1000, NULL);
    assert_over(bed, PSI_EXIT_WORKER_LOST, "worker 1");
    master_bed_stop(bed);
}

/* If this fails, the other life of a server that died while it told begins a table anew that workers
 * are in the middle of. */
static void
test_a_lane_that_told_half_is_lost(void **state)
{
    struct psi_table_info info = known_table(PSD_USE_SUM, 0);
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct peer *again;
    struct told told;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){.table = &info});
    bed->lane[1] = knock(bed, PSI_ROLE_SERVER, 1, V3);
    say_view(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT}, &told.view);
    worker_returns(bed, 0, V3);
    worker_returns(bed, 1, V3);
    pass_ms(bed, 7100, bed->lane[1]);
    assert_false(is_over(bed));
    again = join(bed, PSI_ROLE_SERVER, 1, 500);
    assert_true(hear_table(again, PSI_FRAME_TABLE_OPEN, 0).again);
    master_bed_stop(bed);
}

/* If this fails, two lives of a server have one number: one that a master had let in before it died, and one that
 * the next master, which has not met that, lets into the same place. */
static void
test_each_master_numbers_lives_anew(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){0});
    worker_returns(bed, 0, V3);
    worker_returns(bed, 1, V3);
    pass_ms(bed, 7100, NULL);
    /* The last master may have let 2, 3 and some more into the place of 1. */
    assert_in_range(hear_welcome(join(bed, PSI_ROLE_SERVER, 1, 500)).incarnation, 16, UINT16_MAX);
    master_bed_stop(bed);
}

/* If this fails, a master that returned goes on without a table that only dead servers knew: those that are here
 * were started again since, and had not heard of all. */
static void
test_newcomers_do_not_know_all_tables(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                              .rank = 1,
                              .lanes = 1,
                              .incarnation = 2,
                              .life = 900,
                              .kernel_revision = PSI_KERNEL_REVISION,
                              .job = JOB,
                              .term = 1,
                              .view = V3,
                              .address = "test://newcomer"};
    struct told told;

    (void)state;
    make_view(&told, V3);
    bed->lane[1] = dial(bed);
    say_hello(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    (void)hear_welcome(bed->lane[1]);
    say_view(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT}, &told.view);
    say_lane_state(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_LANE_STATE},
                   &(struct psi_lane_state){0});
    worker_returns(bed, 0, V3);
    worker_returns(bed, 1, V3);
    pass_ms(bed, 7100, NULL);
    assert_over(bed, PSI_EXIT_MASTER_LOST, "had not heard of all");
    master_bed_stop(bed);
}

/* A lane of server 1, which has two, in another life than the one in the view. */
static struct peer *
newcomer_knocks(struct master_bed *bed, uint32_t lane, uint32_t incarnation)
{
    struct peer *peer = dial(bed);
    struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                              .rank = 1,
                              .lane = lane,
                              .lanes = 2,
                              .incarnation = incarnation,
                              .life = 900 + lane,
                              .kernel_revision = PSI_KERNEL_REVISION,
                              .job = incarnation != 0 ? JOB : 0,
                              .term = 1,
                              .address = "test://newcomer"};

    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    return peer;
}

/* If this fails, a server that is on its way into the job has to begin once more, because one of its lanes had
 * hung up, to knock again, in the moment in which the master knew the job. */
static void
test_half_of_a_newcomer_stays(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct psi_view_place places[3];
    struct peer *lane;
    struct told told;

    (void)state;
    make_view(&told, V3);
    memcpy(places, told.place, sizeof(told.place));
    places[2] = (struct psi_view_place){.server = 1, .lane = 1, .incarnation = 1};
    snprintf(places[2].address, sizeof(places[2].address), "test://lane2");
    told.view.places = 3;
    told.view.place = places;
    lane_returns(bed, 0, &told, (struct known){0});
    lane = newcomer_knocks(bed, 1, 2);
    bed->lane[1] = lane;
    (void)hear_welcome(lane);
    say_lane_state(bed, lane, (struct psi_frame){.type = PSI_FRAME_LANE_STATE},
                   &(struct psi_lane_state){0});
    worker_returns(bed, 0, V3);
    worker_returns(bed, 1, V3);
    pass_ms(bed, 7100, NULL);
    assert_true(logged(bed, "the master is back, in its life 2"));
    assert_null(hear(lane, PSI_FRAME_REFUSE));
    assert_false(is_gone(lane));
    bed->lane[2] = newcomer_knocks(bed, 0, 0);
    (void)hear_welcome(bed->lane[2]);
    pass_ms(bed, 1000, NULL);
    assert_false(is_gone(lane));
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, a worker that was done is missed by a master that did not hear its BYE. */
static void
test_who_was_done_is_done(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){.done = 2});
    lane_returns(bed, 1, &told, (struct known){0});
    worker_returns(bed, 0, V3);
    for (uint32_t i = 0; i < 2; i++) {
        assert_non_null(hear(bed->lane[i], PSI_FRAME_VIEW_PROPOSE)); /* it leaves */
    }
    pass_ms(bed, 20000, NULL);
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, a job that had ended fails because one of its servers has left already. */
static void
test_a_job_that_was_over_ends_well(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){.done = 3}); /* lane 1 has heard END, and left? */
    pass_ms(bed, 6900, NULL);
    assert_null(
        hear(bed->lane[0], PSI_FRAME_END)); /* else it may come, and not know that it is over */
    pass_ms(bed, 200, NULL);
    assert_int_equal(hear_verdict(bed->lane[0], PSI_FRAME_END).exit_code, 0);
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_BYE}, NULL);
    bed->lane[1] = knock(bed, PSI_ROLE_SERVER, 1, V3);
    assert_int_equal(hear_verdict(bed->lane[1], PSI_FRAME_END).exit_code, 0);
    say(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_BYE}, NULL);
    worker_returns(bed, 1, V3); /* it did not hear that its BYE was taken */
    say(bed, bed->worker[1], (struct psi_frame){.type = PSI_FRAME_BYE, .request = 77}, NULL);
    assert_int_equal(hear(bed->worker[1], PSI_FRAME_ACK)->frame.request, 77);
    assert_false(is_over(bed)); /* worker 0 may come */
    pass_ms(bed, 2100, NULL);
    assert_over(bed, PSI_EXIT_OK, "all workers are done");
    master_bed_stop(bed);
}

/* If this fails, a worker leaves whose BYE only a master knows of that may die of the next breath. */
static void
test_a_bye_is_answered_when_lanes_know_of_it(void **state)
{
    struct master_bed *bed = start_lives(2, 2, PSI_DEATH_FAIL);

    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_BYE, .request = 7}, NULL);
        for (uint32_t i = 0; i < 2; i++) {
            const struct world_heard *heard = hear(bed->lane[i], PSI_FRAME_DONE);

            assert_non_null(heard);
            assert_null(hear(bed->worker[rank], PSI_FRAME_ACK));
            assert_null(hear(bed->lane[0], PSI_FRAME_END));
            bed->lane[0]->line->heard_read = 0;
            while (hear(bed->lane[0], PSI_FRAME_DONE)->frame.seq <= rank) {
            }
            say(bed, bed->lane[i],
                (struct psi_frame){.type = PSI_FRAME_DONE, .seq = heard->frame.seq}, NULL);
        }
        assert_int_equal(hear(bed->worker[rank], PSI_FRAME_ACK)->frame.request, 7);
    }
    assert_non_null(hear(bed->lane[0], PSI_FRAME_END));
    assert_over(bed, PSI_EXIT_OK, "all workers are done");
    master_bed_stop(bed);
}

/* If this fails, two masters tell members what to do. */
static void
test_a_master_that_was_replaced_leaves(void **state)
{
    struct master_bed *bed = return_all(PSI_DEATH_FAIL, (struct known){0});
    struct peer *stranger = dial(bed);
    struct peer *peer = dial(bed);
    struct psi_hello hello = {.role = PSI_ROLE_WORKER, .life = 200, .job = JOB + 1, .term = 3};

    (void)state;
    say_hello(bed, stranger, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    assert_non_null(
        hear(stranger, PSI_FRAME_REFUSE)); /* of another job: that is no news of this one */
    hello.job = JOB;
    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    assert_true(is_gone(peer));
    assert_null(hear(peer, PSI_FRAME_REFUSE)); /* which would be its end, too */
    assert_null(hear(bed->lane[0], PSI_FRAME_END));
    assert_over(bed, PSI_EXIT_FENCED, "another life of the master has taken over: its term is 3");
    master_bed_stop(bed);
}

/* If this fails, a worker that asks a master of an earlier life, before that one is gone, takes its job for over. */
static void
test_who_asks_a_master_that_was_replaced_asks_again(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct psi_hello news = {
        .role = PSI_ROLE_WORKER, .rank = 1, .life = 201, .job = JOB, .term = 3};
    struct told told;
    struct peer *waits;
    struct peer *late;

    (void)state;
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){0});
    waits = knock(bed, PSI_ROLE_WORKER, 0, V3);
    say_hello(bed, dial(bed), (struct psi_frame){.type = PSI_FRAME_HELLO}, &news);
    assert_over(bed, PSI_EXIT_FENCED, "another life of the master has taken over: its term is 3");
    assert_true(is_gone(waits));
    assert_null(hear(waits, PSI_FRAME_REFUSE));
    late = knock(bed, PSI_ROLE_WORKER, 0, V3);
    assert_true(is_gone(late));
    assert_null(hear(late, PSI_FRAME_REFUSE));
    master_bed_stop(bed);
}

/* If this fails, tables are opened a second time under another number, or workers hear of one that
 * some lane does not have. */
static void
test_tables_are_known_again(void **state)
{
    struct psi_table_info info = known_table(PSD_USE_UPDATE, 0);
    struct master_bed *bed = return_all(PSI_DEATH_FAIL, (struct known){.table = &info});
    struct psi_table_info other = table_named("other", 10);
    struct told told;

    (void)state;
    open_table(bed, 0, &info, 1);
    assert_int_equal(hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1).id, 5);
    open_table(bed, 0, &other, 2);
    assert_int_equal(hear_table(bed->lane[0], PSI_FRAME_TABLE_OPEN, 0).id, 6);
    master_bed_stop(bed);

    bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    make_view(&told, V3);
    lane_returns(bed, 0, &told, (struct known){.table = &info});
    lane_returns(bed, 1, &told, (struct known){0}); /* it has not heard of it */
    worker_returns(bed, 0, V3);
    pass_ms(bed, 100, NULL);
    open_table(bed, 0, &info, 1);
    assert_null(hear(bed->worker[0], PSI_FRAME_TABLE_INFO));
    assert_false(hear_table(bed->lane[1], PSI_FRAME_TABLE_OPEN, 0).again);
    say(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 5}, NULL);
    bed->worker[0]->line->heard_read = 0;
    assert_int_equal(hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1).id, 5);
    master_bed_stop(bed);
}

static void
arrive(struct master_bed *bed, uint32_t rank, uint64_t barrier)
{
    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_BARRIER,
                           .request = 50 + rank,
                           .seq = barrier,
                           .rank = (uint16_t)rank},
        NULL);
}

/* If this fails, a worker waits for ever in a barrier that the others have passed, or passes one
 * to which they have not come. */
static void
test_barriers_go_on(void **state)
{
    struct master_bed *bed = return_all(PSI_DEATH_FAIL, (struct known){0});

    (void)state;
    say_worker_state(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_WORKER_STATE},
                     &(struct psi_worker_state){.come = {3}, .passed = {2}});
    arrive(bed, 0, 3);
    assert_null(hear(bed->worker[0], PSI_FRAME_ACK)); /* nobody knows where worker 1 is */
    say_worker_state(bed, bed->worker[1], (struct psi_frame){.type = PSI_FRAME_WORKER_STATE},
                     &(struct psi_worker_state){.come = {2}, .passed = {1}});
    arrive(bed, 1, 2);
    assert_int_equal(hear(bed->worker[1], PSI_FRAME_ACK)->frame.request, 51);
    assert_null(hear(bed->worker[0], PSI_FRAME_ACK));
    arrive(bed, 1, 3);
    bed->worker[0]->line->heard_read = 0;
    assert_int_equal(hear(bed->worker[0], PSI_FRAME_ACK)->frame.request, 50);
    assert_int_equal(hear(bed->worker[1], PSI_FRAME_ACK)->frame.request, 51);
    master_bed_stop(bed);
}

/* If this fails, a job whose master died before it began never begins. */
static void
test_a_job_that_had_not_begun_gathers(void **state)
{
    struct master_bed *bed = start_second_life(1, 2, PSI_DEATH_FAIL);
    struct psi_view_table tables[1];

    (void)state;
    bed->lane[0] = knock(bed, PSI_ROLE_SERVER, 0, 0);
    pass_ms(bed, 10000, NULL);
    assert_false(is_over(bed));
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 900); /* it had met nobody yet */
    bed->worker[0] = knock(bed, PSI_ROLE_WORKER, 0, 0);
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT)); /* has the worker heard WELCOME? */
    pass_ms(bed, 100, NULL);
    assert_int_equal(hear_view(bed->lane[0], tables).id, OURS);
    assert_int_equal(hear_view(bed->lane[1], tables).id, OURS);
    master_bed_stop(bed);
}

/* If this fails, a job begins anew of which a worker has seen the middle. */
static void
test_a_job_that_no_lane_knows_is_over(void **state)
{
    struct master_bed *bed = start_second_life(1, 1, PSI_DEATH_FAIL);

    (void)state;
    bed->lane[0] = join(bed, PSI_ROLE_SERVER, 0, 900);
    (void)knock(bed, PSI_ROLE_OBSERVER, 0, 0);
    pass_ms(bed, 10000, bed->lane[0]); /* whoever knows more had the time to come */
    say_hello(bed, dial(bed), (struct psi_frame){.type = PSI_FRAME_HELLO},
              &(struct psi_hello){.role = PSI_ROLE_WORKER, .life = 200, .term = 1, .view = V3});
    assert_over(bed, PSI_EXIT_MASTER_LOST, "no server knows what worker 0 knows");
    master_bed_stop(bed);
}

/* If this fails, a job is over because its server and its master died together, and the server was faster
 * than the workers in finding the next master. */
static void
test_workers_may_know_what_new_servers_do_not(void **state)
{
    struct master_bed *bed = start_second_life(1, 1, PSI_DEATH_FAIL);
    struct peer *worker;

    (void)state;
    bed->lane[0] = join(bed, PSI_ROLE_SERVER, 0, 900);
    pass_ms(bed, 100, NULL);
    worker = knock(bed, PSI_ROLE_WORKER, 0, V3);
    pass_ms(bed, 600, NULL);
    assert_non_null(hear(worker, PSI_FRAME_RECALL));
    assert_false(is_gone(worker));
    master_bed_stop(bed);
}

/* If this fails, a job goes on with those of its tables that servers had heard of that were just started
 * again, when all who knew the others are dead. */
static void
test_tables_that_nobody_knows_end_it_by_name(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    told.place[0].incarnation = 0; /* those that are here came after it */
    told.place[1].incarnation = 0;
    lane_returns(bed, 0, &told, (struct known){0});
    lane_returns(bed, 1, &told, (struct known){0});
    assert_over(bed, PSI_EXIT_MASTER_LOST, "all servers that knew its tables are lost");
    master_bed_stop(bed);
}

/* If this fails, a lane is taken for the one that has its place, and which another master let in. */
static void
test_who_had_the_place_before_is_fenced(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_CONTINUE);
    struct told before;
    struct told after;

    (void)state;
    make_view(&before, V3);
    make_view(&after, V4);
    after.place[0].incarnation = 2;
    lane_returns(bed, 0, &before, (struct known){0});
    lane_returns(bed, 1, &after, (struct known){0});
    pass_ms(bed, 10, NULL);
    assert_refused(bed->lane[0], PSD_ERR_FENCED, "server 0 has another life");
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

static uint64_t
process_of(uint32_t server)
{
    return UINT64_C(9) << PSI_PROCESS_INDEX_BITS | server;
}

/* Both servers have died with the first life, and psd_run says so. */
static void
lose_servers(struct master_bed *bed, struct told *told, uint32_t view)
{
    make_view(told, view);
    told->place[0].process = process_of(0);
    told->place[1].process = process_of(1);
    for (uint32_t i = 0; i < 2; i++) {
        master_heed(bed->master,
                    &(struct psi_word){.kind = PSI_WORD_GONE, .rank = i, .number = process_of(i)});
    }
}

static void
tell_recalled(struct master_bed *bed, uint32_t rank, const struct told *told,
              const struct psi_table_info *table)
{
    assert_non_null(hear(bed->worker[rank], PSI_FRAME_RECALL));
    say_view(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT},
             &told->view);
    say_table_info(bed, bed->worker[rank],
                   (struct psi_frame){.type = PSI_FRAME_TABLE_INFO, .table = table->id}, table);
    say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_RECALL}, NULL);
    master_tick(bed->master);
}

static void
worker_recalls(struct master_bed *bed, uint32_t rank, const struct told *told,
               const struct psi_table_info *table)
{
    worker_returns(bed, rank, told->view.id);
    master_tick(bed->master);
    tell_recalled(bed, rank, told, table);
}

/* If this fails, a job is over although its workers know all of it; or goes on with a view that one of them has
 * gone beyond, or without what is lost with its servers. */
static void
test_workers_tell_when_no_lane_is_left(void **state)
{
    const struct psi_table_info sums = known_table(PSD_USE_SUM, 0);
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);
    struct psi_view_table tables[1];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const struct psi_table_info *table = i == 0 ? &values : &sums;
        struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
        struct told before;
        struct told after;

        lose_servers(bed, &after, V4);
        make_view(&before, V3);
        worker_recalls(bed, 0, &before, table);
        pass_ms(bed, 1000, bed->worker[0]);
        assert_null(hear(bed->worker[0], PSI_FRAME_WELCOME)); /* the other may know more */
        worker_recalls(bed, 1, &after, table);
        if (i == 0) {
            assert_over(bed, PSI_EXIT_SERVER_LOST,
                        "server 0 (test://lane0) lost: its process has ended; its part of table w");
            master_bed_stop(bed);
            continue;
        }
        assert_non_null(strstr(bed->told, "awaited server 0"));
        assert_non_null(strstr(bed->told, "awaited server 1"));
        for (uint32_t rank = 0; rank < 2; rank++) {
            assert_int_equal(hear_welcome(bed->worker[rank]).job, JOB);
            assert_int_equal(hear_view(bed->worker[rank], tables).id, V4);
        }
        for (uint32_t index = 0; index < 2; index++) {
            bed->lane[index] = join(bed, PSI_ROLE_SERVER, index, 900 + index);
            assert_true(hear_table(bed->lane[index], PSI_FRAME_TABLE_OPEN, 0).again);
            say(bed, bed->lane[index], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 5}, NULL);
        }
        assert_int_equal(hear_view(bed->lane[0], tables).change, PSI_VIEW_SERVER_BACK);
        master_bed_stop(bed);
    }
}

/* If this fails, a job goes on with a worker that may know what nobody else has told; or one that answers
 * when the master knows by now is thrown out for it. */
static void
test_who_does_not_tell_is_lost(void **state)
{
    const struct psi_table_info sums = known_table(PSD_USE_SUM, 0);
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_CONTINUE);
    struct told told;

    (void)state;
    lose_servers(bed, &told, V3);
    worker_recalls(bed, 0, &told, &sums);
    for (unsigned i = 0; i < 135; i++) {
        bed->world.now_ns += 100 * MS_NS;
        master_tick(bed->master);
    }
    assert_null(hear(bed->worker[0], PSI_FRAME_WELCOME));
    hang_up(bed->worker[0], "it waits for WELCOME no longer");
    worker_recalls(bed, 0, &told, &sums); /* on another connection */
    bed->world.now_ns += 600 * MS_NS;
    master_tick(bed->master);
    (void)hear_welcome(bed->worker[0]);
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_RECALL}, NULL); /* late */
    assert_false(is_gone(bed->worker[0]));
    assert_refused(knock(bed, PSI_ROLE_WORKER, 1, V3), PSD_ERR_FENCED, "was declared dead");
    master_bed_stop(bed);
}

/* If this fails, a copy takes a place that lacks what its server told without it: nobody knew any more that it had
 * been given up. */
static void
test_copies_without_servers_need_somebody_who_knows(void **state)
{
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct master_bed *bed = start_copied_second_life(2, 2);
        const struct psi_word crossed = {.kind = PSI_WORD_CROSSED, .rank = 1, .number = 7};
        struct peer *copy[2];
        struct told told;

        lose_servers(bed, &told, V3);
        worker_returns(bed, 0, V3);
        for (uint32_t server = 0; server < 2; server++) {
            copy[server] = join(bed, PSI_ROLE_STANDBY, 0, 700 + server);
            (void)hear_welcome(copy[server]);
            say(bed, copy[server],
                (struct psi_frame){.type = PSI_FRAME_ELIGIBLE, .seq = 7, .rank = (uint16_t)server},
                NULL);
        }
        if (i > 0) { /* of another lane it means nothing */
            master_heed(
                bed->master,
                &(struct psi_word){.kind = PSI_WORD_CROSSED, .rank = 1, .lane = 5, .number = 9});
            if (i == 2) {
                master_heed(bed->master, &crossed);
            }
            master_heed(bed->master, &(struct psi_word){.kind = PSI_WORD_ALL});
        }
        master_tick(bed->master);
        tell_recalled(bed, 0, &told, &values);
        worker_recalls(bed, 1, &told, &values);
        bed->world.now_ns += (i == 2 ? 7100 : 1) * MS_NS; /* another copy might come */
        master_tick(bed->master);
        for (uint32_t server = 0; server < 2; server++) {
            const struct world_heard *order = hear(copy[server], PSI_FRAME_TAKE_PLACE);

            assert_int_equal(order != NULL, i == 1);
        }
        if (i != 1) {
            assert_over(bed, PSI_EXIT_SERVER_LOST, "it had no whole copy at that moment");
        }
        master_bed_stop(bed);
    }
}

/* If this fails, a job with backup workers goes on with another choice of them than lanes have
 * acted on. */
static void
test_backup_workers_end_it_by_name(void **state)
{
    const struct psi_table_info info = known_table(PSD_USE_UPDATE, 1);
    struct master_bed *bed = return_all(PSI_DEATH_FAIL, (struct known){.table = &info});

    (void)state;
    assert_over(bed, PSI_EXIT_MASTER_LOST, "next step of table w (backup_workers 1)");
    master_bed_stop(bed);
}

/* The lane that stands by in server 0 says that it is the copy of server 1. */
static struct peer *
copy_returns(struct master_bed *bed, uint64_t number)
{
    struct peer *copy = join(bed, PSI_ROLE_STANDBY, 0, 700);

    (void)hear_welcome(copy);
    say(bed, copy,
        (struct psi_frame){.type = PSI_FRAME_ELIGIBLE, .seq = number, .rank = 1, .chunk = 0}, NULL);
    return copy;
}

static void
keep_alive(struct master_bed *bed, struct peer *copy, uint64_t ms)
{
    for (uint64_t passed = 0; passed < ms; passed += 500) {
        say_ping(bed, copy, (struct psi_frame){.type = PSI_FRAME_PING}, &(struct psi_ping){0});
        pass_ms(bed, 500, NULL);
    }
}

static struct psi_done
hear_done(struct peer *lane, struct psi_frame *answer_p)
{
    const struct world_heard *heard = hear(lane, PSI_FRAME_DONE);
    struct psi_done done;

    assert_non_null(heard);
    *answer_p = heard->frame;
    answer_p->payload_bytes = 0;
    assert_int_equal(psi_done_decode(heard->body, heard->frame.payload_bytes, &done, NULL), PSD_OK);
    return done;
}

/* If this fails, a server that dies together with the master loses what its copy has; or a copy that
 * was crossed out, before the server went on alone, takes its place. */
static void
test_copies_are_known_again(void **state)
{
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);
    struct told told;

    (void)state;
    make_view(&told, V3);
    for (unsigned crossed = 0; crossed < 2; crossed++) {
        struct master_bed *bed = start_copied_second_life(1, 2);
        struct known known = {.table = &values, .pair = 8};
        struct psi_frame answer;
        struct peer *copy;

        told.view.workers = 1;
        known.crossed = (struct psi_crossed){.places = 2, .number = {0, crossed == 0 ? 6 : 7}};
        lane_returns(bed, 0, &told, known);
        copy = copy_returns(bed, 7);
        keep_alive(bed, copy, 7000); /* server 1 does not come back */
        if (crossed == 0) {
            const struct world_heard *order = hear(copy, PSI_FRAME_TAKE_PLACE);

            assert_false(is_over(bed));
            assert_non_null(order);
            assert_int_equal(order->frame.rank, 1);
            assert_int_equal(order->frame.seq, 7);
            /* Its own copy was in the server that is gone, or is only not here. It goes on alone when
             * lanes have in mind that nobody takes its place by that number. */
            const struct psi_done done = hear_done(bed->lane[0], &answer);

            assert_int_equal(done.crossed.number[0], 8);
            assert_null(hear(bed->lane[0], PSI_FRAME_UNPAIR));
            say(bed, bed->lane[0], answer, NULL);
            assert_int_equal(hear(bed->lane[0], PSI_FRAME_UNPAIR)->frame.seq, 8);
        } else {
            assert_null(hear(copy, PSI_FRAME_TAKE_PLACE));
            assert_over(bed, PSI_EXIT_SERVER_LOST, "server 1");
        }
        master_bed_stop(bed);
    }
}

/* If this fails, a server whose process has ended is given up before its copy has come back, which has all
 * that it had; or is waited for when the copy is here. */
static void
test_the_copy_of_who_is_gone_may_be_on_its_way(void **state)
{
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);
    struct master_bed *bed = start_copied_second_life(1, 2);
    struct told told;
    struct peer *copy;

    (void)state;
    lose_servers(bed, &told, V3);
    told.place[0].process = 0;
    told.view.workers = 1;
    lane_returns(bed, 0, &told, (struct known){.table = &values});
    pass_ms(bed, 5000, NULL);
    assert_false(is_over(bed));
    copy = copy_returns(bed, 7);
    pass_ms(bed, 100, NULL);
    assert_non_null(hear(copy, PSI_FRAME_TAKE_PLACE));
    master_bed_stop(bed);
}

/* If this fails, a lane that stands by is let in when nobody knows which job it is, and no server ever takes it
 * for a copy. */
static void
test_who_stands_by_comes_after_the_job_is_known(void **state)
{
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);
    struct master_bed *bed = start_copied_second_life(1, 2);
    struct told told;

    (void)state;
    make_view(&told, V3);
    told.view.workers = 1;
    assert_true(is_gone(join(bed, PSI_ROLE_STANDBY, 0, 700))); /* it knocks again */
    lane_returns(bed, 0, &told, (struct known){.table = &values});
    assert_true(hear_welcome(join(bed, PSI_ROLE_STANDBY, 0, 700)).job != 0);
    master_bed_stop(bed);
}

/* If this fails, a worker that was done before the master died is left alone by its next life when the others are
 * done, and waits for it in vain; or a lane that stands by and comes late calls a job that ended well a failure. */
static void
test_who_does_not_know_that_it_is_done_is_waited_for(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct peer *late;
    struct told told;

    (void)state;
    make_view(&told, V3);
    for (uint32_t i = 0; i < 2; i++) {
        lane_returns(bed, i, &told, (struct known){.done = 1});
    }
    worker_returns(bed, 1, V3);
    say(bed, bed->worker[1], (struct psi_frame){.type = PSI_FRAME_BYE, .request = 7}, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        const struct world_heard *heard;

        while ((heard = hear(bed->lane[i], PSI_FRAME_DONE)) != NULL) {
            say(bed, bed->lane[i],
                (struct psi_frame){.type = PSI_FRAME_DONE, .seq = heard->frame.seq}, NULL);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        bed->lane[i]->line->heard_read = 0;
        assert_int_equal(hear_verdict(bed->lane[i], PSI_FRAME_END).exit_code, 0);
        say(bed, bed->lane[i], (struct psi_frame){.type = PSI_FRAME_BYE}, NULL);
    }
    pass_ms(bed, 100, NULL);
    assert_false(is_over(bed)); /* worker 0 may come */
    late = join(bed, PSI_ROLE_STANDBY, 0, 700);
    assert_int_equal(hear_verdict(late, PSI_FRAME_END).exit_code, 0);
    worker_returns(bed, 0, V3);
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_BYE, .request = 77}, NULL);
    assert_int_equal(hear(bed->worker[0], PSI_FRAME_ACK)->frame.request, 77);
    pass_ms(bed, 10000, NULL);
    assert_over(bed, PSI_EXIT_OK, "all workers are done");
    master_bed_stop(bed);
}

/* If this fails, workers whose BYE the last master did not answer, and who are back before its next life knows that all
 * are done, are left alone by it before they have said it once more. */
static void
test_who_is_back_and_does_not_know_that_it_is_done_is_waited_for(void **state)
{
    struct master_bed *bed = start_second_life(2, 2, PSI_DEATH_FAIL);
    struct told told;

    (void)state;
    make_view(&told, V3);
    for (uint32_t i = 0; i < 2; i++) {
        worker_returns(bed, i, V3);
    }
    for (uint32_t i = 0; i < 2; i++) {
        lane_returns(bed, i, &told, (struct known){.done = 3});
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hear_verdict(bed->lane[i], PSI_FRAME_END).exit_code, 0);
        say(bed, bed->lane[i], (struct psi_frame){.type = PSI_FRAME_BYE}, NULL);
    }
    for (uint32_t i = 0; i < 2; i++) {
        pass_ms(bed, 100, NULL);
        assert_false(is_over(bed));
        say(bed, bed->worker[i], (struct psi_frame){.type = PSI_FRAME_BYE, .request = 7 + i}, NULL);
        assert_int_equal(hear(bed->worker[i], PSI_FRAME_ACK)->frame.request, 7 + i);
    }
    pass_ms(bed, 100, NULL);
    assert_true(is_over(bed)); /* nobody else is waited for */
    assert_over(bed, PSI_EXIT_OK, "all workers are done");
    master_bed_stop(bed);
}

/* If this fails, a place that was in another server's process is taken for one of its own index: psd_run is
 * told to begin another life of a server that lives, and kills what it has. */
static void
test_a_process_that_is_here_is_not_awaited(void **state)
{
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);
    struct told told;

    (void)state;
    make_view(&told, V3);
    told.view.workers = 1;
    for (unsigned here = 0; here < 2; here++) {
        struct master_bed *bed = start_copied_second_life(1, 2);
        struct peer *copy;
        struct peer *spare = NULL;

        lane_returns(bed, 0, &told, (struct known){.table = &values, .pair = 8});
        copy = copy_returns(bed, 7);
        if (here == 1) { /* a lane that stands by, in the process that was started as server 1 */
            spare = join(bed, PSI_ROLE_STANDBY, 1, 701);
        }
        for (unsigned i = 0; i < 14; i++) {
            if (spare != NULL) {
                say_ping(bed, spare, (struct psi_frame){.type = PSI_FRAME_PING},
                         &(struct psi_ping){0});
            }
            keep_alive(bed, copy, 500);
        }
        assert_non_null(hear(copy, PSI_FRAME_TAKE_PLACE));
        assert_int_equal(strstr(bed->told, "awaited server 1") != NULL, here == 0);
        master_bed_stop(bed);
    }
}

/* If this fails, a copy that the last master had given the place takes it, though the server went on
 * alone since then; or one that lacks nothing is not let in. */
static void
test_a_promoted_copy_says_by_which_number(void **state)
{
    const struct psi_table_info values = known_table(PSD_USE_UPDATE, 0);
    struct told told;

    (void)state;
    make_view(&told, V3);
    for (uint64_t number = 7; number < 9; number++) {
        struct master_bed *bed = start_copied_second_life(1, 2);
        struct known known = {.table = &values};
        struct peer *copy;

        told.view.workers = 1;
        known.crossed = (struct psi_crossed){.places = 2, .number = {0, 7}};
        lane_returns(bed, 0, &told, known);
        copy = dial(bed);
        say_hello(bed, copy, (struct psi_frame){.type = PSI_FRAME_HELLO},
                  &(struct psi_hello){.role = PSI_ROLE_SERVER,
                                      .rank = 1,
                                      .lanes = 1,
                                      .life = 700,
                                      .kernel_revision = PSI_KERNEL_REVISION,
                                      .job = JOB,
                                      .term = 1,
                                      .view = V3,
                                      .pair = number,
                                      .address = "test://copy"});
        pass_ms(bed, 7000, NULL); /* server 1 does not come back */
        if (number == 7) {
            assert_null(hear(copy, PSI_FRAME_WELCOME));
            assert_over(bed, PSI_EXIT_SERVER_LOST, "server 1");
        } else {
            assert_non_null(hear(copy, PSI_FRAME_WELCOME));
            assert_false(is_over(bed));
        }
        master_bed_stop(bed);
    }
}

/* If this fails, a decision of which only a server knew that died together with the master, and that it
 * acted on, is forgotten, though its copy had heard of it. */
static void
test_the_view_of_a_copy_is_the_truth(void **state)
{
    struct master_bed *bed = start_copied_second_life(2, 2);
    struct psi_view_table tables[1];
    struct told before;
    struct told after;
    struct peer *copy;
    struct psi_view view;

    (void)state;
    make_view(&before, V3);
    make_leave(&after, V4);
    lane_returns(bed, 0, &before, (struct known){0});
    copy = join(bed, PSI_ROLE_STANDBY, 0, 700);
    (void)hear_welcome(copy);
    say_view(bed, copy, (struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT}, &after.view);
    say(bed, copy, (struct psi_frame){.type = PSI_FRAME_ELIGIBLE, .seq = 7, .rank = 1}, NULL);
    keep_alive(bed, copy, 7000); /* server 1 does not come back */
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.id, OURS);
    assert_int_equal(view.change, PSI_VIEW_WORKER_LEFT);
    assert_int_equal(view.who, 1);
    assert_int_equal(tables[0].left_at, 7);
    assert_non_null(hear(copy, PSI_FRAME_TAKE_PLACE));
    master_bed_stop(bed);
}

/* What an observer is told of a worker. */
static struct psd_node
shown_worker(struct master_bed *bed, struct peer *observer, uint32_t rank)
{
    static struct psd_node node[PSI_RANKS_MAX + PSI_SERVERS_MAX + 1];
    struct psi_nodes nodes = {.node = node};
    const struct world_heard *record;

    say(bed, observer, (struct psi_frame){.type = PSI_FRAME_NODES}, NULL);
    record = hear(observer, PSI_FRAME_NODES_INFO);
    assert_non_null(record);
    assert_int_equal(psi_nodes_decode(record->body, record->frame.payload_bytes, &nodes, NULL),
                     PSD_OK);
    assert_int_equal(nodes.count, 5);
    return node[3 + rank];
}

/* If this fails, a master that returns says that workers are at step 0 until they have told it where they are. */
static void
test_steps_are_unknown_until_workers_tell(void **state)
{
    struct master_bed *bed = return_all(PSI_DEATH_CONTINUE, (struct known){0});
    const struct psi_hello hello = {.role = PSI_ROLE_OBSERVER, .rank = PSI_RANK_AUTO, .life = 9};
    struct peer *observer = dial(bed);

    (void)state;
    say_hello(bed, observer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    (void)hear_welcome(observer);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_true(isnan(shown_worker(bed, observer, rank).steps_per_s));
    }
    say_ping(bed, bed->worker[1], (struct psi_frame){.type = PSI_FRAME_PING},
             &(struct psi_ping){.step = 40});
    assert_true(isnan(shown_worker(bed, observer, 0).steps_per_s));
    assert_int_equal(shown_worker(bed, observer, 1).step, 40);
    assert_true(shown_worker(bed, observer, 1).steps_per_s == 0);
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_calm_job_goes_on_as_it_is),
        cmocka_unit_test(test_the_highest_view_is_the_truth),
        cmocka_unit_test(test_what_was_only_proposed_is_given_up),
        cmocka_unit_test(test_a_lane_that_is_cut_hears_the_decision),
        cmocka_unit_test(test_a_server_that_stays_away_is_lost),
        cmocka_unit_test(test_a_worker_that_stays_away_is_lost),
        cmocka_unit_test(test_members_that_come_late_come_together),
        cmocka_unit_test(test_a_worker_that_is_known_to_be_dead_is_not_waited_for),
        cmocka_unit_test(test_who_missed_the_welcome_has_time_to_knock_again),
        cmocka_unit_test(test_a_lane_that_told_half_is_lost),
        cmocka_unit_test(test_each_master_numbers_lives_anew),
        cmocka_unit_test(test_newcomers_do_not_know_all_tables),
        cmocka_unit_test(test_half_of_a_newcomer_stays),
        cmocka_unit_test(test_who_was_done_is_done),
        cmocka_unit_test(test_copies_are_known_again),
        cmocka_unit_test(test_a_promoted_copy_says_by_which_number),
        cmocka_unit_test(test_the_view_of_a_copy_is_the_truth),
        cmocka_unit_test(test_a_process_that_is_here_is_not_awaited),
        cmocka_unit_test(test_who_stands_by_comes_after_the_job_is_known),
        cmocka_unit_test(test_who_does_not_know_that_it_is_done_is_waited_for),
        cmocka_unit_test(test_who_is_back_and_does_not_know_that_it_is_done_is_waited_for),
        cmocka_unit_test(test_a_job_that_was_over_ends_well),
        cmocka_unit_test(test_a_bye_is_answered_when_lanes_know_of_it),
        cmocka_unit_test(test_a_master_that_was_replaced_leaves),
        cmocka_unit_test(test_who_asks_a_master_that_was_replaced_asks_again),
        cmocka_unit_test(test_tables_are_known_again),
        cmocka_unit_test(test_barriers_go_on),
        cmocka_unit_test(test_a_job_that_had_not_begun_gathers),
        cmocka_unit_test(test_a_job_that_no_lane_knows_is_over),
        cmocka_unit_test(test_workers_may_know_what_new_servers_do_not),
        cmocka_unit_test(test_tables_that_nobody_knows_end_it_by_name),
        cmocka_unit_test(test_who_had_the_place_before_is_fenced),
        cmocka_unit_test(test_workers_tell_when_no_lane_is_left),
        cmocka_unit_test(test_who_does_not_tell_is_lost),
        cmocka_unit_test(test_copies_without_servers_need_somebody_who_knows),
        cmocka_unit_test(test_the_copy_of_who_is_gone_may_be_on_its_way),
        cmocka_unit_test(test_backup_workers_end_it_by_name),
        cmocka_unit_test(test_steps_are_unknown_until_workers_tell),
    };

    return cmocka_run_group_tests_name("master_rebuild", tests, NULL, NULL);
}
