/*
 * admission.c - which new ids get a row.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/admission.h"

#include <stdlib.h>
#include <string.h>

#include "shard/bucket.h"

enum { LINE_COUNTERS = 64, COUNTER_BITS = 8 };

bool
admission_make(struct sparse *store, struct bucket *bucket)
{
    if (bucket->counters == NULL) {
        bucket->counters = aligned_alloc(LINE_COUNTERS, store->policy.admit_counters);
        if (bucket->counters == NULL) {
            return false;
        }
        memset(bucket->counters, 0, store->policy.admit_counters);
        store->counter_bytes += store->policy.admit_counters;
    }
    return true;
}

void
admission_forget(struct sparse *store, struct bucket *bucket)
{
    if (bucket->counters != NULL) {
        free(bucket->counters);
        bucket->counters = NULL;
        store->counter_bytes -= store->policy.admit_counters;
    }
    bucket->epoch = 0;
}

static void
age(const struct sparse *store, struct bucket *bucket, uint64_t step)
{
    const uint32_t epoch = (uint32_t)(step / store->policy.admit_window);
    const uint32_t halvings = epoch - bucket->epoch;

    if (halvings == 0) {
        return;
    }
    for (uint32_t i = 0; i < store->policy.admit_counters; i++) {
        const unsigned counted = bucket->counters[i];

        bucket->counters[i] = (uint8_t)(halvings < COUNTER_BITS ? counted >> halvings : 0);
    }
    bucket->epoch = epoch;
}

static bool
has_come_often(struct sparse *store, struct bucket *bucket, uint64_t key, uint64_t step)
{
    /* Another mixture than that of the index. Both counters are in one line. */
    const uint64_t hash = psi_bucket_mix(key);
    uint8_t *line;
    uint8_t *first;
    uint8_t *second;
    uint8_t least;

    if (!admission_make(store, bucket)) {
        return true; /* there is no memory for the row either, and that is told */
    }
    age(store, bucket, step);
    line = bucket->counters +
           (hash & (store->policy.admit_counters - 1) & ~(uint64_t)(LINE_COUNTERS - 1));
    first = &line[hash >> 32 & (LINE_COUNTERS - 1)];
    second = &line[hash >> 40 & (LINE_COUNTERS - 1)];
    least = *first < *second ? *first : *second;
    if (least < UINT8_MAX) { /* only the smaller one rises: the other has counted somebody else */
        least++;
        *first = *first < least ? least : *first;
        *second = *second < least ? least : *second;
    }
    return least >= store->policy.admit_after;
}

static bool
is_drawn(const struct sparse *store, uint64_t id, uint64_t step)
{
    const uint64_t hash = psi_bucket_mix(psi_bucket_mix(store->spec->seed + step) ^ id);

    return (double)(hash >> 11) * 0x1p-53 < store->policy.admit_share;
}

bool
admission_passes(struct sparse *store, struct bucket *bucket, uint64_t id, uint64_t key,
                 uint64_t step)
{
    if (store->policy.admit_after > 1) {
        return has_come_often(store, bucket, key, step);
    }
    return store->policy.admit_share == 0 || is_drawn(store, id, step);
}
