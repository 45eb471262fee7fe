/*
 * row_index.c - finds the slot of a row in one bucket: adding, removing, growing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/row_index.h"

#include "base/fail.h"
#include "shard/bucket.h"

/* 85 % of the slots. */
static uint64_t
rows_max(uint32_t groups)
{
    return (uint64_t)groups * 10 + groups / 5;
}

/* By an eighth to a quarter. */
static uint32_t
next_groups(const struct row_index *index, uint32_t bucket)
{
    const uint32_t now = index->group_count;
    const uint64_t chance = psi_bucket_mix((uint64_t)bucket << 32 | now);

    return now + now / 4 + 1 - (uint32_t)(chance % (now / 8 + 1));
}

void
row_index_fini(struct row_index *index, struct index_memory *memory)
{
    if (index->groups != NULL) {
        index_memory_give(memory, index->groups, row_index_bytes(index));
    }
    *index = (struct row_index){0};
}

uint64_t
row_index_next_bytes(const struct row_index *index, uint32_t bucket)
{
    return index->rows < rows_max(index->group_count)
               ? 0
               : (uint64_t)next_groups(index, bucket) * GROUP_BYTES;
}

void
row_index_add(struct row_index *index, uint32_t bits, uint64_t key, uint32_t slot)
{
    uint32_t at = row_index_home(index, bits, key);
    uint32_t place;

    psi_assert(index->rows < rows_max(index->group_count));
    for (;;) {
        struct group *group = &index->groups[at];
        const uint32_t empty = group_match(group, 0);

        if (empty != 0) {
            place = (uint32_t)__builtin_ctz(empty);
            group->tags[place] = row_tag(key);
            group->slots[place] = slot;
            break;
        }
        if (group->passed < PASSED_MAX) {
            group->passed++;
        }
        at = row_index_after(index, at);
    }
    index->rows++;
}

/* Where the slot is among those of a group; GROUP_SLOTS: it is not. */
static uint32_t
place_of(const struct group *group, uint8_t tag, uint32_t slot)
{
    uint32_t mask = group_match(group, tag);

    while (mask != 0) {
        const uint32_t place = (uint32_t)__builtin_ctz(mask);

        if (group->slots[place] == slot) {
            return place;
        }
        mask &= mask - 1;
    }
    return GROUP_SLOTS;
}

void
row_index_remove(struct row_index *index, uint32_t bits, uint64_t key, uint32_t slot)
{
    uint32_t at = row_index_home(index, bits, key);

    for (uint32_t i = 0; i < index->group_count; i++) {
        struct group *group = &index->groups[at];
        const uint32_t place = place_of(group, row_tag(key), slot);

        if (place < GROUP_SLOTS) {
            group->tags[place] = 0;
            index->rows--;
            return;
        }
        psi_assert(group->passed > 0);
        if (group->passed < PASSED_MAX) { /* else nobody knows how many there were */
            group->passed--;
        }
        at = row_index_after(index, at);
    }
    psi_assert(false); /* the row is there */
}

uint32_t
row_index_find(const struct row_index *index, const struct row_pool *pool, uint32_t bits,
               uint64_t key, uint64_t id)
{
    const uint8_t tag = row_tag(key);
    uint32_t at = index->groups != NULL ? row_index_home(index, bits, key) : 0;

    for (uint32_t i = 0; i < index->group_count; i++) {
        const struct group *group = &index->groups[at];

        for (uint32_t mask = group_match(group, tag); mask != 0; mask &= mask - 1) {
            const uint32_t slot = group->slots[__builtin_ctz(mask)];

            if (row_at(pool, slot)->id == id) {
                return slot;
            }
        }
        if (group->passed == 0) {
            break;
        }
        at = row_index_after(index, at);
    }
    return ROW_NONE;
}

/* The ids are with the rows, which lie anywhere: those of the next groups are fetched meanwhile. */
void
row_index_fetch_rows(const struct group *group, const struct row_pool *pool)
{
    for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
        if (group->tags[i] != 0) {
            row_fetch(row_at(pool, group->slots[i]));
        }
    }
}

static void
move_group(struct row_index *to, const struct group *group, const struct row_pool *pool,
           uint32_t bits)
{
    for (uint32_t place = 0; place < GROUP_SLOTS; place++) {
        const uint32_t slot = group->slots[place];

        if (group->tags[place] != 0) {
            row_index_add(to, bits, psi_bucket_mix(row_at(pool, slot)->id), slot);
        }
    }
}

bool
row_index_grow(struct row_index *index, uint64_t bytes, struct index_memory *memory,
               const struct row_pool *pool, uint32_t bits)
{
    enum { AHEAD = 4 };
    struct row_index grown = {.group_count = (uint32_t)(bytes / GROUP_BYTES)};

    grown.groups = index_memory_take(memory, bytes);
    if (grown.groups == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < AHEAD && i < index->group_count; i++) {
        row_index_fetch_rows(&index->groups[i], pool);
    }
    for (uint32_t i = 0; i < index->group_count; i++) {
        if (i + AHEAD < index->group_count) {
            row_index_fetch_rows(&index->groups[i + AHEAD], pool);
        }
        move_group(&grown, &index->groups[i], pool, bits);
    }
    row_index_fini(index, memory);
    *index = grown;
    return true;
}
