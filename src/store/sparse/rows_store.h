/*
 * rows_store.h - what sparse tables have in common, whether they keep rows (kind.c) or only add them
 * (sum_kind.c): a lane's share is one chunk, whose gradients are lists of rows, and the lists of a
 * round become one (store/merge.h).
 *
 * Thread: owned by its lane, as every store.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_ROWS_STORE_H
#define STORE_SPARSE_ROWS_STORE_H

#include "store/merge.h"
#include "store/store.h"

/* What both kinds begin with. */
struct rows_store {
    struct store store; /* first */
    const struct psi_spec *spec;
    enum kernel_level level;
    size_t row_bytes;
    struct psi_merge merge;
    struct psi_row_list *lists; /* one for each leaf that there ever were */
    uint32_t list_capacity;
};

void rows_store_init(struct rows_store *rows, const struct store_ops *ops,
                     const struct store_layout *layout);
void rows_store_fini(struct rows_store *rows);

/* The leaves of the change are in rows->merge then, added. */
psd_status rows_store_merge(struct rows_store *rows, const struct store_change *change,
                            struct psd_error *err);

/* Operations (store.h) that are the same for both: no value lies in one piece. */
void rows_store_place(struct store *store, uint64_t chunk, uint64_t index);
size_t rows_store_prepare(struct store *store, uint64_t chunk);
struct store_form rows_store_sink(const struct store *store, uint64_t chunk, bool is_sum);
uint64_t rows_store_numbers(const struct store *store, const struct store_change *change);
struct store_piece rows_store_read(const struct store *store, uint64_t chunk, uint32_t buffer);
struct store_piece rows_store_part(const struct store *store, uint64_t chunk, unsigned part,
                                   uint32_t buffer);
void rows_store_value_loaded(struct store *store, uint64_t chunk, uint32_t buffer);

#endif
