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
#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/merge.h"
#include "store/sparse/ahead.h"
#include "store/sparse/sparse.h"
#include "store/sum.h"

/* Rows as they were before the last round. */
struct before {
    uint64_t *ids;
    uint8_t *rows;
    uint32_t count;
    uint32_t capacity;
};

struct sparse_table {
    struct store store; /* first */
    const struct psi_spec *spec;
    enum kernel_level level;
    size_t row_bytes;
    struct sparse *rows;
    struct ahead *ahead;
    struct psi_merge merge;
    struct psi_row_list *lists; /* one for each leaf that there ever were */
    uint32_t list_capacity;
    uint64_t step;        /* the largest that changed it */
    uint32_t current;     /* the buffer that is as the rows are ... */
    struct before before; /* ... and what the other one has in their place */
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
    table->store.bytes = sizeof(*table) + memory.total_bytes + table->merge.bytes +
                         table->before.capacity * (table->row_bytes + sizeof(uint64_t));
}

static void
sparse_table_destroy(struct store *store)
{
    struct sparse_table *table = (struct sparse_table *)store;

    ahead_destroy(table->ahead);
    sparse_destroy(table->rows);
    psi_merge_fini(&table->merge);
    free(table->lists);
    free(table->before.ids);
    free(table->before.rows);
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
        .level = layout->level,
    };
    struct sparse_table *table = calloc(1, sizeof(*table));
    psd_status status;

    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", layout->spec->name);
    }
    table->store.ops = &store_sparse;
    table->spec = layout->spec;
    table->level = layout->level;
    table->row_bytes = layout->spec->width * psi_dtype_bytes(layout->spec->dtype);
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
    *store_p = &table->store;
    return PSD_OK;
}

static void
sparse_table_place(struct store *store, uint64_t chunk, uint64_t index)
{
    (void)store;
    (void)chunk;
    (void)index;
}

static size_t
sparse_table_prepare(struct store *store, uint64_t chunk)
{
    (void)store;
    (void)chunk;
    return 0;
}

/* As many as its payload says: server/rows.c looks into it. */
static struct store_form
sparse_table_sink(const struct store *store, uint64_t chunk, bool is_sum)
{
    (void)chunk;
    (void)is_sum;
    return (struct store_form){.dtype = ((const struct sparse_table *)store)->spec->dtype};
}

static struct store_piece
no_piece(const struct store *store, uint64_t chunk, uint32_t buffer)
{
    (void)store;
    (void)chunk;
    (void)buffer;
    return (struct store_piece){0};
}

static struct store_piece
no_part(const struct store *store, uint64_t chunk, unsigned part, uint32_t buffer)
{
    (void)part;
    return no_piece(store, chunk, buffer);
}

static void
no_value_loaded(struct store *store, uint64_t chunk, uint32_t buffer)
{
    (void)store;
    (void)chunk;
    (void)buffer;
}

/* ---- changing ------------------------------------------------------------------------------ */

static bool
reserve_lists(struct sparse_table *table, uint32_t count)
{
    struct psi_row_list *grown;

    if (count <= table->list_capacity) {
        return true;
    }
    grown = realloc(table->lists, count * sizeof(*grown));
    if (grown != NULL) {
        table->lists = grown;
        table->list_capacity = count;
    }
    return grown != NULL;
}

static psd_status
merge(struct sparse_table *table, const struct store_change *change, struct psd_error *err)
{
    if (!reserve_lists(table, change->leaf_count)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for %u lists of rows",
                        table->spec->name, change->leaf_count);
    }
    for (uint32_t i = 0; i < change->leaf_count; i++) {
        const struct leaf *leaf = &change->leaves[i];
        const struct store_rows *rows = leaf->data;

        table->lists[i] = (struct psi_row_list){
            .rank = leaf->rank, .ids = rows->ids, .rows = rows->rows, .count = rows->count};
    }
    return psi_merge_rows(&table->merge, table->spec->dtype, table->spec->width, table->level,
                          table->lists, change->leaf_count, err);
}

static bool
reserve_before(struct before *before, size_t row_bytes, size_t count)
{
    uint64_t *ids;
    uint8_t *rows;

    if (count <= before->capacity) {
        return true;
    }
    ids = realloc(before->ids, count * sizeof(*ids));
    before->ids = ids != NULL ? ids : before->ids;
    rows = ids != NULL ? realloc(before->rows, count * row_bytes) : NULL;
    before->rows = rows != NULL ? rows : before->rows;
    before->capacity = rows != NULL ? (uint32_t)count : before->capacity;
    return rows != NULL;
}

/* The rows that are about to change. */
static psd_status
keep_before(struct sparse_table *table, struct psd_error *err)
{
    struct before *before = &table->before;
    const size_t count = table->merge.count;

    if (!reserve_before(before, table->row_bytes, count)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY,
                        "table %s: no memory to keep %zu rows of the last step", table->spec->name,
                        count);
    }
    if (count > 0) {
        memcpy(before->ids, table->merge.ids, count * sizeof(*before->ids));
        sparse_lookup(table->rows, before->ids, count, before->rows);
    }
    before->count = (uint32_t)count;
    return PSD_OK;
}

static int64_t
change_rows(struct sparse_table *table, const struct store_change *change)
{
    struct sparse_outcome outcome = {0};

    table->step = change->step > table->step ? change->step : table->step;
    sparse_apply(table->rows,
                 &(struct sparse_change){.ids = table->merge.ids,
                                         .gradients = table->merge.sums,
                                         .count = table->merge.count,
                                         .is_sum = true,
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
    return STORE_OK;
}

static int64_t
sparse_table_apply(struct store *store, uint64_t chunk, const struct store_change *change)
{
    struct sparse_table *table = (struct sparse_table *)store;
    int64_t result;

    (void)chunk;
    if (merge(table, change, &change->trouble->why) != PSD_OK ||
        (change->from != change->to && keep_before(table, &change->trouble->why) != PSD_OK)) {
        return STORE_NO_ROOM;
    }
    result = change_rows(table, change);
    table->current = change->to;
    count_bytes(table);
    ahead_note(table->ahead);
    return result;
}

static uint64_t
sparse_table_numbers(const struct store *store, const struct store_change *change)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < change->leaf_count; i++) {
        rows += ((const struct store_rows *)change->leaves[i].data)->count;
    }
    return rows * ((const struct sparse_table *)store)->spec->width;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Both lists have the same order. */
static void
put_before(const struct sparse_table *table, const struct store_rows *asked, uint8_t *rows)
{
    const struct before *before = &table->before;
    uint32_t old = 0;

    for (uint32_t i = 0; i < asked->count && old < before->count; i++) {
        while (old < before->count && psi_bucket_before(before->ids[old], asked->ids[i])) {
            old++;
        }
        if (old < before->count && before->ids[old] == asked->ids[i]) {
            memcpy(rows + i * table->row_bytes, before->rows + old * table->row_bytes,
                   table->row_bytes);
        }
    }
}

static void
sparse_table_lookup(struct store *store, uint64_t chunk, uint32_t buffer,
                    const struct store_rows *asked, void *rows)
{
    struct sparse_table *table = (struct sparse_table *)store;

    (void)chunk;
    sparse_lookup(table->rows, asked->ids, asked->count, rows);
    if (buffer != table->current) {
        put_before(table, asked, rows);
    }
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
    .place = sparse_table_place,
    .prepare = sparse_table_prepare,
    .sink = sparse_table_sink,
    .apply = sparse_table_apply,
    .numbers = sparse_table_numbers,
    .read = no_piece,
    .part = no_part,
    .value_loaded = no_value_loaded,
    .lookup = sparse_table_lookup,
};
