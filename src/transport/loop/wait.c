/*
 * wait.c - waiting for what comes next: looking for a while, then sleeping.
 *
 * To be woken costs a sleeper tens of microseconds, so a thread looks first: at the rings of its
 * neighbours and at the epoll set, giving its core to whoever else is ready to run. It sleeps at
 * once when a neighbour is at work on its core; when its owner knows that nothing comes soon; when looking has
 * not paid several times in a row, until it is woken so soon that it would have paid; or when enough loops of its
 * process look already (psi_lookers). A thread that works behind others, on cores that these want, does not look
 * at all (psi_loop_sleep()).
 *
 * A neighbour that writes into a ring wakes us only if we say that we sleep (bell). We say so first
 * and then look once more; it writes first and then looks whether we sleep: one of the two notices.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/fail.h"
#include "transport/loop/loop.h"
#include "transport/loop/loop_state.h"
#include "transport/shm/bell.h"
#include "transport/shm/ring.h"

enum {
    PAUSE_NS = 1000,  /* of looking without giving the core away */
    MISSES_MAX = 8,   /* in a row: looking does not pay */
    EPOLL_EVERY = 16, /* looks at rings for one at the epoll set, while nothing is given away */
    YIELD_EVERY = 4,  /* looks at the epoll set for one time that the core is given away */
};

static void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* ---- Rings ---- */

void
psi_loop_watch_ring(struct psi_loop *loop, struct psi_loop_ring *ring)
{
    const uint32_t count = atomic_load_explicit(&loop->ring_count, memory_order_relaxed);

    psi_assert(count < loop->config.conns_max);
    ring->index = count;
    atomic_store(&loop->rings[count], ring);
    atomic_store(&loop->ring_count, count + 1);
}

void
psi_loop_unwatch_ring(struct psi_loop *loop, struct psi_loop_ring *ring)
{
    const uint32_t last = atomic_load_explicit(&loop->ring_count, memory_order_relaxed) - 1;
    struct psi_loop_ring *moved = atomic_load_explicit(&loop->rings[last], memory_order_relaxed);

    psi_assert(atomic_load_explicit(&loop->rings[ring->index], memory_order_relaxed) == ring);
    moved->index = ring->index;
    atomic_store(&loop->rings[ring->index], moved);
    atomic_store(&loop->ring_count, last);
    atomic_store(&loop->rings[last], NULL);
}

uint32_t
psi_loop_neighbours(const struct psi_loop *loop)
{
    return atomic_load_explicit(&loop->ring_count, memory_order_relaxed);
}

/* Any thread; a ring that ends meanwhile stays in place for it (psi_loop_free_later). */
static bool
any_ring_ready(const struct psi_loop *loop)
{
    const uint32_t count = atomic_load(&loop->ring_count);

    for (uint32_t i = 0; i < count; i++) {
        const struct psi_loop_ring *ring = atomic_load(&loop->rings[i]);

        if (ring != NULL && psi_ring_is_ready(ring->ring)) {
            return true;
        }
    }
    return false;
}

void
psi_loop_hear_rings(struct psi_loop *loop)
{
    uint32_t i = 0;

    /* Handling one may end others, which moves the last one into its place: none is missed that
     * the next turn would not find. */
    while (i < atomic_load_explicit(&loop->ring_count, memory_order_relaxed)) {
        const struct psi_loop_ring *ring =
            atomic_load_explicit(&loop->rings[i], memory_order_relaxed);

        if (psi_ring_is_ready(ring->ring)) {
            ring->ready(ring->object);
        }
        i++;
    }
}

/* ---- Who is where ---- */

static uint32_t
this_core(void)
{
    return (uint32_t)sched_getcpu() + 1; /* 0 where the kernel does not say */
}

static struct psi_bell *
bell_of(const struct psi_loop *loop)
{
    return (struct psi_bell *)(void *)loop->bell.base;
}

static void
say(_Atomic uint32_t *word, uint32_t value)
{
    if (atomic_load_explicit(word, memory_order_relaxed) != value) {
        atomic_store_explicit(word, value, memory_order_relaxed);
    }
}

uint32_t
psi_loop_say_core(struct psi_loop *loop)
{
    const uint32_t core = this_core();

    say(&bell_of(loop)->core, core);
    say(&bell_of(loop)->busy_core, core);
    return core;
}

/* While we look, a neighbour that is at work on this core is not: what we look for cannot come.
 * sched_yield() does not help, a fair scheduler may find that it is still our turn. */
static bool
keeps_a_neighbour_from_work(const struct psi_loop *loop)
{
    const uint32_t count = atomic_load(&loop->ring_count);
    const uint32_t core = this_core();

    for (uint32_t i = 0; i < count && core != 0; i++) {
        const struct psi_loop_ring *ring = atomic_load(&loop->rings[i]);

        if (ring != NULL && psi_bell_busy_core(ring->neighbour) == core) {
            return true;
        }
    }
    return false;
}

void
psi_loop_hold_bells(struct psi_loop *loop)
{
    loop->holds_bells = true;
}

static void
ring_bells(struct psi_loop *loop, uint32_t but_on_core)
{
    const uint32_t count = atomic_load_explicit(&loop->ring_count, memory_order_relaxed);

    for (uint32_t i = 0; i < count; i++) {
        const struct psi_loop_ring *ring =
            atomic_load_explicit(&loop->rings[i], memory_order_relaxed);

        if (ring->owes != PSI_NO_BELL &&
            (but_on_core == 0 || psi_bell_core(ring->neighbour) != but_on_core)) {
            ring->ring_bell(ring->shm);
        }
    }
}

/* What was sent meanwhile with others' help. */
static void
let_crew_finish(struct psi_loop *loop)
{
    if (loop->flush_queued != NULL) {
        loop->flush_queued(loop);
    }
    if (loop->show_copies != NULL) {
        loop->show_copies(loop);
    }
}

void
psi_loop_ring_bells(struct psi_loop *loop)
{
    if (loop->crew != NULL) {
        let_crew_finish(loop);
    }
    loop->holds_bells = false;
    if (loop->owes_bells) {
        loop->owes_bells = false;
        ring_bells(loop, this_core());
        ring_bells(loop, 0);
    }
}

/* ---- What may be looked at after its end ---- */

void
psi_loop_free_later(struct psi_loop *loop, void (*destroy)(void *object), void *object)
{
    struct psi_deferred_free *later = malloc(sizeof(*later));

    if (later == NULL) {
        return; /* lost memory is better than memory that is looked at */
    }
    *later =
        (struct psi_deferred_free){.next = loop->deferred, .destroy = destroy, .object = object};
    loop->deferred = later;
}

void
psi_loop_free_deferred(struct psi_loop *loop)
{
    if (loop->deferred == NULL || atomic_load(&loop->lookers) > 0) {
        return;
    }
    while (loop->deferred != NULL) {
        struct psi_deferred_free *later = loop->deferred;

        loop->deferred = later->next;
        later->destroy(later->object);
        free(later);
    }
}

/* ---- Looking ---- */

static psd_status
ask_epoll(const struct psi_loop *loop, int timeout_ms, struct psi_loop_ready *ready,
          struct psd_error *err)
{
    PSI_UNINITIALIZED struct epoll_event events[PSI_LOOP_EVENTS];
    const int count = epoll_wait(loop->epoll_fd, events, PSI_LOOP_EVENTS, timeout_ms);

    ready->count = 0;
    if (count < 0 && errno != EINTR) {
        return psi_fail_errno(err, PSD_ERR_INTERNAL, "loop: wait");
    }
    for (int i = 0; i < count; i++) {
        ready->event[i].id = events[i].data.u64;
        ready->event[i].events = events[i].events;
    }
    ready->count = count > 0 ? count : 0;
    return PSD_OK;
}

/* Looks for at most spin_ns. PSD_PENDING: in vain. */
static psd_status
look(const struct psi_loop *loop, uint64_t spin_ns, struct psi_loop_ready *ready,
     struct psd_error *err)
{
    const uint64_t began_ns = psi_monotonic_ns();
    uint64_t spent_ns = 0;

    for (unsigned turn = 0; spent_ns < spin_ns; turn++) {
        if (any_ring_ready(loop)) {
            return PSD_OK;
        }
        if (spent_ns >= PAUSE_NS || turn % EPOLL_EVERY == 0) {
            const psd_status status = ask_epoll(loop, 0, ready, err);

            if (status != PSD_OK || ready->count > 0) {
                return status;
            }
            if (keeps_a_neighbour_from_work(loop)) {
                return PSD_PENDING;
            }
        }
        if (spent_ns < PAUSE_NS) {
            relax();
        } else if (turn % YIELD_EVERY == 0) {
            sched_yield();
        }
        spent_ns = psi_monotonic_ns() - began_ns;
    }
    return PSD_PENDING;
}

/* ---- Sleeping ---- */

psd_status
psi_loop_sleep(struct psi_loop *loop, int timeout_ms, struct psi_loop_ready *ready,
               struct psd_error *err)
{
    struct psi_bell *bell = bell_of(loop);
    psd_status status = PSD_OK;
    bool ring_ready;

    ready->count = 0;
    psi_bell_lie_down(bell);
    atomic_fetch_add(&loop->lookers, 1);
    ring_ready = any_ring_ready(loop);
    atomic_fetch_sub(&loop->lookers, 1);
    if (!ring_ready) {
        say(&bell->busy_core, 0);
        status = ask_epoll(loop, timeout_ms, ready, err);
    }
    psi_bell_get_up(bell);
    psi_loop_say_core(loop);
    return status;
}

void
psi_loop_look_first(struct psi_loop *loop, bool looks)
{
    loop->sleeps_at_once = !looks;
}

/* Who is woken at once should have looked. */
static psd_status
sleep_and_learn(struct psi_loop *loop, int timeout_ms, struct psi_loop_ready *ready,
                struct psd_error *err)
{
    const uint64_t spin_ns = loop->config.spin_us * UINT64_C(1000);
    const uint64_t began_ns = spin_ns > 0 ? psi_monotonic_ns() : 0;
    const psd_status status = psi_loop_sleep(loop, timeout_ms, ready, err);

    if (ready->count > 0 && spin_ns > 0 && psi_monotonic_ns() - began_ns < spin_ns) {
        atomic_store_explicit(&loop->misses, 0, memory_order_relaxed);
    }
    return status;
}

/* Looking may pay, and not too many do it. True: end_looking() follows. */
static bool
begin_looking(struct psi_loop *loop)
{
    struct psi_lookers *lookers = loop->config.lookers;

    if (loop->config.spin_us == 0 || loop->sleeps_at_once ||
        atomic_load_explicit(&loop->misses, memory_order_relaxed) >= MISSES_MAX) {
        return false;
    }
    if (lookers != NULL && atomic_fetch_add(&lookers->now, 1) >= lookers->most) {
        atomic_fetch_sub(&lookers->now, 1);
        return false;
    }
    atomic_fetch_add(&loop->lookers, 1);
    return true;
}

static void
end_looking(struct psi_loop *loop)
{
    atomic_fetch_sub(&loop->lookers, 1);
    if (loop->config.lookers != NULL) {
        atomic_fetch_sub(&loop->config.lookers->now, 1);
    }
}

psd_status
psi_loop_wait(struct psi_loop *loop, int timeout_ms, struct psi_loop_ready *ready,
              struct psd_error *err)
{
    psd_status status = PSD_PENDING;

    ready->count = 0;
    if (timeout_ms == 0) {
        return ask_epoll(loop, 0, ready, err);
    }
    if (begin_looking(loop)) {
        status = look(loop, loop->config.spin_us * UINT64_C(1000), ready, err);
        end_looking(loop);
        if (status == PSD_PENDING) {
            atomic_fetch_add_explicit(&loop->misses, 1, memory_order_relaxed);
        } else {
            atomic_store_explicit(&loop->misses, 0, memory_order_relaxed);
        }
    }
    return status == PSD_PENDING ? sleep_and_learn(loop, timeout_ms, ready, err) : status;
}
