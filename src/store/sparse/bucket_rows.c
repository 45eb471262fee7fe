/*
 * bucket_rows.c - the rows of one bucket that are in memory: all of them, and the oldest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/bucket_rows.h"

#include <stdlib.h>

#include "shard/bucket.h"

enum { AHEAD = 4 }; /* groups that are fetched ahead */

void
bucket_each_row(const struct sparse *store, const struct bucket *bucket, bucket_visit_fn visit,
                void *context)
{
    const struct row_index *index = &bucket->index;

    for (uint32_t i = 0; i < index->group_count; i++) {
        if (i + AHEAD < index->group_count) {
            row_index_fetch_rows(&index->groups[i + AHEAD], &store->pool);
        }
        for (uint32_t place = 0; place < GROUP_SLOTS; place++) {
            if (index->groups[i].tags[place] != 0) {
                const uint32_t slot = index->groups[i].slots[place];

                visit(context, slot, row_at(&store->pool, slot));
            }
        }
    }
}

static bool
is_older(const struct candidate *a, const struct candidate *b)
{
    return a->step != b->step ? a->step < b->step : a->key < b->key;
}

static void
swap(struct candidate *a, struct candidate *b)
{
    const struct candidate kept = *a;

    *a = *b;
    *b = kept;
}

/* Puts the `wanted` oldest first, in any order (Hoare's selection). */
static void
select_oldest(struct candidate *all, size_t count, size_t wanted)
{
    size_t low = 0;
    size_t high = count;

    while (high - low > 1) {
        const struct candidate pivot = all[low + (high - low) / 2];
        size_t left = low;
        size_t right = high - 1;

        for (;;) {
            while (is_older(&all[left], &pivot)) {
                left++;
            }
            while (is_older(&pivot, &all[right])) {
                right--;
            }
            if (left >= right) {
                break;
            }
            swap(&all[left], &all[right]);
            left++;
            right--;
        }
        /* No two are equal: all[low .. left - 1] are older than the rest. */
        if (wanted < left) {
            high = left;
        } else if (wanted > left) {
            low = left;
        } else {
            return;
        }
    }
}

struct gathering {
    struct candidate *all;
    size_t count;
    uint64_t step;
};

static void
gather(void *context, uint32_t slot, struct row *row)
{
    struct gathering *gathering = context;

    if (row->step < gathering->step) {
        gathering->all[gathering->count++] =
            (struct candidate){.key = psi_bucket_mix(row->id), .step = row->step, .slot = slot};
    }
}

static bool
make_candidates(struct sparse *store, size_t count)
{
    if (count > store->candidates_max) {
        free(store->candidates);
        store->candidates_max = 0;
        store->candidates = malloc(count * sizeof(struct candidate));
        if (store->candidates == NULL) {
            return false;
        }
        store->candidates_max = count;
    }
    return true;
}

bool
bucket_oldest(struct sparse *store, const struct bucket *bucket, uint64_t before, size_t *count_p)
{
    struct gathering gathering = {.step = before};

    if (!make_candidates(store, bucket->index.rows)) {
        return false;
    }
    gathering.all = store->candidates;
    bucket_each_row(store, bucket, gather, &gathering);
    if (*count_p < gathering.count) {
        select_oldest(gathering.all, gathering.count, *count_p);
    } else {
        *count_p = gathering.count;
    }
    return true;
}
