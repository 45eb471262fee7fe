/*
 * before.h - rows as they were before the last change: sorted by psi_bucket_mix(), each id once.
 *
 * There is one value of each row, not two. Who asks for the version before gets the rows as they are,
 * but for these.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_BEFORE_H
#define STORE_SPARSE_BEFORE_H

#include "store/sparse/sparse.h"
#include "store/store.h"

/* Zeroed is empty. */
struct before {
    uint64_t *ids;
    uint8_t *rows; /* in the table's type */
    uint32_t count;
    uint32_t capacity;
};

void before_fini(struct before *before);

/* Room for so many rows. False: there is no memory. */
bool before_reserve(struct before *before, size_t row_bytes, size_t count);

/* Keeps these, which are about to change. False: there is no memory. */
bool before_keep(struct before *before, size_t row_bytes, struct sparse *rows, const uint64_t *ids,
                 size_t count);

/* Keeps those that went, too, unless they are there. False: there is no memory. */
bool before_add(struct before *before, size_t row_bytes, const struct sparse_gone *gone);

/* Writes those that were asked for over what is in `rows`. */
void before_put(const struct before *before, size_t row_bytes, const struct store_rows *asked,
                uint8_t *rows);

#endif
