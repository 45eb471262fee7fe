/*
 * gather_send.c - what has been gathered leaves: as sums of complete nodes of the tree over ranks.
 *
 * Each is an operation of its own, in the usual queues and windows of the lanes. A sum is made when it
 * leaves, so that a window bounds the memory for sums.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/arithmetic.h"
#include "base/fail.h"
#include "client/host/gather.h"

/* The gradients of the node, by rising rank. */
static uint32_t
collect(const struct psi_client *client, const struct psd_op *op)
{
    const uint32_t end = psi_node_end(op->node.first, op->node.level, client->job.workers);
    const struct contribution *given = op->node.gathering->given;
    uint32_t count = 0;

    for (; given != NULL && given->rank < end; given = given->next) {
        if (given->rank >= op->node.first && given->data != NULL) {
            client->host->leaves[count++] =
                (struct leaf){.rank = given->rank, .is_sum = given->is_real, .data = given->data};
        }
    }
    return count;
}

/* The sum of so many leaves, where the operation sends it from. */
static void
add_leaves(struct psi_client *client, struct psd_op *op, uint32_t count)
{
    struct host *host = client->host;
    const uint32_t elements = (uint32_t)psi_chunk_elements(op->table->spec.count, op->first_chunk);
    const bool is_timed = elements >= PSI_METRIC_TIMED;
    const uint64_t begun_ns = is_timed ? psi_now_ns(client->env) : 0;
    const psi_arithmetic callers = psi_arithmetic_enter();
    struct psi_sum sum;

    psi_sum_init(&sum, host->kernels, op->table->spec.dtype, host->leaves, count, host->scratch);
    psi_sum_all(&sum, elements, op->node.bytes);
    psi_arithmetic_leave(callers);
    if (is_timed) {
        psi_metric_add(client->metrics, PSI_METRIC_ADD_TIME, psi_now_ns(client->env) - begun_ns);
    }
}

/* Makes what the operation sends, if it is not there yet. A single gradient of another worker is
 * sent from where it is; our own caller may take its back at any time. False: no memory now. */
bool
psi_gather_fill(struct psd_op *op)
{
    struct psi_client *client = op->client;
    struct host *host = client->host;
    const bool is_sum = op->node.level > 0;
    uint32_t count;

    if (op->node.gathering == NULL || op->transfer.from != NULL || op->transfer.empty) {
        return true;
    }
    count = collect(client, op);
    psi_assert(count == op->node.leaves);
    if (!is_sum && host->leaves[0].rank != client->job.rank) {
        op->transfer.from = host->leaves[0].data;
        return true;
    }
    op->node.pool = is_sum ? &op->table->gathered->sums : &op->table->gathered->copies;
    op->node.bytes = psi_pool_take(op->node.pool);
    if (op->node.bytes == NULL) {
        return false;
    }
    if (is_sum) {
        add_leaves(client, op, count);
    } else {
        psi_client_copy(client, op->node.bytes, host->leaves[0].data,
                        psi_transfer_bytes(op, op->first_chunk));
    }
    op->transfer.from = op->node.bytes;
    return true;
}

static void
submit(struct gathering *gathering, struct psd_op *op)
{
    op->remaining = 1;
    psi_transfer_clear_parts(op);
    op->node.next = gathering->nodes;
    gathering->nodes = op;
    psi_op_submit_node(op);
    psi_lane_enqueue(op);
}

/* One node as an operation of its own. */
static bool
send_node(struct psi_client *client, struct gathering *gathering, uint32_t first, uint32_t level,
          bool pull)
{
    struct psd_table *table = gathering->table;
    struct psd_op *op = psi_op_create(client, &table->gathered->ops, OP_TRANSFER, PSD_FOREVER);

    if (op == NULL) {
        return false;
    }
    op->table = table;
    op->spread = &table->flat;
    op->node.gathering = gathering;
    op->priority = gathering->priority;
    op->node.first = first;
    op->node.level = level;
    op->node.leaves = collect(client, op);
    op->transfer = (struct psi_transfer){
        .type = pull ? PSI_FRAME_PUSH_PULL : PSI_FRAME_PUSH,
        .empty = op->node.leaves == 0,
        .step = gathering->step,
        .first = psi_chunk_first(gathering->chunk),
        .count = psi_chunk_elements(table->spec.count, gathering->chunk),
        .to = psi_gathering_value(gathering),
    };
    op->first_chunk = gathering->chunk;
    op->chunk_count = 1;
    submit(gathering, op);
    return true;
}

static bool
some_wants_value(const struct gathering *gathering)
{
    const struct contribution *given = gathering->given;

    while (given != NULL && given->type != PSI_FRAME_PUSH_PULL) {
        given = given->next;
    }
    return given != NULL;
}

void
psi_gather_send_wanted(struct psi_client *client, const struct gathering *gathering)
{
    const struct psi_frame wanted = {
        .table = gathering->table->id, .chunk = gathering->chunk, .step = gathering->step};

    if (gathering->step < gathering->wanted_until) {
        psi_lane_want(client->lanes[gathering->table->flat.places[gathering->chunk]], &wanted);
    }
}

void
psi_gather_no_memory(struct psi_client *client)
{
    psi_client_over(client, PSD_ERR_NO_MEMORY, "no memory to push for the workers of this host");
}

/* Everything that is here leaves, as few nodes; one of them brings the value back. */
static void
send_all(struct psi_client *client, struct gathering *gathering)
{
    const uint32_t workers = client->job.workers;
    bool pull = some_wants_value(gathering);
    uint32_t end;

    gathering->pulls = pull;
    psi_gather_open_remove(client->host, gathering);
    client->host->progressed = true;
    gathering->sent = true;
    for (uint32_t rank = gathering->given->rank; rank < workers; rank = end) {
        uint32_t level;

        if (!psi_ranks_has(&gathering->have, rank)) {
            end = rank + 1;
            continue;
        }
        level = psi_ranks_node_level(&gathering->have, rank, workers);
        end = psi_node_end(rank, level, workers);
        if (!send_node(client, gathering, rank, end > rank + 1 ? level : 0, pull)) {
            psi_gather_no_memory(client);
            return;
        }
        pull = false;
    }
}

/* Of a worker that nobody waited for: it had not yet said that it pushes through us. */
void
psi_gather_send_late(struct psi_client *client, struct gathering *gathering,
                     const struct contribution *given)
{
    const bool pull = given->type == PSI_FRAME_PUSH_PULL && !gathering->pulls;

    gathering->pulls = gathering->pulls || pull;
    if (client->state != PSI_CLIENT_OVER && !send_node(client, gathering, given->rank, 0, pull)) {
        psi_gather_no_memory(client);
    }
    psi_gather_send_wanted(client, gathering);
}

/*
 * A server refused a sum because it has some of the gradients in it already: a worker whose
 * connection to us was cut has pushed its own. So each leaves alone, and counts once. False: one of
 * them is nowhere but in the sum.
 */
static bool
send_leaves(struct psi_client *client, struct gathering *gathering, const struct psd_op *sum)
{
    const uint32_t end = psi_node_end(sum->node.first, sum->node.level, client->job.workers);
    bool pull = sum->transfer.type == PSI_FRAME_PUSH_PULL;

    for (const struct contribution *given = gathering->given; given != NULL; given = given->next) {
        if (given->is_withdrawn && given->rank >= sum->node.first && given->rank < end) {
            return false;
        }
    }
    for (const struct contribution *given = gathering->given; given != NULL; given = given->next) {
        if (given->rank < sum->node.first || given->rank >= end) {
            continue;
        }
        if (!send_node(client, gathering, given->rank, 0, pull)) {
            psi_gather_no_memory(client);
            break;
        }
        pull = false;
    }
    psi_gather_send_wanted(client, gathering);
    return true;
}

/* The one thing that PSD_ERR_STATE means for a sum. */
static bool
is_partly_given(const struct psd_op *op)
{
    return op->node.level > 0 && op->error.status == PSD_ERR_STATE;
}

void
psi_gather_send_if_complete(struct psi_client *client, struct gathering *gathering)
{
    if (gathering->given != NULL && !gathering->sent && client->state != PSI_CLIENT_OVER &&
        psi_gather_lacking(client, gathering, 0) == UINT32_MAX) {
        send_all(client, gathering);
        psi_gather_send_wanted(client, gathering);
    }
}

static void
discard_node(struct psd_op *op)
{
    if (op->node.bytes != NULL) {
        psi_pool_give(op->node.pool, op->node.bytes);
    }
    psi_op_discard(op);
}

/* Everything has been answered. */
static void
begin_next(struct psi_client *client, struct gathering *gathering)
{
    struct contribution *early = gathering->early;

    gathering->sent = false;
    gathering->failed = false;
    gathering->early = NULL;
    while (gathering->answered != NULL) {
        struct psd_op *op = gathering->answered;

        gathering->answered = op->node.next;
        discard_node(op);
    }
    psi_contributions_free(client, gathering->table->gathered, &gathering->given);
    memset(&gathering->have, 0, sizeof(gathering->have));
    while (early != NULL) {
        struct contribution *given = early;

        early = given->next;
        psi_gather_give(client, gathering, given);
    }
}

/*
 * A node was answered, others were not. If their server is lost now, nobody of this host has been
 * given the result, and whatever has it, or makes it anew, waits for this node again.
 */
static bool
may_be_needed_again(const struct psd_op *op)
{
    return op->table->results != NULL && op->error.status == PSD_OK &&
           op->transfer.type == PSI_FRAME_PUSH && op->node.gathering->nodes != NULL;
}

/* A node has ended. */
void
psi_gather_sent(struct psd_op *op)
{
    struct psi_client *client = op->client;
    struct gathering *gathering = op->node.gathering;
    struct psd_op **link = &gathering->nodes;
    const bool over = client->state == PSI_CLIENT_OVER; /* others hear so from the master */

    while (*link != op) {
        link = &(*link)->node.next;
    }
    *link = op->node.next;
    if (is_partly_given(op) && !over && !gathering->failed && send_leaves(client, gathering, op)) {
        /* its gradients are on their way */
    } else if (op->error.status != PSD_OK && !gathering->failed) {
        gathering->failed = true;
        if (!over) {
            psi_gather_answer_all(client, gathering,
                                  (struct ending){op->error.status, op->error.text});
        }
    }
    if (op->error.status == PSD_OK && op->transfer.type == PSI_FRAME_PUSH_PULL) {
        gathering->version = op->value;
        gathering->updates = op->updates;
    }
    if (may_be_needed_again(op)) {
        op->node.next = gathering->answered;
        gathering->answered = op;
        return;
    }
    discard_node(op);
    if (gathering->nodes != NULL) {
        return;
    }
    if (!gathering->failed) {
        psi_gather_answer_all(client, gathering, (struct ending){PSD_OK, ""});
        gathering->done = gathering->step + 1;
    }
    begin_next(client, gathering);
}

/* ---- another life of a server -------------------------------------------------------------- */

/* As it left the first time. */
static void
send_node_again(struct gathering *gathering, struct psd_op *op)
{
    op->ended = false;
    op->applied = 0;
    submit(gathering, op);
}

/* The lane has another life: what was answered of a step that is not over leaves again. Not what
 * brought the value: this worker shows that (psi_gather_result). */
void
psi_gather_send_again(const struct lane_link *lane)
{
    const struct psi_client *client = lane->client;

    for (size_t i = 0; i < client->table_count; i++) {
        const struct psd_table *table = client->tables[i];
        const bool made_anew = table->gathered != NULL && table->results != NULL;
        const uint32_t chunks = made_anew ? table->by_host.lane_counts[client->lane_count] : 0;

        for (uint32_t j = 0; j < chunks; j++) {
            struct gathering *gathering = &table->gathered->gatherings[j];

            while (table->flat.places[gathering->chunk] == lane->index &&
                   gathering->answered != NULL) {
                struct psd_op *op = gathering->answered;

                gathering->answered = op->node.next;
                send_node_again(gathering, op);
            }
        }
    }
}

static const struct gathering *
find_gathering(const struct psd_table *table, uint32_t chunk)
{
    return table->gathered == NULL ? NULL : psi_gathering_find(table, chunk);
}

/* The result of the step, if it is the last that has come for this host: it stays until the next one comes,
 * and then nobody lacks it. NULL: it is not. */
const void *
psi_gather_last(const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    const struct gathering *gathering = find_gathering(table, chunk);

    return gathering != NULL && gathering->version == step + 1 ? psi_gathering_value(gathering)
                                                               : NULL;
}

/* The result of a step whose sums have not all been answered: it is here, but those who gave to it
 * have not been given it. NULL: it is not. */
const void *
psi_gather_result(const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    const struct gathering *gathering = find_gathering(table, chunk);

    return gathering != NULL && gathering->sent && gathering->step == step
               ? psi_gather_last(table, chunk, step)
               : NULL;
}

/* Has the result of the step been asked for, for the workers of this host, and not come? */
bool
psi_gather_lacks(const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    const struct gathering *gathering = find_gathering(table, chunk);

    return gathering != NULL && gathering->sent && gathering->pulls && gathering->step == step &&
           gathering->version != step + 1;
}
