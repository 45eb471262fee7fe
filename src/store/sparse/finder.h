/*
 * finder.h - finds the rows of a list of ids, far enough ahead that memory has them when they are
 * wanted.
 *
 * While a row is worked on, those that follow are on their way to the cache, and behind these the
 * groups of the index. It goes row by row, so that memory is asked at an even pace. What the finder
 * says of a row is a guess by its tag: finder_row() looks whether it is right, in the row itself.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_FINDER_H
#define STORE_SPARSE_FINDER_H

#include "shard/bucket.h"
#include "store/sparse/state.h"

enum {
    FINDER_AHEAD = 32, /* rows that are on their way; groups of as many again */
    FINDER_RING = 32,
    FINDER_BYTES_MAX = 1024, /* of one row; what follows the CPU fetches by itself */
    CACHE_LINE = 64,
};

/* Thread: on its user's stack. */
struct finder {
    const struct sparse *store;
    const uint64_t *ids;
    size_t count;
    size_t next;        /* index of the row that finder_next() tells of */
    uint32_t row_bytes; /* of each row that will be wanted, from its head on */
    uint32_t slots[FINDER_RING];
};

static inline const struct row_index *
finder_index(const struct sparse *store, uint64_t key)
{
    return &store->buckets[key >> (64 - store->bits)].index;
}

static inline void
finder_fetch_group(const struct finder *finder, size_t at)
{
    if (at < finder->count) {
        const uint64_t key = psi_bucket_mix(finder->ids[at]);

        row_index_prefetch(finder_index(finder->store, key), finder->store->bits, key);
    }
}

static inline void
finder_fetch_row(struct finder *finder, size_t at)
{
    const struct sparse *store = finder->store;
    uint64_t key;
    uint32_t slot;

    if (at >= finder->count) {
        return;
    }
    key = psi_bucket_mix(finder->ids[at]);
    slot = row_index_guess(finder_index(store, key), store->bits, key);
    finder->slots[at % FINDER_RING] = slot;
    if (slot != ROW_NONE) {
        const char *row = (const char *)row_at(&store->pool, slot);
        const char *const end = row + finder->row_bytes;

        for (row = (const char *)((uintptr_t)row & ~(uintptr_t)(CACHE_LINE - 1)); row < end;
             row += CACHE_LINE) {
            row_fetch(row);
        }
    }
}

static inline void
finder_init(struct finder *finder, const struct sparse *store, const uint64_t *ids, size_t count,
            uint32_t row_bytes)
{
    finder->store = store;
    finder->ids = ids;
    finder->count = count;
    finder->next = 0;
    finder->row_bytes = row_bytes < FINDER_BYTES_MAX ? row_bytes : FINDER_BYTES_MAX;
    for (size_t i = 0; i < 2 * FINDER_AHEAD; i++) {
        finder_fetch_group(finder, i);
    }
    for (size_t i = 0; i < FINDER_AHEAD; i++) {
        finder_fetch_row(finder, i);
    }
}

/* The guess for the next id of the list, of which there is one. */
static inline uint32_t
finder_next(struct finder *finder)
{
    const uint32_t guess = finder->slots[finder->next % FINDER_RING];

    finder_fetch_group(finder, finder->next + 2 * (size_t)FINDER_AHEAD);
    finder_fetch_row(finder, finder->next + FINDER_AHEAD);
    finder->next++;
    return guess;
}

/* The row of that id; NULL: there is none. */
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
