/*
 * row_index.h - finds the slot of a row in one bucket.
 *
 * Open addressing in groups of one cache line: twelve tags of one byte, compared at once, and twelve
 * slots. A row's home is the group at its mixed id's place among all of the bucket's; so the order of
 * groups is that of mixed ids, and a sorted list walks through an index from its beginning to its
 * end. A full group passes rows on to the next one and counts how many it has passed: a search ends
 * where nothing was passed, and a row that goes leaves nothing behind.
 *
 * An index grows by a quarter at most, so that at least two thirds of it are used: 8 bytes per row at
 * most once there are a few dozen. By how much less follows from the bucket: mixed ids fill all
 * buckets alike, and without it their indexes would all grow within the same few pushes.
 *
 * Thread: owned by the store.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_ROW_INDEX_H
#define STORE_SPARSE_ROW_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "store/sparse/index_memory.h"
#include "store/sparse/row_pool.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { GROUP_SLOTS = 12, GROUP_BYTES = 64, PASSED_MAX = UINT16_MAX };

struct group {
    uint8_t tags[GROUP_SLOTS]; /* 0: empty */
    uint16_t passed; /* rows of this group or one before that are behind it; PASSED_MAX: or more */
    uint16_t unused;
    uint32_t slots[GROUP_SLOTS];
};

_Static_assert(sizeof(struct group) == GROUP_BYTES, "a cache line");

struct row_index {
    struct group *groups; /* NULL: no rows yet */
    uint32_t group_count;
    uint32_t rows;
};

/* Gives its memory back. */
void row_index_fini(struct row_index *index, struct index_memory *memory);

static inline uint64_t
row_index_bytes(const struct row_index *index)
{
    return (uint64_t)index->group_count * GROUP_BYTES;
}

/* Bytes that the index of this bucket has after the next row came, if it has to grow for it; else
 * 0. */
uint64_t row_index_next_bytes(const struct row_index *index, uint32_t bucket);

/* Grows to these. `key` here and below is a mixed id, of a bucket of 2^bits. false: no memory. */
bool row_index_grow(struct row_index *index, uint64_t bytes, struct index_memory *memory,
                    const struct row_pool *pool, uint32_t bits);

/* A row that is not there yet, for which the index need not grow. */
void row_index_add(struct row_index *index, uint32_t bits, uint64_t key, uint32_t slot);

/* A row that is there. */
void row_index_remove(struct row_index *index, uint32_t bits, uint64_t key, uint32_t slot);

/* Sends for the heads of the rows of a group. */
void row_index_fetch_rows(const struct group *group, const struct row_pool *pool);

/* ---- Searching ---- */

static inline uint32_t
row_index_home(const struct row_index *index, uint32_t bits, uint64_t key)
{
    const uint64_t place = (uint32_t)(key << bits >> 32);

    return (uint32_t)(place * index->group_count >> 32);
}

static inline uint32_t
row_index_after(const struct row_index *index, uint32_t group)
{
    return group + 1 < index->group_count ? group + 1 : 0;
}

/* From the low bits, of which neither bucket nor home knows. */
static inline uint8_t
row_tag(uint64_t key)
{
    const uint8_t tag = (uint8_t)key;

    return tag != 0 ? tag : 1;
}

/* A bit for each slot with that tag. */
static inline uint32_t
group_match(const struct group *group, uint8_t tag)
{
    const uint32_t all = (1u << GROUP_SLOTS) - 1;
#if defined(__SSE2__)
    const __m128i tags = _mm_load_si128((const __m128i *)(const void *)group);
    const __m128i same = _mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag));

    return (uint32_t)_mm_movemask_epi8(same) & all;
#elif defined(__ARM_NEON)
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t tags = vld1q_u8(group->tags);
    const uint8x16_t same = vandq_u8(vceqq_u8(tags, vdupq_n_u8(tag)), vld1q_u8(bits));

    return ((uint32_t)vaddv_u8(vget_low_u8(same)) | (uint32_t)vaddv_u8(vget_high_u8(same)) << 8) &
           all;
#else
    uint32_t mask = 0;

    for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
        mask |= (uint32_t)(group->tags[i] == tag) << i;
    }
    return mask & all;
#endif
}

/* The first slot whose tag fits; ROW_NONE: the row is not there. Touches no row. */
static inline uint32_t
row_index_guess(const struct row_index *index, uint32_t bits, uint64_t key)
{
    const uint8_t tag = row_tag(key);
    uint32_t at;

    if (index->groups == NULL) {
        return ROW_NONE;
    }
    at = row_index_home(index, bits, key);
    for (uint32_t i = 0; i < index->group_count; i++) {
        const struct group *group = &index->groups[at];
        const uint32_t mask = group_match(group, tag);

        if (mask != 0) {
            return group->slots[__builtin_ctz(mask)];
        }
        if (group->passed == 0) {
            break;
        }
        at = row_index_after(index, at);
    }
    return ROW_NONE;
}

/* The slot of that id. */
uint32_t row_index_find(const struct row_index *index, const struct row_pool *pool, uint32_t bits,
                        uint64_t key, uint64_t id);

static inline void
row_index_prefetch(const struct row_index *index, uint32_t bits, uint64_t key)
{
    if (index->groups != NULL) {
        row_fetch(&index->groups[row_index_home(index, bits, key)]);
    }
}

#endif
