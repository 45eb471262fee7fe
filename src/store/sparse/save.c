/*
 * save.c - rows as arrays: to save them, to move them.
 *
 * Homes are in the order of mixed ids (row_index.h), so a bucket is saved home by home, and the
 * mixed id itself says where to go on: whatever happened to the index meanwhile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/save.h"

#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/sparse/tier.h"

struct entry {
    uint64_t key;
    uint32_t slot;
};

/* The first rows of one home, in order. One that has more is gathered again. */
enum { ENTRIES_MAX = 128, AHEAD = 4 };

struct home {
    size_t count;
    bool has_more;
    struct entry entries[ENTRIES_MAX];
};

/* What is saved of a bucket. */
struct saving {
    const struct sparse *store;
    const struct row_index *index;
    uint32_t since;
    uint32_t until;
    uint64_t from; /* rows of smaller keys were seen */
};

static void
insert(struct home *home, struct entry entry)
{
    size_t at = home->count;

    if (at == ENTRIES_MAX) {
        home->has_more = true;
        if (entry.key > home->entries[at - 1].key) {
            return;
        }
        at--; /* the last one is left for another time */
    } else {
        home->count++;
    }
    for (; at > 0 && home->entries[at - 1].key > entry.key; at--) {
        home->entries[at] = home->entries[at - 1];
    }
    home->entries[at] = entry;
}

static void
gather_group(const struct saving *saving, uint32_t number, const struct group *group,
             struct home *home)
{
    const struct sparse *store = saving->store;

    for (uint32_t place = 0; place < GROUP_SLOTS; place++) {
        const uint32_t slot = group->slots[place];
        const struct row *row = group->tags[place] != 0 ? row_at(&store->pool, slot) : NULL;
        const uint64_t key = row != NULL ? psi_bucket_mix(row->id) : 0;

        if (row != NULL && key >= saving->from && row->step >= saving->since &&
            row->step < saving->until &&
            row_index_home(saving->index, store->bits, key) == number) {
            insert(home, (struct entry){.key = key, .slot = slot});
        }
    }
}

/* They are in their own group and in those behind it, as far as rows were passed on. */
static void
gather_home(const struct saving *saving, uint32_t number, struct home *home)
{
    const struct row_index *index = saving->index;
    uint32_t at = number;

    home->count = 0;
    home->has_more = false;
    for (uint32_t i = 0; i < index->group_count; i++) {
        const struct group *group = &index->groups[at];

        gather_group(saving, number, group, home);
        if (group->passed == 0) {
            break;
        }
        at = row_index_after(index, at);
    }
}

void
save_row(const struct sparse *store, struct row *row, size_t at, struct sparse_rows *rows)
{
    const size_t width = store->width;
    const size_t states = store->states;

    rows->ids[at] = row->id;
    rows->steps[at] = row->step;
    rows->counts[at] = row->count;
    memcpy(rows->values + at * width, row_values(row), width * sizeof(float));
    if (states > 0) {
        memcpy(rows->state + at * states, row_state(store, row), states * sizeof(float));
    }
}

/* ---- In the order of keys, from memory and from the disk ---- */

/* Where a call of save_rows() is. */
struct walk {
    struct saving saving;
    uint32_t bucket;
    uint32_t number; /* of the home that is gathered next */
    bool is_gathered;
    struct home home;
    size_t taken; /* of it */
    bool has_cold;
    struct cold_row cold; /* the next one */
};

/* The next row that is in memory; NULL: there are no more. */
static const struct entry *
next_hot(struct walk *walk)
{
    const struct row_index *index = walk->saving.index;

    while (!walk->is_gathered || walk->taken == walk->home.count) {
        walk->number += walk->is_gathered && !walk->home.has_more;
        if (walk->number >= index->group_count) {
            return NULL;
        }
        if (walk->number + AHEAD < index->group_count) {
            row_index_fetch_rows(&index->groups[walk->number + AHEAD], &walk->saving.store->pool);
        }
        gather_home(&walk->saving, walk->number, &walk->home);
        walk->is_gathered = true;
        walk->taken = 0;
    }
    return &walk->home.entries[walk->taken];
}

static void
seek_cold(struct walk *walk, uint64_t from)
{
    const struct sparse *store = walk->saving.store;

    walk->has_cold = false;
    while (from >> (64 - store->bits) == walk->bucket &&
           tier_next(store, walk->bucket, from, &walk->cold)) {
        struct row head;

        memcpy(&head, walk->cold.record, sizeof(head));
        if (head.step >= walk->saving.since && head.step < walk->saving.until) {
            walk->has_cold = true;
            return;
        }
        from = walk->cold.key + 1;
    }
}

static bool
may_have_cold(const struct walk *walk)
{
    const struct tier *tier = walk->saving.store->tier;

    return tier != NULL && tier->buckets[walk->bucket].rows > 0 &&
           tier->buckets[walk->bucket].newest >= walk->saving.since;
}

/* Saves the next row. Returns its key. */
static uint64_t
save_next(struct walk *walk, const struct entry *hot, struct sparse_rows *rows)
{
    const struct sparse *store = walk->saving.store;
    const uint64_t key =
        hot != NULL && (!walk->has_cold || hot->key < walk->cold.key) ? hot->key : walk->cold.key;

    if (hot != NULL && hot->key == key) {
        save_row(store, row_at(&store->pool, hot->slot), rows->count++, rows);
        walk->taken++;
    } else {
        save_row(store, tier_row(store, walk->cold.record), rows->count++, rows);
        seek_cold(walk, key + 1);
    }
    return key;
}

bool
save_rows(const struct sparse *store, uint32_t bucket, uint32_t since, uint32_t until,
          uint64_t *cursor_p, struct sparse_rows *rows)
{
    const size_t most = rows->count;
    struct walk walk PSI_UNINITIALIZED;

    walk.saving = (struct saving){.store = store,
                                  .index = &store->buckets[bucket].index,
                                  .since = since,
                                  .until = until,
                                  .from = *cursor_p};
    walk.bucket = bucket;
    walk.number = *cursor_p == 0 ? 0 : row_index_home(walk.saving.index, store->bits, *cursor_p);
    walk.is_gathered = false;
    walk.has_cold = false;
    if (may_have_cold(&walk)) {
        seek_cold(&walk, *cursor_p != 0 ? *cursor_p : (uint64_t)bucket << (64 - store->bits));
    }
    for (rows->count = 0;; walk.saving.from++) {
        const struct entry *hot = next_hot(&walk);

        if (hot == NULL && !walk.has_cold) {
            return false;
        }
        if (rows->count == most) {
            *cursor_p = walk.saving.from;
            return true;
        }
        walk.saving.from = save_next(&walk, hot, rows);
        if ((walk.saving.from + 1) >> (64 - store->bits) != bucket) {
            return false; /* that was the last key which the bucket can have */
        }
    }
}

bool
sparse_save(const struct sparse *store, uint32_t bucket, uint32_t since, uint64_t *cursor_p,
            struct sparse_rows *rows)
{
    return save_rows(store, bucket, since, UINT32_MAX, cursor_p, rows);
}
