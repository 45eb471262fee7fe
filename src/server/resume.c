/*
 * resume.c - first values of chunks, as the checkpoint has them that the job goes on from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/rows_piece.h"
#include "server/source.h"
#include "server/state.h"
#include "shard/bucket.h"
#include "store/sparse/kind.h"
#include "store/sparse/sparse.h"

enum { ROWS_AT_ONCE = 64 };

/* ---- Rows of a sparse table: file by file ---- */

/* The buckets of a lane's share. */
struct share {
    uint32_t bits;
    uint32_t first;
    uint32_t end;
};

static struct share
share_of(const struct chunk *chunk)
{
    const struct table *table = chunk->table;
    const uint32_t bits = table->spec.bucket_bits;
    const uint32_t places = (uint32_t)table->chunks_in_all;

    return (struct share){.bits = bits,
                          .first = psi_bucket_first(chunk->index, bits, places),
                          .end = psi_bucket_first(chunk->index + 1, bits, places)};
}

static bool
has_bucket(const struct share *share, uint32_t bucket)
{
    return bucket >= share->first && bucket < share->end;
}

static bool
has_id(const struct share *share, uint64_t id)
{
    return has_bucket(share, psi_bucket_of(id, share->bits));
}

/* Rows `at` and after it that are here, ROWS_AT_ONCE at most. Returns how many. */
static uint32_t
count_run(const struct psi_rows_piece *piece, const struct share *share, uint32_t at)
{
    const uint64_t *ids = piece->column[PSI_ROWS_IDS];
    uint32_t count = 0;

    while (at + count < piece->count.rows && count < ROWS_AT_ONCE &&
           has_id(share, ids[at + count])) {
        count++;
    }
    return count;
}

static psd_status
load_rows(struct sparse *store, const struct psi_rows_piece *piece, const struct share *share,
          uint32_t last, struct psd_error *err)
{
    const uint32_t width = piece->form.width;
    const uint32_t states = psi_rows_state_numbers(&piece->form);
    float *state = malloc((ROWS_AT_ONCE * (size_t)states + 1) * sizeof(*state));
    psd_status status = PSD_OK;
    uint32_t count;

    if (state == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "load rows: no memory");
    }
    for (uint32_t at = 0; at < piece->count.rows && status == PSD_OK; at += count + (count == 0)) {
        struct sparse_rows rows;

        count = count_run(piece, share, at);
        rows = (struct sparse_rows){
            .count = count,
            .ids = (uint64_t *)piece->column[PSI_ROWS_IDS] + at,
            .values = (float *)piece->column[PSI_ROWS_VALUES] + (size_t)at * width,
            .state = state,
            .steps = (uint32_t *)piece->column[PSI_ROWS_STEPS] + at,
            .counts = (uint32_t *)piece->column[PSI_ROWS_COUNTS] + at,
        };
        for (uint32_t i = 0; i < count; i++) {
            psi_rows_piece_state(piece, at + i, state + (size_t)i * states);
            rows.steps[i] = rows.steps[i] > last ? last : rows.steps[i];
        }
        if (!sparse_load(store, &rows)) {
            status = sparse_refusal(store, err);
        }
    }
    free(state);
    return status;
}

static psd_status
load_piece(struct sparse *store, const struct psi_rows_piece *piece, const struct share *share,
           uint32_t last, struct psd_error *err)
{
    const uint32_t *cleared = piece->column[PSI_ROWS_CLEARED];
    const uint32_t *counted = piece->column[PSI_ROWS_COUNTED];
    const uint32_t *epochs = piece->column[PSI_ROWS_EPOCHS];
    const uint8_t *counters = piece->column[PSI_ROWS_COUNTERS];
    const uint32_t bytes = piece->form.counter_bytes;

    for (uint32_t i = 0; i < piece->count.cleared; i++) {
        if (has_bucket(share, cleared[i])) {
            sparse_clear(store, cleared[i]);
        }
    }
    for (uint32_t i = 0; i < piece->count.counted; i++) {
        if (has_bucket(share, counted[i]) &&
            !sparse_load_counters(store, counted[i], counters + (size_t)i * bytes, bytes,
                                  epochs[i])) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "load rows: no memory for counters");
        }
    }
    return load_rows(store, piece, share, last, err);
}

/* Rows of a table without rounds may have been touched behind the step of the checkpoint. Where the table has rounds
 * now, that would be a step to come, and the next checkpoint would take them for changed behind its own. */
static uint32_t
last_step(const struct table *table)
{
    if (!psi_spec_synchronous(&table->spec)) {
        return UINT32_MAX;
    }
    return table->first_step > 0 ? (uint32_t)(table->first_step - 1) : 0;
}

/* The next file that has rows of this lane. */
static psd_status
resume_rows(struct lane *lane, struct chunk *chunk, bool *more_p, struct psd_error *err)
{
    const struct lane_source *source = lane->config.source;
    struct table *table = chunk->table;
    const struct share share = share_of(chunk);
    struct psi_rows_piece *piece = NULL;
    psd_status status = source->read_rows(source->self, &table->spec, share.first, share.end,
                                          &table->rows_read, &piece, &chunk->updates, err);

    if (status == PSD_OK && piece != NULL) {
        status = load_piece(sparse_table_rows(table->store), piece, &share, last_step(table), err);
        psi_rows_piece_destroy(piece);
        *more_p = status == PSD_OK;
    }
    if (status == PSD_OK) {
        sparse_table_loaded(table->store, table->first_step);
        if (!table_may_stay(lane, table)) {
            *more_p = false; /* the job ends, by name */
        }
    }
    return status;
}

/* ---- Chunks ---- */

/* The chunk is as the checkpoint has it that the job goes on from. Of a copy it comes from the owner. */
static psd_status
resume_chunk(struct lane *lane, struct chunk *chunk, bool *more_p, struct psd_error *err)
{
    const struct lane_source *source = lane->config.source;
    const struct table *table = chunk->table;
    psd_status status = PSD_OK;

    if (psi_spec_is_sparse(&table->spec)) {
        status = resume_rows(lane, chunk, more_p, err);
    }
    for (unsigned part = PSI_PARTS_MAX; part-- > 0 && status == PSD_OK;) {
        const struct store_piece piece = chunk_part(chunk, part);

        if (piece.bytes > 0) {
            status = source->read(source->self, &table->spec, part, psi_chunk_first(chunk->index),
                                  piece.bytes, piece.base, &chunk->updates, err);
        }
    }
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        chunk->clock.next[rank] = table->first_step;
    }
    if (!psi_spec_synchronous(&table->spec) && table->first_step > lane->furthest) {
        lane->furthest = table->first_step;
    }
    chunk->ready = chunk->ready || status == PSD_OK;
    if (status == PSD_OK && !*more_p) {
        pair_loaded(lane, chunk);
    }
    return status;
}

bool
chunk_may_be_resumed(const struct lane *lane, const struct table *table)
{
    return table->spec.use == PSD_USE_UPDATE && !table->again && !lane->config.is_standby;
}

bool
table_was_not_resumed(const struct lane *lane, const struct table *table)
{
    const bool is_resumed = lane->config.source != NULL && lane->config.source->step > 0 &&
                            lane->promoted != 0 && !table->is_late &&
                            chunk_may_be_resumed(lane, table);
    uint64_t i = 0;

    while (is_resumed && i < table->chunk_count && table->chunks[i].updates > 0) {
        i++;
    }
    return is_resumed && i < table->chunk_count;
}

/* The master says with the step which checkpoint that is. Daemons that were started by hand may have been given
 * others, and the same directory may have got a newer one since. */
psd_status
chunk_resume(struct lane *lane, struct chunk *chunk, bool *more_p, struct psd_error *err)
{
    const struct lane_source *source = lane->config.source;
    const uint64_t step = source != NULL ? source->step : 0;
    const struct table *table = chunk->table;

    if (table->first_step != step && !table->is_late) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s begins at step %llu, but server %u was started to go on from "
                        "step %llu: give the same --resume and --generation to all",
                        table->spec.name, (unsigned long long)table->first_step,
                        lane->config.server, (unsigned long long)step);
    }
    return source != NULL ? resume_chunk(lane, chunk, more_p, err) : PSD_OK;
}
