/*
 * admission_test.c - how many strangers come, from where, and how fast, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/loop/admission.h"

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
    *state = calloc(1, sizeof(struct psi_admission));
    return *state == NULL ? -1 : 0;
}

static int
destroy_door(void **state)
{
    free(*state);
    return 0;
}

/* If this fails, limits per address count ports, mix hosts up, or let IPv6 hosts pick new ones. */
static void
test_find_tells_hosts_apart(void **state)
{
    struct psi_admission *admission = *state;
    struct psi_admission_origin *v4 = psi_admission_find(admission, "tcp://10.0.0.1:1000");
    struct psi_admission_origin *v6;

    assert_non_null(v4);
    psi_admission_enter(v4);
    v6 = psi_admission_find(admission, "tcp://[2001:db8::1]:1000");
    assert_non_null(v6);
    psi_admission_enter(v6);
    assert_ptr_not_equal(v4, v6);
    assert_ptr_equal(psi_admission_find(admission, "tcp://10.0.0.1:2000"), v4);
    assert_ptr_equal(psi_admission_find(admission, "tcp://[::ffff:10.0.0.1]:2000"), v4);
    assert_ptr_not_equal(psi_admission_find(admission, "tcp://10.0.0.2:1000"), v4);
    assert_ptr_equal(psi_admission_find(admission, "tcp://[2001:db8::ffff:2]:1"), v6);
    assert_ptr_not_equal(psi_admission_find(admission, "tcp://[2001:db8:0:1::1]:1"), v6);
    assert_null(psi_admission_find(admission, "inproc://here"));
    assert_null(psi_admission_find(admission, "tcp://a.name:1"));
}

/* How many handshakes may be tried at once. */
static unsigned
try_all(struct psi_admission *admission, struct psi_admission_origin *origin, uint64_t now_ns)
{
    unsigned count = 0;

    while (psi_admission_tries(admission, origin, now_ns)) {
        count++;
    }
    return count;
}

/* If this fails, guessing the secret goes on at full speed, or an address that failed often is shut
 * out instead of slowed down. */
static void
test_tries_of_one_address(void **state)
{
    struct psi_admission *admission = *state;
    struct psi_admission_origin *origin = psi_admission_find(admission, "tcp://10.0.0.1:1");
    uint64_t now_ns = SECOND_NS;

    assert_int_equal(try_all(admission, origin, now_ns), PSI_ADMISSION_TRIES_FROM_ONE_BURST);
    assert_true(
        psi_admission_tries(admission, psi_admission_find(admission, "tcp://10.0.0.2:1"), now_ns));
    for (unsigned i = 0; i < 10; i++) { /* again and again, and never for longer */
        now_ns += SECOND_NS / PSI_ADMISSION_TRIES_FROM_ONE_PER_S - 1;
        assert_false(psi_admission_tries(admission, origin, now_ns));
        now_ns += 1;
        assert_int_equal(try_all(admission, origin, now_ns), 1);
    }
    now_ns += 3600 * SECOND_NS;
    assert_int_equal(try_all(admission, origin, now_ns), PSI_ADMISSION_TRIES_FROM_ONE_BURST);
}

/* If this fails, many addresses together, or all processes of this machine, use up a processor. */
static void
test_tries_of_all(void **state)
{
    struct psi_admission *admission = *state;
    uint64_t now_ns = SECOND_NS;
    unsigned count = 0;
    char peer[32];

    for (unsigned i = 0; i < 2 * PSI_ADMISSION_TRIES_BURST; i++) {
        snprintf(peer, sizeof(peer), "tcp://10.1.%u.%u:1", i / 256, i % 256);
        count += psi_admission_tries(admission, psi_admission_find(admission, peer), now_ns);
    }
    assert_int_equal(count, PSI_ADMISSION_TRIES_BURST);
    assert_int_equal(try_all(admission, NULL, now_ns), 0);
    now_ns += SECOND_NS;
    assert_int_equal(try_all(admission, NULL, now_ns), PSI_ADMISSION_TRIES_PER_S);
    now_ns += 3600 * SECOND_NS;
    assert_int_equal(try_all(admission, NULL, now_ns), PSI_ADMISSION_TRIES_BURST);
}

/* If this fails, a crowd gets in as fast as it can knock, or waits for longer than it must. */
static void
test_pace_of_accepting(void **state)
{
    struct psi_admission *admission = *state;
    uint64_t now_ns = SECOND_NS;
    unsigned count = 0;

    while (psi_admission_accepts(admission, now_ns)) {
        count++;
    }
    assert_int_equal(count, PSI_ADMISSION_ACCEPTS_BURST);
    psi_admission_return(admission);
    assert_true(psi_admission_accepts(admission, now_ns));
    assert_false(psi_admission_accepts(admission, now_ns));
    for (count = 0; now_ns < 2 * SECOND_NS; now_ns += SECOND_NS / 100) {
        while (psi_admission_accepts(admission, now_ns)) {
            count++;
        }
    }
    assert_in_range(count, PSI_ADMISSION_ACCEPTS_PER_S - 40, PSI_ADMISSION_ACCEPTS_PER_S);
}

/* If this fails, many addresses push out those who are here, or make the table lose count. */
static void
test_find_when_all_entries_are_taken(void **state)
{
    struct psi_admission *admission = *state;
    struct psi_admission_origin *first = psi_admission_find(admission, "tcp://10.0.0.1:1");
    struct psi_admission_origin *tried;
    char peer[32];

    psi_admission_enter(first);
    tried = psi_admission_find(admission, "tcp://10.0.0.2:1");
    assert_true(psi_admission_tries(admission, tried, SECOND_NS));
    for (unsigned i = 0; i < PSI_ADMISSION_ORIGINS - 2; i++) {
        snprintf(peer, sizeof(peer), "tcp://10.1.%u.%u:1", i / 256, i % 256);
        psi_admission_enter(psi_admission_find(admission, peer));
    }
    /* Only the one that is merely remembered can give way, and to one newcomer. */
    assert_ptr_equal(psi_admission_find(admission, "tcp://10.0.0.2:1"), tried);
    psi_admission_enter(psi_admission_find(admission, "tcp://10.2.0.1:1"));
    assert_null(psi_admission_find(admission, "tcp://10.2.0.2:1"));
    assert_null(psi_admission_find(admission, "tcp://10.0.0.2:1"));
    assert_ptr_equal(psi_admission_find(admission, "tcp://10.0.0.1:5"), first);
    assert_int_equal(first->strangers, 1);
    psi_admission_leave(first);
    assert_ptr_equal(psi_admission_find(admission, "tcp://10.2.0.2:1"), first);
}

/* If this fails, an address is forgotten, and may try at full speed again, while there is room. */
static void
test_find_remembers_who_tried(void **state)
{
    struct psi_admission *admission = *state;
    struct psi_admission_origin *origin = psi_admission_find(admission, "tcp://10.0.0.1:1");

    assert_int_equal(try_all(admission, origin, SECOND_NS), PSI_ADMISSION_TRIES_FROM_ONE_BURST);
    for (unsigned i = 0; i < PSI_ADMISSION_ORIGINS - 1; i++) {
        char peer[32];

        snprintf(peer, sizeof(peer), "tcp://10.1.%u.%u:1", i / 256, i % 256);
        (void)psi_admission_find(admission, peer);
    }
    assert_ptr_equal(psi_admission_find(admission, "tcp://10.0.0.1:1"), origin);
    assert_false(psi_admission_tries(admission, origin, SECOND_NS));
}

/* If this fails, loopback peers, who have no origin, crash the loop. */
static void
test_no_origin_is_fine(void **state)
{
    psi_admission_enter(NULL);
    psi_admission_leave(NULL);
    assert_true(psi_admission_tries(*state, NULL, 1));
}

int
main(void)
{
#define ADMISSION_TEST(function)                                                                   \
    cmocka_unit_test_setup_teardown(function, create_door, destroy_door)
    const struct CMUnitTest tests[] = {
        ADMISSION_TEST(test_find_tells_hosts_apart),
        ADMISSION_TEST(test_tries_of_one_address),
        ADMISSION_TEST(test_tries_of_all),
        ADMISSION_TEST(test_pace_of_accepting),
        ADMISSION_TEST(test_find_when_all_entries_are_taken),
        ADMISSION_TEST(test_find_remembers_who_tried),
        ADMISSION_TEST(test_no_origin_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
