/*
 * gone.c - rows that go are told to who wants to show them as they were: one of the step before.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "store/kernels.h"
#include "store/sparse/room.h"

void
sparse_keep_gone(struct sparse *store, struct sparse_gone *gone)
{
    store->gone = gone;
}

void
sparse_gone_fini(struct sparse_gone *gone)
{
    free(gone->ids);
    free(gone->rows);
    *gone = (struct sparse_gone){0};
}

static bool
reserve(struct sparse_gone *gone, size_t row_bytes)
{
    const size_t capacity = gone->capacity == 0 ? 64 : 2 * gone->capacity;
    uint64_t *ids;
    uint8_t *rows;

    if (gone->count < gone->capacity) {
        return true;
    }
    ids = realloc(gone->ids, capacity * sizeof(*ids));
    gone->ids = ids != NULL ? ids : gone->ids;
    rows = ids != NULL ? realloc(gone->rows, capacity * row_bytes) : NULL;
    gone->rows = rows != NULL ? rows : gone->rows;
    gone->capacity = rows != NULL ? capacity : gone->capacity;
    return rows != NULL;
}

void
gone_add(struct sparse *store, struct row *row)
{
    struct sparse_gone *gone = store->gone;
    const psd_dtype dtype = store->spec->dtype;
    const size_t row_bytes = store->width * psi_dtype_bytes(dtype);
    uint8_t *to;

    if (!reserve(gone, row_bytes)) {
        gone->has_failed = true;
        return;
    }
    to = gone->rows + gone->count * row_bytes;
    gone->ids[gone->count++] = row->id;
    if (dtype == PSD_F16) {
        store->kernels->f16_from_f32(to, row_values(row), store->width);
    } else if (dtype == PSD_BF16) {
        store->kernels->bf16_from_f32(to, row_values(row), store->width);
    } else {
        memcpy(to, row_values(row), row_bytes);
    }
}
