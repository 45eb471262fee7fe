/*
 * lanes.c - the connections to the lanes of the servers: what leaves when, and what comes back.
 *
 * Each lane has a queue of transfers by priority, then age. Requests leave while three bounds allow
 * it: gradient bytes unanswered by the lane (its window), value bytes not yet here (ours), and
 * bytes handed to the transport, kept few so that an urgent tensor overtakes. After a cut,
 * everything unanswered is sent again in the same order with the same numbers; the server counts it
 * once. The host's own lane (route.c, gather.c) is one of them, with a connection or without.
 *
 * A read of a later step waits at the server, perhaps for what this worker has not sent yet. So it
 * must not hold up anything: pushes and reads of the steps before it pass it, and it gives its room
 * back to other reads when no answer has come for a while. Nor must a gradient that waits for other
 * workers hold up what these wait for. The server asks for what it has a part of (WANT); but of a
 * sum of the host's that is complete here it has none, a gradient of a table without rounds has no
 * parts, and one that was given to another worker may be in a round that has closed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/state.h"
#include "client/core/table_view.h"
#include "rpc/identity.h"
#include "rpc/post.h"

#define ROOM_NS UINT64_C(10000000)

enum { REQUESTS_MIN = 32 };

const char *
psi_lane_name(const struct lane_link *lane, char *text, size_t size)
{
    if (lane->index == lane->client->lane_count) {
        snprintf(text, size, "the workers of this host");
    } else {
        snprintf(text, size, "server %u (%s)", lane->server, lane->peer.address);
    }
    return text;
}

/* ---- the queue --------------------------------------------------------------------------- */

static void
part_dequeue(struct lane_link *lane, struct part *part)
{
    if (!part->queued) {
        return;
    }
    part->queued = false;
    if (part->prev != NULL) {
        part->prev->next = part->next;
    } else {
        lane->queue = part->next;
    }
    if (part->next != NULL) {
        part->next->prev = part->prev;
    } else {
        lane->queue_last = part->prev;
    }
}

/* The lane's share of a transfer that has one. */
static struct part *
part_of(const struct lane_link *lane, const struct psd_op *op)
{
    return &op->parts[op->spread->lane_parts[lane->index]];
}

static bool
goes_before(const struct psd_op *a, const struct psd_op *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

/* The lane has something to send: the next turn looks at it. */
static void
mark_busy(struct lane_link *lane)
{
    struct psi_client *client = lane->client;

    if (lane->busy) {
        return;
    }
    lane->busy = true;
    lane->busy_next = NULL;
    if (client->busy != NULL) {
        client->busy_last->busy_next = lane;
    } else {
        client->busy = lane;
    }
    client->busy_last = lane;
}

/* A new one is the most urgent or the least: both ends are looked at before the middle. */
static struct part *
find_before(const struct lane_link *lane, const struct part *part)
{
    struct part *before = lane->queue_last;

    if (lane->queue == NULL || goes_before(part->op, lane->queue->op)) {
        return NULL;
    }
    while (!goes_before(before->op, part->op)) {
        before = before->prev;
    }
    return before;
}

static void
part_enqueue(struct lane_link *lane, struct part *part)
{
    struct part *before;
    struct part *after;

    part_dequeue(lane, part);
    before = find_before(lane, part);
    after = before != NULL ? before->next : lane->queue;
    part->queued = true;
    part->prev = before;
    part->next = after;
    if (before != NULL) {
        before->next = part;
    } else {
        lane->queue = part;
    }
    if (after != NULL) {
        after->prev = part;
    } else {
        lane->queue_last = part;
    }
    mark_busy(lane);
}

/* Index of the first of the lane's chunks that is not below `chunk`. */
uint32_t
psi_spread_index(const struct spread *spread, uint32_t lane, uint64_t chunk)
{
    uint32_t low = 0;
    uint32_t high = spread->lane_counts[lane];

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (spread->lane_chunks[lane][middle] < chunk) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The lane's share of a transfer: all its chunks that are there. */
static void
part_begin(struct lane_link *lane, struct psd_op *op)
{
    struct part *part = part_of(lane, op);

    part->op = op;
    part->cursor = psi_spread_index(op->spread, lane->index, op->first_chunk);
    part->end = psi_spread_index(op->spread, lane->index, op->first_chunk + op->chunk_count);
    if (part->cursor < part->end) {
        part_enqueue(lane, part);
    }
}

/* Puts the transfer into the queues of its lanes,
 * or to its new place after a change of priority. */
void
psi_lane_enqueue(struct psd_op *op)
{
    struct psi_client *client = op->client;

    for (uint32_t i = 0; i < op->spread->lanes_used; i++) {
        const uint16_t lane = op->spread->lanes[i];
        struct part *part = &op->parts[i];

        if (part->op == NULL) {
            part_begin(client->lanes[lane], op);
        } else if (part->queued) {
            part_enqueue(client->lanes[lane], part);
        }
    }
}

/* ---- requests ---------------------------------------------------------------------------- */

static struct request *
request_find(struct lane_link *lane, uint32_t id)
{
    struct request *request =
        lane->requests_capacity > 0 ? lane->requests[id % lane->requests_capacity] : NULL;

    return request != NULL && request->id == id ? request : NULL;
}

/* Twice as many places. Numbers that had places of their own have them still. */
static bool
requests_grow(struct lane_link *lane)
{
    const uint32_t capacity =
        lane->requests_capacity > 0 ? 2 * lane->requests_capacity : REQUESTS_MIN;
    struct request **grown = calloc(capacity, sizeof(*grown));

    if (grown == NULL) {
        return false;
    }
    for (struct request *request = lane->first; request != NULL; request = request->next) {
        grown[request->id % capacity] = request;
    }
    free((void *)lane->requests);
    lane->requests = grown;
    lane->requests_capacity = capacity;
    return true;
}

/* Memory for one more request. A worker has many lanes, and most have little to do: so they have
 * only what they have used. */
static bool
request_reserve(struct lane_link *lane)
{
    if (2 * lane->request_count >= lane->requests_capacity && !requests_grow(lane)) {
        return false;
    }
    if (lane->spare == NULL) {
        lane->spare = psi_pool_take(&lane->client->lane_requests);
    }
    return lane->spare != NULL;
}

/* What a gradient takes of the lane's window: a third when it is read where it is, for it uses no
 * memory; but what has been asked for cannot be overtaken by something urgent. */
static uint64_t
push_cost(const struct lane_link *lane, const struct psd_op *op, uint64_t bytes)
{
    const bool stays = !lane->is_self && op->transfer.lent && lane->peer.conn->lends &&
                       (uintptr_t)op->transfer.from % op->table->element_bytes == 0;
    const uint64_t cost = stays ? bytes / 3 : bytes;

    return op->transfer.empty || cost < PSI_GRADIENT_COST_MIN ? PSI_GRADIENT_COST_MIN : cost;
}

/* A gradient of a table without rounds is applied as it comes: the server keeps none of it, and
 * never asks for one. */
static bool
is_applied_alone(const struct psd_op *op)
{
    return !psi_spec_synchronous(&op->table->spec);
}

static bool
is_of_a_round(const struct psd_op *op)
{
    return psi_frame_has_gradient(op->transfer.type) && !is_applied_alone(op);
}

/* Of a round, and yet the server may never ask for it: it has no part of a sum of the host's that
 * is complete here; and what was given to another worker may have counted already. */
static bool
is_round_unasked(const struct psd_op *op)
{
    return op->gathering != NULL || op->repeats;
}

static struct request *
request_create(struct lane_link *lane, struct psd_op *op, uint32_t chunk)
{
    const uint64_t bytes = psi_transfer_push_bytes(op, chunk);
    struct request *request = lane->spare;

    do {
        lane->next_id = (lane->next_id + 1) & 0x7fffffffu; /* the high bit marks control requests */
    } while (lane->requests[lane->next_id % lane->requests_capacity] != NULL);
    lane->spare = NULL;
    lane->requests[lane->next_id % lane->requests_capacity] = request;
    memset(request, 0, sizeof(*request));
    request->op = op;
    request->chunk = chunk;
    request->id = lane->next_id;
    if (psi_frame_has_gradient(op->transfer.type)) {
        request->seq = ++op->client->seq;
        request->push_cost = (uint32_t)push_cost(lane, op, bytes);
    }
    if (!psi_frame_has_gradient(op->transfer.type) && !op->transfer.empty) {
        request->pull_cost = (uint32_t)bytes;
    }
    lane->read_count += !psi_frame_has_gradient(op->transfer.type);
    lane->used += request->push_cost;
    lane->used_alone += is_applied_alone(op) ? request->push_cost : 0;
    lane->reads += request->pull_cost;
    lane->request_count++;
    request->prev = lane->last;
    if (lane->last != NULL) {
        lane->last->next = request;
    } else {
        lane->first = request;
    }
    lane->last = request;
    part_of(lane, op)->unanswered++;
    op->chunks[chunk - op->first_chunk] = CHUNK_SENT;
    return request;
}

static void
request_free(struct lane_link *lane, struct request *request)
{
    lane->used -= request->push_cost;
    lane->used_alone -= is_applied_alone(request->op) ? request->push_cost : 0;
    lane->reads -= request->pull_cost;
    lane->read_count -= !psi_frame_has_gradient(request->op->transfer.type);
    lane->request_count--;
    if (request->prev != NULL) {
        request->prev->next = request->next;
    } else {
        lane->first = request->next;
    }
    if (request->next != NULL) {
        request->next->prev = request->prev;
    } else {
        lane->last = request->prev;
    }
    part_of(lane, request->op)->unanswered--;
    if (lane->receiving == request) {
        lane->receiving = NULL;
    }
    if (lane->resend == request) {
        lane->resend = request->next;
    }
    lane->requests[request->id % lane->requests_capacity] = NULL;
    psi_pool_give(&lane->client->lane_requests, request);
}

/* The bytes of a chunk, as its table's gradients travel. Everything else goes as it is. */
static struct psi_encoded
encode_chunk(const struct psd_op *op, uint32_t chunk, struct psi_frame *frame)
{
    const uint64_t count = psi_chunk_elements(op->table->spec.count, chunk);
    const uint64_t element_bytes = psi_transfer_element_bytes(op);
    const void *numbers = (const uint8_t *)op->transfer.from +
                          (chunk - op->first_chunk) * PSD_CHUNK_ELEMENTS * element_bytes;

    if (!psi_frame_has_gradient(op->transfer.type)) {
        return (struct psi_encoded){.bytes = numbers, .size = count * element_bytes};
    }
    frame->codec = op->table->codec->id;
    return op->table->codec->encode(psi_transfer_dtype(op), numbers, count, NULL);
}

static psd_status
request_send(struct lane_link *lane, const struct request *request)
{
    struct psd_op *op = request->op;
    const struct psi_transfer *transfer = &op->transfer;
    const struct psi_meta meta = {
        .has_part = transfer->part != 0,
        .part = transfer->part,
        .has_node = op->gathering != NULL,
        .node_first = (uint16_t)op->node_first,
        .node_leaves = (uint16_t)op->node_leaves,
    };
    struct psi_frame frame = {
        .type = transfer->type,
        .dtype = (uint8_t)psi_transfer_dtype(op),
        .level = (uint8_t)op->node_level,
        .seq = transfer->type == PSI_FRAME_STATE_PUSH ? transfer->updates : request->seq,
        .step = transfer->step,
        .view = lane->client->view.id,
        .request = request->id,
        .table = op->table->id,
        .chunk = request->chunk,
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
        .priority = op->priority,
    };
    struct psi_payload payload = {.checksum = lane->client->config.checksum};

    if (lane->is_self) {
        psi_gather_own(op, request->chunk, request->id);
        return PSD_OK;
    }
    if (transfer->empty) {
        frame.flags |= PSI_FLAG_EMPTY;
    } else if (transfer->from != NULL && transfer->type != PSI_FRAME_PULL &&
               transfer->type != PSI_FRAME_STATE_PULL) {
        const struct psi_encoded sent = encode_chunk(op, request->chunk, &frame);

        payload.base = sent.bytes;
        payload.bytes = sent.size;
        payload.stable = transfer->lent;
    }
    if (op->exact) {
        frame.flags |= PSI_FLAG_EXACT;
    }
    return psi_post_payload(lane->peer.conn, &frame, meta.has_part || meta.has_node ? &meta : NULL,
                            &payload);
}

static void
break_link(struct lane_link *lane, const char *why)
{
    struct psd_error reason;
    char name[128];

    psi_fail(&reason, PSD_ERR_PEER_LOST, "%s: %s", psi_lane_name(lane, name, sizeof(name)), why);
    psi_peer_reset(&lane->peer, &reason);
}

/* Sends one chunk's request now. False: the connection did not take it, or there is no memory. */
static bool
send_chunk(struct lane_link *lane, struct psd_op *op, uint32_t chunk)
{
    const struct request *request;

    if (!request_reserve(lane)) {
        return false;
    }
    request = request_create(lane, op, chunk);
    op->touched++;
    if (request_send(lane, request) != PSD_OK) {
        /* Whatever left of it will be repeated: the request stays, the connection goes. */
        break_link(lane, "send failed");
        return false;
    }
    return true;
}

/* One always fits, however large. */
static bool
fits(uint64_t used, uint64_t cost, uint64_t window_bytes)
{
    return used == 0 || used + cost <= window_bytes;
}

static bool
has_room_to_push(const struct lane_link *lane, const struct psd_op *op, uint64_t cost)
{
    return fits(lane->used, cost, lane->window_bytes) || (lane->extra && is_round_unasked(op)) ||
           (lane->apart && is_applied_alone(op) &&
            fits(lane->used_alone, cost, lane->window_bytes));
}

/* The value that answers a push_pull needs no room of its own: the lane knows our gradients and
 * asks for what it lacks (WANT), but it could not know that we wait for room to read. */
static bool
has_room(const struct lane_link *lane, const struct psd_op *op, uint32_t chunk)
{
    const uint64_t bytes = psi_transfer_push_bytes(op, chunk);

    if (psi_frame_has_gradient(op->transfer.type)) {
        return has_room_to_push(lane, op, push_cost(lane, op, bytes));
    }
    return lane->read_count < READS_MAX &&
           fits(lane->reads, bytes, lane->client->config.window_bytes);
}

static bool
may_send_at_all(const struct lane_link *lane)
{
    if (lane->is_self) {
        return lane->request_count < REQUESTS_FREE_MAX;
    }
    return lane->peer.state == PSI_PEER_UP && lane->request_count < REQUESTS_FREE_MAX &&
           lane->peer.conn->ops->queued_bytes(lane->peer.conn) < SEND_QUEUE_BYTES;
}

static void
room_check_at(struct lane_link *lane, uint64_t at_ns)
{
    struct psi_client *client = lane->client;

    lane->room_ns = at_ns;
    if (client->room_ns == 0 || at_ns < client->room_ns) {
        client->room_ns = at_ns;
    }
}

/* Something finds no room. If no answer comes for a while, what is under way waits for something,
 * perhaps for this. A gradient of a round waits until it is asked for, unless there are some of
 * tables without rounds in front of it: a push_pull of these waits as a read does. */
static void
wait_for_room(struct lane_link *lane, const struct psd_op *op)
{
    if (lane->room_ns == 0 &&
        (!is_of_a_round(op) || is_round_unasked(op) || lane->used_alone > 0)) {
        room_check_at(lane, psi_now_ns(lane->client->env) + ROOM_NS);
    }
}

/* What waits at the server only to be answered gives its room back, and one gradient leaves that
 * nobody asks for. Those of tables without rounds no longer wait for those of rounds: the server
 * keeps none of them. */
static void
free_room(struct lane_link *lane)
{
    lane->extra = true;
    lane->apart = true;
    lane->used -= lane->used_alone;
    lane->used_alone = 0;
    for (struct request *request = lane->first; request != NULL; request = request->next) {
        if (is_applied_alone(request->op)) {
            request->push_cost = 0;
        }
        if (psi_frame_wants_value(request->op->transfer.type)) {
            lane->reads -= request->pull_cost;
            request->pull_cost = 0;
        }
    }
    lane->room_ns = 0;
    mark_busy(lane);
}

static void
room_tick(struct psi_client *client, uint64_t now_ns)
{
    if (client->room_ns == 0 || now_ns < client->room_ns) {
        return;
    }
    client->room_ns = 0;
    for (uint32_t i = 0; i <= client->lane_count; i++) {
        struct lane_link *lane = client->lanes[i];

        if (lane->room_ns == 0) {
            continue;
        }
        if (now_ns < lane->room_ns) {
            room_check_at(lane, lane->room_ns);
        } else if (lane->receiving != NULL) {
            room_check_at(lane, now_ns + ROOM_NS); /* a slow line */
        } else {
            free_room(lane);
        }
    }
}

/* Sends what it can of one transfer; false when it is blocked. */
static bool
pump_part(struct lane_link *lane, struct part *part)
{
    struct psd_op *op = part->op;

    while (part->cursor < part->end) {
        const uint32_t chunk = op->spread->lane_chunks[lane->index][part->cursor];

        if (op->chunks[chunk - op->first_chunk] != CHUNK_UNSENT) {
            part->cursor++;
            continue;
        }
        if (!may_send_at_all(lane)) {
            return false;
        }
        if (!has_room(lane, op, chunk)) {
            wait_for_room(lane, op);
            return false;
        }
        if (!psi_gather_fill(op)) {
            return false;
        }
        lane->extra = lane->extra && !is_round_unasked(op);
        if (!send_chunk(lane, op, chunk)) {
            return false;
        }
        part->cursor++;
    }
    part_dequeue(lane, part);
    return true;
}

/* What is of an earlier step than this may pass a transfer that is blocked: a pull of a step waits
 * for all that comes before it. */
static uint64_t
passable_step(const struct psd_op *blocked)
{
    return blocked->transfer.type == PSI_FRAME_PULL ? blocked->transfer.step : 0;
}

/* The first pull that sees a push is that of the next step, or a later one of a stale table. */
static bool
belongs_before(const struct psd_op *op, uint64_t step)
{
    const uint32_t staleness = op->table->spec.staleness;

    if (psi_frame_has_gradient(op->transfer.type)) {
        return staleness != PSD_STALENESS_UNBOUNDED && step > staleness &&
               op->transfer.step < step - staleness;
    }
    return psi_frame_wants_value(op->transfer.type) && op->transfer.step < step;
}

/* Is an older or more urgent transfer of the same table still in the queue? Then order forbids,
 * unless this one has to come before it. */
static bool
behind_its_table(const struct lane_link *lane, const struct part *part)
{
    for (const struct part *other = lane->queue; other != part; other = other->next) {
        if (other->op->table == part->op->table &&
            !belongs_before(part->op, passable_step(other->op))) {
            return true;
        }
    }
    return false;
}

/* After a cut everything unanswered goes first, in its old order. True: all of it is out. */
static bool
pump_again(struct lane_link *lane)
{
    while (lane->resend != NULL && lane->peer.state == PSI_PEER_UP &&
           lane->peer.conn->ops->queued_bytes(lane->peer.conn) < SEND_QUEUE_BYTES) {
        struct request *request = lane->resend;

        lane->resend = request->next;
        if (request_send(lane, request) != PSD_OK) {
            break_link(lane, "send failed");
        }
    }
    return lane->resend == NULL;
}

static bool
may_pump(const struct psd_op *op, uint64_t turn)
{
    return op->gathering != NULL || op->table->blocked_turn != turn ||
           belongs_before(op, op->table->passable);
}

static void
note_blocked(const struct psd_op *op, uint64_t turn)
{
    struct psd_table *table = op->table;
    const uint64_t passable = passable_step(op);

    if (table->blocked_turn != turn || passable < table->passable) {
        table->passable = passable;
    }
    table->blocked_turn = turn;
}

/* A transfer that is blocked does not block others, except of its own table. A sum of the host's
 * gradients waits for none: a read that came before it may be waiting for its round. */
static void
pump(struct lane_link *lane)
{
    const uint64_t turn = ++lane->client->pump_turn;
    struct part *next;

    if (!pump_again(lane)) {
        return;
    }
    for (struct part *part = lane->queue; part != NULL && may_send_at_all(lane); part = next) {
        next = part->next;
        if (may_pump(part->op, turn) && !pump_part(lane, part)) {
            note_blocked(part->op, turn);
        }
    }
}

/*
 * How many answers are worth waking up for. While an operation has the lane to itself, nobody
 * learns anything before its last one; but values that have to be copied are copied while they are
 * in the cache, and what waits for room in the window leaves in time.
 */
static void
wake_after(const struct lane_link *lane)
{
    struct psi_conn *conn = lane->peer.conn;
    uint32_t answers = 1;

    if (lane->peer.state != PSI_PEER_UP || conn->ops->wake_after == NULL) {
        return;
    }
    if (lane->first != NULL && part_of(lane, lane->first->op)->unanswered == lane->request_count) {
        answers = lane->request_count;
        if (lane->queue != NULL) {
            answers -= answers / 4; /* the lane works on the rest until more has come */
        } else if (!lane->first->op->transfer.to_view && answers > COPY_AT_ONCE) {
            answers = COPY_AT_ONCE;
        }
    }
    conn->ops->wake_after(conn, answers > 0 ? answers : 1);
}

/* ---- answers ----------------------------------------------------------------------------- */

/* The caller gets its gradient back: whatever is unsent of it is copied. */
static void
stop_borrowing(const struct lane_link *lane, const struct psd_op *op)
{
    const uint64_t bytes = op->gathering != NULL
                               ? psi_transfer_push_bytes(op, op->first_chunk)
                               : op->transfer.count * psi_transfer_element_bytes(op);
    struct psi_conn *conn = lane->peer.conn;

    if (conn != NULL && op->transfer.from != NULL) {
        (void)conn->ops->unshare(conn, op->transfer.from, bytes);
    }
}

static void
transfer_finish(struct psd_op *op)
{
    for (uint32_t i = 0; i < op->spread->lanes_used; i++) {
        struct lane_link *lane = op->client->lanes[op->spread->lanes[i]];

        stop_borrowing(lane, op);          /* answered before it had left, or sent twice */
        part_dequeue(lane, &op->parts[i]); /* the last chunk of it was asked for, and has left so */
    }
    if (op->error.status == PSD_OK) {
        psi_op_succeed(op);
        return;
    }
    const struct psd_error first = op->error;
    char what[PSD_NAME_MAX + 64];

    psi_transfer_describe(op, what, sizeof(what));
    psi_op_end(op, first.status, op->applied == 0 ? PSD_OUTCOME_NOT_APPLIED : PSD_OUTCOME_UNKNOWN,
               "%s: %s", what, first.text);
}

static void
request_answered(struct lane_link *lane, struct request *request, psd_status status,
                 const char *text, const struct psi_frame *frame)
{
    struct psd_op *op = request->op;
    const uint32_t chunk = request->chunk;

    op->chunks[chunk - op->first_chunk] = CHUNK_DONE;
    request_free(lane, request);
    lane->extra = is_round_unasked(op); /* where one got through, the next may */
    lane->apart = lane->apart && !is_of_a_round(op);
    lane->room_ns = 0;
    mark_busy(lane); /* how many answers it waits for changes */
    op->remaining--;
    if (frame->seq > op->updates) {
        op->updates = frame->seq;
    }
    op->value = frame->step;
    if (status == PSD_OK) {
        op->applied++;
    } else if (op->error.status == PSD_OK) {
        psi_fail(&op->error, status, "%s", text);
    }
    if (status == PSD_ERR_DROPPED) {
        psi_group_reached(op->table, frame->step);
    }
    if (op->remaining == 0) {
        transfer_finish(op);
    }
}

/* An empty pull only waits: a yes is all it gets. */
static bool
wants_value(const struct psd_op *op)
{
    const bool only_waits = op->transfer.type == PSI_FRAME_PULL && op->transfer.empty;

    return psi_frame_wants_value(op->transfer.type) && !only_waits;
}

static psd_status
ack_arrived(struct lane_link *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    struct request *request = request_find(lane, frame->request);
    struct psi_verdict verdict = {.status = PSD_OK};
    psd_status status = PSD_OK;

    if (bytes > 0) {
        status = psi_verdict_decode(payload, bytes, &verdict, err);
    }
    if (status == PSD_OK && request != NULL &&
        (frame->status > 0 || (frame->status == 0 && wants_value(request->op)))) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "ACK of table %s chunk %u: status %d",
                        request->op->table->spec.name, request->chunk, frame->status);
    }
    if (status == PSD_OK && request != NULL) {
        request_answered(lane, request, (psd_status)frame->status, verdict.text, frame);
    }
    return status;
}

static psd_status
value_sink(struct lane_link *lane, struct psi_sink *sink_p, struct psd_error *err)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    struct request *request = request_find(lane, frame->request);
    const struct psd_op *op;

    sink_p->into = NULL;
    lane->receiving = NULL;
    if (request == NULL) {
        return PSD_OK; /* its operation has ended: nobody wants it any more */
    }
    op = request->op;
    if (!psi_frame_wants_value(op->transfer.type) ||
        frame->payload_bytes != psi_transfer_bytes(op, request->chunk)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "VALUE of table %s chunk %u: %u bytes, expected %llu", op->table->spec.name,
                        request->chunk, frame->payload_bytes,
                        (unsigned long long)psi_transfer_bytes(op, request->chunk));
    }
    lane->receiving = request;
    if (op->transfer.to_view) {
        const psd_status shown = psi_table_view_show(op->table->view, lane, request->chunk, sink_p,
                                                     frame->payload_bytes);

        if (shown == PSD_ERR_NO_MEMORY) {
            psi_client_over(lane->client, shown, "table %s: no memory left to map for its view",
                            op->table->spec.name);
        }
        if (shown != PSD_PENDING) {
            return PSD_OK;
        }
    }
    sink_p->into = (uint8_t *)op->transfer.to + (request->chunk - op->first_chunk) *
                                                    (uint64_t)PSD_CHUNK_ELEMENTS *
                                                    psi_transfer_element_bytes(op);
    return PSD_OK;
}

static void
value_arrived(struct lane_link *lane)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    struct request *request = request_find(lane, frame->request);

    if (request != NULL && lane->receiving == request) {
        request_answered(lane, request, PSD_OK, "", frame);
    }
}

/* The chunk's unsent push at the head of its table, if there is one. Sums of a host have one chunk
 * each, so that none has to wait for another. */
static struct part *
find_wanted(struct lane_link *lane, const struct psi_frame *frame)
{
    for (struct part *part = lane->queue; part != NULL; part = part->next) {
        const struct psd_op *op = part->op;

        if (op->table->id == frame->table && psi_frame_has_gradient(op->transfer.type) &&
            op->transfer.step == frame->step && frame->chunk >= op->first_chunk &&
            frame->chunk - op->first_chunk < op->chunk_count &&
            op->spread->places[frame->chunk] == lane->index &&
            op->chunks[frame->chunk - op->first_chunk] == CHUNK_UNSENT) {
            return op->gathering == NULL && behind_its_table(lane, part) ? NULL : part;
        }
    }
    return NULL;
}

/* This chunk leaves now, whatever the window. */
void
psi_lane_want(struct lane_link *lane, const struct psi_frame *wanted)
{
    const struct part *part = find_wanted(lane, wanted);

    while (part != NULL && lane->resend == NULL && lane->request_count < REQUESTS_MAX - 1 &&
           (lane->is_self || lane->peer.state == PSI_PEER_UP) && psi_gather_fill(part->op) &&
           send_chunk(lane, part->op, wanted->chunk)) {
        part = find_wanted(lane, wanted);
    }
}

static void
want_arrived(struct lane_link *lane)
{
    psi_order_want(lane->client, &lane->peer.inbox.frame);
    psi_lane_want(lane, &lane->peer.inbox.frame);
    if (lane != psi_host_lane(lane->client)) {
        psi_route_want(lane->client, &lane->peer.inbox.frame);
    }
}

/* Whose gradient a request brings; of a sum: the first of them. */
static uint32_t
rank_of(const struct request *request)
{
    return request->op->gathering != NULL ? request->op->node_first : request->op->client->job.rank;
}

/* RESEND: the server let this chunk go; it goes back to the unsent ones. */
static void
resend_arrived(struct lane_link *lane)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;

    for (struct request *request = lane->first; request != NULL; request = request->next) {
        struct psd_op *op = request->op;

        if (op->table->id == frame->table && request->chunk == frame->chunk &&
            psi_frame_has_gradient(op->transfer.type) && op->transfer.step == frame->step &&
            rank_of(request) == frame->rank) {
            struct part *part = part_of(lane, op);

            op->chunks[request->chunk - op->first_chunk] = CHUNK_UNSENT;
            part->cursor = psi_spread_index(op->spread, lane->index, op->first_chunk);
            request_free(lane, request);
            part_enqueue(lane, part);
            return;
        }
    }
}

static void
because_arrived(struct lane_link *lane, const void *payload, size_t bytes)
{
    const struct request *request = request_find(lane, lane->peer.inbox.frame.request);
    struct psi_verdict verdict;

    if (request != NULL && psi_verdict_decode(payload, bytes, &verdict, NULL) == PSD_OK) {
        snprintf(request->op->because, sizeof(request->op->because), "%s", verdict.text);
        if (request->op->gathering != NULL) {
            psi_gather_because(request->op, verdict.text);
        }
    }
}

/* ---- the connection's events ------------------------------------------------------------- */

void
psi_lane_hello(void *owner, struct psi_peer *peer, struct psi_hello *hello_p)
{
    const struct psi_client *client = ((struct lane_link *)owner)->client;

    (void)peer;
    hello_p->role = PSI_ROLE_WORKER;
    hello_p->rank = client->job.rank;
    hello_p->incarnation = client->job.incarnation;
    hello_p->life = client->life;
    hello_p->job = client->job.job;
}

void
psi_lane_came_up(struct lane_link *lane, uint64_t window_bytes)
{
    lane->ups++;
    lane->lends = lane->peer.conn->lends;
    lane->window_bytes = window_bytes < lane->client->config.window_bytes
                             ? window_bytes
                             : lane->client->config.window_bytes;
    lane->resend = lane->first;
    mark_busy(lane);
}

static void
on_up(void *owner, struct psi_peer *peer, const struct psi_welcome *welcome)
{
    struct lane_link *lane = owner;

    (void)peer;
    lane->client->lanes_up++;
    psi_lane_came_up(lane, welcome->window_bytes);
    if (lane->index == 0) {
        psi_control_resend(lane->client);
    }
}

static void
on_down(void *owner, struct psi_peer *peer, const struct psd_error *reason)
{
    struct lane_link *lane = owner;

    (void)peer;
    (void)reason;
    lane->client->lanes_up--;
    lane->receiving = NULL;
    psi_share_lane_down(lane);
}

static void
on_refused(void *owner, struct psi_peer *peer, const struct psi_verdict *verdict)
{
    struct lane_link *lane = owner;
    char name[128];

    (void)peer;
    if (lane->client->leaving && verdict->status == PSD_ERR_FENCED) {
        return; /* servers know already that we have left: the master's answer is on its way */
    }
    psi_client_over(lane->client, (psd_status)verdict->status, "refused by %s: %s",
                    psi_lane_name(lane, name, sizeof(name)), verdict->text);
}

psd_status
psi_lane_head(void *owner, struct psi_peer *peer, struct psi_sink *sink_p, struct psd_error *err)
{
    struct lane_link *lane = owner;

    if (peer->inbox.frame.type == PSI_FRAME_VALUE) {
        return value_sink(lane, sink_p, err);
    }
    return psi_inbox_body(&peer->inbox, sink_p, err);
}

psd_status
psi_lane_frame(void *owner, struct psi_peer *peer, void *payload, size_t bytes,
               struct psd_error *err)
{
    struct lane_link *lane = owner;
    const struct psi_frame *frame = &peer->inbox.frame;

    switch (frame->type) {
    case PSI_FRAME_VALUE:
        value_arrived(lane);
        return PSD_OK;
    case PSI_FRAME_ACK:
        if ((frame->request & 0x80000000u) != 0) {
            return psi_control_frame(lane->client, peer, payload, bytes, err);
        }
        return ack_arrived(lane, payload, bytes, err);
    case PSI_FRAME_SHARE_DATA:
        return psi_control_frame(lane->client, peer, payload, bytes, err);
    case PSI_FRAME_SHARE_PULL:
        return psi_share_asked(lane, payload, bytes, err);
    case PSI_FRAME_WANT:
        want_arrived(lane);
        return PSD_OK;
    case PSI_FRAME_RESEND:
        resend_arrived(lane);
        return PSD_OK;
    case PSI_FRAME_BECAUSE:
        because_arrived(lane, payload, bytes);
        return PSD_OK;
    case PSI_FRAME_OFFER:
        return psi_route_offered(lane, payload, bytes, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from a server: not expected",
                        psi_frame_type_name(frame->type));
    }
}

static const struct psi_peer_events lane_events = {
    .hello = psi_lane_hello,
    .on_up = on_up,
    .on_down = on_down,
    .on_refused = on_refused,
    .on_head = psi_lane_head,
    .on_frame = psi_lane_frame,
};

/* ---- all lanes --------------------------------------------------------------------------- */

static struct lane_link *
find_link(const struct psi_client *client, const struct psi_view_place *place)
{
    for (uint32_t i = 0; i < client->lane_count; i++) {
        struct lane_link *lane = client->lanes[i];

        if (lane->server == place->server && lane->lane == place->lane) {
            return lane;
        }
    }
    return NULL;
}

/* The host's own comes behind those of the servers. */
static psd_status
begin_links(struct psi_client *client, uint32_t places)
{
    struct lane_link *host = calloc(1, sizeof(*host));

    client->lanes = calloc(places + 1, sizeof(struct lane_link *));
    if (client->lanes == NULL || host == NULL) {
        free((void *)client->lanes);
        free(host);
        client->lanes = NULL;
        return PSD_ERR_NO_MEMORY;
    }
    host->client = client;
    host->server = UINT32_MAX;
    host->ups = UINT32_MAX / 2; /* never those of another lane */
    client->lanes[0] = host;
    return PSD_OK;
}

static psd_status
add_link(struct psi_client *client, const struct psi_view_place *place)
{
    const uint32_t index = client->lane_count;
    struct lane_link *lane = calloc(1, sizeof(*lane));

    if (lane == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    lane->client = client;
    lane->index = index;
    lane->server = place->server;
    lane->lane = place->lane;
    psi_peer_start(&lane->peer, client->env, place->address, &lane_events, lane, index);
    psi_identity_server(lane->peer.name, place->server, place->lane);
    client->lanes[index + 1] = client->lanes[index];
    client->lanes[index + 1]->index = index + 1;
    client->lanes[index] = lane;
    client->lane_count = index + 1;
    return PSD_OK;
}

/* Every lane of every server has a link of its own, from the view that brings it on. Today that is
 * the first one: where chunks are is worked out when their table is opened. */
psd_status
psi_lanes_on_view(struct psi_client *client, const struct psi_view *old, const struct psi_view *now,
                  struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (old->id != 0) {
        return PSD_OK;
    }
    status = begin_links(client, now->places);
    for (uint32_t i = 0; i < now->places && status == PSD_OK; i++) {
        status = find_link(client, &now->place[i]) == NULL ? add_link(client, &now->place[i])
                                                           : PSD_ERR_PROTOCOL;
    }
    if (status == PSD_ERR_PROTOCOL) {
        return psi_fail(err, status, "view %u: one lane of a server in two places", now->id);
    }
    return status == PSD_OK ? PSD_OK : psi_fail(err, status, "no memory for %u lanes", now->places);
}

/* The host's own; used only when a worker sends for this host. */
struct lane_link *
psi_host_lane(const struct psi_client *client)
{
    return client->lanes[client->lane_count];
}

void
psi_lanes_stop(struct psi_client *client)
{
    for (uint32_t i = 0; client->lanes != NULL && i <= client->lane_count; i++) {
        psi_peer_close(&client->lanes[i]->peer);
        free((void *)client->lanes[i]->requests);
        if (client->lanes[i]->spare != NULL) {
            psi_pool_give(&client->lane_requests, client->lanes[i]->spare);
        }
        free(client->lanes[i]);
    }
    free((void *)client->lanes);
    client->lanes = NULL;
    client->lane_count = 0;
    client->busy = NULL;
}

/* Connections that are up need no turn of their own; and lanes let go of a worker that has said
 * BYE, perhaps before it hears that it may go. */
static bool
wants_lanes(const struct psi_client *client)
{
    return !client->leaving && !psi_lanes_up(client);
}

void
psi_lanes_tick(struct psi_client *client, uint64_t now_ns)
{
    for (uint32_t i = 0; wants_lanes(client) && i < client->lane_count; i++) {
        psi_peer_tick(&client->lanes[i]->peer, now_ns);
    }
    room_tick(client, now_ns);
}

uint64_t
psi_lanes_next_ns(const struct psi_client *client)
{
    uint64_t next_ns = client->room_ns != 0 ? client->room_ns : UINT64_MAX;

    for (uint32_t i = 0; wants_lanes(client) && i < client->lane_count; i++) {
        const uint64_t peer_ns = psi_peer_next_ns(&client->lanes[i]->peer);

        next_ns = peer_ns < next_ns ? peer_ns : next_ns;
    }
    return next_ns;
}

/* Lanes with anything left to send stay busy until the next turn. */
void
psi_lanes_send(struct psi_client *client)
{
    struct lane_link *lane;

    if (client->host != NULL) {
        pump(psi_host_lane(client)); /* first: what it completes leaves with the others */
    }
    lane = client->busy;
    client->busy = NULL;
    while (lane != NULL) {
        struct lane_link *next = lane->busy_next;

        lane->busy = false;
        pump(lane);
        wake_after(lane);
        if (lane->queue != NULL || lane->resend != NULL) {
            mark_busy(lane);
        }
        lane = next;
    }
}

bool
psi_lanes_up(const struct psi_client *client)
{
    return client->lane_count > 0 && client->lanes_up == client->lane_count;
}

/* Names the servers that have not answered, unless a better reason is known. */
static void
blame(struct psd_op *op, const struct lane_link *lane, uint32_t unanswered)
{
    const size_t used = strlen(op->because);
    char name[128];

    if (unanswered > 0 && used + 160 < sizeof(op->because)) {
        snprintf(op->because + used, sizeof(op->because) - used, "%s%s: %u chunks%s",
                 used > 0 ? "; " : "", psi_lane_name(lane, name, sizeof(name)), unanswered,
                 lane->is_self || lane->peer.state == PSI_PEER_UP ? "" : ", not connected");
    }
}

/* Forgets an operation that is about to end early:
 * nothing borrows or writes its memory any more. */
void
psi_lane_forget(struct psd_op *op)
{
    struct psi_client *client = op->client;

    for (uint32_t i = 0; i < op->spread->lanes_used; i++) {
        struct lane_link *lane = client->lanes[op->spread->lanes[i]];
        bool receiving = false;
        uint32_t unanswered = 0;
        struct request *next;

        part_dequeue(lane, &op->parts[i]);
        for (struct request *request = lane->first; request != NULL; request = next) {
            next = request->next;
            if (request->op == op) {
                receiving = receiving || lane->receiving == request;
                unanswered++;
                if (lane->is_self) {
                    psi_gather_withdraw(op, request->chunk);
                }
                request_free(lane, request);
            }
        }
        blame(op, lane, unanswered);
        if (lane->peer.conn == NULL) {
            continue;
        }
        if (receiving) {
            break_link(lane, "an operation ended while its value was coming in");
        } else {
            stop_borrowing(lane, op);
        }
    }
}

static void
ask_master_why(const struct psd_op *op)
{
    struct psi_frame frame = op->frame;

    frame.type = PSI_FRAME_WHY;
    if (op->kind == OP_BARRIER && psi_master_link_is_up(&op->client->master)) {
        (void)psi_post(op->client->master.peer.conn, &frame);
    }
}

static void
ask_lane_why(const struct lane_link *lane, const struct request *request)
{
    const struct psd_op *op = request->op;
    const struct psi_frame frame = {
        .type = PSI_FRAME_WHY,
        .view = lane->client->view.id,
        .request = request->id,
        .table = op->table->id,
        .chunk = request->chunk,
        .step = op->transfer.step + (psi_frame_has_gradient(op->transfer.type) ? 1 : 0),
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
    };

    (void)psi_post(lane->peer.conn, &frame);
}

/* The deadline is near: asks the first that has not answered what it is waiting for. */
void
psi_lane_ask_why(struct psd_op *op)
{
    struct psi_client *client = op->client;

    if (op->kind != OP_TRANSFER) {
        ask_master_why(op);
        return;
    }
    for (uint32_t i = 0; i < op->spread->lanes_used; i++) {
        const struct lane_link *lane = client->lanes[op->spread->lanes[i]];
        const struct request *request = lane->first;

        while (request != NULL && request->op != op) {
            request = request->next;
        }
        if (request != NULL && lane->is_self) {
            (void)psi_gather_why(op->table, request->chunk, op->because, sizeof(op->because));
            return;
        }
        if (request != NULL && lane->peer.state == PSI_PEER_UP) {
            ask_lane_why(lane, request);
            return;
        }
    }
}

/* The same for what is sent for this host. False: it has not left yet. */
bool
psi_lane_ask_why_node(const struct psd_op *op)
{
    const struct lane_link *lane = op->client->lanes[op->spread->places[op->first_chunk]];
    const struct request *request = lane->first;

    while (request != NULL && request->op != op) {
        request = request->next;
    }
    if (request != NULL && lane->peer.state == PSI_PEER_UP) {
        ask_lane_why(lane, request);
    }
    return request != NULL;
}

/* ---- the host's own lane ------------------------------------------------------------------ */

/* False: a view has no room for it, and the job is over. */
static bool
copy_own_value(struct lane_link *lane, const struct request *request, const void *value)
{
    const struct psd_op *op = request->op;
    const uint64_t bytes = psi_transfer_bytes(op, request->chunk);
    const struct psi_sink copied = {0};

    if (op->transfer.to_view &&
        psi_table_view_show(op->table->view, lane, request->chunk, &copied, bytes) != PSD_PENDING) {
        psi_client_over(lane->client, PSD_ERR_NO_MEMORY,
                        "table %s: no memory left to map for its view", op->table->spec.name);
        return false;
    }
    memcpy((uint8_t *)op->transfer.to + (request->chunk - op->first_chunk) *
                                            (uint64_t)PSD_CHUNK_ELEMENTS * op->table->element_bytes,
           value, bytes);
    return true;
}

void
psi_lane_answer_own(struct lane_link *lane, const struct own_answer *answer)
{
    struct request *request = request_find(lane, answer->request);
    const struct psi_frame frame = {.step = answer->step, .seq = answer->updates};

    if (request == NULL) {
        return; /* its operation has ended */
    }
    if (answer->value == NULL || !wants_value(request->op) ||
        copy_own_value(lane, request, answer->value)) {
        request_answered(lane, request, answer->status, answer->text, &frame);
    }
}

void
psi_lane_tell_own(struct lane_link *lane, uint32_t request_id, const char *because)
{
    const struct request *request = request_find(lane, request_id);

    if (request != NULL) {
        snprintf(request->op->because, sizeof(request->op->because), "%s", because);
    }
}

/* Nobody sends for this host any more: what is left of the transfer goes to the servers. What was
 * given in vain is given again; it counts once. */
void
psi_lane_reroute(struct psd_op *op)
{
    struct lane_link *host = psi_host_lane(op->client);
    const bool begun = part_of(host, op)->op != NULL;
    struct request *next;

    part_dequeue(host, part_of(host, op));
    for (struct request *request = host->first; request != NULL; request = next) {
        next = request->next;
        if (request->op == op) {
            op->chunks[request->chunk - op->first_chunk] = CHUNK_UNSENT;
            op->repeats = true;
            request_free(host, request);
        }
    }
    op->spread = &op->table->flat;
    for (uint32_t i = 0; begun && i < op->spread->lanes_used; i++) {
        const uint16_t lane = op->spread->lanes[i];

        if (op->table->by_host.lane_counts[lane] == 0) {
            part_begin(op->client->lanes[lane], op);
        }
    }
}
