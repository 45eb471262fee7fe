/*
 * servers_test.c - a master whose servers die, against scripted members, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/exit_code.h"
#include "master/master_bed.h"
#include "master/state.h"
#include "table/spec.h"

static void
ping(struct master_bed *bed, struct peer *peer)
{
    say_ping(bed, peer, (struct psi_frame){.type = PSI_FRAME_PING}, &(struct psi_ping){0});
}

/* The other life of a server, with its table open. */
static void
return_as(struct master_bed *bed, uint32_t server, uint64_t life)
{
    bed->lane[server] = join(bed, PSI_ROLE_SERVER, server, life);
    assert_int_equal(hear_welcome(bed->lane[server]).job != 0, 1);
    assert_true(hear_table(bed->lane[server], PSI_FRAME_TABLE_OPEN, 0).again);
    say(bed, bed->lane[server], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
}

/* If this fails, the death of a server ends a job that could go on, or the job goes on before
 * everybody knows where the other life of the server is. */
static void
test_a_server_of_sums_has_another_life(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);
    struct psi_view_table tables[1];
    struct psi_view view;

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    assert_false(is_over(bed));
    assert_true(logged(bed, "server 1 (test://lane1) lost: connection closed"));
    assert_true(logged(bed, "the job waits 10000 ms for ps_server --index 1 --lanes 1"));
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT));

    return_as(bed, 1, 900);
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.id, 2);
    assert_int_equal(view.change, PSI_VIEW_SERVER_BACK);
    assert_int_equal(view.who, 1);
    assert_int_equal(view.place[0].incarnation, 1);
    assert_int_equal(view.place[1].incarnation, 2);
    ack_view(bed, 0, 2, 2, NULL);
    assert_null(hear(bed->worker[0], PSI_FRAME_VIEW_COMMIT)); /* its own lane does not know yet */
    ack_view(bed, 1, 2, 2, NULL);
    assert_int_equal(hear_view(bed->worker[0], tables).id, 2);
    assert_int_equal(hear_view(bed->worker[1], tables).id, 2);
    assert_true(logged(bed, "server 1 is back, in another life"));
    pass_ms(bed, 20000, NULL);
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, workers hear of another life of a server than lanes did, under one number of a view. */
static void
test_workers_hear_of_the_life_that_lanes_heard_of(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);
    struct psi_view_table tables[1];
    struct psi_view view;

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    return_as(bed, 1, 900);
    assert_int_equal(hear_view(bed->lane[0], tables).place[1].incarnation, 2);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 901);
    assert_int_equal(hear_welcome(bed->lane[1]).incarnation, 3);
    ack_view(bed, 0, 2, 2, NULL);
    view = hear_view(bed->worker[0], tables);
    assert_int_equal(view.id, 2);
    assert_int_equal(view.place[1].incarnation, 2);
    master_bed_stop(bed);
}

/* If this fails, workers hear of a table before they know who has the place of a server that was lost
 * meanwhile: one that was only silent takes gradients of it, and its next life knows nothing of them. */
static void
test_a_table_waits_for_the_view_of_its_servers(void **state)
{
    struct master_bed *bed = start_lasting_job(1, 2, PSI_DEATH_FAIL);
    const struct psi_frame ack = {.type = PSI_FRAME_ACK, .table = 0};
    const struct psd_table_args args = {.struct_size = sizeof(args),
                                        .name = "g",
                                        .dtype = PSD_F32,
                                        .use = PSD_USE_SUM,
                                        .dims = 1,
                                        .shape = {65536 * 8}};
    struct psi_table_info want = {0};
    struct psi_view_table tables[1];

    (void)state;
    assert_int_equal(psi_spec_init(&want.spec, &args, bed->workers, NULL), PSD_OK);
    open_table(bed, 0, &want, 1);
    say(bed, bed->lane[0], ack, NULL);
    hang_up(bed->lane[1], "cut off");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 900);
    assert_false(hear_table(bed->lane[1], PSI_FRAME_TABLE_OPEN, 0).again);
    say(bed, bed->lane[1], ack, NULL);
    ping(bed, bed->lane[1]);
    assert_int_equal(hear_view(bed->lane[0], tables).id, 2);
    ack_view(bed, 0, 2, 2, NULL);
    assert_null(hear(bed->worker[0], PSI_FRAME_TABLE_INFO));
    ack_view(bed, 1, 2, 2, NULL);
    assert_int_equal(hear_view(bed->worker[0], tables).id, 2);
    (void)hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1);
    master_bed_stop(bed);
}

/* If this fails, the job counts on a server that does not know which life it is: should the master
 * die now, the next one takes that server for dead. */
static void
test_a_server_is_back_when_it_knows(void **state)
{
    struct master_bed *bed = start_lives(1, 2, PSI_DEATH_FAIL);
    struct psi_view_table tables[1];

    (void)state;
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 900);
    assert_int_equal(hear_welcome(bed->lane[1]).incarnation, 2);
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT));
    ping(bed, bed->lane[1]);
    assert_int_equal(hear_view(bed->lane[0], tables).change, PSI_VIEW_SERVER_BACK);
    master_bed_stop(bed);
}

/* A lane of server 0, which has two. */
static struct peer *
join_lane(struct master_bed *bed, uint32_t lane, uint64_t life)
{
    const struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                                    .lane = lane,
                                    .lanes = 2,
                                    .life = life,
                                    .kernel_revision = PSI_KERNEL_REVISION,
                                    .address = "test://lane"};
    struct peer *peer = dial(bed);

    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    return peer;
}

/* A job whose only server has two lanes, and is dead. */
static struct master_bed *
start_and_lose_the_server(void)
{
    struct master_bed *bed = master_bed_start_lives(1, 1, PSI_DEATH_FAIL);

    bed->worker[0] = join(bed, PSI_ROLE_WORKER, 0, 200);
    ping(bed, bed->worker[0]);
    for (uint32_t lane = 0; lane < 2; lane++) {
        bed->lane[lane] = join_lane(bed, lane, 100 + lane);
        ping(bed, bed->lane[lane]);
    }
    for (uint32_t lane = 0; lane < 2; lane++) {
        ack_view(bed, lane, 1, 1, NULL);
        hang_up(bed->lane[lane], "killed");
        bed->lane[lane] = NULL;
    }
    pass_ms(bed, 300, NULL);
    assert_non_null(strstr(bed->told, "awaited server 0"));
    bed->told[0] = '\0';
    return bed;
}

/* If this fails, a server that died before all of its lanes were back takes along those of its next
 * life; or a life that does not get here with all of its lanes is never started again. */
static void
test_lanes_of_a_later_life_stay(void **state)
{
    struct master_bed *bed = start_and_lose_the_server();
    struct psi_view_table tables[1];

    (void)state;
    hang_up(join_lane(bed, 1, 901), "killed");
    bed->lane[0] = join_lane(bed, 0, 910);
    pass_ms(bed, 300, NULL);
    assert_true(logged(bed, "server 0 lane 1 (test://lane) lost before it was back"));
    assert_false(is_gone(bed->lane[0]));
    assert_null(strstr(bed->told, "awaited"));
    pass_ms(bed, 1100, NULL);
    assert_non_null(strstr(bed->told, "awaited server 0"));

    bed->lane[1] = join_lane(bed, 1, 911);
    ping(bed, bed->lane[1]);
    assert_int_equal(hear_view(bed->lane[0], tables).id, 1);
    assert_int_equal(hear_view(bed->lane[0], tables).change, PSI_VIEW_SERVER_BACK);
    master_bed_stop(bed);
}

/* If this fails, a server that needs as long to come as others are waited for is killed when the
 * first of its lanes is here. */
static void
test_lanes_have_time_to_follow_the_first(void **state)
{
    struct master_bed *bed = start_and_lose_the_server();

    (void)state;
    pass_ms(bed, 800, NULL);
    bed->lane[0] = join_lane(bed, 0, 910);
    pass_ms(bed, 500, NULL);
    assert_null(strstr(bed->told, "awaited"));
    pass_ms(bed, 1200, NULL);
    assert_non_null(strstr(bed->told, "awaited server 0"));
    master_bed_stop(bed);
}

/* If this fails, one death is told of twice, and the server that was started at once is killed. */
static void
test_lanes_that_die_together_are_awaited_once(void **state)
{
    struct master_bed *bed = start_and_lose_the_server();
    struct peer *one = join_lane(bed, 0, 901);
    struct peer *other = join_lane(bed, 1, 902);
    const char *awaited;

    (void)state;
    hang_up(one, "killed");
    bed->world.now_ns += 50 * MS_NS;
    hang_up(other, "killed");
    pass_ms(bed, 600, NULL);
    awaited = strstr(bed->told, "awaited");
    assert_non_null(awaited);
    assert_null(strstr(awaited + 1, "awaited"));
    master_bed_stop(bed);
}

/* If this fails, a job whose parameters are lost goes on without them. */
static void
test_a_server_of_values_ends_the_job(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    assert_over(bed, PSI_EXIT_SERVER_LOST,
                "server 1 (test://lane1) lost: connection closed and not back in 500 ms; its part "
                "of table w is lost with it");
    master_bed_stop(bed);
}

/* If this fails, a server that is never started again ends a job that has another one, or the other
 * one is asked before there was time to start it. */
static void
test_another_server_takes_the_places(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);
    struct peer *standby = join(bed, PSI_ROLE_STANDBY, 0, 700);
    const struct world_heard *order;
    struct psi_view_table tables[1];

    (void)state;
    (void)hear_welcome(standby);
    open_everywhere(bed, "g", PSD_USE_SUM);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    assert_null(hear(standby, PSI_FRAME_TAKE_PLACE));
    ping(bed, standby);
    pass_ms(bed, 900, NULL);
    order = hear(standby, PSI_FRAME_TAKE_PLACE);
    assert_non_null(order);
    assert_int_equal(order->frame.rank, 1);
    assert_int_equal(order->frame.chunk, 0);
    assert_int_equal(order->frame.step, 1);
    assert_true(
        logged(bed, "server 1 was not started again in 1000 ms: server 0 is to take its part"));

    hang_up(standby, "comes again by another name");
    return_as(bed, 1, 700);
    assert_int_equal(hear_view(bed->lane[0], tables).change, PSI_VIEW_SERVER_BACK);
    pass_ms(bed, 20000, NULL);
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, workers wait for a server whose machine is cut off as if somebody could start it again
 * there: longer than the silence itself. */
static void
test_a_silent_server_that_nobody_watches_is_replaced_at_once(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);
    struct peer *standby = join(bed, PSI_ROLE_STANDBY, 0, 700);

    (void)state;
    bed->master->config.tell = NULL;
    (void)hear_welcome(standby);
    open_everywhere(bed, "g", PSD_USE_SUM);
    pass_ms(bed, 1900, bed->lane[1]);
    ping(bed, standby);
    assert_null(hear(standby, PSI_FRAME_TAKE_PLACE));
    pass_ms(bed, 200, bed->lane[1]);
    assert_int_equal(hear(standby, PSI_FRAME_TAKE_PLACE)->frame.rank, 1);
    assert_true(logged(bed,
                       "server 1 is not heard, and nobody has started it again: server 0 is to "
                       "take its part"));
    master_bed_stop(bed);
}

/* If this fails, a server that hangs loses its place although psd_run has killed it and starts it again; or
 * one whose machine is cut off is waited for, although psd_run reaches it no more than others. */
static void
test_a_silent_server_is_awaited_when_it_is_known_to_be_dead(void **state)
{
    for (int is_killed = 0; is_killed < 2; is_killed++) {
        struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);
        struct peer *standby = join(bed, PSI_ROLE_STANDBY, 0, 700);
        const uint64_t process = UINT64_C(1) << PSI_PROCESS_INDEX_BITS | 1;

        (void)state;
        (void)hear_welcome(standby);
        open_everywhere(bed, "g", PSD_USE_SUM);
        pass_ms(bed, 2000, bed->lane[1]);
        assert_non_null(strstr(bed->told, "awaited server 1"));
        ping(bed, standby);
        pass_ms(bed, 300, bed->lane[1]);
        assert_null(hear(standby, PSI_FRAME_TAKE_PLACE));
        if (is_killed) {
            master_heed(bed->master,
                        &(struct psi_word){.kind = PSI_WORD_GONE, .rank = 1, .number = process});
        }
        pass_ms(bed, 300, bed->lane[1]);
        assert_int_equal(hear(standby, PSI_FRAME_TAKE_PLACE) == NULL, is_killed);
        ping(bed, standby);
        pass_ms(bed, 800, bed->lane[1]);
        assert_int_equal(hear(standby, PSI_FRAME_TAKE_PLACE) != NULL, is_killed);
        master_bed_stop(bed);
    }
}

/* If this fails, the part of a server whose machine is cut off goes to another one of that machine, of which
 * nothing has been heard for as long, and the job waits for that one next. */
static void
test_who_is_silent_as_well_takes_no_places(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 3, PSI_DEATH_FAIL);
    struct peer *here = join(bed, PSI_ROLE_STANDBY, 0, 700);
    struct peer *silent[2] = {join(bed, PSI_ROLE_STANDBY, 2, 701),
                              join(bed, PSI_ROLE_STANDBY, 2, 702)};
    struct peer *cut_off = bed->lane[2];

    (void)state;
    bed->master->config.tell = NULL;
    open_everywhere(bed, "g", PSD_USE_SUM);
    bed->lane[2] = NULL; /* it spoke once more, after the other one of its machine */
    pass_ms(bed, 300, bed->lane[1]);
    ping(bed, cut_off);
    ping(bed, silent[0]);
    ping(bed, silent[1]);
    pass_ms(bed, 1600, bed->lane[1]);
    ping(bed, here);
    pass_ms(bed, 200, bed->lane[1]);
    assert_null(hear(silent[0], PSI_FRAME_TAKE_PLACE));
    assert_null(hear(silent[1], PSI_FRAME_TAKE_PLACE));
    assert_int_equal(hear(here, PSI_FRAME_TAKE_PLACE)->frame.rank, 1);
    master_bed_stop(bed);
}

/* If this fails, a job waits for ever for a server that nobody starts again. */
static void
test_a_server_that_stays_away_ends_the_job(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 9900, NULL);
    assert_false(is_over(bed));
    pass_ms(bed, 1000, NULL);
    assert_over(bed, PSI_EXIT_SERVER_LOST,
                "server 1 (test://lane1) lost: connection closed and not back in 200 ms; not "
                "started again in 10000 ms (server_wait_ms)");
    master_bed_stop(bed);
}

/* If this fails, a server that was only stopped goes on beside the one that has its place, or its
 * place is given away while it may still be there. */
static void
test_the_old_life_hears_that_it_is_out(void **state)
{
    struct master_bed *bed = start_lasting_job(1, 1, PSI_DEATH_FAIL);
    struct peer *old = bed->lane[0];
    struct peer *early;

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    early = join(bed, PSI_ROLE_SERVER, 0, 800);
    assert_refused(early, PSD_ERR_REFUSED, "server 0 lane 0 is taken by test://lane0");
    bed->lane[0] = NULL;
    pass_ms(bed, 2100, NULL);
    assert_true(logged(bed, "server 0 (test://lane0) lost: silent for 2000 ms"));
    return_as(bed, 0, 900);
    say_ping(bed, old, (struct psi_frame){.type = PSI_FRAME_PING}, &(struct psi_ping){0});
    assert_refused(old, PSD_ERR_FENCED, "server 0 was declared dead: silent for 2000 ms");
    assert_refused(join(bed, PSI_ROLE_SERVER, 0, 100), PSD_ERR_REFUSED, "is taken by");
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, a server that is stopped for a while ends a job that could have waited for it, or
 * nobody learns whom everybody waits for. */
static void
test_a_silent_server_that_nobody_can_replace_is_waited_for(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    pass_ms(bed, 1900, bed->lane[1]);
    assert_false(logged(bed, "MEMBER-SILENT"));
    pass_ms(bed, 7000, bed->lane[1]);
    assert_true(logged(bed, "MEMBER-SILENT server 1 (test://lane1) silent for 2000 ms; nobody can "
                            "take its part of table w, so the job waits for it, 10000 ms in all"));
    assert_false(is_over(bed));
    pass_ms(bed, 100, NULL);
    assert_true(logged(bed, "server 1 (test://lane1) speaks again after 9000 ms: the job goes on"));
    pass_ms(bed, 20000, NULL);
    assert_false(is_over(bed));
    assert_false(logged(bed, "MEMBER-LOST"));

    pass_ms(bed, 10000, bed->lane[1]);
    assert_over(bed, PSI_EXIT_SERVER_LOST,
                "server 1 (test://lane1) lost: silent for 10000 ms (server_wait_ms); its part of "
                "table w is lost with it");
    master_bed_stop(bed);
}

/* If this fails, a network that fails for some seconds ends a job, because the kernel gave up its
 * connections; or a process that has died is waited for as if it had only been silent. */
static void
test_a_server_that_is_cut_off_is_silent_not_dead(void **state)
{
    struct master_bed *bed = start_lasting_job(1, 2, PSI_DEATH_FAIL);
    struct peer *cut = bed->lane[1];
    const struct psi_hello again = {.role = PSI_ROLE_SERVER,
                                    .rank = 1,
                                    .lanes = 1,
                                    .life = cut->life,
                                    .kernel_revision = PSI_KERNEL_REVISION,
                                    .address = "test://lane1"};

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    pass_ms(bed, 1000, cut);
    world_cut_off(cut->line);
    pass_ms(bed, 5000, cut);
    assert_true(logged(bed, "MEMBER-SILENT server 1"));
    assert_false(is_over(bed));
    bed->lane[1] = dial(bed);
    say_hello(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_HELLO}, &again);
    (void)hear_welcome(bed->lane[1]);
    assert_true(logged(bed, "speaks again"));

    hang_up(bed->lane[1], "killed");
    pass_ms(bed, 600, NULL);
    assert_over(bed, PSI_EXIT_SERVER_LOST, "connection closed and not back in 500 ms");
    master_bed_stop(bed);
}

/* If this fails, servers cannot be given another patience than workers. */
static void
test_servers_may_be_silent_for_a_time_of_their_own(void **state)
{
    struct master_bed *bed = start_lasting_job(1, 1, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    bed->master->config.server_silence_ms = 700;
    pass_ms(bed, 600, bed->lane[0]);
    assert_false(logged(bed, "MEMBER-LOST"));
    pass_ms(bed, 100, bed->lane[0]);
    assert_true(logged(bed, "server 0 (test://lane0) lost: silent for 700 ms"));
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, a worker's leave that a lost lane has not answered is never decided, or by what
 * was reported before. */
static void
test_a_leave_is_proposed_again(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_CONTINUE);
    const struct psi_given one = {.chunks = 4, .next_min = 3, .next_max = 3, .closed = 4};
    const struct psi_given lacks = {.chunks = 4, .next_min = 2, .next_max = 2, .closed = 4};
    struct psi_view_table tables[1];
    struct psi_view view;

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    give_up(bed, bed->worker[1], 0, "crashed");
    bed->worker[1] = NULL;
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    ack_view(bed, 0, 2, 1, &one);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_ABORT));
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE)); /* a server's death goes first */

    return_as(bed, 1, 900);
    bed->lane[0]->line->heard_read = 0;
    view = hear_view(bed->lane[0], tables); /* view 1 */
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.change, PSI_VIEW_SERVER_BACK);
    assert_true(view.worker[1].member);
    ack_view(bed, 0, 3, 3, NULL); /* 2 was that of the one that was aborted */
    ack_view(bed, 1, 3, 3, NULL);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    ack_view(bed, 0, 4, 3, &one);
    ack_view(bed, 1, 4, 3, &lacks);
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.change, PSI_VIEW_WORKER_LEFT);
    assert_int_equal(tables[0].left_at, 2);
    master_bed_stop(bed);
}

/* If this fails, a change that lanes act on already waits for one that is dead. */
static void
test_a_commit_goes_on_without_the_lost(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_CONTINUE);
    struct psi_view_table tables[1];

    (void)state;
    open_everywhere(bed, "g", PSD_USE_SUM);
    give_up(bed, bed->worker[1], 0, "crashed");
    bed->worker[1] = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        assert_non_null(hear(bed->lane[i], PSI_FRAME_VIEW_PROPOSE));
        ack_view(bed, i, 2, 1, &(struct psi_given){.chunks = 4});
    }
    assert_int_equal(hear_view(bed->lane[0], tables).id, 2);
    ack_view(bed, 0, 2, 2, NULL);
    assert_null(hear(bed->worker[0], PSI_FRAME_VIEW_COMMIT));
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    assert_int_equal(hear_view(bed->worker[0], tables).id, 2);

    return_as(bed, 1, 900);
    assert_int_equal(hear_view(bed->lane[0], tables).change, PSI_VIEW_SERVER_BACK);
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_server_of_sums_has_another_life),
        cmocka_unit_test(test_workers_hear_of_the_life_that_lanes_heard_of),
        cmocka_unit_test(test_a_table_waits_for_the_view_of_its_servers),
        cmocka_unit_test(test_a_server_is_back_when_it_knows),
        cmocka_unit_test(test_lanes_of_a_later_life_stay),
        cmocka_unit_test(test_lanes_have_time_to_follow_the_first),
        cmocka_unit_test(test_lanes_that_die_together_are_awaited_once),
        cmocka_unit_test(test_a_server_of_values_ends_the_job),
        cmocka_unit_test(test_another_server_takes_the_places),
        cmocka_unit_test(test_a_silent_server_that_nobody_watches_is_replaced_at_once),
        cmocka_unit_test(test_a_silent_server_is_awaited_when_it_is_known_to_be_dead),
        cmocka_unit_test(test_who_is_silent_as_well_takes_no_places),
        cmocka_unit_test(test_a_server_that_stays_away_ends_the_job),
        cmocka_unit_test(test_the_old_life_hears_that_it_is_out),
        cmocka_unit_test(test_a_silent_server_that_nobody_can_replace_is_waited_for),
        cmocka_unit_test(test_a_server_that_is_cut_off_is_silent_not_dead),
        cmocka_unit_test(test_servers_may_be_silent_for_a_time_of_their_own),
        cmocka_unit_test(test_a_leave_is_proposed_again),
        cmocka_unit_test(test_a_commit_goes_on_without_the_lost),
    };

    return cmocka_run_group_tests_name("master_servers", tests, NULL, NULL);
}
