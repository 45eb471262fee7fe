/*
 * lane_parts.h - what the files of a lane share: its queue, its requests, its answers. For lane_*.c and
 * lanes.c only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_LANE_PARTS_H
#define PSI_CLIENT_CORE_LANE_PARTS_H

#include "client/core/state.h"

/* The lane's share of a transfer that has one. */
static inline struct part *
psi_part_of(const struct lane_link *lane, const struct psd_op *op)
{
    return &op->parts[op->spread->lane_parts[lane->index]];
}

static inline struct request *
psi_request_find(struct lane_link *lane, uint32_t id)
{
    struct request *request =
        lane->requests_capacity > 0 ? lane->requests[id % lane->requests_capacity] : NULL;

    return request != NULL && request->id == id ? request : NULL;
}

/* A gradient of a table without rounds is applied as it comes: the server keeps none of it, and
 * never asks for one. */
static inline bool
psi_is_applied_alone(const struct psd_op *op)
{
    return !psi_spec_synchronous(&op->table->spec);
}

static inline bool
psi_is_of_a_round(const struct psd_op *op)
{
    return psi_frame_has_gradient(op->transfer.type) && !psi_is_applied_alone(op);
}

/* Of a round, and yet the server may never ask for it: it has no part of a sum of the host's that
 * is complete here; and what was given to another worker, to an earlier life of the server, or by one of ours, may
 * have counted already. */
static inline bool
psi_is_round_unasked(const struct psd_op *op)
{
    return op->node.gathering != NULL || op->repeats;
}

/* ---- lane_queue.c */

void psi_part_enqueue(struct lane_link *lane, struct part *part);
void psi_part_dequeue(struct lane_link *lane, struct part *part);

/* The lane's share of a transfer: all its chunks that are there. */
void psi_part_begin(struct lane_link *lane, struct psd_op *op);

/* The lane has something to send: the next turn looks at it. */
void psi_lane_mark_busy(struct lane_link *lane);

/* ---- lane_requests.c */

/* What a gradient takes of the lane's window. */
uint64_t psi_push_cost(const struct lane_link *lane, const struct psd_op *op, uint64_t bytes);

/* Sends one chunk's request now. False: the connection did not take it, or there is no memory. */
bool psi_lane_send_chunk(struct lane_link *lane, struct psd_op *op, uint32_t chunk);

psd_status psi_request_send(struct lane_link *lane, struct request *request);
bool psi_request_is_sent(const struct request *request);                    /* all parts of it */
bool psi_request_ask_rest(struct lane_link *lane, struct request *request); /* again, after a cut */
void psi_request_free(struct lane_link *lane, struct request *request);

/* What was coming in for it does not come, or nobody wants it any more; for all of a lane. */
void psi_request_not_receiving(struct lane_link *lane, struct request *request);
void psi_lane_not_receiving(struct lane_link *lane);
void psi_lane_break(struct lane_link *lane, const char *why);

/* Takes everything unanswered back: it has not been sent. */
void psi_lane_unsend(struct lane_link *lane);

/* ---- lane_send.c */

/* Where nothing has come for a while, what only waits to be answered gives its room back. */
void psi_lanes_room_tick(struct psi_client *client, uint64_t now_ns);

/* ---- lane_answers.c */

void psi_request_answered(struct lane_link *lane, struct request *request, psd_status status,
                          const char *text, const struct psi_frame *frame);

/* The value is here, but the chunk is not done (hold.c); now it is. */
void psi_request_held(struct lane_link *lane, struct request *request,
                      const struct psi_frame *frame);
void psi_chunk_released(struct psd_op *op, uint32_t chunk);

/* An empty pull only waits: a yes is all it gets. */
bool psi_op_waits_for_value(const struct psd_op *op);

#endif
