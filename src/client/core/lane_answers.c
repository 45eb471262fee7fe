/*
 * lane_answers.c - what comes back from a lane, and how a transfer ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "client/core/sparse_rows.h"
#include "client/core/table_view.h"

/* The caller gets its gradient back: whatever is unsent of it is copied. */
static void
stop_borrowing(const struct lane_link *lane, const struct psd_op *op)
{
    const uint64_t bytes = op->node.gathering != NULL
                               ? psi_transfer_push_bytes(op, op->first_chunk)
                               : op->transfer.count * psi_transfer_element_bytes(op);
    struct psi_conn *conn = lane->peer.conn;

    if (conn != NULL && op->transfer.rows != NULL) {
        const struct sparse_piece out = psi_sparse_rows_all_out(op->transfer.rows);

        (void)conn->ops->unshare(conn, out.base, out.bytes);
    } else if (conn != NULL && op->transfer.from != NULL) {
        (void)conn->ops->unshare(conn, op->transfer.from, bytes);
    }
}

void
psi_transfer_finish(struct psd_op *op)
{
    for (uint32_t i = 0; i < op->spread->lanes_used; i++) {
        struct lane_link *lane = op->client->lanes[op->spread->lanes[i]];

        stop_borrowing(lane, op); /* answered before it had left, or sent twice */
        psi_part_dequeue(lane,
                         &op->parts[i]); /* the last chunk of it was asked for, and has left so */
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

/* It has its answer, and its room is free. */
static void
request_over(struct lane_link *lane, struct request *request, enum chunk_state state,
             const struct psi_frame *frame)
{
    struct psd_op *op = request->op;
    const uint32_t chunk = request->chunk;

    op->chunks[chunk - op->first_chunk] = (uint8_t)state;
    psi_request_free(lane, request);
    lane->extra = psi_is_round_unasked(op); /* where one got through, the next may */
    lane->apart = lane->apart && !psi_is_of_a_round(op);
    lane->room_ns = 0;
    psi_lane_mark_busy(lane); /* how many answers it waits for changes */
    if (frame->seq > op->updates) {
        op->updates = frame->seq;
    }
    op->value = frame->step;
    if (op->table->results != NULL && psi_op_is_push(op)) {
        psi_got_look(op, chunk);
    }
}

void
psi_request_held(struct lane_link *lane, struct request *request, const struct psi_frame *frame)
{
    const struct psd_op *op = request->op;
    const uint32_t chunk = request->chunk;

    request_over(lane, request, CHUNK_HELD, frame);
    if (op->is_split) {
        psi_split_came(op, chunk);
    }
}

void
psi_chunk_released(struct psd_op *op, uint32_t chunk)
{
    op->chunks[chunk - op->first_chunk] = CHUNK_DONE;
    op->applied++;
    if (--op->remaining == 0) {
        psi_transfer_finish(op);
    }
}

void
psi_request_answered(struct lane_link *lane, struct request *request, psd_status status,
                     const char *text, const struct psi_frame *frame)
{
    struct psd_op *op = request->op;
    const struct psd_table *table = op->table;
    const uint32_t chunk = request->chunk;
    const uint64_t step = op->transfer.step;

    request_over(lane, request, CHUNK_DONE, frame);
    op->remaining--;
    if (status == PSD_OK && op->is_split) {
        psi_split_came(op, chunk);
    }
    if (status == PSD_OK) {
        op->applied++;
    } else if (op->error.status == PSD_OK) {
        psi_fail(&op->error, status, "%s", text);
    }
    if (status == PSD_ERR_DROPPED) {
        psi_group_reached(op->table, frame->step);
    }
    if (op->remaining == 0) {
        psi_transfer_finish(op);
    }
    if (table->results != NULL && lane == psi_host_lane(table->client)) {
        psi_adopt_came(table, chunk, step);
    }
}

/* An empty pull only waits: a yes is all it gets. */
bool
psi_op_waits_for_value(const struct psd_op *op)
{
    const bool only_waits = op->transfer.type == PSI_FRAME_PULL && op->transfer.empty;

    return psi_frame_wants_value(op->transfer.type) && !only_waits;
}

static psd_status
ack_arrived(struct lane_link *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    struct request *request = psi_request_find(lane, frame->request);
    struct psi_verdict verdict = {.status = PSD_OK};
    psd_status status = PSD_OK;

    if (bytes > 0) {
        status = psi_verdict_decode(payload, bytes, &verdict, err);
    }
    if (status == PSD_OK && request != NULL &&
        (frame->status > 0 || (frame->status == 0 && psi_op_waits_for_value(request->op)))) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "ACK of table %s chunk %u: status %d",
                        request->op->table->spec.name, request->chunk, frame->status);
    }
    if (status == PSD_OK && request != NULL) {
        psi_request_answered(lane, request, (psd_status)frame->status, verdict.text, frame);
    }
    return status;
}

/* In the view, where it may be already, or in the caller's memory. False: there is no room for it,
 * and the job is over. */
static bool
place_value(struct lane_link *lane, const struct request *request, struct psi_sink *sink_p)
{
    const struct psd_op *op = request->op;

    if (op->transfer.rows != NULL) {
        sink_p->into = psi_sparse_rows_into(op->transfer.rows, request->chunk,
                                            lane->peer.inbox.frame.payload_bytes);
        if (sink_p->into == NULL) {
            psi_client_over(lane->client, PSD_ERR_NO_MEMORY,
                            "table %s: no memory left for the rows of its sum",
                            op->table->spec.name);
        }
        return sink_p->into != NULL;
    }
    if (op->transfer.to_view) {
        const psd_status shown =
            psi_table_view_show(op->table->view, lane, request->chunk, sink_p,
                                (size_t)psi_transfer_bytes(op, request->chunk));

        if (shown == PSD_ERR_NO_MEMORY) {
            psi_client_over(lane->client, shown, "table %s: no memory left to map for its view",
                            op->table->spec.name);
        }
        if (shown != PSD_PENDING) {
            return shown == PSD_OK;
        }
    }
    sink_p->into = (uint8_t *)op->transfer.to + (request->chunk - op->first_chunk) *
                                                    (uint64_t)PSD_CHUNK_ELEMENTS *
                                                    psi_transfer_element_bytes(op);
    return true;
}

static bool
fits(const struct psd_op *op, uint32_t chunk, uint32_t bytes)
{
    return op->transfer.rows != NULL ? psi_sparse_rows_fit(op->transfer.rows, chunk, bytes)
                                     : bytes == psi_transfer_bytes(op, chunk);
}

static psd_status
value_sink(struct lane_link *lane, struct psi_sink *sink_p, struct psd_error *err)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    struct request *request = psi_request_find(lane, frame->request);
    const struct psd_op *op;

    sink_p->into = NULL;
    if (request == NULL) {
        return PSD_OK; /* its operation has ended: nobody wants it any more */
    }
    op = request->op;
    if (request->receiving) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "VALUE of table %s chunk %u: it is coming already",
                        op->table->spec.name, request->chunk);
    }
    if (!psi_frame_wants_value(op->transfer.type) ||
        psi_frame_is_sparse(frame->type) != (op->transfer.rows != NULL) ||
        !fits(op, request->chunk, frame->payload_bytes)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "VALUE of table %s chunk %u: %u bytes, expected %llu", op->table->spec.name,
                        request->chunk, frame->payload_bytes,
                        (unsigned long long)psi_transfer_bytes(op, request->chunk));
    }
    request->receiving = true;
    lane->receiving++;
    sink_p->apart = true;
    if (!place_value(lane, request, sink_p) || op->table->results == NULL ||
        psi_result_expect(lane, request, sink_p) == PSD_OK) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_NO_MEMORY, "VALUE of table %s chunk %u: no memory",
                    op->table->spec.name, request->chunk);
}

static void
count_value(struct lane_link *lane, const struct psd_op *op, uint32_t bytes)
{
    struct psi_traffic *tables = &op->table->traffic;

    if (PSI_COUNTS) {
        lane->traffic.frames_in++;
        lane->traffic.bytes_in += bytes;
        tables->frames_in++;
        tables->bytes_in += bytes;
    }
}

/* Of a sum the server says that there is more; of what is looked up we know it. */
static psd_status
rest_expected(struct lane_link *lane, struct request *request, bool more, struct psd_error *err)
{
    const struct psi_spec *spec = &request->op->table->spec;

    if (more && !psi_spec_is_sparse_sum(spec)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "VALUE of table %s chunk %u: in parts", spec->name,
                        request->chunk);
    }
    return psi_request_ask_rest(lane, request)
               ? PSD_OK
               : psi_fail(err, PSD_ERR_PEER_LOST,
                          "VALUE of table %s chunk %u: the rest cannot be asked for", spec->name,
                          request->chunk);
}

static bool
has_rest(const struct request *request)
{
    const struct sparse_rows *rows = request->op->transfer.rows;

    return rows != NULL && psi_sparse_rows_has_rest(rows, request->chunk);
}

static psd_status
value_arrived(struct lane_link *lane, const void *payload, struct psd_error *err)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    struct request *request = psi_request_find(lane, frame->request);
    psd_status status = PSD_OK;

    if (request != NULL) {
        count_value(lane, request->op, frame->payload_bytes);
    }
    if (request == NULL || !request->receiving) {
        lane->coming_to = NULL;
        return PSD_OK;
    }
    if (request->op->transfer.rows != NULL) {
        status = psi_sparse_rows_came(request->op->transfer.rows, request->chunk, payload,
                                      frame->payload_bytes, err);
    }
    if (status == PSD_OK && ((frame->flags & PSI_FLAG_MORE) != 0 || has_rest(request))) {
        return rest_expected(lane, request, (frame->flags & PSI_FLAG_MORE) != 0, err);
    }
    if (status == PSD_OK && request->op->table->results != NULL) {
        psi_result_arrived(lane, request, payload);
    } else if (status == PSD_OK) {
        psi_request_answered(lane, request, PSD_OK, "", frame);
    }
    return status;
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
    return request->op->node.gathering != NULL ? request->op->node.first
                                               : request->op->client->job.rank;
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
            struct part *part = psi_part_of(lane, op);

            psi_metric_add(lane->client->metrics, PSI_METRIC_RESENT, 1);
            op->chunks[request->chunk - op->first_chunk] = CHUNK_UNSENT;
            part->cursor = psi_spread_index(op->spread, lane->index, op->first_chunk);
            psi_request_free(lane, request);
            psi_part_enqueue(lane, part);
            return;
        }
    }
}

static void
because_arrived(struct lane_link *lane, const void *payload, size_t bytes)
{
    const struct request *request = psi_request_find(lane, lane->peer.inbox.frame.request);
    struct psi_verdict verdict;

    if (request != NULL && psi_verdict_decode(payload, bytes, &verdict, NULL) == PSD_OK) {
        snprintf(request->op->because, sizeof(request->op->because), "%s", verdict.text);
        if (request->op->node.gathering != NULL) {
            psi_gather_because(request->op, verdict.text);
        }
    }
}

psd_status
psi_lane_head(void *owner, struct psi_peer *peer, struct psi_sink *sink_p, struct psd_error *err)
{
    struct lane_link *lane = owner;

    if (peer->inbox.frame.type == PSI_FRAME_VALUE ||
        peer->inbox.frame.type == PSI_FRAME_SPARSE_VALUE) {
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

    if (frame->type == PSI_FRAME_PONG) {
        lane->pongs++;
        return PSD_OK;
    }
    lane->frames_in++;
    if (frame->view > lane->client->heard_view) {
        lane->client->heard_view = frame->view;
    }
    switch (frame->type) {
    case PSI_FRAME_VALUE:
    case PSI_FRAME_SPARSE_VALUE:
        return value_arrived(lane, payload, err);
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
    case PSI_FRAME_RELEASE:
        return psi_release_arrived(lane, payload, bytes, err);
    case PSI_FRAME_GOT:
        return psi_got_asked(lane, payload, bytes, err);
    case PSI_FRAME_BYE:
        psi_leave_agreed(lane);
        return PSD_OK;
    case PSI_FRAME_GIVE:
        return psi_give_arrived(lane, err);
    case PSI_FRAME_OFFER:
        return psi_route_offered(lane, payload, bytes, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from a server: not expected",
                        psi_frame_type_name(frame->type));
    }
}

/* Does the operation wait for a server that is not there, and may have another life? Then what has
 * not left waits for that, too. */
static bool
awaits_server(const struct psd_op *op, const struct lane_link *lane)
{
    return op->table->results != NULL && lane->index < lane->client->lane_count &&
           lane->peer.state != PSI_PEER_UP;
}

static uint32_t
count_unsent(const struct lane_link *lane, const struct psd_op *op)
{
    const struct part *part = psi_part_of(lane, op);
    uint32_t count = 0;

    for (uint32_t i = part->cursor; i < part->end; i++) {
        const uint32_t chunk = op->spread->lane_chunks[lane->index][i];

        count += op->chunks[chunk - op->first_chunk] == CHUNK_UNSENT;
    }
    return count;
}

/* Names the servers that have not answered, unless a better reason is known. */
static void
blame(struct psd_op *op, const struct lane_link *lane, uint32_t unanswered)
{
    const size_t used = strlen(op->because);
    const bool away = awaits_server(op, lane);
    char name[128];

    unanswered += away ? count_unsent(lane, op) : 0;
    if (unanswered > 0 && used + 200 < sizeof(op->because)) {
        snprintf(op->because + used, sizeof(op->because) - used, "%s%s: %u chunks%s",
                 used > 0 ? "; " : "", psi_lane_name(lane, name, sizeof(name)), unanswered,
                 away ? ", not connected; waiting for it to come back"
                 : lane->is_self || lane->peer.state == PSI_PEER_UP ? ""
                                                                    : ", not connected");
    }
}

/* Not a server's fault, and it does not know whose. */
static void
blame_workers(struct psd_op *op, uint64_t held)
{
    const size_t used = strlen(op->because);

    if (held > 0 && used + 160 < sizeof(op->because)) {
        snprintf(op->because + used, sizeof(op->because) - used,
                 "%s%llu chunks have their results, but not yet at every worker",
                 used > 0 ? "; " : "", (unsigned long long)held);
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

        psi_part_dequeue(lane, &op->parts[i]);
        for (struct request *request = lane->first; request != NULL; request = next) {
            next = request->next;
            if (request->op == op) {
                receiving = receiving || request->receiving;
                unanswered++;
                if (lane->is_self) {
                    psi_gather_withdraw(op, request->chunk);
                }
                psi_request_free(lane, request);
            }
        }
        blame(op, lane, unanswered);
        if (lane->peer.conn == NULL) {
            continue;
        }
        if (receiving) {
            psi_lane_break(lane, "an operation ended while its value was coming in");
        } else {
            stop_borrowing(lane, op);
        }
    }
    blame_workers(op, psi_results_unhold(op));
}
