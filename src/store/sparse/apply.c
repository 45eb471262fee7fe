/*
 * apply.c - gradients by id change rows, and make them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "store/sparse/admission.h"
#include "store/sparse/finder.h"
#include "store/sparse/room.h"
#include "store/sparse/row_rule.h"
#include "store/sparse/snapshot.h"
#include "store/sparse/tier.h"

/* One call of sparse_apply(). */
struct applying {
    struct sparse *store;
    const struct sparse_change *change;
    struct sparse_outcome *outcome;
    struct row_rule rule;
    size_t gradient_bytes; /* of a row */
};

static const void *
gradient_of(const struct applying *applying, size_t index)
{
    return (const char *)applying->change->gradients + index * applying->gradient_bytes;
}

/* ---- Numbers that are none ---- */

static bool
row_is_finite(const struct applying *applying, size_t index)
{
    const struct sparse *store = applying->store;
    const void *gradient = gradient_of(applying, index);

    if (applying->rule.to_real != NULL) {
        applying->rule.to_real(store->work, gradient, store->width);
        gradient = store->work;
    }
    return store->kernels->f32->finite(gradient, store->width);
}

static bool
is_finite(const struct applying *applying)
{
    const struct sparse *store = applying->store;
    const struct sparse_change *change = applying->change;

    if (store->spec->nan_policy == PSD_NAN_ALLOW || change->was_checked ||
        (applying->rule.to_real == NULL &&
         store->kernels->f32->finite(change->gradients, change->count * store->width))) {
        return true;
    }
    for (size_t i = 0; i < change->count; i++) {
        if (!row_is_finite(applying, i)) {
            applying->outcome->not_finite = true;
            applying->outcome->bad_id = change->ids[i];
            return false;
        }
    }
    return true;
}

/* ---- Rows that must not go ---- */

static void
touch_run(const struct applying *applying, size_t first, size_t end)
{
    struct sparse *store = applying->store;
    const uint64_t *ids = applying->change->ids;

    for (size_t i = first; i < end; i++) {
        const uint64_t key = psi_bucket_mix(ids[i]);
        const uint32_t slot =
            row_index_find(&bucket_of(store, key)->index, &store->pool, store->bits, key, ids[i]);

        if (slot != ROW_NONE) {
            row_at(&store->pool, slot)->step = (uint32_t)applying->change->step;
        }
    }
}

/* Where new rows may make old ones go, those that are to be changed now are touched first: they
 * stay. */
static void
touch_where_room_is_short(const struct applying *applying)
{
    struct sparse *store = applying->store;
    const struct sparse_change *change = applying->change;
    size_t end;

    if (store->policy.full != PSI_FULL_OLDEST) {
        return;
    }
    for (size_t first = 0; first < change->count; first = end) {
        const uint32_t bucket = psi_bucket_of(change->ids[first], store->bits);

        end = first + 1;
        while (end < change->count && psi_bucket_of(change->ids[end], store->bits) == bucket) {
            end++;
        }
        if (room_is_short(store, &store->buckets[bucket], end - first)) {
            touch_run(applying, first, end);
        }
    }
}

/* ---- Row by row ---- */

static struct row *
new_row(const struct applying *applying, struct bucket *bucket, uint64_t id, uint64_t key)
{
    struct sparse *store = applying->store;
    struct sparse_outcome *outcome = applying->outcome;
    const uint64_t step = applying->change->step;
    struct row *row;

    if (!admission_passes(store, bucket, id, key, step)) {
        outcome->waiting++;
        return NULL;
    }
    row = room_make(store, bucket, id, step, &outcome->evicted);
    if (row == NULL) {
        outcome->refused++;
        return NULL;
    }
    outcome->created++;
    return row;
}

static void
apply_row(struct applying *applying, size_t index, uint32_t guess)
{
    struct sparse *store = applying->store;
    const uint64_t id = applying->change->ids[index];
    const uint64_t key = psi_bucket_mix(id);
    struct bucket *bucket = bucket_of(store, key);
    struct row *row = finder_row(store, id, guess);

    if (row == NULL) {
        row = new_row(applying, bucket, id, key);
    }
    if (row == NULL) {
        return;
    }
    bucket->changed = (uint32_t)applying->change->step + 1;
    if (!row_rule_apply(&applying->rule, row, gradient_of(applying, index)) &&
        !applying->outcome->not_finite) {
        applying->outcome->not_finite = true;
        applying->outcome->bad_id = id;
    }
}

void
sparse_apply(struct sparse *store, const struct sparse_change *asked,
             struct sparse_outcome *outcome_p)
{
    struct sparse_change bounded = *asked;
    const struct sparse_change *change = &bounded;
    struct applying applying = {.store = store, .change = change, .outcome = outcome_p};
    struct finder finder PSI_UNINITIALIZED;

    bounded.step = row_step(asked->step);
    psi_assert(change->step >= store->step && change->update > 0);
    *outcome_p = (struct sparse_outcome){0};
    row_rule_init(&applying.rule, store, change);
    applying.gradient_bytes =
        store->width *
        (applying.rule.to_real != NULL ? psi_dtype_bytes(store->spec->dtype) : sizeof(float));
    if (!is_finite(&applying)) {
        return;
    }
    if (store->tier != NULL && !tier_fetch(store, change->ids, change->count)) {
        outcome_p->refused = change->count;
        return;
    }
    if (store->snapshot != NULL) {
        sparse_snapshot_before_change(store, change->ids, change->count);
    }
    store->step = change->step;
    store->growth_ns = 0;
    touch_where_room_is_short(&applying);
    finder_init(&finder, store, change->ids, change->count, store->pool.row_bytes);
    for (size_t i = 0; i < change->count; i++) {
        apply_row(&applying, i, finder_next(&finder));
    }
    if (store->tier != NULL) {
        tier_spill(store, change->ids, change->count);
    }
    if (store->growth_ns > store->longest_growth_ns) {
        store->longest_growth_ns = store->growth_ns;
    }
}
