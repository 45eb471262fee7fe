/*
 * kind.h - sparse tables, as a lane knows tables (store.h): its share of the rows is one chunk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_KIND_H
#define STORE_SPARSE_KIND_H

#include "store/store.h"

extern const struct store_ops store_sparse;

/* Rows that are added, and not kept: there is the sum of the last round, until the next one. */
extern const struct store_ops store_sparse_sum;

/* The rows themselves, to save and to load them. */
struct sparse *sparse_table_rows(struct store *store);

/* The largest step that has changed them. */
uint64_t sparse_table_step(const struct store *store);

/* Rows were loaded, as they were when the steps before this one were closed. */
void sparse_table_loaded(struct store *store, uint64_t step);

#endif
