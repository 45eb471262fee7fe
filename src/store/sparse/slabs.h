/*
 * slabs.h - memory that grows and never moves: addresses first, memory a slab at a time.
 *
 * All addresses that may ever be wanted are reserved at first, and nothing may be written there.
 * Memory comes a slab at a time, whole and touched, so that nobody who uses it waits for the kernel.
 * Slabs are small at first, then huge pages. None is given back before the end.
 *
 * Thread: owned by the store; slabs_touch_ahead() may run in another thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_SLABS_H
#define STORE_SPARSE_SLABS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

enum { SLAB_BYTES = 2 << 20 }; /* a huge page */

struct slabs {
    char *base;
    uint64_t reserved;      /* bytes of addresses; whole slabs */
    _Atomic uint64_t taken; /* bytes touched for the owner: from the start */
    _Atomic uint64_t ahead; /* bytes touched by whoever touches ahead: from the start */
};

/* what: whose addresses these are, for the message when the system refuses (PSD_ERR_NO_MEMORY). */
psd_status slabs_init(struct slabs *slabs, uint64_t bytes, const char *what, struct psd_error *err);
void slabs_fini(struct slabs *slabs);

static inline uint64_t
slabs_taken(const struct slabs *slabs)
{
    return atomic_load_explicit(&slabs->taken, memory_order_relaxed);
}

/* What the next slab takes; 0: no addresses are left. */
uint64_t slabs_next(const struct slabs *slabs);

/* What is to be taken until so many bytes are; UINT64_MAX: there are not so many addresses. */
uint64_t slabs_wanted(const struct slabs *slabs, uint64_t bytes);

/* Takes the next slab, of which there is one. false: the system has no memory for it. */
bool slabs_grow(struct slabs *slabs);

/* Touches so many bytes that the owner has not taken yet. Returns how many of these are touched. */
uint64_t slabs_touch_ahead(struct slabs *slabs, uint64_t bytes);

#endif
