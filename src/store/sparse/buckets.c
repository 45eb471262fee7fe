/*
 * buckets.c - buckets at the end of a step, and as a whole: looked through, told of, emptied.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "store/sparse/admission.h"
#include "store/sparse/room.h"
#include "store/sparse/tier.h"

/* ---- Steps ---- */

uint64_t
sparse_close_step(struct sparse *store, uint64_t closed)
{
    const uint64_t step = row_step(closed);
    const uint64_t every = store->policy.sweep_every;
    const uint64_t buckets = UINT64_C(1) << store->bits;
    uint64_t first = store->closed;
    uint64_t gone = 0;

    if (step + 1 <= store->closed) {
        return 0;
    }
    store->closed = step + 1;
    if (every == 0) {
        return 0;
    }
    if (step + 1 - first > every) { /* each bucket once is enough */
        first = step + 1 - every;
    }
    for (; first <= step; first++) {
        for (uint64_t i = first % every; i < buckets; i += every) {
            gone += room_sweep(store, &store->buckets[i], first, step);
        }
    }
    if (store->tier != NULL) {
        tier_settle(store);
    }
    return gone;
}

void
sparse_begin_at(struct sparse *store, uint64_t step)
{
    store->closed = step;
}

uint64_t
sparse_begins_at(const struct sparse *store)
{
    return store->closed;
}

uint64_t
sparse_last_step(const struct sparse *store)
{
    return store->step;
}

/* ---- Buckets ---- */

struct sparse_bucket
sparse_bucket_info(const struct sparse *store, uint32_t bucket)
{
    const struct bucket *here = &store->buckets[bucket];

    return (struct sparse_bucket){
        .rows = here->index.rows + (store->tier != NULL ? store->tier->buckets[bucket].rows : 0),
        .changed = here->changed,
        .removed = here->removed};
}

void
sparse_set_bucket_info(struct sparse *store, uint32_t bucket, const struct sparse_bucket *info)
{
    store->buckets[bucket].changed = info->changed;
    store->buckets[bucket].removed = info->removed;
}

uint32_t
sparse_state_numbers(const struct sparse *store)
{
    return store->states;
}

void
sparse_clear(struct sparse *store, uint32_t bucket)
{
    if (store->tier != NULL) {
        tier_clear(store, bucket);
    }
    room_clear(store, &store->buckets[bucket]);
    admission_forget(store, &store->buckets[bucket]);
    store->buckets[bucket] = (struct bucket){0};
}

const uint8_t *
sparse_counters(const struct sparse *store, uint32_t bucket, size_t *bytes_p, uint32_t *epoch_p)
{
    const struct bucket *here = &store->buckets[bucket];

    *bytes_p = here->counters != NULL ? store->policy.admit_counters : 0;
    *epoch_p = here->epoch;
    return here->counters;
}

bool
sparse_load_counters(struct sparse *store, uint32_t bucket, const uint8_t *counters, size_t bytes,
                     uint32_t epoch)
{
    return bytes == store->policy.admit_counters &&
           sparse_load_counters_at(store, bucket, 0, counters, bytes, epoch);
}

bool
sparse_load_counters_at(struct sparse *store, uint32_t bucket, size_t from, const uint8_t *counters,
                        size_t bytes, uint32_t epoch)
{
    const size_t all = store->policy.admit_counters;
    struct bucket *here = &store->buckets[bucket];

    if (bytes == 0 || from > all || bytes > all - from || !admission_make(store, here)) {
        return false;
    }
    memcpy(here->counters + from, counters, bytes);
    here->epoch = epoch;
    return true;
}
