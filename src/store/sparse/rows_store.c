/*
 * rows_store.c - what sparse tables have in common.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/rows_store.h"

#include <stdlib.h>

#include "base/fail.h"
#include "store/sum.h"

void
rows_store_init(struct rows_store *rows, const struct store_ops *ops,
                const struct store_layout *layout)
{
    *rows = (struct rows_store){
        .store = {.ops = ops},
        .spec = layout->spec,
        .level = layout->level,
        .row_bytes = layout->spec->width * psi_dtype_bytes(layout->spec->dtype),
    };
}

void
rows_store_fini(struct rows_store *rows)
{
    psi_merge_fini(&rows->merge);
    free(rows->lists);
}

/* ---- merging ------------------------------------------------------------------------------- */

static bool
reserve_lists(struct rows_store *rows, uint32_t count)
{
    struct psi_row_list *grown;

    if (count <= rows->list_capacity) {
        return true;
    }
    grown = realloc(rows->lists, count * sizeof(*grown));
    if (grown != NULL) {
        rows->lists = grown;
        rows->list_capacity = count;
    }
    return grown != NULL;
}

static uint32_t
count_lists(const struct store_change *change)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < change->leaf_count; i++) {
        for (const struct store_rows *rows = change->leaves[i].data; rows != NULL;
             rows = rows->next) {
            count++;
        }
    }
    return count;
}

psd_status
rows_store_merge(struct rows_store *rows, const struct store_change *change, struct psd_error *err)
{
    const uint32_t count = count_lists(change);
    struct psi_row_list *list;

    if (!reserve_lists(rows, count)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for %u lists of rows",
                        rows->spec->name, count);
    }
    list = rows->lists;
    for (uint32_t i = 0; i < change->leaf_count; i++) {
        const struct leaf *leaf = &change->leaves[i];

        for (const struct store_rows *piece = leaf->data; piece != NULL; piece = piece->next) {
            *list++ = (struct psi_row_list){.rank = leaf->rank,
                                            .is_sum = leaf->is_sum,
                                            .ids = piece->ids,
                                            .rows = piece->rows,
                                            .count = piece->count};
        }
    }
    return psi_merge_rows(&rows->merge, rows->spec->dtype, rows->spec->width, rows->level,
                          rows->lists, count, err);
}

/* ---- operations ---------------------------------------------------------------------------- */

void
rows_store_place(struct store *store, uint64_t chunk, uint64_t index)
{
    (void)store;
    (void)chunk;
    (void)index;
}

size_t
rows_store_prepare(struct store *store, uint64_t chunk)
{
    (void)store;
    (void)chunk;
    return 0;
}

/* As many as its payload says: server/rows.c looks into it. */
struct store_form
rows_store_sink(const struct store *store, uint64_t chunk, bool is_sum)
{
    (void)chunk;
    (void)is_sum;
    return (struct store_form){.dtype = ((const struct rows_store *)store)->spec->dtype};
}

uint64_t
rows_store_numbers(const struct store *store, const struct store_change *change)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < change->leaf_count; i++) {
        for (const struct store_rows *piece = change->leaves[i].data; piece != NULL;
             piece = piece->next) {
            rows += piece->count;
        }
    }
    return rows * ((const struct rows_store *)store)->spec->width;
}

struct store_piece
rows_store_read(const struct store *store, uint64_t chunk, uint32_t buffer)
{
    (void)store;
    (void)chunk;
    (void)buffer;
    return (struct store_piece){0};
}

struct store_piece
rows_store_part(const struct store *store, uint64_t chunk, unsigned part, uint32_t buffer)
{
    (void)part;
    return rows_store_read(store, chunk, buffer);
}

void
rows_store_value_loaded(struct store *store, uint64_t chunk, uint32_t buffer)
{
    (void)store;
    (void)chunk;
    (void)buffer;
}
