/*
 * ops.c - the life of an operation: submitted, pending, ended exactly once, handed out, freed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/results.h"
#include "client/core/sparse_rows.h"
#include "client/core/state.h"

#define MS_NS UINT64_C(1000000)

struct psd_op *
psi_op_create(struct psi_client *client, struct psi_pool *pool, enum op_kind kind,
              uint32_t timeout_ms)
{
    struct psd_op *op = psi_pool_take(pool);
    const uint64_t limit_ms = timeout_ms == 0 ? client->config.op_timeout_ms : timeout_ms;

    if (op == NULL) {
        return NULL;
    }
    memset(op, 0, offsetof(struct psd_op, error));
    op->error.status = PSD_OK;
    op->error.text[0] = '\0';
    op->because[0] = '\0';
    op->client = client;
    op->pool = pool;
    op->kind = kind;
    op->number = ++client->op_number;
    op->started_ns = psi_now_ns(client->env);
    op->deadline_ns = UINT64_MAX;
    op->why_ns = UINT64_MAX;
    if (limit_ms != PSD_FOREVER) {
        const uint64_t warning_ms = limit_ms / 4 < 1000 ? limit_ms / 4 : 1000;

        op->deadline_ns = op->started_ns + limit_ms * MS_NS;
        op->why_ns = op->deadline_ns - warning_ms * MS_NS;
    }
    return op;
}

static void
list_append(struct psd_op **first, struct psd_op **last, struct psd_op *op)
{
    op->next = NULL;
    op->prev = *last;
    if (*last != NULL) {
        (*last)->next = op;
    } else {
        *first = op;
    }
    *last = op;
}

static void
list_remove(struct psd_op **first, struct psd_op **last, struct psd_op *op)
{
    if (op->prev != NULL) {
        op->prev->next = op->next;
    } else {
        *first = op->next;
    }
    if (op->next != NULL) {
        op->next->prev = op->prev;
    } else {
        *last = op->prev;
    }
    op->next = NULL;
    op->prev = NULL;
}

void
psi_op_submit(struct psd_op *op)
{
    struct psi_client *client = op->client;

    list_append(&client->pending, &client->pending_last, op);
    client->pending_count++;
    if (op->why_ns < client->next_deadline_ns) {
        client->next_deadline_ns = op->why_ns;
    }
}

/* One that nobody of this process waits for: it has neither a deadline nor a place in the order. */
void
psi_op_submit_node(struct psd_op *op)
{
    list_append(&op->client->pending, &op->client->pending_last, op);
}

/* Of a step that is told: out of the way of the others. */
__attribute__((noinline)) static void
leave_marked(struct psd_op *op)
{
    psi_mark_pushed(op);
    psi_order_leave(op);
}

static void
end(struct psd_op *op, psd_status status, psd_outcome outcome)
{
    struct psi_client *client = op->client;

    psi_assert(!op->ended);
    op->ended = true;
    op->outcome = outcome;
    op->error.status = status;
    list_remove(&client->pending, &client->pending_last, op);
    if (op->node.gathering != NULL) {
        psi_gather_sent(op);
        return;
    }
    client->pending_count--;
    if (psi_step_clock_keeps(&client->steps) && client->pending_count == 0) {
        psi_step_clock_drained(&client->steps);
    }
    list_append(&client->done, &client->done_last, op);
    if (op->kind == OP_TRANSFER) {
        if (psi_step_clock_tells(&client->steps, op->transfer.step)) {
            leave_marked(op);
        } else {
            psi_order_leave(op);
        }
    } else if (op->kind == OP_BARRIER && status != PSD_OK && client->state != PSI_CLIENT_OVER) {
        psi_control_barrier_again(op);
    }
}

void
psi_op_end(struct psd_op *op, psd_status status, psd_outcome outcome, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(op->error.text, sizeof(op->error.text), format, args);
    va_end(args);
    end(op, status, outcome);
}

void
psi_op_succeed(struct psd_op *op)
{
    op->error.text[0] = '\0';
    end(op, PSD_OK, PSD_OUTCOME_DONE);
}

/* Ends an operation that the job, its deadline or the end of the context cut short. */
static void
cut_short(struct psd_op *op, psd_status status, const char *reason)
{
    static const char *const names[] = {
        [OP_TABLE_OPEN] = "open table",   [OP_BARRIER] = "barrier",      [OP_NODES] = "nodes",
        [OP_SUBSCRIBE] = "watch the job", [OP_STEP_ADD] = "global step", [OP_BYE] = "leave the job",
        [OP_SHARE] = "fetch state",
    };

    if (op->kind == OP_TRANSFER) {
        psi_transfer_abort(op, status, reason);
    } else {
        if (op->kind == OP_BYE) {
            psi_leave_describe(op);
        }
        psi_op_end(op, status, PSD_OUTCOME_UNKNOWN, "%s: %s%s%s", names[op->kind], reason,
                   op->because[0] != '\0' ? ": " : "", op->because);
    }
}

static void
deadline_passed(struct psd_op *op, uint64_t now_ns)
{
    char reason[64];

    snprintf(reason, sizeof(reason), "not finished in %llu ms",
             (unsigned long long)((now_ns - op->started_ns) / MS_NS));
    cut_short(op, PSD_ERR_TIMEOUT, reason);
}

void
psi_ops_check_deadlines(struct psi_client *client, uint64_t now_ns)
{
    struct psd_op *next;

    if (now_ns < client->next_deadline_ns) {
        return;
    }
    client->next_deadline_ns = UINT64_MAX;
    for (struct psd_op *op = client->pending; op != NULL; op = next) {
        uint64_t due_ns;

        next = op->next;
        if (now_ns >= op->deadline_ns) {
            deadline_passed(op, now_ns);
            continue;
        }
        if (now_ns >= op->why_ns) {
            op->why_ns = UINT64_MAX;
            psi_lane_ask_why(op);
        }
        due_ns = op->why_ns < op->deadline_ns ? op->why_ns : op->deadline_ns;
        if (due_ns < client->next_deadline_ns) {
            client->next_deadline_ns = due_ns;
        }
    }
}

void
psi_ops_end_all(struct psi_client *client, const struct psd_error *reason)
{
    while (client->pending != NULL) {
        cut_short(client->pending, reason->status, reason->text);
    }
}

struct psd_op *
psi_client_next_done(struct psi_client *client)
{
    struct psd_op *op = client->done;

    if (op != NULL) {
        list_remove(&client->done, &client->done_last, op);
        op->taken = true;
    }
    return op;
}

void
psi_op_discard(struct psd_op *op)
{
    free(op->control.body);
    free(op->control.nodes.node);
    free(op->control.coming.node);
    psi_sparse_rows_free(op->transfer.rows);
    psi_pool_give(op->pool, op);
}

void
psi_op_free(struct psd_op *op)
{
    psi_assert(op->ended);
    if (!op->taken) {
        list_remove(&op->client->done, &op->client->done_last, op);
    }
    psi_op_discard(op);
}

bool
psi_op_ended(const struct psd_op *op)
{
    return op->ended;
}

psd_status
psi_op_status(const struct psd_op *op)
{
    return op->ended ? op->error.status : PSD_PENDING;
}

struct psd_table *
psi_op_table(const struct psd_op *op)
{
    return op->table;
}

const struct psi_nodes *
psi_op_nodes(const struct psd_op *op)
{
    return &op->control.nodes;
}

uint64_t
psi_op_value(const struct psd_op *op)
{
    return op->value;
}

uint64_t
psi_op_updates(const struct psd_op *op)
{
    return op->updates;
}
