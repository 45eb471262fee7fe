/*
 * lane_queue.c - the queue of a lane: its shares of transfers, by priority, then age.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/lane_parts.h"

void
psi_part_dequeue(struct lane_link *lane, struct part *part)
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

static bool
goes_before(const struct psd_op *a, const struct psd_op *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

/* The lane has something to send: the next turn looks at it. */
void
psi_lane_mark_busy(struct lane_link *lane)
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

void
psi_part_enqueue(struct lane_link *lane, struct part *part)
{
    struct part *before;
    struct part *after;

    psi_part_dequeue(lane, part);
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
    psi_lane_mark_busy(lane);
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
void
psi_part_begin(struct lane_link *lane, struct psd_op *op)
{
    struct part *part = psi_part_of(lane, op);

    part->op = op;
    part->cursor = psi_spread_index(op->spread, lane->index, op->first_chunk);
    part->end = psi_spread_index(op->spread, lane->index, op->first_chunk + op->chunk_count);
    if (part->cursor < part->end) {
        psi_part_enqueue(lane, part);
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
            psi_part_begin(client->lanes[lane], op);
        } else if (part->queued) {
            psi_part_enqueue(client->lanes[lane], part);
        }
    }
}
