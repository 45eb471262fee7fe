/*
 * bell_test.c - who is woken, and when, and who gets out of whose way.
 *
 * The peer is worked by hand: it shows where it is and that it sleeps, and counts how often it is
 * woken. shm_hostile_test.c has what a peer shows that is not true.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/monotonic.h"
#include "transport/conformance_bed.h"
#include "transport/stream/shm_hand.h"

enum {
    LOOK_US = 120000000, /* for so long a thread would look, if nobody had it sleep */
    SLEEP_MS = 20000,    /* for so long it sleeps, if nobody wakes it */
    PATIENCE_MS = 10000,
    COPIED_BYTES = 64 << 10,
    BLOCK_BYTES = 512 << 10, /* the largest copy of the usual kind, ... */
    BLOCKS = 16,             /* ... and how many of them may be on loan */
};

static const struct bed_transport shared = {
    .name = "shared memory", .listen_at = "tcp://127.0.0.1:0", .lends = true};

static struct psi_bell *
bell_in(const struct psi_segment *segment)
{
    return (struct psi_bell *)(void *)segment->base;
}

/* A bed whose server has one connection, to the hand. Nobody runs its loop. */
static struct bed *
hand_in_bed(struct hand *hand, uint32_t spin_us)
{
    const struct psi_loop_config config = {.lends = true, .spin_us = spin_us};
    struct bed *bed = bed_create(&shared, NULL, &config);

    bed_start_thread(bed);
    hand_share(hand, bed->address);
    bed_stop_thread(bed);
    bed_pump_loop(bed->server); /* what stopped the thread */
    assert_int_equal(psi_loop_neighbours(bed->server), 1);
    return bed;
}

static void
leave(struct bed *bed, struct hand *hand)
{
    hand_close(hand);
    bed_destroy(bed);
}

/* ---- Bells that are held back ---- */

/* If this fails, a peer is woken for the first of many frames, and takes the core before the others
 * are written; or it is not woken at all. */
static void
test_held_bells_ring_once_at_the_end(void **state)
{
    struct hand hand;
    struct bed *bed = hand_in_bed(&hand, 0);
    struct end *end = &bed->accepted[0];

    (void)state;
    atomic_store(&bell_in(&hand.bell)->sleepers, 1);
    psi_loop_hold_bells(bed->server);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(bed_send(end, i, 0, NULL, 0), PSD_OK);
    }
    assert_int_equal(hand_drain(&hand), 0);
    psi_loop_ring_bells(bed->server);
    assert_int_equal(hand_drain(&hand), 1);
    psi_loop_ring_bells(bed->server);
    assert_int_equal(hand_drain(&hand), 0);
    leave(bed, &hand);
}

/* If this fails, a peer sleeps while a payload for it is copied after the other; or, on the same
 * core, it is woken only to be in the way. */
static void
test_a_copy_wakes_at_once_but_on_our_core(void **state)
{
    struct hand hand;
    struct bed *bed = hand_in_bed(&hand, 0);
    struct end *end = &bed->accepted[0];
    uint8_t *payload = malloc(COPIED_BYTES);
    cpu_set_t one;
    cpu_set_t all;
    const int core = sched_getcpu();

    (void)state;
    assert_non_null(payload);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    bed_fill(payload, 0, COPIED_BYTES);
    (void)hand_drain(&hand);
    atomic_store(&bell_in(&hand.bell)->sleepers, 1);

    psi_loop_hold_bells(bed->server);
    atomic_store(&bell_in(&hand.bell)->core, (uint32_t)core + 2);
    assert_int_equal(bed_send(end, 0, 0, payload, COPIED_BYTES), PSD_OK);
    assert_true(hand_drain(&hand) >= 2); /* the memory it is in, and the bell */
    psi_loop_ring_bells(bed->server);
    assert_int_equal(hand_drain(&hand), 0);

    psi_loop_hold_bells(bed->server);
    atomic_store(&hand.ring.mine->head, atomic_load(&hand.ring.theirs->tail));
    atomic_store(&bell_in(&hand.bell)->core, (uint32_t)core + 1);
    assert_int_equal(bed_send(end, 0, 0, payload, COPIED_BYTES), PSD_OK);
    assert_int_equal(hand_drain(&hand), 1); /* a second block; the bell is held back */
    psi_loop_ring_bells(bed->server);
    assert_int_equal(hand_drain(&hand), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    free(payload);
    leave(bed, &hand);
}

static void
read_everything(struct hand *hand)
{
    atomic_store(&hand->ring.mine->head, atomic_load(&hand->ring.theirs->tail));
    (void)hand_drain(hand);
}

/* If this fails, a peer that was woken for nothing but reserved room is not woken for the record
 * that comes to be there. */
static void
test_woken_for_what_is_shown(void **state)
{
    enum { META = 240, SMALL = 8 + sizeof(struct psi_shm_record) + PSI_PREFIX_BYTES };
    struct hand hand;
    struct bed *bed = hand_in_bed(&hand, 0);
    struct end *end = &bed->accepted[0];
    const struct psi_shm_record returned = {.kind = PSI_SHM_RETURNED, .block = 1};
    uint8_t *payload = malloc(BLOCK_BYTES);
    uint64_t number = 0;

    (void)state;
    assert_non_null(payload);
    bed_fill(payload, 0, BLOCK_BYTES);
    for (unsigned i = 0; i < BLOCKS; i++) { /* all copies that may be on loan */
        assert_int_equal(bed_send(end, 0, 0, payload, BLOCK_BYTES), PSD_OK);
    }
    read_everything(&hand);
    do { /* until a larger record would not fit before the end of the ring */
        assert_int_equal(bed_send(end, number++, 0, NULL, 0), PSD_OK);
        read_everything(&hand);
    } while (PSI_RING_BYTES - atomic_load(&hand.ring.theirs->tail) % PSI_RING_BYTES >=
             2 * SMALL + META);
    atomic_store(&bell_in(&hand.bell)->sleepers, 1);

    psi_loop_hold_bells(bed->server);
    assert_int_equal(bed_send(end, number, 0, NULL, 0), PSD_OK);
    read_everything(&hand);
    assert_int_equal(bed_send(end, 0, META, payload, BLOCK_BYTES), PSD_OK); /* waits for a block */
    (void)hand_drain(&hand);
    psi_loop_ring_bells(bed->server);
    assert_int_equal(hand_drain(&hand), 0);

    hand_put(&hand, &returned, NULL, 0);
    bed_pump_loop(bed->server);
    assert_true(atomic_load(&hand.ring.theirs->tail) != atomic_load(&hand.ring.mine->head));
    assert_int_equal(hand_drain(&hand), 1);
    free(payload);
    leave(bed, &hand);
}

/* ---- Getting out of the way ---- */

struct looker {
    struct psi_loop *loop;
    int core;
    psd_status status;
};

static void *
look(void *context)
{
    struct looker *looker = context;
    struct psi_loop_ready ready;
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)looker->core, &one);
    looker->status = PSD_ERR_INTERNAL;
    if (sched_setaffinity(0, sizeof(one), &one) == 0) {
        looker->status = psi_loop_wait(looker->loop, SLEEP_MS, &ready, NULL);
    }
    return NULL;
}

/* Does it sleep, within our patience? */
static bool
falls_asleep(const struct psi_bell *bell)
{
    const uint64_t deadline_ms = psi_monotonic_ms() + PATIENCE_MS;

    while (atomic_load(&bell->sleepers) == 0 && psi_monotonic_ms() < deadline_ms) {
        sched_yield();
    }
    return atomic_load(&bell->sleepers) > 0;
}

/* If this fails, a thread that waits for a neighbour on its own core looks on, and so keeps it from
 * doing what it waits for. */
static void
test_sleeps_when_a_neighbour_works_on_its_core(void **state)
{
    struct hand hand;
    struct bed *bed = hand_in_bed(&hand, LOOK_US);
    const struct psi_bell *shown = bell_in(&hand.their_bell);
    struct looker looker = {.loop = bed->server, .core = sched_getcpu()};
    pthread_t thread;

    (void)state;
    atomic_store(&bell_in(&hand.bell)->busy_core, (uint32_t)looker.core + 1);
    assert_int_equal(pthread_create(&thread, NULL, look, &looker), 0);
    assert_true(falls_asleep(shown));
    assert_int_equal(atomic_load(&shown->busy_core), 0);
    psi_loop_wake(bed->server);
    pthread_join(thread, NULL);
    assert_int_equal(looker.status, PSD_OK);
    assert_int_equal(atomic_load(&shown->sleepers), 0);
    assert_int_equal(atomic_load(&shown->busy_core), looker.core + 1);
    assert_int_equal(atomic_load(&shown->core), looker.core + 1);
    leave(bed, &hand);
}

/* If this fails, a lane looks for what cannot come soon, on a core that others need for it. */
static void
test_sleeps_at_once_if_it_is_told_to(void **state)
{
    struct hand hand;
    struct bed *bed = hand_in_bed(&hand, LOOK_US);
    struct psi_loop_ready ready;
    const uint64_t began_ns = psi_monotonic_ns();

    (void)state;
    psi_loop_look_first(bed->server, false);
    assert_int_equal(psi_loop_wait(bed->server, 1, &ready, NULL), PSD_OK);
    assert_int_equal(ready.count, 0);
    assert_true(psi_monotonic_ns() - began_ns < PATIENCE_MS * UINT64_C(1000000));
    leave(bed, &hand);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_bells_ring_once_at_the_end),
        cmocka_unit_test(test_a_copy_wakes_at_once_but_on_our_core),
        cmocka_unit_test(test_woken_for_what_is_shown),
        cmocka_unit_test(test_sleeps_when_a_neighbour_works_on_its_core),
        cmocka_unit_test(test_sleeps_at_once_if_it_is_told_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
