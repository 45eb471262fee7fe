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

bool
save_rows(const struct sparse *store, uint32_t bucket, uint32_t since, uint32_t until,
          uint64_t *cursor_p, struct sparse_rows *rows)
{
    struct saving saving = {.store = store,
                            .index = &store->buckets[bucket].index,
                            .since = since,
                            .until = until,
                            .from = *cursor_p};
    const size_t most = rows->count;
    uint32_t number = *cursor_p == 0 ? 0 : row_index_home(saving.index, store->bits, *cursor_p);
    struct home home PSI_UNINITIALIZED;

    rows->count = 0;
    while (number < saving.index->group_count) {
        size_t taken;

        if (number + AHEAD < saving.index->group_count) {
            row_index_fetch_rows(&saving.index->groups[number + AHEAD], &store->pool);
        }
        gather_home(&saving, number, &home);
        for (taken = 0; taken < home.count && rows->count < most; taken++) {
            save_row(store, row_at(&store->pool, home.entries[taken].slot), rows->count++, rows);
            saving.from = home.entries[taken].key + 1;
        }
        if (taken > 0 && saving.from >> (64 - store->bits) != bucket) {
            return false; /* that was the last key which the bucket can have */
        }
        if (taken < home.count) {
            *cursor_p = saving.from;
            return true;
        }
        number += !home.has_more;
    }
    return false;
}

bool
sparse_save(const struct sparse *store, uint32_t bucket, uint32_t since, uint64_t *cursor_p,
            struct sparse_rows *rows)
{
    return save_rows(store, bucket, since, UINT32_MAX, cursor_p, rows);
}
