/*
 * mirror_apply.c - a copy does what its owner did: the same sum, by the same kernels, gives the same
 * bits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/state.h"
#include "shard/shard.h"

/* Memory is made ready by turns; a chunk that is spoken of before its turn is made ready now. */
static struct chunk *
find_chunk(struct lane *lane, const struct psi_frame *frame, struct psd_error *err)
{
    struct table *table = table_find(lane, frame->table);
    struct chunk *chunk;

    if (table == NULL || frame->chunk >= table->chunks_in_all ||
        table->local[frame->chunk] == UINT32_MAX) {
        psi_fail(err, PSD_ERR_PROTOCOL, "%s: no chunk %u of table %u here",
                 psi_frame_type_name(frame->type), frame->chunk, frame->table);
        return NULL;
    }
    chunk = &table->chunks[table->local[frame->chunk]];
    if (chunk->place >= table->prepared && !chunk->prepared) {
        (void)table->store->ops->prepare(table->store, chunk->place);
        chunk->prepared = true;
    }
    return chunk;
}

/* ---- changes ------------------------------------------------------------------------------- */

/* The numbers of the change are as many as there should be. */
static psd_status
check_numbers(const struct chunk *chunk, const struct psi_change *change, size_t bytes,
              struct psd_error *err)
{
    const struct psi_spec *spec = &chunk->table->spec;
    const psd_dtype dtype = change->is_real ? psi_dtype_real(spec->dtype) : spec->dtype;
    const size_t whole = psi_chunk_elements(spec->count, chunk->index) * psi_dtype_bytes(dtype);

    if (bytes < PSI_CHANGE_BYTES ||
        (bytes - PSI_CHANGE_BYTES != whole && bytes != PSI_CHANGE_BYTES)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "REPLICATE to chunk %u of table %s: %zu bytes",
                        chunk->index, spec->name, bytes);
    }
    return PSD_OK;
}

static psd_status
update(struct lane *lane, struct chunk *chunk, const struct psi_change *change, const void *numbers,
       struct psd_error *err)
{
    const struct table *table = chunk->table;
    const struct leaf leaf = {.rank = 0, .is_sum = change->is_real, .data = numbers};
    struct store_trouble trouble;
    const uint32_t to = table->retain ? 1 - chunk->current : chunk->current;
    const struct store_change store_change = {
        .leaves = &leaf,
        .leaf_count = numbers != NULL ? 1 : 0,
        .divisor =
            table->spec.reduce == PSD_REDUCE_MEAN && change->gradients > 1 ? change->gradients : 0,
        .update = chunk->updates + 1,
        .step = change->step,
        .from = chunk->current,
        .to = to,
        .was_checked = true,
        .trouble = &trouble,
        .scratch = lane->scratch,
    };

    if (table->store->ops->apply(table->store, chunk->place, &store_change) != STORE_OK) {
        return psi_fail(err, PSD_ERR_NOT_FINITE,
                        "table %s: an update that is finite in the owner is not in the copy",
                        table->spec.name);
    }
    chunk->current = to;
    chunk->updates++;
    return PSD_OK;
}

/* Is there anything in it that changes values? Rounds of nobody, and pushes that add nothing to a
 * table without rounds, change none. */
static bool
has_update(const struct chunk *chunk, const struct psi_change *change, bool has_numbers)
{
    const struct psi_spec *spec = &chunk->table->spec;

    return psi_spec_synchronous(spec) ? !change->is_empty || spec->use == PSD_USE_SUM : has_numbers;
}

static psd_status
change_numbers(struct lane *lane, struct chunk *chunk, const struct psi_change *change,
               const uint8_t *payload, size_t bytes, struct psd_error *err)
{
    const bool has_numbers = bytes > PSI_CHANGE_BYTES;
    const psd_status status = check_numbers(chunk, change, bytes, err);

    return status == PSD_OK && has_update(chunk, change, has_numbers)
               ? update(lane, chunk, change, has_numbers ? payload + PSI_CHANGE_BYTES : NULL, err)
               : status;
}

/* All parts of the list are here. A push of no row is an update, too; of no gradient at all, none. */
static psd_status
change_rows(struct lane *lane, struct chunk *chunk, const struct psi_change *change,
            struct psd_error *err)
{
    struct store_rows list;
    psd_status status = mirror_rows_list(&lane->mirror->rows, chunk, &list, err);

    if (status == PSD_OK && has_update(chunk, change, change->gradients > 0)) {
        status = update(lane, chunk, change, &list, err);
    }
    lane->mirror->rows.count = 0;
    return status == PSD_OK ? table_copy_may_stay(lane, chunk->table, err) : status;
}

/* The chunk is what it is in the owner with this change. */
static psd_status
note_change(struct lane *lane, struct chunk *chunk, const struct psi_change *change,
            struct psd_error *err)
{
    if (change->updates != chunk->updates || change->rank >= lane->rows ||
        change->version < chunk->clock.version) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "table %s chunk %u: update %llu of the owner is update %llu of the copy",
                        chunk->table->spec.name, chunk->index, (unsigned long long)change->updates,
                        (unsigned long long)chunk->updates);
    }
    if (psi_spec_synchronous(&chunk->table->spec)) {
        for (uint32_t rank = 0; rank < lane->rows; rank++) {
            if (psi_ranks_has(&change->in, rank)) {
                chunk->clock.next[rank] = change->step + 1;
            }
        }
    } else if (chunk->marks != NULL) {
        chunk->marks[change->rank] =
            (struct psi_mark){.incarnation = change->incarnation, .sequence = change->sequence};
    } else {
        chunk->clock.next[change->rank] = change->step + 1;
    }
    if (!psi_spec_synchronous(&chunk->table->spec) && change->step + 1 > lane->furthest) {
        lane->furthest = change->step + 1; /* a checkpoint is named by it */
    }
    chunk->clock.version = change->version;
    chunk->clock.committed = change->version;
    chunk->pushed = true;
    psi_fail_point(server_copy_change_applied);
    return PSD_OK;
}

static psd_status
apply_change(struct lane *lane, const struct psi_frame *frame, const uint8_t *payload, size_t bytes,
             struct psd_error *err)
{
    struct chunk *chunk = find_chunk(lane, frame, err);
    struct psi_change change = {0};
    psd_status status;

    if (chunk == NULL) {
        return err->status;
    }
    status = psi_change_decode(payload, bytes, &change, err);
    if (status != PSD_OK) {
        return status;
    }
    if (change.in_parts) {
        status = mirror_parts_apply(lane, chunk, err);
    } else if (psi_spec_is_sparse(&chunk->table->spec)) {
        status = mirror_rows_come(&lane->mirror->rows, chunk, &change, payload, bytes, err);
        if (status != PSD_OK || change.goes_on) {
            return status;
        }
        status = change_rows(lane, chunk, &change, err);
    } else {
        status = change_numbers(lane, chunk, &change, payload, bytes, err);
    }
    return status == PSD_OK ? note_change(lane, chunk, &change, err) : status;
}

static psd_status
take_part(struct lane *lane, const struct psi_frame *frame, size_t bytes, struct psd_error *err)
{
    const struct chunk *chunk = find_chunk(lane, frame, err);

    return chunk == NULL ? err->status : mirror_part_comes(lane, chunk, frame, bytes, err);
}

/* ---- whole chunks -------------------------------------------------------------------------- */

static psd_status
take_parts(struct lane *lane, struct chunk *chunk, const uint8_t *payload, size_t bytes,
           size_t head, struct psd_error *err)
{
    const struct store_piece last = chunk_last_value(chunk);
    size_t whole = head + last.bytes;
    const uint8_t *at = payload + head;

    if (psi_spec_is_sparse(&chunk->table->spec) && bytes >= head) {
        return mirror_rows_piece(lane, chunk, at, bytes - head, err);
    }
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        whole += chunk_part(chunk, part).bytes;
    }
    if (bytes != whole) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "SNAPSHOT of chunk %u of table %s: %zu bytes",
                        chunk->index, chunk->table->spec.name, bytes);
    }
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        const struct store_piece piece = chunk_part(chunk, part);

        if (piece.bytes > 0) {
            timed_copy(lane, piece.base, at, piece.bytes);
            at += piece.bytes;
        }
    }
    if (last.bytes > 0) {
        timed_copy(lane, last.base, at, last.bytes);
    }
    return PSD_OK;
}

static psd_status
apply_snapshot(struct lane *lane, const struct psi_frame *frame, const uint8_t *payload,
               size_t bytes, struct psd_error *err)
{
    PSI_UNINITIALIZED uint64_t next[PSI_RANKS_MAX];
    PSI_UNINITIALIZED struct psi_mark marks[PSI_RANKS_MAX];
    struct psi_snapshot snapshot = {.next = next, .marks = marks};
    struct chunk *chunk = find_chunk(lane, frame, err);
    psd_status status;

    if (chunk == NULL) {
        return err->status;
    }
    status = psi_snapshot_decode(payload, bytes, &snapshot, err);
    if (status == PSD_OK && (snapshot.ranks != lane->rows ||
                             snapshot.marked != (chunk->marks != NULL ? lane->rows : 0))) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "SNAPSHOT: clocks of %u workers, expected %u",
                          snapshot.ranks, lane->rows);
    }
    if (status == PSD_OK) {
        status = take_parts(lane, chunk, payload, bytes,
                            psi_snapshot_bytes(snapshot.ranks, snapshot.marked), err);
    }
    if (status != PSD_OK) {
        return status;
    }
    memcpy(chunk->clock.next, next, lane->rows * sizeof(*next));
    if (chunk->marks != NULL) {
        memcpy(chunk->marks, marks, lane->rows * sizeof(*marks));
    }
    chunk->clock.version = snapshot.version;
    chunk->clock.committed = snapshot.version;
    chunk->updates = snapshot.updates;
    chunk->ready = snapshot.ready;
    chunk->pushed = snapshot.pushed;
    psi_fail_point(server_copy_snapshot_taken);
    return PSD_OK;
}

/* ---- tables, views, the global step -------------------------------------------------------- */

static psd_status
apply_table(struct lane *lane, const struct psi_frame *frame, const void *payload, size_t bytes,
            struct psd_error *err)
{
    struct psi_table_info *info = malloc(sizeof(*info));
    psd_status status;

    if (info == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "TABLE_OPEN: no memory");
    }
    status = psi_table_info_decode(payload, bytes, info, err);
    if (status == PSD_OK && (info->id != frame->table || table_find(lane, info->id) != NULL)) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_OPEN: table %u, told twice", info->id);
    }
    if (status == PSD_OK) {
        info->again = false;
        status = table_open(lane, info, err);
    }
    if (status == PSD_OK) {
        status = journal_open(lane, info->id, payload, bytes, err);
    }
    psi_fail_point(server_copy_table_opened);
    free(info);
    return status;
}

static psd_status
apply_view(struct lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    void *copy = malloc(bytes + 1);
    struct psi_view view;
    psd_status status;

    if (copy == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to keep a view in mind");
    }
    if (bytes > 0) {
        memcpy(copy, payload, bytes);
    }
    free(lane->mirror->view);
    lane->mirror->view = copy;
    lane->mirror->view_bytes = bytes;
    status = psi_view_decode_new(payload, bytes, &view, err);
    if (status == PSD_OK) {
        status = journal_resume(lane, &view, err);
        psi_view_fini(&view);
    }
    return status;
}

psd_status
mirror_apply(struct lane *lane, const struct psi_frame *frame, const void *payload, size_t bytes,
             struct psd_error *err)
{
    switch (frame->type) {
    case PSI_FRAME_REPLICATE:
        return apply_change(lane, frame, payload, bytes, err);
    case PSI_FRAME_REPLICATE_PART:
        return take_part(lane, frame, bytes, err);
    case PSI_FRAME_SNAPSHOT:
        return apply_snapshot(lane, frame, payload, bytes, err);
    case PSI_FRAME_TABLE_OPEN:
        return apply_table(lane, frame, payload, bytes, err);
    case PSI_FRAME_TABLE_DROP:
        table_drop(lane, frame->table);
        journal_drop(lane, frame->table);
        return PSD_OK;
    case PSI_FRAME_TABLE_RESUME:
        return journal_resume_table(lane, frame->table, frame->rank, frame->step, err);
    case PSI_FRAME_VIEW_COMMIT:
        return apply_view(lane, payload, bytes, err);
    case PSI_FRAME_STEP_STATE:
        return global_step_take(lane, payload, bytes, err);
    case PSI_FRAME_ELIGIBLE:
        lane->mirror->is_eligible = true;
        psi_fail_point(server_copy_eligible);
        return PSD_OK;
    case PSI_FRAME_TAKE_PLACE:
        if (!lane->mirror->is_eligible) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "TAKE_PLACE to a copy that may lack something");
        }
        lane->mirror->is_given = true;
        psi_fail_point(server_copy_given);
        return PSD_OK;
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to a copy: not expected",
                        psi_frame_type_name(frame->type));
    }
}
