/*
 * finder.h - finds the rows of a list of ids, in blocks, far enough ahead that memory has them when
 * they are wanted.
 *
 * While one block is worked on, the rows of the next are on their way to the cache, and the groups
 * of the index of the one after that. What the finder says of a row is a guess by its tag:
 * finder_row() looks whether it is right, in the row itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_FINDER_H
#define STORE_SPARSE_FINDER_H

#include "shard/bucket.h"
#include "store/sparse/state.h"

enum { FINDER_BLOCK = 32, CACHE_LINE = 64 };

/* Thread: on its user's stack. */
struct finder {
    struct sparse *store;
    const uint64_t *ids;
    size_t count;
    size_t first;       /* of the block that is worked on */
    uint32_t blocks;    /* that have been begun */
    uint32_t row_bytes; /* of each row that will be wanted, from its head on */
    uint32_t slots[2][FINDER_BLOCK];
};

/* A block of ids first .. first + count - 1. */
struct finder_block {
    size_t first;
    size_t count;
    const uint32_t *slots;
};

void finder_init(struct finder *finder, struct sparse *store, const uint64_t *ids, size_t count,
                 uint32_t row_bytes);

/* false: that was all. */
bool finder_next(struct finder *finder, struct finder_block *block_p);

/* The row of an id of the block; NULL: there is none. */
static inline struct row *
finder_row(const struct sparse *store, uint64_t id, uint32_t guess)
{
    const uint64_t key = psi_bucket_mix(id);
    const struct bucket *bucket = &store->buckets[key >> (64 - store->bits)];
    struct row *row;
    uint32_t slot;

    if (guess == ROW_NONE) {
        return NULL;
    }
    row = row_at(&store->pool, guess);
    if (row->id == id) {
        return row;
    }
    slot = row_index_find(&bucket->index, &store->pool, store->bits, key, id);
    return slot == ROW_NONE ? NULL : row_at(&store->pool, slot);
}

#endif
