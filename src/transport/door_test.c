/*
 * door_test.c - who comes from where, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/door.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND_NS UINT64_C(1000000000)

static int
create_door(void **state)
{
    *state = calloc(1, sizeof(struct psi_door));
    return *state == NULL ? -1 : 0;
}

static int
destroy_door(void **state)
{
    free(*state);
    return 0;
}

static void
fail_often(struct psi_door_place *place, unsigned times, uint64_t now_ns)
{
    for (unsigned i = 0; i < times; i++) {
        psi_door_failed(place, now_ns);
    }
}

/* If this fails, limits per address count ports, mix hosts up, or let IPv6 hosts pick new ones. */
static void
test_find_tells_hosts_apart(void **state)
{
    struct psi_door *door = *state;
    struct psi_door_place *v4 = psi_door_find(door, "tcp://10.0.0.1:1000", 0);
    struct psi_door_place *v6;

    assert_non_null(v4);
    psi_door_enter(v4);
    v6 = psi_door_find(door, "tcp://[2001:db8::1]:1000", 0);
    assert_non_null(v6);
    psi_door_enter(v6);
    assert_ptr_not_equal(v4, v6);
    assert_ptr_equal(psi_door_find(door, "tcp://10.0.0.1:2000", 0), v4);
    assert_ptr_equal(psi_door_find(door, "tcp://[::ffff:10.0.0.1]:2000", 0), v4);
    assert_ptr_not_equal(psi_door_find(door, "tcp://10.0.0.2:1000", 0), v4);
    assert_ptr_equal(psi_door_find(door, "tcp://[2001:db8::ffff:2]:1", 0), v6);
    assert_ptr_not_equal(psi_door_find(door, "tcp://[2001:db8:0:1::1]:1", 0), v6);
    assert_null(psi_door_find(door, "inproc://here", 0));
    assert_null(psi_door_find(door, "tcp://a.name:1", 0));
}

/* If this fails, guessing the secret goes on at full speed, or a typing error locks a person out.
 */
static void
test_failed_shuts_for_twice_as_long_each_time(void **state)
{
    struct psi_door_place *place = psi_door_find(*state, "tcp://10.0.0.1:1", 0);
    uint64_t now_ns = SECOND_NS;

    fail_often(place, PSI_DOOR_FAILURES_FREE, now_ns);
    assert_false(psi_door_is_shut(place, now_ns));
    for (unsigned expected_s = 1; expected_s <= PSI_DOOR_SHUT_MAX_S; expected_s *= 2) {
        psi_door_failed(place, now_ns);
        assert_true(psi_door_is_shut(place, now_ns + expected_s * SECOND_NS - 1));
        now_ns += expected_s * SECOND_NS;
        assert_false(psi_door_is_shut(place, now_ns));
    }
    for (unsigned i = 0; i < 100; i++) {
        psi_door_failed(place, now_ns);
        assert_true(psi_door_is_shut(place, now_ns + PSI_DOOR_SHUT_MAX_S * SECOND_NS - 1));
        now_ns += PSI_DOOR_SHUT_MAX_S * SECOND_NS;
        assert_false(psi_door_is_shut(place, now_ns));
    }
}

/* If this fails, a stranger on a member's machine shuts its other members out. */
static void
test_door_stays_open_for_a_members_address(void **state)
{
    struct psi_door_place *place = psi_door_find(*state, "tcp://10.0.0.1:1", 0);

    psi_door_welcome(place);
    fail_often(place, 50, SECOND_NS);
    assert_false(psi_door_is_shut(place, SECOND_NS));
    psi_door_farewell(place);
    assert_true(psi_door_is_shut(place, SECOND_NS));
}

/* If this fails, one bad evening is held against an address for ever, or forgotten at once. */
static void
test_failures_are_forgotten_in_time(void **state)
{
    struct psi_door *door = *state;
    struct psi_door_place *place = psi_door_find(door, "tcp://10.0.0.1:1", 0);
    const uint64_t open_ns = 2 * SECOND_NS; /* the first shutting lasts one second */

    fail_often(place, PSI_DOOR_FAILURES_FREE + 1, SECOND_NS);
    psi_door_find(door, "tcp://10.0.0.1:1", open_ns + PSI_DOOR_MEMORY_S * SECOND_NS - 1);
    assert_int_equal(place->failures, PSI_DOOR_FAILURES_FREE + 1);
    psi_door_find(door, "tcp://10.0.0.1:1", open_ns + PSI_DOOR_MEMORY_S * SECOND_NS);
    assert_int_equal(place->failures, 0);
}

/* If this fails, many addresses push out those who are here, or make the table lose count. */
static void
test_find_when_all_places_are_taken(void **state)
{
    struct psi_door *door = *state;
    struct psi_door_place *first = psi_door_find(door, "tcp://10.0.0.1:1", 0);
    char peer[32];

    psi_door_enter(first);
    fail_often(psi_door_find(door, "tcp://10.0.0.2:1", 0), 20, SECOND_NS);
    for (unsigned i = 0; i < PSI_DOOR_PLACES - 2; i++) {
        snprintf(peer, sizeof(peer), "tcp://10.1.%u.%u:1", i / 256, i % 256);
        psi_door_welcome(psi_door_find(door, peer, 0));
    }
    /* Only the one that is merely remembered can give way, and to one newcomer. */
    assert_true(psi_door_is_shut(psi_door_find(door, "tcp://10.0.0.2:1", 0), 2 * SECOND_NS));
    psi_door_enter(psi_door_find(door, "tcp://10.2.0.1:1", 0));
    assert_null(psi_door_find(door, "tcp://10.2.0.2:1", 0));
    assert_null(psi_door_find(door, "tcp://10.0.0.2:1", 0));
    assert_ptr_equal(psi_door_find(door, "tcp://10.0.0.1:5", 0), first);
    assert_int_equal(first->strangers, 1);
    psi_door_leave(first);
    assert_ptr_equal(psi_door_find(door, "tcp://10.2.0.2:1", 0), first);
}

/* If this fails, loopback peers, who have no place, crash the loop. */
static void
test_no_place_is_fine(void **state)
{
    (void)state;
    psi_door_enter(NULL);
    psi_door_leave(NULL);
    psi_door_welcome(NULL);
    psi_door_farewell(NULL);
    psi_door_failed(NULL, 1);
    assert_false(psi_door_is_shut(NULL, 1));
}

int
main(void)
{
#define DOOR_TEST(function) cmocka_unit_test_setup_teardown(function, create_door, destroy_door)
    const struct CMUnitTest tests[] = {
        DOOR_TEST(test_find_tells_hosts_apart),
        DOOR_TEST(test_failed_shuts_for_twice_as_long_each_time),
        DOOR_TEST(test_door_stays_open_for_a_members_address),
        DOOR_TEST(test_failures_are_forgotten_in_time),
        DOOR_TEST(test_find_when_all_places_are_taken),
        DOOR_TEST(test_no_place_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
