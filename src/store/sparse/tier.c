/*
 * tier.c - rows that memory does not hold: made, and read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/tier.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/monotonic.h"

psd_status
tier_create(struct sparse *store, struct cold_place *place, struct psd_error *err)
{
    const size_t buckets = (size_t)1 << store->bits;
    struct tier *tier;
    psd_status status;

    if (place == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: full is spill, and nobody has said where rows go that "
                        "memory does not hold",
                        store->spec->name);
    }
    tier = calloc(1, sizeof(*tier) + buckets * sizeof(struct tier_bucket));
    if (tier != NULL) {
        tier->scratch = malloc(store->pool.row_bytes);
    }
    if (tier == NULL || tier->scratch == NULL) {
        free(tier);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory", store->spec->name);
    }
    status = place->open(place->self, store->spec->name, store->pool.row_bytes, &tier->cold, err);
    if (status != PSD_OK) {
        free(tier->scratch);
        free(tier);
        return status;
    }
    store->tier = tier;
    return PSD_OK;
}

void
tier_destroy(struct sparse *store)
{
    struct tier *tier = store->tier;

    if (tier != NULL) {
        tier->cold->ops->close(tier->cold);
        free(tier->scratch);
        free(tier->gone);
        free(tier);
        store->tier = NULL;
    }
}

/* ---- Reading ---- */

static void
show(void *context, size_t index, const void *record)
{
    const struct tier_asking *asking = context;
    struct tier *tier = asking->store->tier;

    tier->reads++;
    asking->found(asking->context, tier->at[index], record);
}

void
tier_ask_rest(const struct tier_asking *asking)
{
    struct tier *tier = asking->store->tier;
    uint64_t begun;

    if (tier->asked == 0) {
        return;
    }
    begun = psi_monotonic_ns();
    tier->cold->ops->get(tier->cold, tier->keys, tier->asked, show, (void *)asking);
    tier->asked = 0;
    tier->busy_ns += psi_monotonic_ns() - begun;
}

void
tier_ask(const struct tier_asking *asking, uint64_t key, size_t place)
{
    struct tier *tier = asking->store->tier;

    tier->keys[tier->asked] = key;
    tier->at[tier->asked++] = place;
    if (tier->asked == TIER_BLOCK) {
        tier_ask_rest(asking);
    }
}

/* ---- Going through a bucket ---- */

static bool
is_in_memory(const struct sparse *store, const struct cold_row *row)
{
    const struct bucket *bucket = &store->buckets[row->key >> (64 - store->bits)];
    struct row head;

    memcpy(&head, row->record, sizeof(head));
    return row_index_find(&bucket->index, &store->pool, store->bits, row->key, head.id) != ROW_NONE;
}

bool
tier_next(const struct sparse *store, uint32_t bucket, uint64_t from, struct cold_row *row_p)
{
    struct cold *cold = store->tier->cold;

    while (cold->ops->next(cold, from, row_p) && row_p->key >> (64 - store->bits) == bucket) {
        if (!is_in_memory(store, row_p)) {
            return true;
        }
        from = row_p->key + 1;
        if (from >> (64 - store->bits) != bucket) {
            return false;
        }
    }
    return false;
}
