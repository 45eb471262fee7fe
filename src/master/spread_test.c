/*
 * spread_test.c - servers of several lanes, whose parts are shared by others when they die: a master
 * against scripted members, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/exit_code.h"
#include "master/master_bed.h"

enum { SERVERS = 3, LANES = 2, PLACES = SERVERS * LANES, SPARES = 4, STANDBY = 700 };

/* What a lane has heard of its copy. */
struct heard {
    uint64_t number;
    uint32_t server; /* in which it is */
    uint64_t life;
};

struct job {
    struct master_bed *bed;
    struct peer *standby[SERVERS][SPARES]; /* NULL: dead, or it has a place */
    struct heard copy[PLACES];
};

static uint64_t
life_of(uint32_t server, uint32_t spare)
{
    return STANDBY + server * 10 + spare;
}

static struct job
begin(uint32_t replicas, psd_use use)
{
    struct job job = {.bed = start_wide_job(replicas)};

    open_everywhere(job.bed, "w", use);
    for (uint32_t server = 0; server < SERVERS; server++) {
        for (uint32_t spare = 0; spare < SPARES; spare++) {
            job.standby[server][spare] = join_as(job.bed, PSI_ROLE_STANDBY, server, spare % LANES,
                                                 server, life_of(server, spare));
            (void)hear_welcome(job.standby[server][spare]);
        }
    }
    return job;
}

/* Time passes, and nobody is silent. */
static void
pass(struct job *job, uint64_t ms)
{
    for (uint64_t passed = 0; passed < ms; passed += 100) {
        for (uint32_t i = 0; i < SERVERS * SPARES; i++) {
            struct peer *standby = job->standby[i / SPARES][i % SPARES];

            if (standby != NULL) {
                say_ping(job->bed, standby, (struct psi_frame){.type = PSI_FRAME_PING},
                         &(struct psi_ping){0});
            }
        }
        pass_ms(job->bed, 100, NULL);
    }
}

/* False: the lane has heard of no other copy. */
static bool
hear_copy(struct job *job, uint32_t place)
{
    const struct world_heard *heard = hear(job->bed->lane[place], PSI_FRAME_PAIR);
    struct psi_pair pair;

    if (heard == NULL) {
        return false;
    }
    assert_int_equal(psi_pair_decode(heard->body, heard->frame.payload_bytes, &pair, NULL), PSD_OK);
    job->copy[place] =
        (struct heard){.number = heard->frame.seq, .server = pair.server, .life = pair.life};
    return true;
}

static void
call_eligible(struct job *job, uint32_t place)
{
    say(job->bed, job->bed->lane[place],
        (struct psi_frame){.type = PSI_FRAME_ELIGIBLE, .seq = job->copy[place].number}, NULL);
}

/* Every lane has a copy, and it lacks nothing. */
static void
begin_copies(struct job *job)
{
    pass(job, 300);
    for (uint32_t place = 0; place < PLACES; place++) {
        assert_true(hear_copy(job, place));
        call_eligible(job, place);
    }
}

/* All that is in it: its lanes that stand by, and those places. */
static void
kill_process(struct job *job, uint32_t server, const uint32_t *place, uint32_t places)
{
    for (uint32_t spare = 0; spare < SPARES; spare++) {
        if (job->standby[server][spare] != NULL) {
            hang_up(job->standby[server][spare], "killed");
            job->standby[server][spare] = NULL;
        }
    }
    for (uint32_t i = 0; i < places; i++) {
        hang_up(job->bed->lane[place[i]], "killed");
        job->bed->lane[place[i]] = NULL;
    }
    pass(job, 600);
}

/* The first lane of that process that has been told to takes the place, with its tables. Returns which. */
static uint32_t
take_any_place(struct job *job, uint32_t server)
{
    for (uint32_t spare = 0; spare < SPARES; spare++) {
        struct peer *standby = job->standby[server][spare];
        const struct world_heard *order =
            standby == NULL ? NULL : hear(standby, PSI_FRAME_TAKE_PLACE);
        uint32_t place;

        if (order == NULL) {
            continue;
        }
        assert_int_equal(order->frame.step, LANES);
        place = order->frame.rank * LANES + order->frame.chunk;
        assert_true(place < PLACES);
        hang_up(standby, "comes again by another name");
        job->standby[server][spare] = NULL;
        job->bed->lane[place] =
            join_as(job->bed, PSI_ROLE_SERVER, place / LANES, place % LANES, server, standby->life);
        (void)hear_welcome(job->bed->lane[place]);
        (void)hear_table(job->bed->lane[place], PSI_FRAME_TABLE_OPEN, 0);
        say(job->bed, job->bed->lane[place], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0},
            NULL);
        say_ping(job->bed, job->bed->lane[place], (struct psi_frame){.type = PSI_FRAME_PING},
                 &(struct psi_ping){0});
        return place;
    }
    fail_msg("no lane of server %u was told to take a place", server);
    return PLACES;
}

static void
take_place(struct job *job, uint32_t server, uint32_t place)
{
    assert_int_equal(take_any_place(job, server), place);
}

/* All lanes take that view. Those that have just come hear of the one before, first, and not of one that is
 * about to be agreed on without them. */
static void
agree(struct job *job, uint32_t id)
{
    uint32_t told = 0;

    master_tick(job->bed->master);
    for (uint32_t place = 0; place < PLACES; place++) {
        const struct world_heard *heard;

        do {
            heard = hear(job->bed->lane[place], PSI_FRAME_VIEW_COMMIT);
        } while (heard != NULL && heard->frame.view < id);
        if (heard != NULL) {
            assert_int_equal(heard->frame.view, id);
            ack_view(job->bed, place, id, id, NULL);
            told++;
        }
    }
    assert_true(told > PLACES / 2);
}

/* If this fails, the copies of a server are all in one process, which carries all of its load when it
 * dies. */
static void
test_copies_are_spread_over_the_others(void **state)
{
    struct job job = begin(1, PSD_USE_UPDATE);

    (void)state;
    begin_copies(&job);
    for (uint32_t place = 0; place < PLACES; place++) {
        assert_int_equal(job.copy[place].server, (place / LANES + 1 + place % LANES) % SERVERS);
    }
    assert_true(logged(job.bed, "server 0 has a copy in server 1 (test://lane1), server 2 "
                                "(test://lane2): it may die, and nothing is lost"));
    pass(&job, 100);
    assert_non_null(strstr(job.bed->told, "place server 1 by 1,1 whole in 2,0\n"));
    master_bed_stop(job.bed);
}

/* If this fails, the parts of a dead server go to one other; or copies that were not lost are made anew. */
static void
test_a_dead_servers_lanes_go_to_several(void **state)
{
    static const uint32_t dead[] = {0, 1};
    struct job job = begin(1, PSD_USE_UPDATE);
    uint64_t number[PLACES];

    (void)state;
    begin_copies(&job);
    for (uint32_t place = 0; place < PLACES; place++) {
        number[place] = job.copy[place].number;
    }
    kill_process(&job, 0, dead, 2);
    assert_false(is_over(job.bed));
    assert_true(logged(job.bed, "takes its places, and nothing is lost"));
    /* Those whose copies were in it: lane 1 of server 1, lane 0 of server 2. The others keep theirs. */
    assert_int_equal(hear(job.bed->lane[3], PSI_FRAME_UNPAIR)->frame.seq, number[3]);
    assert_int_equal(hear(job.bed->lane[4], PSI_FRAME_UNPAIR)->frame.seq, number[4]);
    assert_null(hear(job.bed->lane[2], PSI_FRAME_UNPAIR));
    assert_null(hear(job.bed->lane[5], PSI_FRAME_UNPAIR));
    take_place(&job, 1, 0);
    take_place(&job, 2, 1);
    agree(&job, 2);
    pass(&job, 500);
    assert_non_null(strstr(job.bed->told, "place server 0 by 1,2 "));
    assert_non_null(strstr(job.bed->told, "copied server 0"));
    assert_true(hear_copy(&job, 0) && job.copy[0].server == 2);
    assert_true(hear_copy(&job, 1) && job.copy[1].server == 1);
    assert_false(hear_copy(&job, 2));
    assert_false(hear_copy(&job, 5));
    master_bed_stop(job.bed);
}

/* If this fails, a lane that has lost its connection, and made another, is the copy of two, and has only one
 * of them. */
static void
test_a_lane_is_one_copy(void **state)
{
    struct job job = {.bed = start_wide_job(1)};

    (void)state;
    open_everywhere(job.bed, "w", PSD_USE_UPDATE);
    for (uint32_t i = 0; i < 2 * SERVERS * SPARES;
         i++) { /* the master has not seen the first of two end */
        const uint32_t server = i / 2 / SPARES;
        const uint32_t spare = i / 2 % SPARES;

        job.standby[server][spare] = join_as(job.bed, PSI_ROLE_STANDBY, server, spare % LANES,
                                             server, life_of(server, spare));
        (void)hear_welcome(job.standby[server][spare]);
    }
    begin_copies(&job);
    for (uint32_t place = 0; place < PLACES; place++) {
        for (uint32_t other = 0; other < place; other++) {
            assert_true(job.copy[place].life != job.copy[other].life);
        }
    }
    master_bed_stop(job.bed);
}

/* If this fails, a server is given up although one of its lanes has no whole copy; or the job goes on
 * without what that had. */
static void
test_every_lane_needs_a_whole_copy(void **state)
{
    static const uint32_t dead[] = {0, 1};
    struct job job = begin(1, PSD_USE_UPDATE);

    (void)state;
    pass(&job, 300);
    for (uint32_t place = 0; place < PLACES; place++) {
        assert_true(hear_copy(&job, place));
        if (place != 1) {
            call_eligible(&job, place);
        }
    }
    assert_false(logged(job.bed, "server 0 has a copy in"));
    kill_process(&job, 0, dead, 2);
    assert_over(job.bed, PSI_EXIT_SERVER_LOST, "it had no whole copy at that moment");
    master_bed_stop(job.bed);
}

/* If this fails, the death of a process takes lanes along that are in others, because they are of one
 * server. */
static void
test_lanes_of_a_server_die_with_their_process_alone(void **state)
{
    static const uint32_t first[] = {0, 1};
    static const uint32_t second[] = {0, 2, 3}; /* server 1, and what it has of server 0 */
    struct job job = begin(1, PSD_USE_UPDATE);
    struct peer *kept;

    (void)state;
    begin_copies(&job);
    kill_process(&job, 0, first, 2);
    assert_true(hear_copy(&job, 3) && hear_copy(&job, 4)); /* theirs were in it */
    take_place(&job, 1, 0);
    take_place(&job, 2, 1);
    agree(&job, 2);
    pass(&job, 500);
    assert_true(hear_copy(&job, 0) && hear_copy(&job, 1));
    for (uint32_t place = 0; place < PLACES; place++) {
        call_eligible(&job, place);
    }
    kept = job.bed->lane[1];
    kill_process(&job, 1, second, 3);
    assert_false(is_over(job.bed));
    assert_false(is_gone(kept));
    assert_true(logged(job.bed, "MEMBER-LOST lane 0 of server 0, in the process of server 1 ("));
    assert_true(logged(job.bed, "), 1 of its 2 lanes lost: "));
    for (uint32_t i = 0; i < 3; i++) {
        (void)take_any_place(&job, 2);
        assert_true(job.bed->lane[1] == kept);
    }
    agree(&job, 3); /* one for each server that has lost lanes */
    agree(&job, 4);
    pass(&job, 300);
    assert_non_null(strstr(job.bed->told, "place server 0 by 2,2 "));
    assert_false(is_over(job.bed));
    master_bed_stop(job.bed);
}

/* That process says nothing for so long. */
static void
pass_silent(struct job *job, uint32_t server, const uint32_t *place, uint32_t places, uint64_t ms)
{
    const struct job before = *job;
    struct peer *lane[PLACES];

    memcpy(lane, job->bed->lane, sizeof(lane));
    memset(job->standby[server], 0, sizeof(job->standby[server]));
    for (uint32_t i = 0; i < places; i++) {
        job->bed->lane[place[i]] = NULL;
    }
    pass(job, ms);
    memcpy(job->bed->lane, lane, sizeof(lane));
    memcpy(job->standby[server], before.standby[server], sizeof(job->standby[server]));
}

/* If this fails, a server whose lanes have whole copies is deposed, and killed with what it has taken over
 * from another and nobody else has. */
static void
test_a_process_is_not_deposed_with_what_only_it_has(void **state)
{
    static const uint32_t first[] = {0, 1};
    static const uint32_t second[] = {0, 2, 3};
    struct job job = begin(1, PSD_USE_UPDATE);

    (void)state;
    begin_copies(&job);
    kill_process(&job, 0, first, 2);
    assert_true(hear_copy(&job, 3) && hear_copy(&job, 4));
    take_place(&job, 1, 0);
    take_place(&job, 2, 1);
    agree(&job, 2);
    pass(&job, 300);
    call_eligible(&job, 3);
    call_eligible(&job, 4);
    pass_silent(&job, 1, second, 3, 3000);
    assert_false(is_over(job.bed));
    assert_true(logged(job.bed, "MEMBER-SILENT server 1 "));
    assert_false(logged(job.bed, "MEMBER-LOST server 1 "));
    pass(&job, 300);
    assert_true(logged(job.bed, "MEMBER-HEARD server 1 "));
    master_bed_stop(job.bed);
}

/* If this fails, one server carries the whole load of another that was not started again; or what it had
 * taken over waits for somebody to start that again when it dies itself; or who started the job does not
 * hear that a part is lost, or that it is back, once others have it. */
static void
test_sums_of_a_lost_server_are_shared(void **state)
{
    static const uint32_t first[] = {0, 1};
    static const uint32_t second[] = {0, 2, 3};
    struct job job = begin(0, PSD_USE_SUM);

    (void)state;
    kill_process(&job, 0, first, 2);
    pass(&job, 1200);
    assert_true(logged(job.bed,
                       "server 0 was not started again in 1000 ms: server 1, server 2 are to "
                       "take its part"));
    assert_non_null(strstr(job.bed->told, "hosted server 0"));
    job.bed->told[0] = '\0';
    take_place(&job, 1, 0);
    assert_null(strstr(job.bed->told, "joined server 0"));
    take_place(&job, 2, 1);
    assert_non_null(
        strstr(job.bed->told, "joined server 0")); /* its part, by which its loss ends */
    agree(&job, 2);
    /* It comes too late, and stands by: places that are taken are. */
    assert_refused(join_as(job.bed, PSI_ROLE_SERVER, 0, 1, 0, 900), PSD_ERR_STATE,
                   "another server has its place, stand by");
    job.bed->told[0] = '\0';
    kill_process(&job, 1, second, 3);
    assert_non_null(strstr(job.bed->told, "awaited server 1"));
    assert_null(strstr(job.bed->told, "awaited server 0"));
    /* Nobody comes by itself for what was taken over. */
    assert_true(logged(job.bed, "server 0: server 2 is to take what was lost of its part"));
    assert_non_null(strstr(job.bed->told, "hosted server 0"));
    assert_null(strstr(job.bed->told, "joined server 0"));
    take_place(&job, 2, 0);
    assert_non_null(strstr(job.bed->told, "joined server 0"));
    master_bed_stop(job.bed);
}

/* If this fails, a table that workers open while a server of sums is away keeps everybody from its places: the
 * table waits for the server, and the server for a copy that nobody has. */
static void
test_a_table_that_is_being_opened_needs_no_copy(void **state)
{
    static const uint32_t dead[] = {0, 1};
    const struct psi_table_info want = table_named("v", 65536 * 8);
    struct job job = begin(1, PSD_USE_SUM);

    (void)state;
    kill_process(&job, 0, dead, 2);
    open_table(job.bed, 0, &want, 2);
    pass(&job, 1200);
    take_place(&job, 1, 0);
    take_place(&job, 2, 1);
    for (uint32_t place = 0; place < PLACES; place++) {
        (void)hear_table(job.bed->lane[place], PSI_FRAME_TABLE_OPEN, 0);
        say(job.bed, job.bed->lane[place], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 1},
            NULL);
    }
    agree(&job, 2);
    (void)hear_table(job.bed->worker[0], PSI_FRAME_TABLE_INFO, 2);
    assert_false(is_over(job.bed));
    master_bed_stop(job.bed);
}

/* If this fails, lanes of a server that was started again stand by, and take the places of its own lanes
 * before those are here: these are refused, and the process ends. */
static void
test_a_server_does_not_stand_by_for_itself(void **state)
{
    static const uint32_t dead[] = {0, 1};
    struct job job = begin(0, PSD_USE_SUM);

    (void)state;
    kill_process(&job, 0, dead, 2);
    for (uint32_t server = 1; server < SERVERS; server++) { /* those of the others are all busy */
        for (uint32_t spare = 0; spare < SPARES; spare++) {
            hang_up(job.standby[server][spare], "has a place");
            job.standby[server][spare] = NULL;
        }
    }
    for (uint32_t spare = 0; spare < SPARES; spare++) { /* of its next life */
        job.standby[0][spare] =
            join_as(job.bed, PSI_ROLE_STANDBY, 0, spare % LANES, 0, 910 + spare);
    }
    pass(&job, 1500);
    for (uint32_t spare = 0; spare < SPARES; spare++) {
        assert_null(hear(job.standby[0][spare], PSI_FRAME_TAKE_PLACE));
    }
    assert_null(strstr(job.bed->told, "hosted"));
    for (uint32_t lane = 0; lane < LANES; lane++) {
        job.bed->lane[lane] = join_as(job.bed, PSI_ROLE_SERVER, 0, lane, 0, 900 + lane);
        (void)hear_welcome(job.bed->lane[lane]);
    }
    assert_non_null(strstr(job.bed->told, "joined server 0"));
    master_bed_stop(job.bed);
}

/* If this fails, a place is given to a process that is about to be killed, because the places that were lost
 * with it are not its own. */
static void
test_who_is_to_be_killed_stands_by_for_nobody(void **state)
{
    static const uint32_t first[] = {0, 1};
    static const uint32_t second[] = {0, 2, 3};
    struct job job = begin(0, PSD_USE_SUM);

    (void)state;
    kill_process(&job, 0, first, 2);
    pass(&job, 1200);
    take_place(&job, 1, 0);
    take_place(&job, 2, 1);
    agree(&job, 2);
    kill_process(&job, 1, second, 3);
    take_place(&job, 2, 0);
    for (uint32_t spare = 0; spare < SPARES; spare++) { /* server 0 is here again, and stands by */
        job.standby[0][spare] = join_as(job.bed, PSI_ROLE_STANDBY, 0, spare % LANES, 0,
                                        SECOND_LIFE + life_of(0, spare));
    }
    pass(&job, 1200);
    assert_int_equal(take_any_place(&job, 0) + take_any_place(&job, 0), 2 + 3);
    pass(&job, 300);
    job.bed->told[0] = '\0';
    for (uint32_t place = 2; place < 4; place++) {
        hang_up(job.bed->lane[place], "reset");
        job.bed->lane[place] = NULL;
    }
    pass(&job, 1600);
    assert_non_null(strstr(job.bed->told, "awaited server 0"));
    for (uint32_t spare = 0; spare < SPARES; spare++) {
        assert_true(job.standby[0][spare] == NULL ||
                    hear(job.standby[0][spare], PSI_FRAME_TAKE_PLACE) == NULL);
    }
    assert_int_equal(take_any_place(&job, 2) + take_any_place(&job, 2), 2 + 3);
    master_bed_stop(job.bed);
}

/* If this fails, what a guest had waits for the guest to be started again, which does not come back for
 * it. */
static void
test_what_a_guest_had_does_not_wait_for_it(void **state)
{
    static const uint32_t first[] = {0, 1};
    static const uint32_t second[] = {0, 2, 3};
    const uint64_t process = UINT64_C(1) << PSI_PROCESS_INDEX_BITS | 1;
    struct job job = begin(0, PSD_USE_SUM);

    (void)state;
    kill_process(&job, 0, first, 2);
    pass(&job, 1200);
    take_place(&job, 1, 0);
    take_place(&job, 2, 1);
    agree(&job, 2);
    for (uint32_t spare = 0; spare < SPARES; spare++) { /* nobody can take it at once */
        if (job.standby[2][spare] != NULL) {
            hang_up(job.standby[2][spare], "reset");
            job.standby[2][spare] = NULL;
        }
    }
    memset(job.standby[1], 0, sizeof(job.standby[1]));
    for (uint32_t i = 0; i < 3; i++) {
        job.bed->lane[second[i]] = NULL; /* silent */
    }
    pass(&job, 2200);
    assert_non_null(strstr(job.bed->told, "awaited server 1"));
    master_heed(job.bed->master,
                &(struct psi_word){.kind = PSI_WORD_GONE, .rank = 1, .number = process});
    job.standby[2][0] = join_as(job.bed, PSI_ROLE_STANDBY, 2, 0, 2, life_of(2, SPARES));
    pass(&job, 600);
    take_place(&job, 2, 0);
    master_bed_stop(job.bed);
}

/* If this fails, a lane that has no copy, and needs none, waits for ever for somebody to take its place when
 * the copy of another lane takes that one's: they are back together. */
static void
test_a_lane_without_a_copy_is_placed_beside_one_that_has(void **state)
{
    static const uint32_t dead[] = {0, 1};
    struct job job = begin(1, PSD_USE_SUM);
    uint32_t host;

    (void)state;
    say_ping(job.bed, job.bed->lane[0], (struct psi_frame){.type = PSI_FRAME_PING},
             &(struct psi_ping){.step = 1}); /* the job has something to lose: copies are made */
    master_tick(job.bed->master);
    for (uint32_t place = 0; place < PLACES; place++) {
        assert_true(hear_copy(&job, place));
        if (place != 1) {
            call_eligible(&job, place);
        }
    }
    kill_process(&job, 0, dead, 2);
    take_place(&job, 1, 0);
    pass(&job, 1500);
    assert_false(is_over(job.bed));
    assert_true(logged(job.bed, "server 0 was not started again in 1000 ms: server "));
    host = logged(job.bed, "server 1 is to take its part") ? 1 : 2;
    assert_null(strstr(job.bed->told, "copied server 0"));
    take_place(&job, host, 1);
    agree(&job, 2);
    assert_non_null(strstr(job.bed->told, "copied server 0"));
    master_bed_stop(job.bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_are_spread_over_the_others),
        cmocka_unit_test(test_a_dead_servers_lanes_go_to_several),
        cmocka_unit_test(test_a_lane_is_one_copy),
        cmocka_unit_test(test_every_lane_needs_a_whole_copy),
        cmocka_unit_test(test_lanes_of_a_server_die_with_their_process_alone),
        cmocka_unit_test(test_a_process_is_not_deposed_with_what_only_it_has),
        cmocka_unit_test(test_sums_of_a_lost_server_are_shared),
        cmocka_unit_test(test_a_table_that_is_being_opened_needs_no_copy),
        cmocka_unit_test(test_a_server_does_not_stand_by_for_itself),
        cmocka_unit_test(test_who_is_to_be_killed_stands_by_for_nobody),
        cmocka_unit_test(test_what_a_guest_had_does_not_wait_for_it),
        cmocka_unit_test(test_a_lane_without_a_copy_is_placed_beside_one_that_has),
    };

    return cmocka_run_group_tests_name("master_spread", tests, NULL, NULL);
}
