/*
 * kind.c - sparse tables, as a lane knows tables: one chunk, whose gradients are lists of rows.
 *
 * The lists of a round become one (store/merge.h), which changes the rows (sparse.h). There is one
 * value of each row, not two: where the last version is kept beside the current one, only the rows
 * that the last round changed are kept as they were before it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/kind.h"

#include <stdlib.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/sparse/ahead.h"
#include "store/sparse/before.h"
#include "store/sparse/pieces.h"
#include "store/sparse/rows_store.h"
#include "store/sparse/sparse.h"

struct sparse_table {
    struct rows_store base; /* first */
    struct sparse *rows;
    struct ahead *ahead;
    uint64_t step; /* the largest that changed it */
    uint32_t first_bucket;
    uint32_t end_bucket;
    uint32_t current;        /* the buffer that is as the rows are ... */
    struct before before;    /* ... and what the other one has in their place */
    struct sparse_gone gone; /* ... of those that the last change has made go */
};

static uint64_t
sparse_table_bytes(const struct store_layout *layout)
{
    (void)layout;
    return sizeof(struct sparse_table); /* rows come with their gradients */
}

static void
count_bytes(struct sparse_table *table)
{
    struct sparse_memory memory;

    sparse_memory(table->rows, &memory);
    table->base.store.rows = (struct store_row_counts){
        .hot = memory.rows - memory.cold_rows,
        .cold = memory.cold_rows,
        .cold_bytes = memory.cold_bytes,
        .cold_reads = memory.cold_reads,
        .cold_writes = memory.cold_writes,
        .cold_ns = memory.cold_ns,
        .full = memory.cold_full != NULL ? memory.cold_full->text : NULL,
    };
    table->base.store.bytes = sizeof(*table) + memory.total_bytes + table->base.merge.bytes +
                              (table->before.capacity + table->gone.capacity) *
                                  (table->base.row_bytes + sizeof(uint64_t));
}

static void
sparse_table_destroy(struct store *store)
{
    struct sparse_table *table = (struct sparse_table *)store;

    ahead_destroy(table->ahead);
    sparse_destroy(table->rows);
    rows_store_fini(&table->base);
    before_fini(&table->before);
    sparse_gone_fini(&table->gone);
    free(table);
}

static psd_status
sparse_table_create(const struct store_layout *layout, struct store **store_p,
                    struct psd_error *err)
{
    const uint32_t bits = layout->spec->bucket_bits;
    const uint32_t places = (uint32_t)layout->chunks_in_all;
    const uint32_t first = psi_bucket_first((uint32_t)layout->first_chunk, bits, places);
    const uint32_t end =
        psi_bucket_first((uint32_t)(layout->first_chunk + layout->chunks), bits, places);
    const struct sparse_layout rows = {
        .spec = layout->spec,
        .policy = &layout->spec->rows,
        .bucket_bits = bits,
        .first_bucket = first,
        .bucket_count = end - first,
        .memory_max = layout->memory_max,
        .cold = layout->cold,
        .level = layout->level,
    };
    struct sparse_table *table = calloc(1, sizeof(*table));
    psd_status status;

    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", layout->spec->name);
    }
    rows_store_init(&table->base, &store_sparse, layout);
    table->first_bucket = first;
    table->end_bucket = end;
    status = sparse_create(&rows, &table->rows, err);
    if (status != PSD_OK) {
        free(table);
        return status;
    }
    table->ahead = ahead_create(table->rows);
    if (table->ahead == NULL) {
        sparse_destroy(table->rows);
        free(table);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", layout->spec->name);
    }
    count_bytes(table);
    *store_p = &table->base.store;
    return PSD_OK;
}

/* ---- changing ------------------------------------------------------------------------------ */

static psd_status
no_memory_before(const struct sparse_table *table, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_NO_MEMORY,
                    "table %s: no memory to keep %zu rows of the last step, and %zu that went",
                    table->base.spec->name, table->base.merge.count, table->gone.count);
}

/* The rows that are about to change; those that go will be told of. */
static psd_status
keep_before(struct sparse_table *table, struct psd_error *err)
{
    if (!before_keep(&table->before, table->base.row_bytes, table->rows, table->base.merge.ids,
                     table->base.merge.count)) {
        return no_memory_before(table, err);
    }
    table->gone.count = 0;
    sparse_keep_gone(table->rows, &table->gone);
    return PSD_OK;
}

static psd_status
keep_gone(struct sparse_table *table, struct psd_error *err)
{
    sparse_keep_gone(table->rows, NULL);
    return !table->gone.has_failed &&
                   before_add(&table->before, table->base.row_bytes, &table->gone)
               ? PSD_OK
               : no_memory_before(table, err);
}

static int64_t
change_rows(struct sparse_table *table, const struct store_change *change)
{
    struct sparse_outcome outcome = {0};

    table->step = change->step > table->step ? change->step : table->step;
    sparse_apply(table->rows,
                 &(struct sparse_change){.ids = table->base.merge.ids,
                                         .gradients = table->base.merge.sums,
                                         .count = table->base.merge.count,
                                         .is_sum = true,
                                         .was_checked = change->was_checked,
                                         .divisor = change->divisor,
                                         .update = change->update,
                                         .step = table->step},
                 &outcome);
    if (outcome.not_finite) {
        change->trouble->id = outcome.bad_id;
        return STORE_BAD_ROW;
    }
    if (outcome.refused > 0) {
        (void)sparse_refusal(table->rows, &change->trouble->why);
        return STORE_NO_ROOM;
    }
    (void)sparse_close_step(table->rows, table->step);
    if (!sparse_is_sound(table->rows)) {
        (void)sparse_refusal(table->rows, &change->trouble->why);
        return STORE_NO_ROOM;
    }
    return STORE_OK;
}

static int64_t
sparse_table_apply(struct store *store, uint64_t chunk, const struct store_change *change)
{
    struct sparse_table *table = (struct sparse_table *)store;
    int64_t result;

    (void)chunk;
    if (rows_store_merge(&table->base, change, &change->trouble->why) != PSD_OK ||
        (change->from != change->to && keep_before(table, &change->trouble->why) != PSD_OK)) {
        return STORE_NO_ROOM;
    }
    result = change_rows(table, change);
    if (change->from != change->to && keep_gone(table, &change->trouble->why) != PSD_OK &&
        result == STORE_OK) {
        result = STORE_NO_ROOM;
    }
    table->current = change->to;
    count_bytes(table);
    ahead_note(table->ahead);
    return result;
}

/* ---- reading ------------------------------------------------------------------------------- */

static void
sparse_table_lookup(struct store *store, uint64_t chunk, uint32_t buffer,
                    const struct store_rows *asked, void *rows)
{
    struct sparse_table *table = (struct sparse_table *)store;

    (void)chunk;
    sparse_lookup(table->rows, asked->ids, asked->count, rows);
    if (buffer != table->current) {
        before_put(&table->before, table->base.row_bytes, asked, rows);
    }
}

/* ---- copies -------------------------------------------------------------------------------- */

static struct store_rows
sparse_table_merged(const struct store *store)
{
    const struct psi_merge *merge = &((const struct sparse_table *)store)->base.merge;

    return (struct store_rows){
        .ids = merge->ids, .rows = merge->sums, .count = (uint32_t)merge->count};
}

static struct piece_source
piece_source(struct sparse_table *table)
{
    return (struct piece_source){
        .spec = table->base.spec,
        .rows = table->rows,
        .before = &table->before,
        .row_bytes = table->base.row_bytes,
        .first_bucket = table->first_bucket,
        .end_bucket = table->end_bucket,
        .step = &table->step,
    };
}

static size_t
sparse_table_piece(struct store *store, struct store_walk *walk, void *to, size_t room)
{
    const struct piece_source source = piece_source((struct sparse_table *)store);

    return pieces_next(&source, walk, to, room);
}

static psd_status
sparse_table_take(struct store *store, const void *piece, size_t bytes, struct psd_error *err)
{
    struct sparse_table *table = (struct sparse_table *)store;
    const struct piece_source source = piece_source(table);
    const psd_status status = pieces_take(&source, piece, bytes, err);

    count_bytes(table);
    ahead_note(table->ahead);
    return status;
}

/* ---- saving and loading -------------------------------------------------------------------- */

struct sparse *
sparse_table_rows(struct store *store)
{
    return ((struct sparse_table *)store)->rows;
}

uint64_t
sparse_table_step(const struct store *store)
{
    return ((const struct sparse_table *)store)->step;
}

void
sparse_table_loaded(struct store *store, uint64_t step)
{
    struct sparse_table *table = (struct sparse_table *)store;
    const uint64_t touched = sparse_last_step(table->rows);

    sparse_begin_at(table->rows, step);
    table->step = touched > table->step ? touched : table->step;
    count_bytes(table);
}

const struct store_ops store_sparse = {
    .bytes = sparse_table_bytes,
    .create = sparse_table_create,
    .destroy = sparse_table_destroy,
    .place = rows_store_place,
    .prepare = rows_store_prepare,
    .sink = rows_store_sink,
    .apply = sparse_table_apply,
    .numbers = rows_store_numbers,
    .read = rows_store_read,
    .part = rows_store_part,
    .value_loaded = rows_store_value_loaded,
    .lookup = sparse_table_lookup,
    .merged = sparse_table_merged,
    .piece = sparse_table_piece,
    .take = sparse_table_take,
};
