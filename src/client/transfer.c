/*
 * transfer.c - pushes and pulls: checked, cut into chunks, held until their turn, ended.
 *
 * Two rules keep the servers' promises simple:
 *   - a push of step c + 1 leaves only when this worker's pushes of step c are done, so that a
 * chunk meets at most one gradient per rank at a time. If the job waits for replacements, the rule
 * spans all tables: then two versions of a value are enough to repeat a step (docs/consistency.md);
 *   - operations on one table leave in the order they were submitted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "client/state.h"

static bool
is_push(const struct psd_op *op)
{
    return op->kind == OP_TRANSFER &&
           (op->transfer.type == PSI_FRAME_PUSH || op->transfer.type == PSI_FRAME_PUSH_PULL);
}

static bool
reads(const struct psd_op *op)
{
    return op->transfer.type == PSI_FRAME_PULL || op->transfer.type == PSI_FRAME_PUSH_PULL ||
           op->transfer.type == PSI_FRAME_STATE_PULL;
}

uint64_t
psi_transfer_element_bytes(const struct psd_op *op)
{
    if (op->transfer.part == 0) {
        return op->table->element_bytes;
    }
    return op->transfer.part == 1 ? sizeof(float) : psi_dtype_state_bytes(op->table->spec.dtype);
}

uint64_t
psi_transfer_bytes(const struct psd_op *op, uint64_t chunk)
{
    return psi_chunk_elements(op->table->spec.count, chunk) * psi_transfer_element_bytes(op);
}

void
psi_transfer_describe(const struct psd_op *op, char *text, size_t size)
{
    static const char *const verbs[] = {
        [PSI_FRAME_PUSH] = "push",           [PSI_FRAME_PULL] = "pull",
        [PSI_FRAME_PUSH_PULL] = "push_pull", [PSI_FRAME_INIT] = "initial values of",
        [PSI_FRAME_STATE_PULL] = "save",     [PSI_FRAME_STATE_PUSH] = "load",
    };

    snprintf(text, size, "%s table %s step %llu", verbs[op->transfer.type], op->table->spec.name,
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

    if (!is_push(op) || table->spec.staleness == PSD_STALENESS_UNBOUNDED) {
        return PSD_OK;
    }
    for (uint64_t i = 0; i < op->chunk_count; i++) {
        const uint64_t want = table->next_step[op->first_chunk + i];
        const bool may_jump = table->spec.backup_workers > 0 && op->transfer.step > want;

        if (op->transfer.step != want && !may_jump) {
            return psi_fail(err, PSD_ERR_STEP, "push table %s: step %llu given, step %llu is next",
                            table->spec.name, (unsigned long long)op->transfer.step,
                            (unsigned long long)want);
        }
    }
    return PSD_OK;
}

static void
set_next_step(const struct psd_op *op, uint64_t step)
{
    if (is_push(op) && op->table->spec.staleness != PSD_STALENESS_UNBOUNDED) {
        for (uint64_t i = 0; i < op->chunk_count; i++) {
            op->table->next_step[op->first_chunk + i] = step;
        }
    }
}

/* Every transfer of a table gets room for all of it: so one pool serves them all. */
void
psi_transfers_init(struct psd_table *table)
{
    psi_pool_init(&table->ops, sizeof(struct psd_op) + table->lanes_used * sizeof(struct part) +
                                   table->chunk_count);
}

static void
clear_parts(struct psd_op *op)
{
    const size_t parts_bytes = op->table->lanes_used * sizeof(*op->parts);

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
    return op->transfer.type == PSI_FRAME_PULL && table->resuming &&
           op->transfer.step == table->resume_step &&
           table->next_step[op->first_chunk] == table->resume_step &&
           table->spec.backup_workers == 0; /* those went on without us: it may be gone */
}

/* Does b have to wait for a? a was submitted before b. */
static bool
must_wait_for(const struct psd_op *b, const struct psd_op *a)
{
    const bool same_table = a->table == b->table;

    if (same_table && a->held) {
        return true;
    }
    if (!is_push(a) || !is_push(b) || a->transfer.step >= b->transfer.step ||
        !psi_spec_synchronous(&a->table->spec) || !psi_spec_synchronous(&b->table->spec)) {
        return false;
    }
    /* With backup workers every table has steps of its own, and no step is ever repeated. */
    return same_table || (b->client->job.policy == PSI_DEATH_WAIT &&
                          a->table->spec.backup_workers == 0 && b->table->spec.backup_workers == 0);
}

/* The pushes whose steps have an order across tables. */
static bool
in_common_order(const struct psd_op *op)
{
    return is_push(op) && op->client->job.policy == PSI_DEATH_WAIT &&
           psi_spec_synchronous(&op->table->spec) && op->table->spec.backup_workers == 0;
}

static void
common_order_enter(struct psi_client *client, const struct psd_op *op)
{
    const uint64_t step = op->transfer.step;

    if (client->lowest.count == 0 || step < client->lowest.step) {
        client->lowest.step = step;
        client->lowest.count = 0;
    }
    client->lowest.count += step == client->lowest.step;
}

static void
common_order_leave(struct psi_client *client, const struct psd_op *op)
{
    if (op->transfer.step != client->lowest.step || --client->lowest.count > 0) {
        return;
    }
    for (const struct psd_op *other = client->pending; other != NULL; other = other->next) {
        if (in_common_order(other)) {
            common_order_enter(client, other);
        }
    }
}

/* Only when an earlier step is under way at all are the others looked at, and then the oldest,
 * which is looked at first, is nearly always of that step. */
static bool
must_wait_for_other_tables(const struct psd_op *op)
{
    const struct psi_client *client = op->client;
    const struct psd_op *earlier = client->pending;

    if (!in_common_order(op) || client->lowest.count == 0 ||
        client->lowest.step >= op->transfer.step) {
        return false;
    }
    while (earlier != op && (earlier->kind != OP_TRANSFER || !must_wait_for(op, earlier))) {
        earlier = earlier->next;
    }
    return earlier != op;
}

static bool
must_hold(const struct psd_op *op)
{
    const struct psd_op *earlier = op->table_prev;

    while (earlier != NULL && !must_wait_for(op, earlier)) {
        earlier = earlier->table_prev;
    }
    return earlier != NULL || must_wait_for_other_tables(op);
}

/* An operation cannot overtake an older one on its table: the older one becomes as urgent. */
static void
raise_older(const struct psd_op *op)
{
    for (struct psd_op *older = op->table_prev; older != NULL; older = older->table_prev) {
        if (!older->held && older->priority < op->priority) {
            older->priority = op->priority;
            psi_lane_enqueue(older);
        }
    }
}

/* A push to a table with backup workers, after which every chunk of its step is on its way. */
bool
psi_transfer_completes_step(const struct psd_op *op)
{
    const struct psd_table *table = op->table;

    if (!is_push(op) || op->held || table->spec.backup_workers == 0) {
        return false;
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        if (table->next_step[chunk] <= op->transfer.step) {
            return false;
        }
    }
    return true;
}

static void
hold(struct psd_op *op)
{
    struct psi_client *client = op->client;

    op->held = true;
    op->held_prev = client->held_last;
    if (client->held_last != NULL) {
        client->held_last->held_next = op;
    } else {
        client->held = op;
    }
    client->held_last = op;
}

static void
unhold(struct psd_op *op)
{
    struct psi_client *client = op->client;

    op->held = false;
    if (op->held_prev != NULL) {
        op->held_prev->held_next = op->held_next;
    } else {
        client->held = op->held_next;
    }
    if (op->held_next != NULL) {
        op->held_next->held_prev = op->held_prev;
    } else {
        client->held_last = op->held_prev;
    }
}

/* Enters an operation among those it may have to wait for, and those that may wait for it. */
static void
started(struct psd_op *op)
{
    struct psd_table *table = op->table;

    op->table_prev = table->last_op;
    if (table->last_op != NULL) {
        table->last_op->table_next = op;
    }
    table->last_op = op;
    if (in_common_order(op)) {
        common_order_enter(op->client, op);
    }
}

void
psi_transfer_ended(struct psd_op *op)
{
    struct psi_client *client = op->client;

    if (op->held) {
        unhold(op);
    }
    if (op->table_prev != NULL) {
        op->table_prev->table_next = op->table_next;
    }
    if (op->table_next != NULL) {
        op->table_next->table_prev = op->table_prev;
    } else {
        op->table->last_op = op->table_prev;
    }
    if (in_common_order(op)) {
        common_order_leave(client, op);
    }
    client->hold_changed = client->held != NULL;
}

static void
let_go(struct psd_op *op)
{
    raise_older(op);
    psi_lane_enqueue(op);
    if (psi_transfer_completes_step(op)) {
        psi_control_have(op);
    }
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
    op = psi_op_create(client, &table->ops, OP_TRANSFER, transfer->timeout_ms);
    if (op == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for an operation",
                        table->spec.name);
    }
    op->table = table;
    op->transfer = *transfer;
    op->priority = transfer->priority != 0 ? transfer->priority : table->priority;
    op->done = transfer->done;
    op->user = transfer->user;
    status = psi_transfer_check_range(table, &op->transfer, err);
    if (status == PSD_OK) {
        op->first_chunk = op->transfer.first / PSD_CHUNK_ELEMENTS;
        op->chunk_count = psi_chunk_count(op->transfer.count);
        op->remaining = op->chunk_count;
        status = check_step(op, err);
    }
    if (status != PSD_OK) {
        psi_op_discard(op);
        return status;
    }
    clear_parts(op);
    op->exact = wants_exact(op);
    set_next_step(op, op->transfer.step + 1);
    psi_op_submit(op);
    started(op);
    if (must_hold(op)) {
        hold(op);
    } else {
        let_go(op);
    }
    *op_p = op;
    return PSD_OK;
}

void
psi_transfer_let_go(struct psi_client *client)
{
    struct psd_op *next;

    if (!client->hold_changed) {
        return;
    }
    client->hold_changed = false;
    for (struct psd_op *op = client->held; op != NULL; op = next) {
        next = op->held_next;
        if (!must_hold(op)) {
            unhold(op);
            let_go(op);
        }
    }
}

/* The step may be pushed again: servers answer what they have as done. */
static void
repeat_step(const struct psd_op *op)
{
    for (uint64_t i = 0; is_push(op) && i < op->chunk_count; i++) {
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
    const bool nothing = op->touched == 0 || (reads(op) && !is_push(op));
    char what[PSD_NAME_MAX + 64];

    psi_transfer_describe(op, what, sizeof(what));
    psi_lane_forget(op);
    repeat_step(op);
    psi_op_end(op, status, nothing ? PSD_OUTCOME_NOT_APPLIED : PSD_OUTCOME_UNKNOWN,
               "%s: %s; %llu of %llu chunks unanswered%s%s", what, reason,
               (unsigned long long)unanswered, (unsigned long long)op->chunk_count,
               op->because[0] != '\0' ? "; " : "", op->because);
}

static bool
overlaps(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const uint8_t *first = a;
    const uint8_t *second = b;

    return a != NULL && first < second + b_bytes && second < first + a_bytes;
}

bool
psi_client_borrows(const struct psi_client *client, const void *base, size_t bytes)
{
    for (const struct psd_op *op = client->pending; op != NULL; op = op->next) {
        if (op->kind == OP_TRANSFER) {
            const uint64_t used = op->transfer.count * psi_transfer_element_bytes(op);

            if (overlaps(op->transfer.from, used, base, bytes) ||
                overlaps(op->transfer.to, used, base, bytes)) {
                return true;
            }
        }
    }
    return false;
}
