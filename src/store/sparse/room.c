/*
 * room.c - rows come and go.
 *
 * The oldest rows of a bucket that has more than its share of capacity_rows make room: so which rows
 * go does not depend on which lanes have which buckets. What the lane's buckets may have together
 * bounds their rows. That does depend on it, so a row for which there is no room any more ends the
 * job, and never chooses others to go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/room.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "shard/bucket.h"
#include "store/initial.h"
#include "store/sparse/snapshot.h"

enum { AHEAD = 4, AT_ONCE = 16 }; /* groups fetched ahead; the oldest 16th of a full bucket goes */

uint64_t
room_bytes(const struct sparse *store)
{
    return slabs_taken(&store->pool.slabs) + slabs_taken(&store->indexes.slabs) +
           index_memory_hole_bytes(&store->indexes) + store->counter_bytes + sizeof(*store) +
           (sizeof(struct bucket) << store->bits) + store->width * sizeof(float) +
           store->candidates_max * sizeof(struct candidate);
}

/* ---- Going through a bucket ---- */

typedef void (*visit_fn)(void *context, uint32_t slot, struct row *row);

/* Shows every row once. The visitor may let that row go. */
static void
each_row(const struct sparse *store, const struct bucket *bucket, visit_fn visit, void *context)
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

static void
remove_row(struct sparse *store, struct bucket *bucket, uint64_t key, uint32_t slot, uint64_t step)
{
    if (store->gone != NULL) {
        gone_add(store, row_at(&store->pool, slot));
    }
    if (store->snapshot != NULL) {
        sparse_snapshot_before_removal(store, row_at(&store->pool, slot), key);
    }
    row_index_remove(&bucket->index, store->bits, key, slot);
    row_pool_give(&store->pool, slot);
    bucket->removed = (uint32_t)step + 1;
    store->rows--;
}

/* ---- The oldest ---- */

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

/* Some at once, because all rows of the bucket have to be looked at for it; and what a step has
 * brought beyond the bucket's share. false: no memory to choose. */
static bool
evict_oldest(struct sparse *store, struct bucket *bucket, uint64_t step, uint64_t *evicted)
{
    const uint64_t share = room_share(store, bucket);
    struct gathering gathering = {.step = step};
    size_t going = (share >= AT_ONCE ? share / AT_ONCE : 1) + (bucket->index.rows - share);

    if (!make_candidates(store, bucket->index.rows)) {
        return false;
    }
    gathering.all = store->candidates;
    each_row(store, bucket, gather, &gathering);
    if (going < gathering.count) {
        select_oldest(gathering.all, gathering.count, going);
    } else {
        going = gathering.count;
    }
    for (size_t i = 0; i < going; i++) {
        remove_row(store, bucket, gathering.all[i].key, gathering.all[i].slot, step);
    }
    *evicted += going;
    return true;
}

/* ---- A new row ---- */

static bool
has_memory(const struct sparse *store, uint64_t bytes)
{
    return bytes <= store->memory_max && room_bytes(store) <= store->memory_max - bytes;
}

/* While it grows an index is there twice. */
static bool
grow_index(struct sparse *store, struct bucket *bucket, uint64_t bytes)
{
    const uint64_t before = row_index_bytes(&bucket->index);

    if (!has_memory(store, index_memory_wants(&store->indexes, bytes)) ||
        !row_index_grow(&bucket->index, bytes, &store->indexes, &store->pool, store->bits)) {
        return false;
    }
    store->index_bytes += bytes - before;
    return true;
}

/* A row that is wider than the first slabs needs several. */
static bool
grow_pool(struct sparse *store)
{
    while (row_pool_spare(&store->pool) == 0) {
        const uint64_t bytes = slabs_next(&store->pool.slabs);

        if (bytes == 0 || !has_memory(store, bytes) || !row_pool_grow(&store->pool)) {
            return false;
        }
    }
    return true;
}

static bool
grow(struct sparse *store, struct bucket *bucket)
{
    const uint64_t index_bytes =
        row_index_next_bytes(&bucket->index, (uint32_t)(bucket - store->buckets));
    bool done = true;
    uint64_t begun;

    if (index_bytes == 0 && row_pool_spare(&store->pool) > 0) {
        return true;
    }
    begun = psi_thread_cpu_ns();
    if (index_bytes > 0) {
        done = grow_index(store, bucket, index_bytes);
    }
    done = done && grow_pool(store);
    store->growth_ns += psi_thread_cpu_ns() - begun;
    return done;
}

struct row *
room_make(struct sparse *store, struct bucket *bucket, uint64_t id, uint64_t step,
          uint64_t *evicted)
{
    struct row *row;
    uint32_t slot;

    if (evicted != NULL && room_is_short(store, bucket, 1) && bucket->index.rows > 0 &&
        !evict_oldest(store, bucket, step, evicted)) {
        return NULL;
    }
    if (store->rows >= store->rows_max || !grow(store, bucket)) {
        return NULL;
    }
    slot = row_pool_take(&store->pool);
    row = row_at(&store->pool, slot);
    *row = (struct row){.id = id, .step = (uint32_t)step};
    store_initial(store->spec->init, store->spec->init_value, store->spec->seed, PSD_F32,
                  id * store->width, store->width, row_values(row));
    memset(row_state(store, row), 0, store->states * sizeof(float));
    row_index_add(&bucket->index, store->bits, psi_bucket_mix(id), slot);
    store->rows++;
    return row;
}

/* ---- Idle and small ones ---- */

struct sweeping {
    struct sparse *store;
    struct bucket *bucket;
    uint64_t step;   /* of which it is the turn ... */
    uint64_t closed; /* ... and that is closed now: rows are there until then */
    uint64_t gone;
};

static bool
is_small(const struct sparse *store, struct row *row)
{
    const float *values = row_values(row);
    double sum = 0;

    for (uint32_t i = 0; i < store->width; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    return sum < store->policy.norm_min * store->policy.norm_min;
}

static void
sweep_row(void *context, uint32_t slot, struct row *row)
{
    struct sweeping *sweeping = context;
    struct sparse *store = sweeping->store;
    const uint32_t idle = store->policy.idle_steps;

    if ((idle != 0 && sweeping->step > row->step && sweeping->step - row->step > idle) ||
        (store->policy.norm_min != 0 && is_small(store, row))) {
        remove_row(store, sweeping->bucket, psi_bucket_mix(row->id), slot, sweeping->closed);
        sweeping->gone++;
    }
}

uint64_t
room_sweep(struct sparse *store, struct bucket *bucket, uint64_t step, uint64_t closed)
{
    struct sweeping sweeping = {.store = store, .bucket = bucket, .step = step, .closed = closed};

    each_row(store, bucket, sweep_row, &sweeping);
    return sweeping.gone;
}

static void
give_slot(void *context, uint32_t slot, struct row *row)
{
    (void)row;
    row_pool_give(context, slot);
}

void
room_clear(struct sparse *store, struct bucket *bucket)
{
    each_row(store, bucket, give_slot, &store->pool);
    store->rows -= bucket->index.rows;
    store->index_bytes -= row_index_bytes(&bucket->index);
    row_index_fini(&bucket->index, &store->indexes);
}
