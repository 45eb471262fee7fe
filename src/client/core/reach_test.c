/*
 * reach_test.c - what a worker tells the master of lanes that it does not reach.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"

enum { WIDE = 64 * BED_CHUNK_BYTES, DEAD_MS = 2000, BEAT_MS = 250 };

static struct client_bed *
start(uint32_t lanes)
{
    struct client_bed *bed = client_bed_start(lanes, PSI_DEATH_FAIL, WIDE);

    bed->client->master.dead_ms = DEAD_MS;
    return bed;
}

/* Lanes that live answer every beat, and the master does. */
static void
pass_ms(struct client_bed *bed, uint64_t ms)
{
    for (uint64_t passed = 0; passed < ms; passed += BEAT_MS) {
        world_wait(&bed->world, BEAT_MS);
        world_say(&bed->world, bed_master(bed), &(struct psi_frame){.type = PSI_FRAME_PONG}, NULL);
        for (uint32_t i = 0; i < bed->lanes; i++) {
            struct world_conn *conn = bed_lane(bed, i);

            while (bed->client->lanes[i]->peer.state == PSI_PEER_UP &&
                   world_hear(conn, PSI_FRAME_PING) != NULL) {
                world_say(&bed->world, conn, &(struct psi_frame){.type = PSI_FRAME_PONG}, NULL);
            }
        }
    }
}

/* The next HINT; -1: there is none. Else its status. */
static int
hinted(struct client_bed *bed, uint32_t server)
{
    const struct world_heard *heard = world_hear(bed_master(bed), PSI_FRAME_HINT);

    if (heard == NULL) {
        return -1;
    }
    assert_int_equal(heard->frame.rank, server);
    assert_int_equal(heard->frame.chunk, 0);
    assert_int_equal(heard->frame.incarnation, bed->life[server]);
    return heard->frame.status;
}

/* If this fails, the master does not hear of a cut between a worker and a server, or is told of one
 * that has ended. */
static void
test_a_lane_that_is_not_reached_is_told_of(void **state)
{
    struct client_bed *bed = start(2);

    (void)state;
    pass_ms(bed, 3 * DEAD_MS);
    assert_int_equal(hinted(bed, 0), -1);
    world_cut_off(bed_lane(bed, 1));
    pass_ms(bed, DEAD_MS - 2 * BEAT_MS);
    assert_int_equal(hinted(bed, 1), -1);
    pass_ms(bed, 3 * BEAT_MS);
    assert_int_equal(hinted(bed, 1), PSD_ERR_TIMEOUT);
    assert_int_equal(hinted(bed, 1), -1);
    pass_ms(bed, DEAD_MS);
    assert_int_equal(hinted(bed, 1), PSD_ERR_TIMEOUT); /* it may be another master */
    bed_come_back(bed, 1);
    pass_ms(bed, 2 * BEAT_MS);
    assert_int_equal(hinted(bed, 1), PSD_OK);
    pass_ms(bed, 2 * DEAD_MS);
    assert_int_equal(hinted(bed, 1), -1);
    client_bed_stop(bed);
}

/* If this fails, the kernel has nothing to miss when a server is cut off while the worker computes. */
static void
test_lanes_are_beaten(void **state)
{
    struct client_bed *bed = start(2);

    (void)state;
    world_wait(&bed->world, 4 * BEAT_MS);
    for (uint32_t lane = 0; lane < 2; lane++) {
        unsigned pings = 0;

        while (world_hear(bed_lane(bed, lane), PSI_FRAME_PING) != NULL) {
            pings++;
        }
        assert_in_range(pings, 4, 5);
    }
    client_bed_stop(bed);
}

/* If this fails, a server that is stopped, whose connections stand, is held against the worker. */
static void
test_silence_on_a_connection_that_stands_is_not_told(void **state)
{
    struct client_bed *bed = start(1);

    (void)state;
    for (unsigned i = 0; i < 3 * DEAD_MS / BEAT_MS;
         i++) { /* the master lives, the lane does not answer */
        world_wait(&bed->world, BEAT_MS);
        world_say(&bed->world, bed_master(bed), &(struct psi_frame){.type = PSI_FRAME_PONG}, NULL);
    }
    assert_int_equal(hinted(bed, 0), -1);
    client_bed_stop(bed);
}

/* If this fails, a worker that was stopped wakes up and says that it does not reach servers, which have
 * hung up meanwhile. */
static void
test_time_in_which_it_was_stopped_does_not_count(void **state)
{
    struct client_bed *bed = start(1);

    (void)state;
    pass_ms(bed, DEAD_MS);
    bed->world.now_ns += 20 * DEAD_MS * UINT64_C(1000000);
    world_cut_off(bed_lane(bed, 0));
    pass_ms(bed, DEAD_MS - 2 * BEAT_MS);
    assert_int_equal(hinted(bed, 0), -1);
    client_bed_stop(bed);
}

/* If this fails, the master hears nothing of a machine that was started anew; or what a view has
 * ended is told as if the server's other life had done it. */
static void
test_who_hung_up_is_told_of_at_once(void **state)
{
    struct client_bed *bed = start(1);

    (void)state;
    bed_cut(bed, 0);
    assert_int_equal(hinted(bed, 0), PSD_ERR_PEER_LOST);
    bed_come_back(bed, 0);
    bed_begin_life(bed, 0);
    assert_int_equal(hinted(bed, 0), -1);
    pass_ms(bed, DEAD_MS - 2 * BEAT_MS);
    assert_int_equal(hinted(bed, 0), -1);
    pass_ms(bed, 3 * BEAT_MS);
    assert_int_equal(hinted(bed, 0), PSD_ERR_TIMEOUT); /* which it does not reach, either */
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lane_that_is_not_reached_is_told_of),
        cmocka_unit_test(test_lanes_are_beaten),
        cmocka_unit_test(test_silence_on_a_connection_that_stands_is_not_told),
        cmocka_unit_test(test_time_in_which_it_was_stopped_does_not_count),
        cmocka_unit_test(test_who_hung_up_is_told_of_at_once),
    };

    return cmocka_run_group_tests_name("client_reach", tests, NULL, NULL);
}
