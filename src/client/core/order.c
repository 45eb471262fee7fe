/*
 * order.c - which transfer waits for which.
 *
 * Three rules keep the servers' promises simple:
 *   - a push of step c + 1 leaves only when this worker's pushes of step c are done, so that a
 *     chunk meets at most one gradient per rank at a time. If the job waits for replacements, the
 *     rule spans all tables: then two versions of a value are enough to repeat a step
 *     (docs/consistency.md). It spans tables with the same number of backup workers, too: then
 *     nobody is chosen for a step before all it gave to the one before has been answered;
 *   - a push leaves only when what was looked up before, of its step or an earlier one, is here, if that
 *     comes in parts: all of them are of one step then;
 *   - operations on one table leave in the order they were submitted (lanes.c: but a read of a
 *     later step does not hold up what it waits for).
 *
 * The rule across all tables gives way when a server asks for the push (WANT). Another worker has
 * then pushed it already. If that one submits its tables in the same order, the earlier step is
 * done everywhere, and the news is on its way; if not, each of the two would wait for the other,
 * and the tables are not pushed together.
 *
 * A transfer that has to wait is held. Only its own table's transfers are looked at to tell, and
 * those of all tables only while some of an earlier step are under way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/sparse_rows.h"
#include "client/core/state.h"

/* Do rows that are looked up come one answer after the other? Until the last has come, the step that they
 * are of must not pass. It cannot without our push, which they do not wait for. */
static bool
keeps_step(const struct psd_op *reads, const struct psd_op *op)
{
    return reads->transfer.rows != NULL && psi_frame_only_reads(reads->transfer.type) &&
           psi_op_is_push(op) && op->transfer.step >= reads->transfer.step &&
           psi_spec_synchronous(&op->table->spec) && psi_sparse_rows_in_parts(reads->transfer.rows);
}

/* Does op have to wait for an earlier one on its table? */
static bool
must_wait_for(const struct psd_op *op, const struct psd_op *earlier)
{
    return earlier->held || keeps_step(earlier, op) ||
           (psi_op_is_push(op) && psi_op_is_push(earlier) &&
            earlier->transfer.step < op->transfer.step && psi_spec_synchronous(&op->table->spec));
}

/*
 * The pushes whose steps have an order across tables: those of a group with backup workers, and if
 * the job waits for replacements, or others may join, all others. NULL: it has none.
 */
static struct earliest *
order_of(const struct psd_op *op)
{
    if (!psi_op_is_push(op) || !psi_spec_synchronous(&op->table->spec)) {
        return NULL;
    }
    if (op->table->group != NULL) {
        return &op->table->group->earliest;
    }
    return op->client->job.policy == PSI_DEATH_WAIT || op->client->job.elastic
               ? &op->client->earliest
               : NULL;
}

static void
common_order_enter(struct earliest *earliest, const struct psd_op *op)
{
    const uint64_t step = op->transfer.step;

    if (earliest->count == 0 || step < earliest->step) {
        earliest->step = step;
        earliest->count = 0;
    }
    earliest->count += step == earliest->step;
}

/* The last one of the earliest step is gone: what is the earliest now? */
static void
common_order_leave(struct earliest *earliest, const struct psd_op *op)
{
    if (op->transfer.step != earliest->step || --earliest->count > 0) {
        return;
    }
    for (const struct psd_op *other = op->client->pending; other != NULL; other = other->next) {
        if (order_of(other) == earliest) {
            common_order_enter(earliest, other);
        }
    }
}

/* The oldest are looked at first: one of the earliest step is nearly always among them. */
static bool
must_wait_for_other_tables(const struct psd_op *op)
{
    const struct earliest *earliest = order_of(op);
    const struct psd_op *earlier = op->client->pending;

    if (earliest == NULL || earliest->step >= op->transfer.step ||
        (op->wanted && op->table->group == NULL)) {
        return false;
    }
    while (earlier != op &&
           (order_of(earlier) != earliest || earlier->transfer.step >= op->transfer.step)) {
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

/* An operation cannot overtake an older one on its table: the older one becomes as urgent. */
static void
raise_older(const struct psd_op *op)
{
    for (struct psd_op *older = op->table_prev; older != NULL; older = older->table_prev) {
        if (!older->held && !older->is_local && older->priority < op->priority) {
            older->priority = op->priority;
            psi_lane_enqueue(older);
        }
    }
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

void
psi_order_enter(struct psd_op *op)
{
    struct psd_table *table = op->table;

    op->table_prev = table->last_op;
    if (table->last_op != NULL) {
        table->last_op->table_next = op;
    }
    table->last_op = op;
    if (order_of(op) != NULL) {
        common_order_enter(order_of(op), op);
    }
    if (op->is_local) {
        return; /* it waits for nothing but a push of ours, and holds up nobody */
    }
    if (must_hold(op)) {
        hold(op);
    } else {
        let_go(op);
    }
}

void
psi_order_leave(struct psd_op *op)
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
    if (order_of(op) != NULL) {
        common_order_leave(order_of(op), op);
    }
    client->hold_changed = client->held != NULL;
}

void
psi_order_want(struct psi_client *client, const struct psi_frame *wanted)
{
    for (struct psd_op *op = client->held; op != NULL; op = op->held_next) {
        if (op->table->id == wanted->table && op->transfer.step == wanted->step &&
            psi_op_is_push(op) && wanted->chunk >= op->first_chunk &&
            wanted->chunk - op->first_chunk < op->chunk_count) {
            op->wanted = true;
            client->hold_changed = true;
        }
    }
}

void
psi_order_let_go(struct psi_client *client)
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
