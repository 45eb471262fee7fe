/*
 * load.c - rows from arrays: what save.c gave.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "shard/bucket.h"
#include "store/sparse/room.h"
#include "store/sparse/tier.h"

static bool
load_row(struct sparse *store, const struct sparse_rows *rows, size_t at)
{
    const uint32_t step = row_step(rows->steps[at]); /* a file may say anything */
    const uint64_t id = rows->ids[at];
    const uint64_t key = psi_bucket_mix(id);
    struct bucket *bucket = bucket_of(store, key);
    const uint32_t slot = row_index_find(&bucket->index, &store->pool, store->bits, key, id);
    struct row *row =
        slot != ROW_NONE ? row_at(&store->pool, slot) : room_make(store, bucket, id, step, NULL);

    if (row == NULL) {
        return false;
    }
    row->step = step;
    row->count = rows->counts[at];
    memcpy(row_values(row), rows->values + at * store->width, store->width * sizeof(float));
    if (store->states > 0) {
        memcpy(row_state(store, row), rows->state + at * store->states,
               store->states * sizeof(float));
    }
    if (bucket->changed < row->step + 1) {
        bucket->changed = row->step + 1;
    }
    if (store->step < row->step) {
        store->step = row->step;
    }
    return true;
}

bool
sparse_load(struct sparse *store, const struct sparse_rows *rows)
{
    if (store->tier != NULL && !tier_fetch(store, rows->ids, rows->count)) {
        return false;
    }
    for (size_t i = 0; i < rows->count; i++) {
        if (!load_row(store, rows, i)) {
            return false;
        }
    }
    if (store->tier != NULL) {
        tier_spill(store, rows->ids, rows->count);
    }
    return sparse_is_sound(store);
}
