/*
 * lane_requests.c - what has been sent to a lane and is not answered: one request for each chunk.
 *
 * After a cut everything unanswered is sent again in the same order with the same numbers; the server
 * counts it once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "client/core/sparse_rows.h"
#include "rpc/post.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { REQUESTS_MIN = 32 };

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
uint64_t
psi_push_cost(const struct lane_link *lane, const struct psd_op *op, uint64_t bytes)
{
    const bool stays = !lane->is_self && op->transfer.lent && lane->peer.conn->lends &&
                       (uintptr_t)op->transfer.from % op->table->element_bytes == 0;
    const uint64_t cost = stays ? bytes / 3 : bytes;

    return op->transfer.empty || cost < PSI_GRADIENT_COST_MIN ? PSI_GRADIENT_COST_MIN : cost;
}

/* Can this worker show the result when its caller has gone on? What is sent for this host comes back
 * into memory that lasts until the next result, too. */
static bool
says_keeps(const struct lane_link *lane, const struct psd_op *op)
{
    return op->table->results != NULL && psi_frame_has_gradient(op->transfer.type) &&
           psi_frame_wants_value(op->transfer.type) &&
           (psi_result_is_kept(lane, op) || op->node.gathering != NULL);
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
        request->push_cost = (uint32_t)psi_push_cost(lane, op, bytes);
    }
    if (!psi_frame_has_gradient(op->transfer.type) && !op->transfer.empty) {
        request->pull_cost = (uint32_t)bytes;
    }
    lane->read_count += !psi_frame_has_gradient(op->transfer.type);
    lane->used += request->push_cost;
    lane->used_alone += psi_is_applied_alone(op) ? request->push_cost : 0;
    lane->reads += request->pull_cost;
    lane->request_count++;
    request->prev = lane->last;
    if (lane->last != NULL) {
        lane->last->next = request;
    } else {
        lane->first = request;
    }
    lane->last = request;
    psi_part_of(lane, op)->unanswered++;
    op->chunks[chunk - op->first_chunk] = CHUNK_SENT;
    return request;
}

void
psi_request_not_receiving(struct lane_link *lane, struct request *request)
{
    lane->receiving -= request->receiving;
    request->receiving = false;
    if (request->loan != NULL) {
        request->loan->give_back(request->loan);
        request->loan = NULL;
    }
}

void
psi_lane_not_receiving(struct lane_link *lane)
{
    for (struct request *request = lane->first; lane->receiving > 0; request = request->next) {
        psi_request_not_receiving(lane, request);
    }
    lane->coming_to = NULL;
}

void
psi_request_free(struct lane_link *lane, struct request *request)
{
    lane->used -= request->push_cost;
    lane->used_alone -= psi_is_applied_alone(request->op) ? request->push_cost : 0;
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
    psi_part_of(lane, request->op)->unanswered--;
    psi_request_not_receiving(lane, request);
    if (lane->resend == request) {
        lane->resend = request->next;
    }
    lane->requests[request->id % lane->requests_capacity] = NULL;
    if (psi_step_clock_listens(&lane->client->steps) && lane->request_count == 0 &&
        lane->index < lane->client->lane_count) {
        psi_step_clock_answered(&lane->client->steps, lane->server);
    }
    psi_pool_give(&lane->client->lane_requests, request);
}

/* Takes everything unanswered of tables that are made anew back: it leaves again in the order of the
 * queue, with numbers of its own. Its round may have closed: then nobody asks for it, whatever waits
 * for its room. */
void
psi_lane_unsend(struct lane_link *lane)
{
    struct request *next;

    for (struct request *request = lane->first; request != NULL; request = next) {
        struct psd_op *op = request->op;
        struct part *part = psi_part_of(lane, op);

        next = request->next;
        if (op->table->results == NULL) {
            continue;
        }
        op->chunks[request->chunk - op->first_chunk] = CHUNK_UNSENT;
        op->repeats = true;
        part->cursor = psi_spread_index(op->spread, lane->index, op->first_chunk);
        psi_request_free(lane, request);
        if (!part->queued) {
            psi_part_enqueue(lane, part);
        }
    }
    lane->extra = false;
    lane->apart = false;
    lane->room_ns = 0;
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

static void
count_gradient(struct lane_link *lane, const struct psd_op *op, size_t bytes)
{
    struct psi_traffic *tables = &op->table->traffic;

    if (PSI_COUNTS) {
        lane->traffic.frames_out++;
        lane->traffic.bytes_out += bytes;
        tables->frames_out++;
        tables->bytes_out += bytes;
    }
}

/* Of rows, the next part leaves. The server may have told some of a sum to an earlier connection: all of
 * it is asked for again. */
static void
add_part(struct lane_link *lane, struct request *request, struct psi_frame *frame,
         struct psi_payload *payload)
{
    struct sparse_rows *rows = request->op->transfer.rows;
    const struct sparse_piece out = psi_sparse_rows_out(rows, request->chunk, request->parts);

    if (request->parts == 0) {
        psi_sparse_rows_begin(rows, request->chunk);
    }
    request->parts++;
    if (!psi_request_is_sent(request)) {
        frame->flags |= PSI_FLAG_MORE;
    }
    payload->base = out.base;
    payload->bytes = out.bytes;
    count_gradient(lane, request->op, out.bytes);
}

bool
psi_request_is_sent(const struct request *request)
{
    const struct sparse_rows *rows = request->op->transfer.rows;

    return rows == NULL || request->parts == psi_sparse_rows_parts(rows, request->chunk);
}

psd_status
psi_request_send(struct lane_link *lane, struct request *request)
{
    struct psd_op *op = request->op;
    const struct psi_transfer *transfer = &op->transfer;
    const struct psi_meta meta = {
        .has_part = transfer->part != 0,
        .part = transfer->part,
        .has_node = op->node.gathering != NULL,
        .node_first = (uint16_t)op->node.first,
        .node_leaves = (uint16_t)op->node.leaves,
    };
    struct psi_frame frame = {
        .type = transfer->type,
        .dtype = (uint8_t)psi_transfer_dtype(op),
        .level = (uint8_t)op->node.level,
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
    if (transfer->rows != NULL) {
        add_part(lane, request, &frame, &payload);
    } else if (transfer->empty) {
        frame.flags |= PSI_FLAG_EMPTY;
    } else if (transfer->from != NULL && transfer->type != PSI_FRAME_PULL &&
               transfer->type != PSI_FRAME_STATE_PULL) {
        const struct psi_encoded sent = encode_chunk(op, request->chunk, &frame);

        payload.base = sent.bytes;
        payload.bytes = sent.size;
        payload.stable = transfer->lent;
        count_gradient(lane, op, sent.size);
    }
    if (op->exact) {
        frame.flags |= PSI_FLAG_EXACT;
    }
    if (says_keeps(lane, op)) {
        frame.flags |= PSI_FLAG_KEEPS;
    }
    return psi_post_payload(lane->peer.conn, &frame, meta.has_part || meta.has_node ? &meta : NULL,
                            &payload);
}

void
psi_lane_break(struct lane_link *lane, const char *why)
{
    struct psd_error reason;
    char name[128];

    psi_fail(&reason, PSD_ERR_PEER_LOST, "%s: %s", psi_lane_name(lane, name, sizeof(name)), why);
    psi_peer_reset(&lane->peer, &reason);
}

/* Sends one chunk's request now. False: the connection did not take it, or there is no memory. */
bool
psi_lane_send_chunk(struct lane_link *lane, struct psd_op *op, uint32_t chunk)
{
    struct request *request;

    if (!request_reserve(lane)) {
        return false;
    }
    request = request_create(lane, op, chunk);
    op->touched++;
    if (psi_request_send(lane, request) != PSD_OK) {
        /* Whatever left of it will be repeated: the request stays, the connection goes. */
        psi_lane_break(lane, "send failed");
        return false;
    }
    if (!psi_request_is_sent(request)) {
        lane->resend = request; /* the rest leaves as the connection takes it, before all else */
    }
    return true;
}

static void
free_bytes(void *owner, uint64_t cookie)
{
    (void)cookie;
    free(owner);
}

/* A part of what is looked up, or of a sum, has come, and the rest is asked for. False: the connection is
 * gone, or there is no memory: then all of it comes again. */
bool
psi_request_ask_rest(struct lane_link *lane, struct request *request)
{
    const struct psd_op *op = request->op;
    const bool pushed = psi_frame_has_gradient(op->transfer.type);
    const struct psi_frame frame = {
        .type = PSI_FRAME_SPARSE_PULL,
        .flags = op->exact ? PSI_FLAG_EXACT : 0,
        .dtype = (uint8_t)op->table->spec.dtype,
        .step = pushed ? op->transfer.step + 1 : op->transfer.step,
        .view = lane->client->view.id,
        .request = request->id,
        .table = op->table->id,
        .chunk = request->chunk,
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
        .priority = op->priority,
    };
    const struct psi_rows counts = {
        .asked = psi_sparse_rows_ask(op->transfer.rows, request->chunk, NULL)};
    struct psi_payload payload = {
        .bytes = psi_rows_bytes(0, 0, counts.asked),
        .checksum = lane->client->config.checksum,
        .release = free_bytes,
    };

    psi_request_not_receiving(lane, request);
    payload.owner = counts.asked > 0 ? malloc(payload.bytes) : NULL;
    payload.base = payload.owner;
    if (payload.owner == NULL) {
        return false;
    }
    (void)psi_sparse_rows_ask(op->transfer.rows, request->chunk,
                              psi_rows_encode(payload.owner, 0, &counts).asked_ids);
    if (psi_post_payload(lane->peer.conn, &frame, NULL, &payload) != PSD_OK) {
        free(payload.owner);
        return false;
    }
    return true;
}
