/*
 * row_pool.h - the memory of a lane's rows: records of one size, named by a slot of 32 bits.
 *
 * A row never moves. What is given back is taken again first.
 *
 * Thread: owned by the store; slabs_touch_ahead() may run in another thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_ROW_POOL_H
#define STORE_SPARSE_ROW_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/sparse/slabs.h"

/* A row: this head, its values, its state. Records follow each other without a gap, so they are
 * aligned as floats are. */
struct row {
    uint64_t id;
    uint32_t step;  /* at which it was last touched; of a free one: the next free one */
    uint32_t count; /* how often */
} __attribute__((packed, aligned(4)));

#define ROW_NONE UINT32_MAX /* no slot */

enum { ROW_HEAD_BYTES = sizeof(struct row) };

struct row_pool {
    struct slabs slabs;
    uint32_t row_bytes;
    uint32_t row_max; /* slots that have addresses */
    uint32_t used;    /* slots 0 .. used - 1 are taken or free */
    uint32_t ready;   /* slots whose memory is touched */
    uint32_t free_first;
    uint32_t free_count;
};

/* row_max: at most 2^32 - 1. The system refuses: PSD_ERR_NO_MEMORY. */
psd_status row_pool_init(struct row_pool *pool, uint32_t row_bytes, uint64_t row_max,
                         struct psd_error *err);
void row_pool_fini(struct row_pool *pool);

/* Slots that can be had without more memory. */
static inline uint32_t
row_pool_spare(const struct row_pool *pool)
{
    return pool->ready - pool->used + pool->free_count;
}

/* Takes the next slab; there is one. false: the system has no memory for it. */
bool row_pool_grow(struct row_pool *pool);

/* A slot, of which there is a spare one; its bytes are anything. */
uint32_t row_pool_take(struct row_pool *pool);
void row_pool_give(struct row_pool *pool, uint32_t slot);

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
    return (struct row *)(void *)(pool->slabs.base + (size_t)slot * pool->row_bytes);
}

static inline float *
row_values(struct row *row)
{
    return (float *)(void *)((char *)row + ROW_HEAD_BYTES);
}

#endif
