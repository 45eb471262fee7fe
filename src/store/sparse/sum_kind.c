/*
 * sum_kind.c - sparse tables that keep nothing: the rows of a round are added, and everybody who gave
 * some gets all of them.
 *
 * There is one sum, that of the last round. Who asks for it has not pushed the next step, and without
 * its push the next round does not close (client/core/order.c): so nobody asks for an older one.
 *
 * A server's other life has it from a worker, in the place of a round. A copy makes it of the same rows,
 * or has it in pieces, each a head, ids, and their rows in the table's type.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/kernels.h"
#include "store/numbers.h"
#include "store/sparse/kind.h"
#include "store/sparse/rows_store.h"
#include "store/sparse/sparse.h"

struct sum_table {
    struct rows_store base; /* first; base.merge has the ids and the sums in f32 */
    void *published;        /* the sums, divided, in the table's type */
    size_t published_bytes; /* of room */
    uint64_t *taken;        /* ids of a sum that came from outside; NULL: it is of base.merge */
    size_t taken_count;
    uint32_t first_bucket;
    uint32_t end_bucket;
};

/* What a piece begins with. */
struct sum_head {
    uint64_t count;
    uint64_t is_first;
};

static uint64_t
sum_bytes(const struct store_layout *layout)
{
    (void)layout;
    return sizeof(struct sum_table); /* rows come with their gradients */
}

static void
sum_destroy(struct store *store)
{
    struct sum_table *table = (struct sum_table *)store;

    rows_store_fini(&table->base);
    free(table->published);
    free(table->taken);
    free(table);
}

static psd_status
sum_create(const struct store_layout *layout, struct store **store_p, struct psd_error *err)
{
    const uint32_t bits = layout->spec->bucket_bits;
    const uint32_t places = (uint32_t)layout->chunks_in_all;
    struct sum_table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", layout->spec->name);
    }
    rows_store_init(&table->base, &store_sparse_sum, layout);
    table->first_bucket = psi_bucket_first((uint32_t)layout->first_chunk, bits, places);
    table->end_bucket =
        psi_bucket_first((uint32_t)(layout->first_chunk + layout->chunks), bits, places);
    table->base.store.bytes = sizeof(*table);
    *store_p = &table->base.store;
    return PSD_OK;
}

/* ---- changing ------------------------------------------------------------------------------ */

/* A mean is no larger than the largest gradient, which was in the table's type. */
static bool
may_be_too_large(const struct psi_spec *spec, uint32_t divisor)
{
    return psi_dtype_bytes(spec->dtype) < sizeof(float) && divisor <= 1;
}

/* The first row whose sum is not finite, or would not be in the table's type. False: none. */
static bool
find_bad_row(const struct rows_store *rows, uint32_t divisor, size_t *at_p)
{
    const struct psi_merge *merge = &rows->merge;
    const uint32_t width = rows->spec->width;

    if (rows->spec->nan_policy == PSD_NAN_ALLOW) {
        return false;
    }
    if (!psi_merge_finite(merge, width, rows->level, at_p)) {
        return true;
    }
    for (size_t i = 0; i < merge->count && may_be_too_large(rows->spec, divisor); i++) {
        if (psi_find_too_large(rows->spec->dtype, merge->sums + i * width, width) >= 0) {
            *at_p = i;
            return true;
        }
    }
    return false;
}

static void
forget_taken(struct sum_table *table)
{
    free(table->taken);
    table->taken = NULL;
    table->taken_count = 0;
}

static void
count_bytes(struct sum_table *table)
{
    table->base.store.bytes = sizeof(*table) + table->base.merge.bytes + table->published_bytes +
                              table->taken_count * sizeof(*table->taken);
}

/* For the rows of so many ids. */
static bool
reserve(struct sum_table *table, size_t count)
{
    const size_t bytes = count * table->base.row_bytes;
    void *grown;

    if (bytes <= table->published_bytes) {
        return true;
    }
    grown = realloc(table->published, bytes);
    if (grown != NULL) {
        table->published = grown;
        table->published_bytes = bytes;
    }
    return grown != NULL;
}

static int64_t
sum_apply(struct store *store, uint64_t chunk, const struct store_change *change)
{
    struct sum_table *table = (struct sum_table *)store;
    struct rows_store *rows = &table->base;
    size_t bad = 0;

    (void)chunk;
    forget_taken(table);
    if (rows_store_merge(rows, change, &change->trouble->why) != PSD_OK) {
        return STORE_NO_ROOM;
    }
    if (find_bad_row(rows, change->divisor, &bad)) {
        change->trouble->id = rows->merge.ids[bad];
        return STORE_BAD_ROW;
    }
    if (!reserve(table, rows->merge.count)) {
        psi_fail(&change->trouble->why, PSD_ERR_NO_MEMORY, "table %s: no memory for %zu rows",
                 rows->spec->name, rows->merge.count);
        return STORE_NO_ROOM;
    }
    psi_merge_publish(&rows->merge, rows->spec->dtype, rows->spec->width, rows->level,
                      change->divisor, table->published);
    count_bytes(table);
    return STORE_OK;
}

static bool
is_behind(const struct sum_table *table, const struct store_rows *rows)
{
    return table->taken_count == 0 || rows->count == 0 ||
           psi_bucket_before(table->taken[table->taken_count - 1], rows->ids[0]);
}

static psd_status
sum_take(struct store *store, uint64_t chunk, const struct store_rows *rows, bool is_first,
         struct psd_error *err)
{
    struct sum_table *table = (struct sum_table *)store;
    const size_t row_bytes = table->base.row_bytes;
    size_t count;
    uint64_t *grown;

    (void)chunk;
    if (is_first) {
        forget_taken(table);
    }
    if (!is_behind(table, rows)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "sum of table %s: id %llu comes behind id %llu",
                        table->base.spec->name, (unsigned long long)rows->ids[0],
                        (unsigned long long)table->taken[table->taken_count - 1]);
    }
    count = table->taken_count + rows->count;
    grown = realloc(table->taken, (count + 1) * sizeof(*grown));
    table->taken = grown != NULL ? grown : table->taken;
    if (grown == NULL || !reserve(table, count)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for %zu rows",
                        table->base.spec->name, count);
    }
    if (rows->count > 0) {
        memcpy(table->taken + table->taken_count, rows->ids, rows->count * sizeof(*rows->ids));
        memcpy((uint8_t *)table->published + table->taken_count * row_bytes, rows->rows,
               rows->count * row_bytes);
    }
    table->taken_count = count;
    count_bytes(table);
    return PSD_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

static struct store_rows
sum_sums(const struct store *store, uint64_t chunk)
{
    const struct sum_table *table = (const struct sum_table *)store;

    (void)chunk;
    if (table->taken != NULL) {
        return (struct store_rows){
            .ids = table->taken, .rows = table->published, .count = (uint32_t)table->taken_count};
    }
    return (struct store_rows){.ids = table->base.merge.ids,
                               .rows = table->published,
                               .count = (uint32_t)table->base.merge.count};
}

/* ---- copies -------------------------------------------------------------------------------- */

static struct store_rows
sum_merged(const struct store *store)
{
    const struct psi_merge *merge = &((const struct sum_table *)store)->base.merge;

    return (struct store_rows){
        .ids = merge->ids, .rows = merge->sums, .count = (uint32_t)merge->count};
}

/* All pieces go before the next change: half a sum is none. */
static size_t
sum_piece(struct store *store, struct store_walk *walk, void *to, size_t room)
{
    const size_t row_bytes = ((const struct sum_table *)store)->base.row_bytes;
    const struct store_rows rows = sum_sums(store, 0);
    const size_t most = (room - sizeof(struct sum_head)) / (sizeof(*rows.ids) + row_bytes);
    const size_t left = rows.count - walk->rows;
    const size_t count = left < most ? left : most;
    const struct sum_head head = {.count = count, .is_first = walk->rows == 0};
    uint8_t *at = to;

    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    if (count > 0) {
        memcpy(at, rows.ids + walk->rows, count * sizeof(*rows.ids));
        at += count * sizeof(*rows.ids);
        memcpy(at, (const uint8_t *)rows.rows + walk->rows * row_bytes, count * row_bytes);
        at += count * row_bytes;
    }
    walk->rows += (uint32_t)count;
    walk->is_done = walk->rows == rows.count;
    walk->is_within = !walk->is_done;
    return (size_t)(at - (uint8_t *)to);
}

static psd_status
check_piece(const struct sum_table *table, const struct sum_head *head, const uint64_t *ids,
            struct psd_error *err)
{
    const struct psi_spec *spec = table->base.spec;
    size_t at = 0;
    const enum sparse_ids what =
        sparse_check_ids(ids, head->count, spec->bucket_bits, table->first_bucket,
                         table->end_bucket - table->first_bucket, &at);

    return what == SPARSE_IDS_GOOD
               ? PSD_OK
               : psi_fail(err, PSD_ERR_PROTOCOL, "piece of table %s: id %llu: %s", spec->name,
                          (unsigned long long)ids[at], sparse_ids_text(what));
}

static psd_status
sum_take_piece(struct store *store, const void *piece, size_t bytes, struct psd_error *err)
{
    const struct sum_table *table = (const struct sum_table *)store;
    const size_t each = sizeof(uint64_t) + table->base.row_bytes;
    const uint8_t *at = piece;
    struct sum_head head = {0};
    struct store_rows rows;
    psd_status status;

    if (bytes >= sizeof(head)) {
        memcpy(&head, at, sizeof(head));
    }
    if (bytes < sizeof(head) || head.is_first > 1 || head.count > bytes / each ||
        bytes != sizeof(head) + head.count * each) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "piece of table %s: %zu bytes with %llu rows",
                        table->base.spec->name, bytes, (unsigned long long)head.count);
    }
    at += sizeof(head);
    rows = (struct store_rows){.ids = (const void *)at,
                               .rows = at + head.count * sizeof(uint64_t),
                               .count = (uint32_t)head.count};
    status = check_piece(table, &head, rows.ids, err);
    return status == PSD_OK ? sum_take(store, 0, &rows, head.is_first != 0, err) : status;
}

const struct store_ops store_sparse_sum = {
    .bytes = sum_bytes,
    .create = sum_create,
    .destroy = sum_destroy,
    .place = rows_store_place,
    .prepare = rows_store_prepare,
    .sink = rows_store_sink,
    .apply = sum_apply,
    .numbers = rows_store_numbers,
    .read = rows_store_read,
    .part = rows_store_part,
    .value_loaded = rows_store_value_loaded,
    .sums = sum_sums,
    .take_sums = sum_take,
    .merged = sum_merged,
    .piece = sum_piece,
    .take = sum_take_piece,
};
