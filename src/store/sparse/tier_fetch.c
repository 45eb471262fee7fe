/*
 * tier_fetch.c - rows come back into memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "shard/bucket.h"
#include "store/sparse/finder.h"
#include "store/sparse/room.h"
#include "store/sparse/tier.h"

struct fetching {
    struct sparse *store;
    bool has_failed;
};

static void
bring(void *context, size_t place, const void *record)
{
    struct fetching *fetching = context;
    struct sparse *store = fetching->store;
    uint64_t key;
    struct row head;

    (void)place;
    memcpy(&head, record, sizeof(head));
    key = psi_bucket_mix(head.id);
    if (fetching->has_failed || !room_bring(store, bucket_of(store, key), record)) {
        fetching->has_failed = true;
        return;
    }
    store->tier->buckets[key >> (64 - store->bits)].rows--;
    store->tier->rows--;
}

bool
tier_fetch(struct sparse *store, const uint64_t *ids, size_t count)
{
    struct fetching fetching = {.store = store};
    const struct tier_asking asking = {.store = store, .found = bring, .context = &fetching};
    struct finder finder PSI_UNINITIALIZED;

    if (store->tier->rows == 0) {
        return true;
    }
    finder_init(&finder, store, ids, count, ROW_HEAD_BYTES);
    for (size_t i = 0; i < count; i++) {
        const uint64_t key = psi_bucket_mix(ids[i]);
        const uint32_t guess = finder_next(&finder);

        if (tier_may_have(store, key) && finder_row(store, ids[i], guess) == NULL) {
            tier_ask(&asking, key, i);
        }
    }
    tier_ask_rest(&asking);
    return !fetching.has_failed;
}
