/*
 * tier_spill.c - rows leave memory, and records of rows that are nowhere any more are removed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "shard/bucket.h"
#include "store/sparse/bucket_rows.h"
#include "store/sparse/room.h"
#include "store/sparse/snapshot.h"
#include "store/sparse/tier.h"

/* Some at once, because all rows of the bucket have to be looked at for it, and because records of one
 * bucket lie side by side: the oldest third of a full one. After a failure it is tried again so many
 * changes later. */
enum { AT_ONCE = 3, RETRY_CHANGES = 256 };

/* ---- Rows leave memory ---- */

static struct tier_bucket *
place_of(const struct sparse *store, uint64_t key)
{
    return &store->tier->buckets[key >> (64 - store->bits)];
}

static void
leave(struct sparse *store, const struct cold_row *moving)
{
    struct row *row = (struct row *)(uintptr_t)moving->record;
    const size_t offset = (size_t)((const char *)moving->record - store->pool.slabs.base);
    struct tier_bucket *cold = place_of(store, moving->key);

    if (cold->rows == 0) {
        cold->oldest = row->step;
        cold->newest = row->step;
    }
    cold->oldest = row->step < cold->oldest ? row->step : cold->oldest;
    cold->newest = row->step > cold->newest ? row->step : cold->newest;
    cold->has_small = cold->has_small || (store->policy.norm_min != 0 && room_is_small(store, row));
    cold->is_used = true;
    cold->rows++;
    store->tier->rows++;
    store->tier->writes++;
    room_give(store, bucket_of(store, moving->key), moving->key,
              (uint32_t)(offset / store->pool.row_bytes));
}

static int
compare_keys(const void *a, const void *b)
{
    const struct cold_row *left = a;
    const struct cold_row *right = b;

    return (left->key > right->key) - (left->key < right->key);
}

/* false: they could not be written, and stay. */
static bool
move(struct sparse *store)
{
    struct tier *tier = store->tier;
    const size_t count = tier->moving_count;
    struct psd_error err;

    tier->moving_count = 0;
    if (count == 0) {
        return true;
    }
    qsort(tier->moving, count, sizeof(tier->moving[0]), compare_keys);
    if (tier->cold->ops->put(tier->cold, tier->moving, count, &err) != PSD_OK) {
        tier->full = err;
        tier->retry_in = RETRY_CHANGES;
        return false;
    }
    tier->full = (struct psd_error){0};
    for (size_t i = 0; i < count; i++) {
        leave(store, &tier->moving[i]);
    }
    return true;
}

static bool
spill_bucket(struct sparse *store, struct bucket *bucket)
{
    struct tier *tier = store->tier;
    const uint64_t share = room_share(store, bucket);
    size_t going = share / AT_ONCE + (bucket->index.rows - share);

    if (!bucket_oldest(store, bucket, UINT64_MAX, &going)) {
        psi_fail(&tier->full, PSD_ERR_NO_MEMORY, "no memory to choose among %u rows",
                 bucket->index.rows);
        tier->retry_in = RETRY_CHANGES;
        return false;
    }
    for (size_t i = 0; i < going; i++) {
        if (tier->moving_count == TIER_MOVING && !move(store)) {
            return false;
        }
        tier->moving[tier->moving_count++] =
            (struct cold_row){.key = store->candidates[i].key,
                              .record = row_at(&store->pool, store->candidates[i].slot)};
    }
    return true;
}

void
tier_spill(struct sparse *store, const uint64_t *ids, size_t count)
{
    struct tier *tier = store->tier;
    const uint64_t begun = psi_monotonic_ns();
    uint32_t last = 0;
    bool done = true;

    if (tier->retry_in > 0 && --tier->retry_in > 0) {
        return;
    }
    for (size_t i = 0; i < count && done; i++) {
        const uint32_t number = psi_bucket_of(ids[i], store->bits);
        struct bucket *bucket = &store->buckets[number];

        if (i > 0 && number == last) {
            continue;
        }
        if (number < last) { /* a bucket may come again: its rows must not go twice */
            done = move(store);
        }
        last = number;
        if (done && bucket->index.rows > room_share(store, bucket)) {
            done = spill_bucket(store, bucket);
        }
    }
    tier->moving_count = done ? tier->moving_count : 0;
    (void)move(store);
    tier->busy_ns += psi_monotonic_ns() - begun;
}

/* ---- Records of rows that went ---- */

void
tier_row_gone(struct sparse *store, uint64_t key)
{
    struct tier *tier = store->tier;

    if (!place_of(store, key)->is_used) {
        return;
    }
    if (tier->gone_count == tier->gone_capacity) {
        const size_t capacity = tier->gone_capacity == 0 ? 64 : 2 * tier->gone_capacity;
        uint64_t *grown = realloc(tier->gone, capacity * sizeof(*grown));

        if (grown == NULL) {
            psi_fail(&tier->trouble, PSD_ERR_NO_MEMORY,
                     "sparse table %s: no memory to note %zu rows that went", store->spec->name,
                     capacity);
            return;
        }
        tier->gone = grown;
        tier->gone_capacity = capacity;
    }
    tier->gone[tier->gone_count++] = key;
}

void
tier_settle(struct sparse *store)
{
    struct tier *tier = store->tier;
    const size_t count = tier->gone_count;
    struct psd_error err;

    tier->gone_count = 0;
    if (count > 0 && tier->cold->ops->remove(tier->cold, tier->gone, count, &err) != PSD_OK) {
        psi_fail(&tier->trouble, err.status,
                 "sparse table %s: %zu rows that went cannot be removed from its cold rows: %s",
                 store->spec->name, count, err.text);
    }
}

/* ---- Rows go that are not in memory ---- */

static bool
may_have_some_to_go(const struct sparse *store, const struct tier_bucket *cold, uint64_t step)
{
    const uint32_t idle = store->policy.idle_steps;

    return cold->rows > 0 &&
           ((idle != 0 && step > cold->oldest && step - cold->oldest > idle) || cold->has_small);
}

static void
let_go(struct sparse *store, struct row *row, uint64_t key, uint64_t step)
{
    if (store->gone != NULL) {
        gone_add(store, row);
    }
    if (store->snapshot != NULL) {
        sparse_snapshot_before_removal(store, row, key);
    }
    tier_row_gone(store, key);
    bucket_of(store, key)->removed = (uint32_t)step + 1;
    place_of(store, key)->rows--;
    store->tier->rows--;
}

uint64_t
tier_sweep(struct sparse *store, uint32_t bucket, uint64_t step, uint64_t closed)
{
    struct tier_bucket *cold = &store->tier->buckets[bucket];
    uint64_t from = (uint64_t)bucket << (64 - store->bits);
    uint32_t oldest = UINT32_MAX;
    uint64_t gone = 0;
    struct cold_row found;

    if (!may_have_some_to_go(store, cold, step)) {
        return 0;
    }
    while (from >> (64 - store->bits) == bucket && tier_next(store, bucket, from, &found)) {
        struct row *row = tier_row(store, found.record);

        if (room_goes(store, row, step)) {
            let_go(store, row, found.key, closed);
            gone++;
        } else {
            oldest = row->step < oldest ? row->step : oldest;
        }
        from = found.key + 1;
    }
    cold->oldest = oldest;
    cold->has_small = false;
    return gone;
}

void
tier_clear(struct sparse *store, uint32_t bucket)
{
    struct tier *tier = store->tier;
    uint64_t from = (uint64_t)bucket << (64 - store->bits);
    struct cold_row found;

    tier_settle(store);
    if (tier->buckets[bucket].is_used) {
        while (from >> (64 - store->bits) == bucket &&
               tier->cold->ops->next(tier->cold, from, &found) &&
               found.key >> (64 - store->bits) == bucket) {
            tier_row_gone(store, found.key);
            from = found.key + 1;
        }
        tier_settle(store);
    }
    tier->rows -= tier->buckets[bucket].rows;
    tier->buckets[bucket] = (struct tier_bucket){0};
}
