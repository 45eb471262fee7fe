/*
 * snapshot.h - the rows of a store as they are at one moment, handed over while they change.
 *
 * Rows are walked through in the order of mixed ids, as far as there is time. A row that is about to
 * change or go before the walk has come to it is handed over first. So a step costs a copy of the
 * rows that it touches, and never one of a whole bucket.
 *
 * Thread: owned by the store's lane.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_SNAPSHOT_H
#define STORE_SPARSE_SNAPSHOT_H

#include "store/sparse/sparse.h"

struct row; /* row_pool.h */

/* No step: rows are handed over as they are when the walk comes to them. */
#define SPARSE_SNAPSHOT_EACH_ROW UINT32_MAX

struct sparse_snapshot_args {
    /* Rows that were touched at this step or later; and all rows of buckets that have lost any since
     * then: sparse_snapshot_clears(). 0: all rows. */
    uint32_t since;
    /* What changes from now on is touched at this step or later, and counts as it was before. */
    uint32_t until;
    /* Gets each row once, some at a time. The arrays are the store's, and hold until it returns. */
    void (*take)(void *self, const struct sparse_rows *rows);
    void *self;
};

/* One at a time. PSD_ERR_NO_MEMORY: nothing was begun. */
psd_status sparse_snapshot_begin(struct sparse *store, const struct sparse_snapshot_args *args,
                                 struct psd_error *err);

/* What was saved of this bucket before does not count: all of its rows are handed over. */
bool sparse_snapshot_clears(const struct sparse *store, uint32_t bucket);

/* Hands over about so many bytes of rows. false: all were handed over. */
bool sparse_snapshot_go_on(struct sparse *store, size_t bytes);

/* It is given up, or all were handed over. Nothing was begun: is fine. */
void sparse_snapshot_end(struct sparse *store);

/* ---- For the store itself ---- */

/* These rows are about to change, or to be touched. */
void sparse_snapshot_before_change(struct sparse *store, const uint64_t *ids, size_t count);

/* This one is about to go. */
void sparse_snapshot_before_removal(struct sparse *store, struct row *row, uint64_t key);

#endif
