/*
 * snapshot.c - the rows of a store as they are at one moment, handed over while they change.
 *
 * Invariant: a row of the moment was handed over if its key is before the walk's place, or if it was
 * touched at `until` or later. The others are as they were.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/snapshot.h"

#include <stdlib.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/sparse/finder.h"
#include "store/sparse/save.h"

enum { BATCH_BYTES = 64 << 10 };

struct sparse_snapshot {
    struct sparse_snapshot_args args;
    uint32_t bucket; /* where the walk is: ... */
    uint64_t cursor; /* ... see sparse_save() */
    size_t row_bytes;
    struct sparse_rows batch; /* not handed over yet */
    size_t batch_room;
    bool clears[]; /* by bucket */
};

static void
hand_over(struct sparse_snapshot *snapshot)
{
    if (snapshot->batch.count > 0) {
        snapshot->args.take(snapshot->args.self, &snapshot->batch);
        snapshot->batch.count = 0;
    }
}

static bool
make_batch(struct sparse_snapshot *snapshot, const struct sparse *store)
{
    struct sparse_rows *batch = &snapshot->batch;
    size_t room;

    snapshot->row_bytes = sizeof(uint64_t) + 2 * sizeof(uint32_t) +
                          ((size_t)store->width + store->states) * sizeof(float);
    room = BATCH_BYTES / snapshot->row_bytes + 1;
    snapshot->batch_room = room;
    batch->ids = malloc(room * sizeof(*batch->ids));
    batch->values = malloc(room * store->width * sizeof(*batch->values));
    batch->state = malloc((room * store->states + 1) * sizeof(*batch->state));
    batch->steps = malloc(room * sizeof(*batch->steps));
    batch->counts = malloc(room * sizeof(*batch->counts));
    return batch->ids != NULL && batch->values != NULL && batch->state != NULL &&
           batch->steps != NULL && batch->counts != NULL;
}

psd_status
sparse_snapshot_begin(struct sparse *store, const struct sparse_snapshot_args *args,
                      struct psd_error *err)
{
    const uint32_t buckets = 1u << store->bits;
    struct sparse_snapshot *snapshot = calloc(1, sizeof(*snapshot) + buckets);

    psi_assert(store->snapshot == NULL);
    store->snapshot = snapshot;
    if (snapshot == NULL || !make_batch(snapshot, store)) {
        sparse_snapshot_end(store);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory to save it",
                        store->spec->name);
    }
    snapshot->args = *args;
    for (uint32_t i = 0; i < buckets; i++) {
        snapshot->clears[i] = args->since > 0 && store->buckets[i].removed > args->since;
    }
    return PSD_OK;
}

void
sparse_snapshot_end(struct sparse *store)
{
    struct sparse_snapshot *snapshot = store->snapshot;

    if (snapshot != NULL) {
        free(snapshot->batch.ids);
        free(snapshot->batch.values);
        free(snapshot->batch.state);
        free(snapshot->batch.steps);
        free(snapshot->batch.counts);
        free(snapshot);
        store->snapshot = NULL;
    }
}

bool
sparse_snapshot_clears(const struct sparse *store, uint32_t bucket)
{
    return store->snapshot->clears[bucket];
}

/* Rows of that bucket that count were touched at this step or later. */
static uint32_t
since_of(const struct sparse_snapshot *snapshot, uint32_t bucket)
{
    return snapshot->clears[bucket] ? 0 : snapshot->args.since;
}

bool
sparse_snapshot_go_on(struct sparse *store, size_t bytes)
{
    struct sparse_snapshot *snapshot = store->snapshot;
    const uint32_t buckets = 1u << store->bits;
    size_t done = 0;

    hand_over(snapshot);
    while (snapshot->bucket < buckets && done < bytes) {
        const uint32_t since = since_of(snapshot, snapshot->bucket);
        bool more;

        snapshot->batch.count = snapshot->batch_room;
        more = save_rows(store, snapshot->bucket, since, snapshot->args.until, &snapshot->cursor,
                         &snapshot->batch);
        done += snapshot->batch.count * snapshot->row_bytes;
        hand_over(snapshot);
        if (!more) {
            snapshot->bucket++;
            snapshot->cursor = 0;
        }
    }
    return snapshot->bucket < buckets;
}

/* ---- What would be lost ---- */

static bool
is_ahead(const struct sparse *store, uint64_t key)
{
    const struct sparse_snapshot *snapshot = store->snapshot;
    const uint32_t bucket = (uint32_t)(key >> (64 - store->bits));

    return bucket > snapshot->bucket || (bucket == snapshot->bucket && key >= snapshot->cursor);
}

static void
keep(struct sparse *store, struct row *row, uint64_t key)
{
    struct sparse_snapshot *snapshot = store->snapshot;

    if (row->step >= snapshot->args.until ||
        row->step < since_of(snapshot, (uint32_t)(key >> (64 - store->bits)))) {
        return;
    }
    save_row(store, row, snapshot->batch.count++, &snapshot->batch);
    if (snapshot->batch.count == snapshot->batch_room) {
        hand_over(snapshot);
    }
}

/* Each row counts at some moment: one that changes is handed over later. */
static bool
is_of_one_moment(const struct sparse_snapshot *snapshot)
{
    return snapshot->args.until != SPARSE_SNAPSHOT_EACH_ROW;
}

void
sparse_snapshot_before_change(struct sparse *store, const uint64_t *ids, size_t count)
{
    size_t first = 0;
    struct finder finder PSI_UNINITIALIZED;

    if (!is_of_one_moment(store->snapshot)) {
        return;
    }
    while (first < count && !is_ahead(store, psi_bucket_mix(ids[first]))) {
        first++;
    }
    finder_init(&finder, store, ids + first, count - first, store->pool.row_bytes);
    for (size_t i = first; i < count; i++) {
        struct row *row = finder_row(store, ids[i], finder_next(&finder));

        if (row != NULL) {
            keep(store, row, psi_bucket_mix(ids[i]));
        }
    }
}

void
sparse_snapshot_before_removal(struct sparse *store, struct row *row, uint64_t key)
{
    if (is_of_one_moment(store->snapshot) && is_ahead(store, key)) {
        keep(store, row, key);
    }
}
