/*
 * join_test.c - a master whose workers come while the others train, against scripted members.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/exit_code.h"
#include "master/master_bed.h"
#include "master/state.h"
#include "table/spec.h"

/* A worker knocks, and has heard WELCOME. */
static struct peer *
come(struct master_bed *bed, uint32_t rank, uint64_t life)
{
    struct peer *peer = join(bed, PSI_ROLE_WORKER, rank, life);

    hear_welcome(peer);
    say_ping(bed, peer, (struct psi_frame){.type = PSI_FRAME_PING}, &(struct psi_ping){0});
    return peer;
}

/* The same, to count from that step on. */
static struct peer *
come_for(struct master_bed *bed, uint64_t life, uint64_t step)
{
    const struct psi_hello hello = {.role = PSI_ROLE_WORKER,
                                    .rank = PSI_RANK_AUTO,
                                    .life = life,
                                    .kernel_revision = PSI_KERNEL_REVISION,
                                    .join_step = step};
    struct peer *peer = dial(bed);

    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    hear_welcome(peer);
    say_ping(bed, peer, (struct psi_frame){.type = PSI_FRAME_PING}, &(struct psi_ping){0});
    return peer;
}

static struct psi_propose
hear_propose(struct peer *lane)
{
    const struct world_heard *heard = hear(lane, PSI_FRAME_VIEW_PROPOSE);
    struct psi_propose propose;

    assert_non_null(heard);
    assert_int_equal(psi_propose_decode(heard->body, heard->frame.payload_bytes, &propose, NULL),
                     PSD_OK);
    return propose;
}

/* If this fails, a worker that joins begins with a step that a lane may have closed, is told so before
 * all lanes know, or counts in no table. */
static void
test_one_that_joins_begins_behind_the_furthest(void **state)
{
    struct master_bed *bed = start_elastic_job(4, 2, 2, PSI_DEATH_FAIL);
    const struct psi_given slow = {.chunks = 4, .next_min = 7, .next_max = 7};
    const struct psi_given fast = {.chunks = 4, .next_min = 9, .next_max = 9};
    const struct psi_table_info want = table_named("w", 65536 * 8);
    struct psi_view_table tables[1];
    struct psi_view view;

    (void)state;
    open_table(bed, 0, &want, 1);
    ack_table(bed, 0);
    bed->worker[2] = come(bed, PSI_RANK_AUTO, 900);
    for (uint32_t i = 0; i < 2; i++) {
        const struct psi_propose propose = hear_propose(bed->lane[i]);

        assert_true(propose.joins);
        assert_false(propose.leaves);
        assert_int_equal(propose.rank, 2);
    }
    ack_view(bed, 0, 2, 1, &fast);
    ack_view(bed, 1, 2, 1, &slow);
    for (uint32_t i = 0; i < 2; i++) {
        assert_null(hear(bed->worker[2], PSI_FRAME_VIEW_COMMIT));
        view = hear_view(bed->lane[i], tables);
        assert_int_equal(view.change, PSI_VIEW_WORKER_JOINED);
        assert_true(view.worker[2].member);
        assert_false(view.worker[3].member);
        assert_int_equal(view.tables, 1);
        assert_int_equal(tables[0].left_at, 10);
        assert_int_equal(view.worker[2].counts_from, 10);
        assert_int_equal(view.changes, 1);
        ack_view(bed, i, 2, 2, NULL);
    }
    assert_int_equal(hear_view(bed->worker[2], tables).id, 2);
    assert_int_equal(hear_view(bed->worker[0], tables).id, 2);
    open_table(bed, 2, &want, 3);
    assert_int_equal(hear_table(bed->worker[2], PSI_FRAME_TABLE_INFO, 3).step, 10);
    assert_true(logged(bed, "worker 2 counts from step 10 on"));
    master_bed_stop(bed);
}

/* If this fails, a worker that is to count from a step on counts from another one in some table, or the others are
 * told of another. */
static void
test_one_that_joins_gets_the_step_it_asks_for(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    const struct psi_given given = {.chunks = 4, .next_min = 9, .next_max = 9};
    struct psi_view_table tables[1];
    struct psi_view view;

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    come_for(bed, 900, 700);
    assert_true(hear_propose(bed->lane[0]).joins);
    ack_view(bed, 0, 2, 1, &given);
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.change, PSI_VIEW_WORKER_JOINED);
    assert_int_equal(tables[0].left_at, 700);
    assert_int_equal(view.worker[2].counts_from, 700);
    assert_true(logged(bed, "worker 2 counts from step 700 on"));
    master_bed_stop(bed);
}

/* If this fails, the first step that a worker could have is refused to it. */
static void
test_the_first_step_that_is_possible_may_be_asked_for(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    const struct psi_given given = {.chunks = 4, .next_min = 9, .next_max = 9};
    struct psi_view_table tables[1];

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    come_for(bed, 900, 10);
    ack_view(bed, 0, 2, 1, &given);
    hear_view(bed->lane[0], tables);
    assert_int_equal(tables[0].left_at, 10);
    master_bed_stop(bed);
}

/* If this fails, a worker that asks for a step that may be over gets another one in silence, holds up the others,
 * ends their job, or takes its rank with it. */
static void
test_a_step_that_may_be_over_is_refused(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    const struct psi_given given = {.chunks = 4, .next_min = 9, .next_max = 9};
    struct peer *joiner;

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    joiner = come_for(bed, 900, 9);
    ack_view(bed, 0, 2, 1, &given);
    assert_refused(
        joiner, PSD_ERR_REFUSED,
        "worker 2 is to count from step 9 on (join_step), but the first step that it can "
        "have is 10: ask for a later one");
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_ABORT));
    assert_false(logged(bed, "counts from step"));
    assert_false(is_over(bed));
    assert_int_equal(hear_welcome(join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 901)).rank, 2);
    master_bed_stop(bed);
}

/* If this fails, a worker is to count from a step on of which not all tables know: some may be opened later. */
static void
test_a_step_is_refused_before_anybody_has_pushed(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    struct peer *joiner;

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    joiner = come_for(bed, 900, 700);
    ack_view(bed, 0, 2, 1, &(struct psi_given){.chunks = 4});
    assert_refused(joiner, PSD_ERR_REFUSED,
                   "worker 2 is to count from step 700 on (join_step), but no step of a table has "
                   "been pushed: let it come when training has begun");
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_ABORT));
    master_bed_stop(bed);
}

/* If this fails, a worker that was cut off as its step was refused is never told, or joins with another one. */
static void
test_who_was_cut_off_is_refused_when_it_is_back(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    const struct psi_given given = {.chunks = 4, .next_min = 9, .next_max = 9};
    struct peer *joiner;

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    hang_up(come_for(bed, 900, 9), "reset");
    ack_view(bed, 0, 2, 1, &given);
    assert_true(logged(bed, "the first step that it can have is 10"));
    joiner = come_for(bed, 900, 9);
    ack_view(bed, 0, 3, 1, &given);
    assert_refused(joiner, PSD_ERR_REFUSED, "the first step that it can have is 10");
    master_bed_stop(bed);
}

/* If this fails, a worker joins a job that has no room, or it is not said how many there may be. */
static void
test_no_more_join_than_there_is_room_for(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);

    (void)state;
    come(bed, PSI_RANK_AUTO, 900);
    assert_refused(
        join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 901), PSD_ERR_REFUSED,
        "all 3 worker ranks are taken, and none is used twice: a job that others may join "
        "is started with a larger --max_workers");
    assert_refused(join(bed, PSI_ROLE_WORKER, 3, 902), PSD_ERR_REFUSED,
                   "the job has 3 workers, ranks 0..2");
    master_bed_stop(bed);
}

/* If this fails, a program that has its model to itself joins the others, who have another. */
static void
test_who_cannot_join_is_told(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    const struct psi_hello hello = {.role = PSI_ROLE_WORKER,
                                    .rank = PSI_RANK_AUTO,
                                    .life = 900,
                                    .kernel_revision = PSI_KERNEL_REVISION,
                                    .in_time = true};
    struct peer *peer = dial(bed);

    (void)state;
    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    assert_refused(peer, PSD_ERR_REFUSED, "this program cannot join it (setting join)");
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    master_bed_stop(bed);
}

/* If this fails, the death of a worker that nobody has counted on ends the job, or its rank is lost. */
static void
test_one_that_dies_before_it_counts_is_forgotten(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    struct peer *joiner;

    (void)state;
    joiner = come(bed, PSI_RANK_AUTO, 900);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    give_up(bed, joiner, 0, "crashed");
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_ABORT));
    assert_false(is_over(bed));
    assert_true(logged(bed, "worker 2 (test://3) lost before it counted: crashed"));
    assert_int_equal(hear_welcome(join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 901)).rank, 2);
    master_bed_stop(bed);
}

/* If this fails, lanes wait for word of a dead worker, which waits behind one that joins; or what a lane
 * says of the one is taken for its word about the other. */
static void
test_a_join_gives_way_to_a_leave(void **state)
{
    struct master_bed *bed = start_elastic_job(5, 3, 2, PSI_DEATH_CONTINUE);
    const struct psi_given far = {.chunks = 4, .next_min = 9, .next_max = 9};
    const struct psi_given given = {.chunks = 4, .next_min = 3, .next_max = 3};
    struct psi_view_table tables[1];
    struct psi_propose propose;
    struct psi_view view;

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    come(bed, PSI_RANK_AUTO, 900);
    assert_true(hear_propose(bed->lane[0]).joins);
    bye(bed, 2);
    pass_ms(bed, 1, NULL);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_ABORT));
    propose = hear_propose(bed->lane[0]);
    assert_true(propose.leaves);
    assert_int_equal(propose.id, 3);
    ack_view(bed, 0, 2, 1, &far); /* of the one that was aborted */
    ack_view(bed, 0, 3, 1, &given);
    ack_view(bed, 1, 3, 1, &given);
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.change, PSI_VIEW_WORKER_LEFT);
    assert_int_equal(tables[0].left_at, 3);
    assert_int_equal(view.worker[2].counts_until, 4); /* the others may have begun step 3 */
    ack_view(bed, 0, 3, 3, NULL);
    ack_view(bed, 1, 3, 3, NULL);
    assert_true(hear_propose(bed->lane[0]).joins);
    master_bed_stop(bed);
}

/* If this fails, a lane that was cut off while a join was called off closes no more rounds: it goes on waiting
 * to hear with which step the worker begins, who is dead. */
static void
test_a_lane_that_was_cut_off_hears_that_a_join_is_off(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    struct peer *joiner;

    (void)state;
    joiner = come(bed, PSI_RANK_AUTO, 900);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    hang_up(bed->lane[0], "reset");
    give_up(bed, joiner, 0, "crashed");
    bed->lane[0] = join(bed, PSI_ROLE_SERVER, 0, 100);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_ABORT));
    master_bed_stop(bed);
}

/* If this fails, a job goes on with fewer workers than it needs, or waits for others for ever. */
static void
test_too_few_wait_for_another(void **state)
{
    struct master_bed *bed = start_elastic_job(4, 2, 1, PSI_DEATH_CONTINUE);
    struct psi_view_table tables[1];

    (void)state;
    give_up(bed, bed->worker[1], 0, "crashed");
    bed->worker[1] = NULL;
    pass_ms(bed, 1000, NULL);
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    assert_true(
        logged(bed, "1 worker is left, min_workers is 2: no step ends until another joins"));
    bed->worker[2] = come(bed, PSI_RANK_AUTO, 900);
    assert_true(hear_propose(bed->lane[0]).joins);
    ack_view(bed, 0, 2, 1, NULL);
    assert_int_equal(hear_view(bed->lane[0], tables).change, PSI_VIEW_WORKER_JOINED);
    ack_view(bed, 0, 2, 2, NULL);
    assert_true(hear_propose(bed->lane[0]).leaves); /* now there are enough */
    master_bed_stop(bed);

    bed = start_elastic_job(4, 2, 1, PSI_DEATH_CONTINUE);
    give_up(bed, bed->worker[1], 0, "crashed");
    bed->worker[1] = NULL;
    pass_ms(bed, 31000, NULL);
    assert_over(bed, PSI_EXIT_WORKER_LOST,
                "worker 1 lost (crashed), 1 of at least 2 workers (min_workers) left, and nobody "
                "joined in 30000 ms");
    master_bed_stop(bed);
}

/* If this fails, a server that is back does not know who joined when, and waits for it, or not. */
static void
test_a_server_that_is_back_hears_who_joined(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 2, PSI_DEATH_FAIL);
    const struct psi_given given = {.chunks = 4, .next_min = 9, .next_max = 9};
    struct psi_view_table tables[1];
    const struct world_heard *resume;

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    bed->worker[2] = come(bed, PSI_RANK_AUTO, 900);
    ack_view(bed, 0, 2, 1, &given);
    ack_view(bed, 1, 2, 1, &given);
    for (uint32_t i = 0; i < 2; i++) {
        hear_view(bed->lane[i], tables);
        ack_view(bed, i, 2, 2, NULL);
    }
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 901);
    resume = hear(bed->lane[1], PSI_FRAME_TABLE_RESUME);
    assert_non_null(resume);
    assert_int_equal(resume->frame.rank, 2);
    assert_int_equal(resume->frame.step, 10);
    assert_true(hear_table(bed->lane[1], PSI_FRAME_TABLE_OPEN, 0).again); /* it knows by then */
    master_bed_stop(bed);
}

/* If this fails, some are left out of steps of a job in which nobody knows how many there will be. */
static void
test_backup_workers_are_refused(void **state)
{
    struct master_bed *bed = start_elastic_job(3, 2, 1, PSI_DEATH_FAIL);
    struct psi_table_info want = table_named("w", 65536);

    (void)state;
    want.spec.backup_workers = 1;
    open_table(bed, 0, &want, 1);
    assert_non_null(strstr(hear_verdict(bed->worker[0], PSI_FRAME_ACK).text,
                           "backup_workers is 1: in a job that workers may join"));
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_joins_begins_behind_the_furthest),
        cmocka_unit_test(test_one_that_joins_gets_the_step_it_asks_for),
        cmocka_unit_test(test_the_first_step_that_is_possible_may_be_asked_for),
        cmocka_unit_test(test_a_step_that_may_be_over_is_refused),
        cmocka_unit_test(test_a_step_is_refused_before_anybody_has_pushed),
        cmocka_unit_test(test_who_was_cut_off_is_refused_when_it_is_back),
        cmocka_unit_test(test_no_more_join_than_there_is_room_for),
        cmocka_unit_test(test_who_cannot_join_is_told),
        cmocka_unit_test(test_one_that_dies_before_it_counts_is_forgotten),
        cmocka_unit_test(test_a_join_gives_way_to_a_leave),
        cmocka_unit_test(test_a_lane_that_was_cut_off_hears_that_a_join_is_off),
        cmocka_unit_test(test_too_few_wait_for_another),
        cmocka_unit_test(test_a_server_that_is_back_hears_who_joined),
        cmocka_unit_test(test_backup_workers_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
