/*
 * snapshot_rows.c - a lane's rows of sparse tables in a checkpoint.
 *
 * A generation has a list of files for each table and lane. The first has all rows, those that follow
 * what has changed since. If what has changed has grown beyond a third of that, or the newest generation
 * is none that this lane knows, all rows are written again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/snapshot_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/sparse/kind.h"
#include "store/sparse/snapshot.h"

enum { CHANGES_MAX = 3 /* a part of 1 / so much of all rows */ };

/* What a generation has. */
struct generation {
    uint64_t token; /* 0: none */
    uint32_t since; /* what has changed after it was touched at this step or later */
    struct rows_list list;
};

struct saved_rows {
    struct generation known; /* the newest that was committed, as far as is known */
    struct generation next;  /* that is being written, or was written last */
    struct rows_order order;
    bool is_all; /* not only what has changed */
    bool is_frozen;
    uint32_t first_bucket;
    uint32_t end_bucket;
    uint32_t place;
    struct psi_rows_piece *piece; /* rows for the next file */
    bool failed;                  /* no memory */
};

static void
generation_fini(struct generation *generation)
{
    free(generation->list.file);
    *generation = (struct generation){0};
}

void
snapshot_rows_end(struct table *table)
{
    struct saved_rows *saved = table->saved;

    if (saved != NULL) {
        sparse_snapshot_end(sparse_table_rows(table->store));
        psi_rows_piece_destroy(saved->piece);
        saved->piece = NULL;
        saved->is_frozen = false;
    }
}

void
snapshot_rows_forget(struct table *table)
{
    struct saved_rows *saved = table->saved;

    if (saved != NULL) {
        psi_rows_piece_destroy(saved->piece);
        generation_fini(&saved->known);
        generation_fini(&saved->next);
        free(saved);
        table->saved = NULL;
    }
}

/* ---- The order ---- */

/* Have more rows changed than pays? */
static bool
has_grown(const struct rows_list *list)
{
    uint64_t all = 0;
    uint64_t changes = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        const struct psi_saved_file *file = &list->file[i];

        *(file->generation == list->file[0].generation ? &all : &changes) += file->bytes;
    }
    return changes > all / CHANGES_MAX;
}

static void
choose_base(struct saved_rows *saved)
{
    const uint64_t after = saved->order.after;

    if (after != 0 && after == saved->next.token) { /* it was committed */
        generation_fini(&saved->known);
        saved->known = saved->next;
        saved->next = (struct generation){0};
    }
    generation_fini(&saved->next);
    saved->is_all = after == 0 || after != saved->known.token || saved->known.since == 0 ||
                    has_grown(&saved->known.list);
}

psd_status
snapshot_rows_ordered(struct table *table, const struct rows_order *order, struct psd_error *err)
{
    const uint32_t bits = table->spec.bucket_bits;
    const uint32_t places = (uint32_t)table->chunks_in_all;
    const uint32_t place = table->chunks[0].index;

    if (table->saved == NULL) {
        table->saved = calloc(1, sizeof(*table->saved));
    }
    if (table->saved == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory to save it", table->spec.name);
    }
    snapshot_rows_end(table);
    table->saved->order = *order;
    table->saved->failed = false;
    table->saved->place = place;
    table->saved->first_bucket = psi_bucket_first(place, bits, places);
    table->saved->end_bucket = psi_bucket_first(place + 1, bits, places);
    choose_base(table->saved);
    return PSD_OK;
}

/* ---- Handing over ---- */

static void
hand_over(struct table *table)
{
    struct saved_rows *saved = table->saved;
    struct lane_disk_rows rows = {.table = table->id,
                                  .place = saved->place,
                                  .first_bucket = saved->first_bucket,
                                  .end_bucket = saved->end_bucket,
                                  .piece = saved->piece};

    if (saved->piece == NULL) {
        return;
    }
    memcpy(rows.name, table->spec.name, sizeof(rows.name));
    rows.number = (*saved->order.files_p)++;
    *saved->order.given_p += psi_rows_piece_bytes(saved->piece);
    saved->piece = NULL;
    saved->order.disk->write_rows(saved->order.disk->self, &rows);
}

static bool
make_piece(struct table *table, const struct psi_rows_count *room)
{
    struct saved_rows *saved = table->saved;
    const struct psi_row_form form = psi_row_form_of(&table->spec);

    if (saved->piece == NULL) {
        saved->piece = psi_rows_piece_create(&form, room);
        saved->failed = saved->failed || saved->piece == NULL;
    }
    return saved->piece != NULL;
}

static void
take(void *self, const struct sparse_rows *rows)
{
    struct table *table = self;
    struct saved_rows *saved = table->saved;
    const struct psi_row_form form = psi_row_form_of(&table->spec);
    const struct psi_rows_count room = {.rows = psi_rows_per_piece(&form)};
    const struct psi_rows_arrays arrays = {.count = rows->count,
                                           .ids = rows->ids,
                                           .values = rows->values,
                                           .state = rows->state,
                                           .steps = rows->steps,
                                           .counts = rows->counts};

    for (size_t done = 0; done < rows->count && !saved->failed && make_piece(table, &room);) {
        done += psi_rows_piece_add(saved->piece, &arrays, done);
        if (saved->piece->count.rows == room.rows) {
            hand_over(table);
        }
    }
}

/* Buckets that have lost rows since the last generation. */
static void
hand_over_cleared(struct table *table)
{
    struct saved_rows *saved = table->saved;
    const struct sparse *rows = sparse_table_rows(table->store);
    const struct psi_rows_count room = {.cleared = saved->end_bucket - saved->first_bucket};

    for (uint32_t bucket = saved->first_bucket; bucket < saved->end_bucket; bucket++) {
        if (sparse_snapshot_clears(rows, bucket) && make_piece(table, &room)) {
            uint32_t *cleared = saved->piece->column[PSI_ROWS_CLEARED];

            cleared[saved->piece->count.cleared++] = bucket;
        }
    }
    hand_over(table);
}

/* What is counted for admission, all of it each time. */
static void
hand_over_counters(struct table *table)
{
    struct saved_rows *saved = table->saved;
    const struct sparse *rows = sparse_table_rows(table->store);
    const struct psi_row_form form = psi_row_form_of(&table->spec);
    const struct psi_rows_count room = {.counted = psi_rows_counted_per_piece(&form)};

    for (uint32_t bucket = saved->first_bucket; bucket < saved->end_bucket; bucket++) {
        size_t bytes;
        uint32_t epoch;
        const uint8_t *counters = sparse_counters(rows, bucket, &bytes, &epoch);

        if (counters != NULL && make_piece(table, &room)) {
            struct psi_rows_piece *piece = saved->piece;
            const uint32_t at = piece->count.counted++;

            ((uint32_t *)piece->column[PSI_ROWS_COUNTED])[at] = bucket;
            ((uint32_t *)piece->column[PSI_ROWS_EPOCHS])[at] = epoch;
            memcpy((uint8_t *)piece->column[PSI_ROWS_COUNTERS] + at * bytes, counters, bytes);
            if (piece->count.counted == room.counted) {
                hand_over(table);
            }
        }
    }
    hand_over(table);
}

static psd_status
check(const struct table *table, struct psd_error *err)
{
    return table->saved->failed ? psi_fail(err, PSD_ERR_NO_MEMORY,
                                           "table %s: no memory for rows to save", table->spec.name)
                                : PSD_OK;
}

bool
snapshot_rows_are_frozen(const struct table *table)
{
    return table->saved->is_frozen;
}

psd_status
snapshot_rows_freeze(struct table *table, struct psd_error *err)
{
    struct saved_rows *saved = table->saved;
    const bool has_rounds = psi_spec_synchronous(&table->spec);
    const uint64_t step = has_rounds ? saved->order.step : sparse_table_step(table->store);
    const uint32_t until = step < SPARSE_STEP_MAX ? (uint32_t)step : SPARSE_STEP_MAX;
    const struct sparse_snapshot_args args = {
        .since = saved->is_all ? 0 : saved->known.since,
        .until = has_rounds ? until : SPARSE_SNAPSHOT_EACH_ROW,
        .take = take,
        .self = table,
    };
    const psd_status status = sparse_snapshot_begin(sparse_table_rows(table->store), &args, err);

    if (status != PSD_OK) {
        return status;
    }
    saved->is_frozen = true;
    saved->next.token = saved->order.token;
    saved->next.since = until;
    hand_over_cleared(table);
    hand_over_counters(table);
    return check(table, err);
}

psd_status
snapshot_rows_go_on(struct table *table, size_t bytes, bool *more_p, struct psd_error *err)
{
    psd_status status;

    *more_p = sparse_snapshot_go_on(sparse_table_rows(table->store), bytes);
    status = check(table, err);
    if (status == PSD_OK && !*more_p) {
        hand_over(table);
        sparse_snapshot_end(sparse_table_rows(table->store));
    }
    return status;
}

/* ---- What a generation has ---- */

static psd_status
add(struct rows_list *list, const struct psi_saved_file *file, struct psd_error *err)
{
    struct psi_saved_file *grown = reallocarray(list->file, list->count + 1, sizeof(*grown));

    if (grown == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a list of %u files of rows",
                        list->count + 1);
    }
    list->file = grown;
    grown[list->count++] = *file;
    return PSD_OK;
}

/* Counters of earlier generations were counted on. */
static bool
still_counts(const struct psi_saved_file *file)
{
    return file->rows > 0 || file->cleared > 0;
}

psd_status
snapshot_rows_list(struct table *table, const struct lane_disk_news *news, struct rows_list *list,
                   struct psd_error *err)
{
    struct saved_rows *saved = table->saved;
    struct rows_list *next = &saved->next.list;
    psd_status status = PSD_OK;

    free(next->file);
    *next = (struct rows_list){0};
    for (uint32_t i = 0; i < saved->known.list.count && !saved->is_all && status == PSD_OK; i++) {
        if (still_counts(&saved->known.list.file[i])) {
            status = add(next, &saved->known.list.file[i], err);
        }
    }
    for (uint32_t i = 0; i < news->rows_count && status == PSD_OK; i++) {
        if (news->rows[i].table == table->id) {
            status = add(next, &news->rows[i], err);
        }
    }
    list->place = saved->place;
    for (uint32_t i = 0; i < next->count && status == PSD_OK; i++) {
        status = add(list, &next->file[i], err);
    }
    return status;
}
