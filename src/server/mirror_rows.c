/*
 * mirror_rows.c - a copy of a lane with sparse tables: lists of rows, and pieces of tables.
 *
 * The list of a change may come in several parts. They are put together here, where nobody else can
 * write, looked through, and applied as one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/state.h"
#include "shard/bucket.h"
#include "store/sparse/sparse.h"

void
mirror_rows_free(struct mirror_rows *rows)
{
    free(rows->ids);
    free(rows->sums);
    *rows = (struct mirror_rows){0};
}

static bool
reserve(struct mirror_rows *rows, size_t count, size_t row_bytes)
{
    uint64_t *ids = realloc(rows->ids, (count + 1) * sizeof(*ids));
    uint8_t *sums;

    rows->ids = ids != NULL ? ids : rows->ids;
    sums = ids != NULL ? realloc(rows->sums, count * row_bytes + 1) : NULL;
    rows->sums = sums != NULL ? sums : rows->sums;
    return sums != NULL;
}

psd_status
mirror_rows_come(struct mirror_rows *rows, const struct chunk *chunk,
                 const struct psi_change *change, const uint8_t *payload, size_t bytes,
                 struct psd_error *err)
{
    const uint8_t *numbers = payload + PSI_CHANGE_BYTES;
    const struct psi_spec *spec = &chunk->table->spec;
    const size_t row_bytes = spec->width * sizeof(float);
    const size_t ids_bytes = change->rows * sizeof(*rows->ids);

    if (bytes != PSI_CHANGE_BYTES + ids_bytes + change->rows * row_bytes ||
        (rows->chunk != NULL && rows->chunk != chunk)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "REPLICATE to table %s: %zu bytes with %u rows%s",
                        spec->name, bytes, change->rows,
                        rows->chunk != NULL ? ", while a change of another table comes in" : "");
    }
    if (!reserve(rows, (size_t)rows->count + change->rows, row_bytes)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for %u rows of a change",
                        spec->name, rows->count + change->rows);
    }
    if (change->rows > 0) {
        memcpy(rows->ids + rows->count, numbers, ids_bytes);
        memcpy(rows->sums + rows->count * row_bytes, numbers + ids_bytes, change->rows * row_bytes);
    }
    rows->count += change->rows;
    rows->chunk = change->goes_on ? chunk : NULL;
    return PSD_OK;
}

psd_status
mirror_rows_list(const struct mirror_rows *rows, const struct chunk *chunk,
                 struct store_rows *list_p, struct psd_error *err)
{
    const struct psi_spec *spec = &chunk->table->spec;
    const uint32_t places = (uint32_t)chunk->table->chunks_in_all;
    const uint32_t first = psi_bucket_first(chunk->index, spec->bucket_bits, places);
    const uint32_t end = psi_bucket_first(chunk->index + 1, spec->bucket_bits, places);
    size_t at;
    const enum sparse_ids what =
        sparse_check_ids(rows->ids, rows->count, spec->bucket_bits, first, end - first, &at);

    if (what != SPARSE_IDS_GOOD) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "REPLICATE to table %s: id %llu: %s", spec->name,
                        (unsigned long long)rows->ids[at], sparse_ids_text(what));
    }
    *list_p = (struct store_rows){.ids = rows->ids, .rows = rows->sums, .count = rows->count};
    return PSD_OK;
}

psd_status
mirror_rows_piece(struct lane *lane, struct chunk *chunk, const uint8_t *piece, size_t bytes,
                  struct psd_error *err)
{
    struct store *store = chunk->table->store;
    const psd_status status = store->ops->take(store, piece, bytes, err);

    return status == PSD_OK ? table_copy_may_stay(lane, chunk->table, err) : status;
}
