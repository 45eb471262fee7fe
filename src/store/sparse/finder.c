/*
 * finder.c - finds the rows of a list of ids, in blocks, ahead of their use.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/finder.h"

enum { LINES_AHEAD_MAX = 16 }; /* of one row; what follows the CPU fetches by itself */

static size_t
block_count(const struct finder *finder, size_t first)
{
    if (first >= finder->count) {
        return 0;
    }
    return finder->count - first < FINDER_BLOCK ? finder->count - first : FINDER_BLOCK;
}

static void
fetch_groups(const struct finder *finder, size_t first)
{
    const size_t count = block_count(finder, first);
    struct sparse *store = finder->store;

    for (size_t i = 0; i < count; i++) {
        const uint64_t key = psi_bucket_mix(finder->ids[first + i]);

        row_index_prefetch(&bucket_of(store, key)->index, store->bits, key);
    }
}

static inline void
fetch_row(const char *row, uint32_t bytes)
{
    const char *const end = row + bytes;

    for (row = (const char *)((uintptr_t)row & ~(uintptr_t)(CACHE_LINE - 1)); row < end;
         row += CACHE_LINE) {
        __builtin_prefetch(row);
    }
}

static void
fetch_rows(struct finder *finder, size_t first, uint32_t *slots)
{
    const size_t count = block_count(finder, first);
    struct sparse *store = finder->store;

    for (size_t i = 0; i < count; i++) {
        const uint64_t key = psi_bucket_mix(finder->ids[first + i]);

        slots[i] = row_index_guess(&bucket_of(store, key)->index, store->bits, key);
        if (slots[i] != ROW_NONE) {
            fetch_row((const char *)row_at(&store->pool, slots[i]), finder->row_bytes);
        }
    }
}

void
finder_init(struct finder *finder, struct sparse *store, const uint64_t *ids, size_t count,
            uint32_t row_bytes)
{
    const uint32_t most = LINES_AHEAD_MAX * CACHE_LINE;

    finder->store = store;
    finder->ids = ids;
    finder->count = count;
    finder->first = 0;
    finder->blocks = 0;
    finder->row_bytes = row_bytes < most ? row_bytes : most;
    fetch_groups(finder, 0);
    fetch_groups(finder, FINDER_BLOCK);
    fetch_rows(finder, 0, finder->slots[0]);
}

bool
finder_next(struct finder *finder, struct finder_block *block_p)
{
    const size_t first = finder->first;

    if (first >= finder->count) {
        return false;
    }
    *block_p = (struct finder_block){.first = first,
                                     .count = block_count(finder, first),
                                     .slots = finder->slots[finder->blocks % 2]};
    fetch_groups(finder, first + 2 * (size_t)FINDER_BLOCK);
    fetch_rows(finder, first + FINDER_BLOCK, finder->slots[(finder->blocks + 1) % 2]);
    finder->first += block_p->count;
    finder->blocks++;
    return true;
}
