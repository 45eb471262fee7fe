/*
 * row_pool.h - the memory of a lane's rows: records of one size, named by a slot of 32 bits.
 *
 * Addresses for all rows there may ever be are reserved at first, and nothing may be written there;
 * memory comes a slab at a time, whole and touched, so that no single row waits for the kernel. Slabs are small at first, then huge
 * pages. A row never moves. What is given back is taken again first; memory is not returned before
 * the end.
 *
 * Thread: owned by the store; row_pool_touch_ahead() may run in another thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_ROW_POOL_H
#define STORE_SPARSE_ROW_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

/* A row: this head, its values, its state. Records follow each other without a gap, so they are
 * aligned as floats are. */
struct row {
    uint64_t id;
    uint32_t step;  /* at which it was last touched; of a free one: the next free one */
    uint32_t count; /* how often */
} __attribute__((packed, aligned(4)));

#define ROW_NONE UINT32_MAX /* no slot */

enum {
    ROW_HEAD_BYTES = sizeof(struct row),
    ROW_SLAB_BYTES = 2 << 20, /* a huge page */
};

struct row_pool {
    char *base;
    uint64_t reserved; /* bytes of addresses */
    uint32_t row_bytes;
    uint32_t row_max; /* slots that have addresses */
    uint32_t used;    /* slots 0 .. used - 1 are taken or free */
    uint32_t ready;   /* slots whose memory is touched */
    uint32_t free_first;
    uint32_t free_count;
    _Atomic uint64_t slab_bytes; /* touched for the lane */
    _Atomic uint64_t ahead;      /* touched by whoever touches ahead: from the start */
};

/* row_max: at most 2^32 - 1. The system refuses: PSD_ERR_NO_MEMORY. */
psd_status row_pool_init(struct row_pool *pool, uint32_t row_bytes, uint64_t row_max,
                         struct psd_error *err);
void row_pool_fini(struct row_pool *pool);

/* Slots that can be had without more memory, and the bytes that the next slab takes; 0: no more. */
static inline uint32_t
row_pool_spare(const struct row_pool *pool)
{
    return pool->ready - pool->used + pool->free_count;
}

uint64_t row_pool_next_slab(const struct row_pool *pool);

/* Touches the next slab. false: the system has no memory for it. */
bool row_pool_grow(struct row_pool *pool);

/* A slot, of which there is a spare one; its bytes are anything. */
uint32_t row_pool_take(struct row_pool *pool);
void row_pool_give(struct row_pool *pool, uint32_t slot);

uint64_t row_pool_touch_ahead(struct row_pool *pool, uint64_t bytes);

/* Sends for a cache line. GCC takes a function that does nothing but this for one that does nothing,
 * and leaves out its calls: the empty statement says that something happens. */
static inline void
row_fetch(const void *line)
{
    __builtin_prefetch(line);
    __asm__ volatile("" : : "r"(line));
}

static inline struct row *
row_at(const struct row_pool *pool, uint32_t slot)
{
    return (struct row *)(void *)(pool->base + (size_t)slot * pool->row_bytes);
}

static inline float *
row_values(struct row *row)
{
    return (float *)(void *)((char *)row + ROW_HEAD_BYTES);
}

#endif
