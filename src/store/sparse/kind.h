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

#endif
