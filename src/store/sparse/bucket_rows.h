/*
 * bucket_rows.h - the rows of one bucket that are in memory: all of them, and the oldest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_BUCKET_ROWS_H
#define STORE_SPARSE_BUCKET_ROWS_H

#include "store/sparse/state.h"

typedef void (*bucket_visit_fn)(void *context, uint32_t slot, struct row *row);

/* Shows every row once. The visitor may let that row go. */
void bucket_each_row(const struct sparse *store, const struct bucket *bucket, bucket_visit_fn visit,
                     void *context);

/* Puts the oldest of the rows that were touched before that step first in store->candidates, in any
 * order: `*count_p` of them, which becomes how many there are. false: no memory to choose. */
bool bucket_oldest(struct sparse *store, const struct bucket *bucket, uint64_t before,
                   size_t *count_p);

#endif
