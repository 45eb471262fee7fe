/*
 * lane_send.c - what leaves when, on the lanes of the servers.
 *
 * Each lane has a queue of transfers by priority, then age. Requests leave while three bounds allow
 * it: gradient bytes unanswered by the lane (its window), value bytes not yet here (ours), and
 * bytes handed to the transport, kept few so that an urgent tensor overtakes. The host's own lane
 * (route.c, gather.c) is one of them, with a connection or without.
 *
 * A read of a later step waits at the server, perhaps for what this worker has not sent yet. So it
 * must not hold up anything: pushes and reads of the steps before it pass it, and it gives its room
 * back to other reads when no answer has come for a while. Nor must a gradient that waits for other
 * workers hold up what these wait for. The server asks for what it has a part of (WANT); but of a
 * sum of the host's that is complete here it has none, a gradient of a table without rounds has no
 * parts, and one that was given to another worker, to an earlier life of the server, or by an earlier
 * life of this worker, may be in a round that has closed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/lane_parts.h"
#include "client/core/results.h"

#define ROOM_NS UINT64_C(10000000)

/* One always fits, however large. */
static bool
fits(uint64_t used, uint64_t cost, uint64_t window_bytes)
{
    return used == 0 || used + cost <= window_bytes;
}

static bool
has_room_to_push(const struct lane_link *lane, const struct psd_op *op, uint64_t cost)
{
    return fits(lane->used, cost, lane->window_bytes) ||
           (lane->extra && psi_is_round_unasked(op)) ||
           (lane->apart && psi_is_applied_alone(op) &&
            fits(lane->used_alone, cost, lane->window_bytes));
}

/* The value that answers a push_pull needs no room of its own: the lane knows our gradients and
 * asks for what it lacks (WANT), but it could not know that we wait for room to read. */
static bool
has_room(const struct lane_link *lane, const struct psd_op *op, uint32_t chunk)
{
    const uint64_t bytes = psi_transfer_push_bytes(op, chunk);

    if (psi_frame_has_gradient(op->transfer.type)) {
        return has_room_to_push(lane, op, psi_push_cost(lane, op, bytes));
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
    return lane->resend == NULL && lane->peer.state == PSI_PEER_UP &&
           lane->request_count < REQUESTS_FREE_MAX &&
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
        (!psi_is_of_a_round(op) || psi_is_round_unasked(op) || lane->used_alone > 0)) {
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
        if (psi_is_applied_alone(request->op)) {
            request->push_cost = 0;
        }
        if (psi_frame_wants_value(request->op->transfer.type)) {
            lane->reads -= request->pull_cost;
            request->pull_cost = 0;
        }
    }
    lane->room_ns = 0;
    psi_lane_mark_busy(lane);
}

void
psi_lanes_room_tick(struct psi_client *client, uint64_t now_ns)
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
        } else if (lane->receiving > 0) {
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
        lane->extra = lane->extra && !psi_is_round_unasked(op);
        if (!psi_lane_send_chunk(lane, op, chunk)) {
            return false;
        }
        part->cursor++;
    }
    psi_part_dequeue(lane, part);
    return true;
}

/* What is of an earlier step than this may pass a transfer that is blocked: a pull of a step waits
 * for all that comes before it. */
static uint64_t
passable_step(const struct psd_op *blocked)
{
    return psi_frame_only_reads(blocked->transfer.type) ? blocked->transfer.step : 0;
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

/* After a cut everything unanswered goes first, in its old order; and so do the other parts of what does
 * not fit one frame. True: all of it is out. */
static bool
pump_again(struct lane_link *lane)
{
    while (lane->resend != NULL && lane->peer.state == PSI_PEER_UP &&
           lane->peer.conn->ops->queued_bytes(lane->peer.conn) < SEND_QUEUE_BYTES) {
        struct request *request = lane->resend;

        if (request->parts == 0) {
            psi_metric_add(lane->client->metrics, PSI_METRIC_RESENT, 1);
        }
        if (psi_request_send(lane, request) != PSD_OK) {
            psi_lane_break(lane, "send failed");
        } else if (psi_request_is_sent(request)) {
            lane->resend = request->next;
        }
    }
    return lane->resend == NULL;
}

static bool
may_pump(const struct psd_op *op, uint64_t turn)
{
    return op->node.gathering != NULL || op->table->blocked_turn != turn ||
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
    if (lane->first != NULL &&
        psi_part_of(lane, lane->first->op)->unanswered == lane->request_count) {
        answers = lane->request_count;
        if (lane->queue != NULL) {
            answers -= answers / 4; /* the lane works on the rest until more has come */
        } else if (!lane->first->op->transfer.to_view && answers > COPY_AT_ONCE) {
            answers = COPY_AT_ONCE;
        }
    }
    conn->ops->wake_after(conn, answers > 0 ? answers : 1);
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
            return op->node.gathering == NULL && behind_its_table(lane, part) ? NULL : part;
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
           psi_lane_send_chunk(lane, part->op, wanted->chunk)) {
        part = find_wanted(lane, wanted);
    }
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
        if (lane->got_due) {
            psi_got_send(lane);
        }
        pump(lane);
        wake_after(lane);
        if (lane->queue != NULL || lane->resend != NULL) {
            psi_lane_mark_busy(lane);
        }
        lane = next;
    }
}
