/*
 * transfer.c - pushes and pulls: checked, cut into chunks, ended.
 *
 * When they leave is in order.c, how in lanes.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/lone.h"
#include "client/core/results.h"
#include "client/core/sparse_rows.h"
#include "client/core/state.h"
#include "wire/rows.h"

enum { JOIN_WAIT_MS = 24 * 60 * 60 * 1000 };

static bool
reads(const struct psd_op *op)
{
    return psi_frame_wants_value(op->transfer.type);
}

uint64_t
psi_transfer_element_bytes(const struct psd_op *op)
{
    if (op->transfer.type == PSI_FRAME_STATE_PULL) {
        return psi_spec_all_parts_bytes(&op->table->spec);
    }
    return op->transfer.part == PSI_PART_VALUE
               ? op->table->element_bytes
               : psi_spec_part_bytes(&op->table->spec, op->transfer.part);
}

uint64_t
psi_transfer_bytes(const struct psd_op *op, uint64_t chunk)
{
    if (op->transfer.rows != NULL) {
        return psi_sparse_rows_in(op->transfer.rows, chunk).bytes;
    }
    return psi_chunk_elements(op->table->spec.count, chunk) * psi_transfer_element_bytes(op);
}

/* What leaves, at most. Parts of a save or a load are never encoded. */
uint64_t
psi_transfer_push_bytes(const struct psd_op *op, uint64_t chunk)
{
    if (!psi_frame_has_gradient(op->transfer.type)) {
        return psi_transfer_bytes(op, chunk);
    }
    if (op->transfer.rows != NULL) {
        return psi_sparse_rows_out_bytes(op->transfer.rows, chunk);
    }
    return op->table->codec->bound(psi_transfer_dtype(op),
                                   psi_chunk_elements(op->table->spec.count, chunk));
}

void
psi_transfer_describe(const struct psd_op *op, char *text, size_t size)
{
    static const char *const verbs[] = {
        [PSI_FRAME_PUSH] = "push",
        [PSI_FRAME_PULL] = "pull",
        [PSI_FRAME_PUSH_PULL] = "push_pull",
        [PSI_FRAME_INIT] = "initial values of",
        [PSI_FRAME_STATE_PULL] = "save",
        [PSI_FRAME_STATE_PUSH] = "load",
        [PSI_FRAME_SPARSE_PUSH] = "push",
        [PSI_FRAME_SPARSE_PULL] = "lookup",
        [PSI_FRAME_SPARSE_PUSH_PULL] = "push_lookup",
    };
    const bool is_just_push =
        op->is_split || (psi_spec_is_sparse_sum(&op->table->spec) && psi_op_is_push(op));

    snprintf(text, size, "%s table %s step %llu",
             verbs[is_just_push ? PSI_FRAME_PUSH : op->transfer.type], op->table->spec.name,
             (unsigned long long)op->transfer.step);
}

/* An error when the range is not on the grid; a count of 0 becomes the whole rest. */
psd_status
psi_transfer_check_range(const struct psd_table *table, struct psi_transfer *transfer,
                         struct psd_error *err)
{
    const uint64_t total = table->spec.count;
    uint64_t end;

    if (transfer->first >= total || transfer->first % PSD_CHUNK_ELEMENTS != 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: first element %llu is not a multiple of %d below %llu",
                        table->spec.name, (unsigned long long)transfer->first, PSD_CHUNK_ELEMENTS,
                        (unsigned long long)total);
    }
    if (transfer->count == 0) {
        transfer->count = total - transfer->first;
    }
    if (transfer->count > total - transfer->first ||
        ((transfer->first + transfer->count) % PSD_CHUNK_ELEMENTS != 0 &&
         transfer->first + transfer->count != total)) {
        end = transfer->first + transfer->count;
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: range ends at %llu, neither a multiple of %d nor the end %llu",
                        table->spec.name, (unsigned long long)end, PSD_CHUNK_ELEMENTS,
                        (unsigned long long)total);
    }
    return PSD_OK;
}

/* Each chunk takes one gradient per step, steps in order (asynchronous tables: any). */
static psd_status
check_step(const struct psd_op *op, struct psd_error *err)
{
    const struct psd_table *table = op->table;
    const uint64_t reached = table->group != NULL ? table->group->reached : 0;

    if (!psi_op_is_push(op) || table->spec.staleness == PSD_STALENESS_UNBOUNDED) {
        return PSD_OK;
    }
    for (uint64_t i = 0; i < op->chunk_count; i++) {
        const uint64_t want = table->next_step[op->first_chunk + i];
        const bool may_jump =
            table->group != NULL && op->transfer.step > want && op->transfer.step <= reached;

        if (op->transfer.step != want && !may_jump) {
            return psi_fail(err, PSD_ERR_STEP, "push table %s: step %llu given, step %llu is next",
                            table->spec.name, (unsigned long long)op->transfer.step,
                            (unsigned long long)(want > reached ? want : reached));
        }
    }
    return PSD_OK;
}

static void
set_next_step(const struct psd_op *op, uint64_t step)
{
    if (psi_op_is_push(op) && op->table->spec.staleness != PSD_STALENESS_UNBOUNDED) {
        for (uint64_t i = 0; i < op->chunk_count; i++) {
            op->table->next_step[op->first_chunk + i] = step;
        }
    }
}

/* Every transfer of a table gets room for all of it, however it spreads: so one pool serves them
 * all. */
void
psi_transfers_init(struct psd_table *table)
{
    psi_pool_init(&table->ops, sizeof(struct psd_op) +
                                   (table->flat.lanes_used + 1) * sizeof(struct part) +
                                   table->chunk_count);
}

void
psi_transfer_clear_parts(struct psd_op *op)
{
    const size_t parts_bytes = (op->table->flat.lanes_used + 1) * sizeof(*op->parts);

    op->parts = (struct part *)(op + 1);
    op->chunks = (uint8_t *)op->parts + parts_bytes;
    memset(op->parts, 0, parts_bytes);
    memset(op->chunks, CHUNK_UNSENT, op->chunk_count);
}

/*
 * Reads that are for the very version of their step, not a later one: a save, and what a
 * replacement reads before it has pushed, to repeat the step.
 */
static bool
wants_exact(const struct psd_op *op)
{
    const struct psd_table *table = op->table;

    if (table->spec.use != PSD_USE_UPDATE || !psi_spec_synchronous(&table->spec)) {
        return false;
    }
    if (op->transfer.type == PSI_FRAME_STATE_PULL) {
        return true;
    }
    return psi_frame_only_reads(op->transfer.type) && table->resuming &&
           op->transfer.step == table->resume_step &&
           table->next_step[op->first_chunk] == table->resume_step &&
           table->group == NULL; /* those went on without us: it may be gone */
}

/* What an earlier life of this worker may have given: the rounds of the step that is repeated, and of the next one if a
 * server asked for it. */
static bool
is_given_twice(const struct psd_op *op)
{
    return op->table->resuming && psi_op_is_push(op) && psi_spec_synchronous(&op->table->spec) &&
           op->transfer.step <= op->table->resume_step + 1;
}

static bool
overlaps(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const uint8_t *first = a;
    const uint8_t *second = b;

    return a != NULL && first < second + b_bytes && second < first + a_bytes;
}

/* Does the result come where the gradient was? It matters where that may be needed again. */
static bool
is_in_place(const struct psd_op *op)
{
    const uint64_t bytes = op->transfer.count * op->table->element_bytes;

    return op->table->results != NULL && op->transfer.type == PSI_FRAME_PUSH_PULL &&
           overlaps(op->transfer.from, bytes, op->transfer.to, bytes);
}

/* A push to a table with backup workers, after which all of its step is on its way. */
bool
psi_transfer_completes_step(const struct psd_op *op)
{
    const struct psd_table *table = op->table;

    if (!psi_op_is_push(op) || op->held || table->group == NULL) {
        return false;
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        if (table->next_step[chunk] <= op->transfer.step) {
            return false;
        }
    }
    return true;
}

/* Places of a sparse table that have none of the ids of a lookup are not asked. */
static void
skip_unconcerned(struct psd_op *op)
{
    for (uint64_t place = 0; op->transfer.rows != NULL && place < op->chunk_count; place++) {
        if (!psi_sparse_rows_concern(op->transfer.rows, place)) {
            op->chunks[place] = CHUNK_DONE;
            op->remaining--;
        }
    }
}

/* Which chunks it is about. */
static psd_status
choose_chunks(struct psd_op *op, struct psd_error *err)
{
    psd_status status;

    if (psi_spec_is_sparse(&op->table->spec) != (op->transfer.rows != NULL)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s is %ssparse: this call is for those that %s",
                        op->table->spec.name, op->transfer.rows != NULL ? "not " : "",
                        op->transfer.rows != NULL ? "are" : "are not");
    }
    if (op->transfer.rows != NULL && psi_op_is_push(op) && op->transfer.step > PSI_ROWS_STEP_MAX) {
        return psi_fail(err, PSD_ERR_STEP, "sparse table %s: step %llu, at most %u",
                        op->table->spec.name, (unsigned long long)op->transfer.step,
                        PSI_ROWS_STEP_MAX);
    }
    if (op->transfer.rows != NULL) {
        op->chunk_count = op->table->chunk_count;
        op->remaining = op->chunk_count;
        return PSD_OK;
    }
    status = psi_transfer_check_range(op->table, &op->transfer, err);
    if (status == PSD_OK) {
        op->first_chunk = op->transfer.first / PSD_CHUNK_ELEMENTS;
        op->chunk_count = psi_chunk_count(op->transfer.count);
        op->remaining = op->chunk_count;
    }
    return status;
}

uint32_t
psi_client_timeout_ms(const struct psi_client *client, uint64_t step)
{
    const bool waits = client->config.join_step != 0 && step == client->config.join_step &&
                       client->view.worker[client->job.rank].counts_from == step;

    return waits ? JOIN_WAIT_MS : client->config.op_timeout_ms;
}

static struct psd_op *
create_op(struct psi_client *client, struct psd_table *table, const struct psi_transfer *transfer)
{
    const uint32_t timeout_ms = transfer->timeout_ms != 0
                                    ? transfer->timeout_ms
                                    : psi_client_timeout_ms(client, transfer->step);

    return psi_op_create(client, &table->ops, OP_TRANSFER, timeout_ms);
}

psd_status
psi_client_transfer(struct psi_client *client, struct psd_table *table,
                    const struct psi_transfer *transfer, struct psd_op **op_p,
                    struct psd_error *err)
{
    struct psd_op *op;
    psd_status status;

    if (client->state == PSI_CLIENT_JOINING) {
        return psi_fail(err, PSD_ERR_STATE, "table %s: not in the job yet", table->spec.name);
    }
    if (client->state == PSI_CLIENT_OVER) {
        *err = client->error;
        return err->status;
    }
    op = create_op(client, table, transfer);
    if (op == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for an operation",
                        table->spec.name);
    }
    op->table = table;
    op->transfer = *transfer;
    op->priority = transfer->priority != 0 ? transfer->priority : table->priority;
    op->done = transfer->done;
    op->user = transfer->user;
    status = choose_chunks(op, err);
    if (status == PSD_OK) {
        status = check_step(op, err);
    }
    if (status == PSD_OK) {
        status = psi_lone_take(op, err);
    }
    if (status == PSD_OK && !op->is_local) {
        status = psi_split_push(op, err);
    }
    if (status != PSD_OK) {
        op->transfer.rows = NULL; /* the caller's still */
        psi_op_discard(op);
        return status;
    }
    psi_transfer_clear_parts(op);
    skip_unconcerned(op);
    op->spread = psi_op_is_push(op) && op->transfer.step >= table->route_from ? &table->by_host
                                                                              : &table->flat;
    op->exact = wants_exact(op);
    op->repeats = is_given_twice(op);
    op->in_place = op->in_place || is_in_place(op);
    op->is_local = op->is_local || psi_split_pull(op);
    set_next_step(op, op->transfer.step + 1);
    if (psi_op_is_push(op)) {
        psi_step_clock_push(&client->steps, op->transfer.step, op->started_ns);
    }
    psi_op_submit(op);
    psi_order_enter(op);
    if (table->is_lone && op->is_local) {
        psi_lone_answer(op);
    } else if (op->is_local) {
        psi_split_look(op);
    } else if (op->remaining == 0) {
        psi_transfer_finish(op);
    }
    *op_p = op;
    return PSD_OK;
}

/* The step may be pushed again: servers answer what they have as done. */
static void
repeat_step(const struct psd_op *op)
{
    if (op->node.gathering != NULL) {
        return; /* of others, who have steps of their own */
    }
    for (uint64_t i = 0; psi_op_is_push(op) && i < op->chunk_count; i++) {
        uint64_t *next = &op->table->next_step[op->first_chunk + i];

        if (*next > op->transfer.step && op->table->spec.staleness != PSD_STALENESS_UNBOUNDED) {
            *next = op->transfer.step;
        }
    }
}

/* Ends it before its time: what was sent may have been applied, and the caller gets its memory
 * back. */
void
psi_transfer_abort(struct psd_op *op, psd_status status, const char *reason)
{
    const uint64_t unanswered = op->remaining;
    const bool nothing = op->touched == 0 || (reads(op) && !psi_op_is_push(op));
    char what[PSD_NAME_MAX + 64];

    psi_transfer_describe(op, what, sizeof(what));
    psi_lane_forget(op);
    psi_lone_forget(op);
    repeat_step(op);
    psi_op_end(op, status, nothing ? PSD_OUTCOME_NOT_APPLIED : PSD_OUTCOME_UNKNOWN,
               "%s: %s; %llu of %llu chunks unanswered%s%s", what, reason,
               (unsigned long long)unanswered, (unsigned long long)op->chunk_count,
               op->because[0] != '\0' ? "; " : "", op->because);
}

bool
psi_client_borrows(const struct psi_client *client, const void *base, size_t bytes)
{
    for (const struct psd_op *op = client->pending; op != NULL; op = op->next) {
        if (op->kind == OP_TRANSFER) {
            const uint64_t used = op->transfer.count * psi_transfer_element_bytes(op);

            if (overlaps(op->transfer.from, used, base, bytes) ||
                overlaps(op->transfer.to, used, base, bytes) ||
                (op->transfer.rows != NULL &&
                 psi_sparse_rows_borrow(op->transfer.rows, base, bytes))) {
                return true;
            }
        }
    }
    return false;
}
