/*
 * move_plan_test.c - which place moves next: numbers in, a move out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/move_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 1000, SPARE = 64 };

/* So many places of as many bytes each, dealt out to servers in turn; all of them are here. */
static struct move_places
deal(uint32_t places, uint32_t servers)
{
    struct move_places dealt = {.places = places};

    for (uint32_t place = 0; place < places; place++) {
        dealt.at[place] = place % servers;
        dealt.copy_at[place] = MOVE_NOWHERE;
        dealt.shunned[place] = MOVE_NOWHERE;
        dealt.bytes[place] = BYTES;
    }
    for (uint32_t i = 0; i < servers; i++) {
        dealt.server[i] = (struct move_server){.is_here = true, .spare = SPARE};
    }
    return dealt;
}

static void
come(struct move_places *places, uint32_t server)
{
    places->server[server] = (struct move_server){.is_here = true, .spare = SPARE};
}

/* What has moved, and that nothing of it went against the rules. */
struct moved {
    uint32_t count;
    uint64_t to[8]; /* bytes, by server */
};

static struct moved
settle(struct move_places *places, bool copies)
{
    struct moved moved = {0};
    struct move move;

    while (move_plan_next(places, copies, &move)) {
        uint32_t *at = move.is_copy ? places->copy_at : places->at;

        assert_true(moved.count < 200); /* it comes to an end */
        assert_true(places->server[move.to].is_here && !places->server[move.to].is_leaving);
        assert_int_not_equal(at[move.place], move.to);
        at[move.place] = move.to;
        if (!move.is_copy && places->copy_at[move.place] == move.to) {
            places->copy_at[move.place] = MOVE_NOWHERE; /* it has become the place */
        }
        moved.count++;
        moved.to[move.to] += places->bytes[move.place];
    }
    return moved;
}

static uint32_t
count_at(const uint32_t *at, uint32_t places, uint32_t server)
{
    uint32_t count = 0;

    for (uint32_t place = 0; place < places; place++) {
        count += at[place] == server;
    }
    return count;
}

/* If this fails, a job whose servers neither come nor go moves something. */
static void
test_nothing_moves_by_itself(void **state)
{
    (void)state;
    for (uint32_t servers = 1; servers <= 6; servers++) {
        for (uint32_t places = servers; places <= 24; places++) {
            struct move_places dealt = deal(places, servers);

            assert_int_equal(settle(&dealt, true).count, 0);
        }
    }
}

/* If this fails, a new server does not get its share, gets more than 1.2 / (S + 1) of the bytes, or something moves between
 * servers that were there. */
static void
test_a_server_that_comes_gets_its_share(void **state)
{
    (void)state;
    for (uint32_t servers = 1; servers <= 6; servers++) {
        for (uint32_t places = 2 * (servers + 1); places <= 36; places++) {
            struct move_places dealt = deal(places, servers);
            struct moved moved;

            come(&dealt, servers);
            moved = settle(&dealt, false);
            assert_int_equal(count_at(dealt.at, places, servers), places / (servers + 1));
            assert_int_equal(moved.count, places / (servers + 1));
            assert_true(10 * (servers + 1) * moved.to[servers] <= 12 * (uint64_t)places * BYTES);
            for (uint32_t i = 0; i < servers; i++) {
                assert_int_equal(moved.to[i], 0);
                assert_true(count_at(dealt.at, places, i) <= places / (servers + 1) + 1);
            }
        }
    }
}

/* If this fails, one large place is moved although it is more than a new server may get. */
static void
test_a_place_that_is_too_large_stays(void **state)
{
    struct move_places dealt = deal(6, 2);
    struct moved moved;

    (void)state;
    dealt.bytes[0] = 20 * BYTES;
    dealt.bytes[2] = 20 * BYTES;
    dealt.bytes[4] = 3 * BYTES;
    come(&dealt, 2);
    moved = settle(&dealt, false);
    assert_true(dealt.at[0] == 0 || dealt.at[2] == 0);
    assert_true(10 * 3 * moved.to[2] <= 12 * (uint64_t)(46 * BYTES + 6));
}

/* If this fails, a server that is to leave keeps something, or the others do not share what it had. */
static void
test_a_server_that_leaves_gives_all(void **state)
{
    (void)state;
    for (uint32_t servers = 2; servers <= 6; servers++) {
        for (uint32_t places = servers; places <= 30; places++) {
            struct move_places dealt = deal(places, servers);
            struct moved moved;

            dealt.server[0].is_leaving = true;
            moved = settle(&dealt, false);
            assert_int_equal(count_at(dealt.at, places, 0), 0);
            assert_int_equal(moved.count, (places + servers - 1) / servers);
            for (uint32_t i = 1; i < servers; i++) {
                assert_true(count_at(dealt.at, places, i) <= places / (servers - 1) + 1);
            }
        }
    }
}

/* If this fails, the last server gives away what nobody else can have. */
static void
test_the_last_one_keeps_all(void **state)
{
    struct move_places dealt = deal(4, 1);
    struct move move;

    (void)state;
    dealt.server[0].is_leaving = true;
    assert_int_equal(move_plan_staying(&dealt), 0);
    assert_false(move_plan_next(&dealt, true, &move));
}

/* If this fails, a place moves to a server without a lane to spare, and the move is begun again and again. */
static void
test_no_lane_no_move(void **state)
{
    struct move_places dealt = deal(8, 2);
    struct move move;

    (void)state;
    come(&dealt, 2);
    dealt.server[2].spare = 0;
    assert_false(move_plan_next(&dealt, false, &move));
}

/* If this fails, what a server that leaves has is sent to another, although that has a copy of it. */
static void
test_a_copy_inherits(void **state)
{
    struct move_places dealt = deal(4, 2);
    struct move move;

    (void)state;
    come(&dealt, 2);
    dealt.server[0].is_leaving = true;
    for (uint32_t place = 0; place < 4; place++) {
        dealt.copy_at[place] = dealt.at[place] == 0 ? 1 : 2;
    }
    assert_true(move_plan_next(&dealt, true, &move));
    assert_int_equal(dealt.at[move.place], 0);
    assert_int_equal(move.to, 1);
    assert_false(move.is_copy);
}

/* If this fails, a new server that can take nothing keeps another one from its share. */
static void
test_one_that_takes_nothing_keeps_nobody_waiting(void **state)
{
    for (unsigned lanes = 0; lanes <= 1; lanes++) { /* it has none to spare, or refuses */
        struct move_places dealt = deal(8, 2);
        struct move move;
        unsigned refusals = 0;

        (void)state;
        come(&dealt, 2);
        come(&dealt, 3);
        dealt.server[2].spare = lanes == 0 ? 0 : dealt.server[2].spare;
        while (refusals < 20 && move_plan_next(&dealt, false, &move)) {
            if (move.to == 2) {
                dealt.shunned[move.place] = 2;
                refusals++;
            } else {
                dealt.at[move.place] = move.to;
            }
        }
        assert_int_equal(count_at(dealt.at, 8, 3), 2);
        assert_int_equal(count_at(dealt.at, 8, 2), 0);
        assert_true(lanes == 1 || refusals == 0);
    }
}

/* If this fails, a new server gets no copies, gets more than its share of them, or one of what it has itself. */
static void
test_copies_are_shared_out_apart(void **state)
{
    struct move_places dealt = deal(12, 3);
    struct moved moved;

    (void)state;
    for (uint32_t place = 0; place < 12; place++) {
        dealt.copy_at[place] = (dealt.at[place] + 1 + place / 3 % 2) % 3;
    }
    come(&dealt, 3);
    moved = settle(&dealt, true);
    for (uint32_t place = 0; place < 12; place++) {
        assert_int_not_equal(dealt.at[place], dealt.copy_at[place]);
    }
    assert_int_equal(count_at(dealt.at, 12, 3), 3);
    assert_int_equal(count_at(dealt.copy_at, 12, 3), 3);
    assert_true(10 * 4 * moved.to[3] <= 2 * 12 * 12 * BYTES);
    assert_int_equal(moved.to[0] + moved.to[1] + moved.to[2], 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_moves_by_itself),
        cmocka_unit_test(test_a_server_that_comes_gets_its_share),
        cmocka_unit_test(test_a_place_that_is_too_large_stays),
        cmocka_unit_test(test_a_server_that_leaves_gives_all),
        cmocka_unit_test(test_the_last_one_keeps_all),
        cmocka_unit_test(test_no_lane_no_move),
        cmocka_unit_test(test_a_copy_inherits),
        cmocka_unit_test(test_one_that_takes_nothing_keeps_nobody_waiting),
        cmocka_unit_test(test_copies_are_shared_out_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
