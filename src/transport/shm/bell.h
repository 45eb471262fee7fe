/*
 * bell.h - does the peer sleep, so that it must be woken? Two processes, one promise.
 *
 * Whoever is about to sleep says so and then looks once more; whoever has written, or read, looks
 * then whether somebody said so. One of the two notices: never neither. Both halves need their
 * fence, because a processor may look before others see what it said. bell_model_test.c tries every
 * order in which that can happen.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_SHM_BELL_H
#define PSI_TRANSPORT_SHM_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a peer shows of its loop. Cores: 0 none, else 1 + its number. */
struct psi_bell {
    _Alignas(64) _Atomic uint32_t sleepers;
    _Atomic uint32_t core;      /* last seen on it */
    _Atomic uint32_t busy_core; /* 0 while it sleeps */
};

/* Says so; the caller then looks at every ring before it sleeps. */
static inline void
psi_bell_lie_down(struct psi_bell *bell)
{
    atomic_fetch_add(&bell->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline void
psi_bell_get_up(struct psi_bell *bell)
{
    atomic_fetch_sub(&bell->sleepers, 1);
}

/* After something was written or read: the peer sees that, or is seen to sleep. */
static inline bool
psi_bell_peer_sleeps(const struct psi_bell *bell)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&bell->sleepers, memory_order_relaxed) > 0;
}

/* The core that the peer was on last, and the one it is at work on right now. Any thread. */
static inline uint32_t
psi_bell_core(const struct psi_bell *bell)
{
    return (uint32_t)atomic_load_explicit(&bell->core, memory_order_relaxed);
}

static inline uint32_t
psi_bell_busy_core(const struct psi_bell *bell)
{
    return (uint32_t)atomic_load_explicit(&bell->busy_core, memory_order_relaxed);
}

#endif
