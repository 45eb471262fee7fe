/*
 * index_memory.h - where the indexes of a lane's buckets lie: side by side on huge pages.
 *
 * An index is some kilobytes, and a list of ids looks into as many indexes as it has ids. In small
 * pages each look would cost a walk through the page tables. An index that has grown leaves a hole,
 * which the next one that fits gets: the smallest hole, of these the first. Holes beside each other
 * are one.
 *
 * Thread: owned by the store; slabs_touch_ahead() may run in another thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_INDEX_MEMORY_H
#define STORE_SPARSE_INDEX_MEMORY_H

#include "store/sparse/slabs.h"

struct group;

struct index_hole {
    uint64_t first; /* byte */
    uint64_t bytes;
};

struct index_memory {
    struct slabs slabs;
    uint64_t end;  /* nothing is in use from there on */
    uint32_t used; /* pieces that somebody has: so many holes there may be */
    uint32_t hole_count;
    uint32_t hole_max;
    struct index_hole *holes; /* by address; none ends at `end` */
};

/* For indexes of so many rows in so many buckets. The system refuses: PSD_ERR_NO_MEMORY. */
psd_status index_memory_init(struct index_memory *memory, uint64_t rows, uint64_t buckets,
                             struct psd_error *err);
void index_memory_fini(struct index_memory *memory);

/* Bytes that the system would have to give for a piece of so many; UINT64_MAX: no addresses. */
uint64_t index_memory_wants(const struct index_memory *memory, uint64_t bytes);

/* Zeroed, aligned as cache lines are; bytes: a multiple of these. NULL: no memory. */
struct group *index_memory_take(struct index_memory *memory, uint64_t bytes);
void index_memory_give(struct index_memory *memory, struct group *piece, uint64_t bytes);

/* What it takes beside its slabs. */
static inline uint64_t
index_memory_hole_bytes(const struct index_memory *memory)
{
    return memory->hole_max * sizeof(struct index_hole);
}

#endif
