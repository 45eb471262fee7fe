/*
 * lane_own.c - the host's own lane, where this worker sends for its host: answered without a
 * connection, and left when nobody sends for the host any more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "client/core/table_view.h"

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
    psi_client_copy(lane->client,
                    (uint8_t *)op->transfer.to + (request->chunk - op->first_chunk) *
                                                     (uint64_t)PSD_CHUNK_ELEMENTS *
                                                     op->table->element_bytes,
                    value, bytes);
    if (op->table->results != NULL) {
        psi_result_is_own(op, request->chunk, value);
    }
    return true;
}

void
psi_lane_answer_own(struct lane_link *lane, const struct own_answer *answer)
{
    struct request *request = psi_request_find(lane, answer->request);
    const struct psi_frame frame = {.step = answer->step, .seq = answer->updates};

    if (request == NULL) {
        return; /* its operation has ended */
    }
    if (answer->value == NULL || !psi_op_waits_for_value(request->op) ||
        copy_own_value(lane, request, answer->value)) {
        psi_request_answered(lane, request, answer->status, answer->text, &frame);
    }
}

void
psi_lane_tell_own(struct lane_link *lane, uint32_t request_id, const char *because)
{
    const struct request *request = psi_request_find(lane, request_id);

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
    const bool begun = psi_part_of(host, op)->op != NULL;
    struct request *next;

    psi_part_dequeue(host, psi_part_of(host, op));
    for (struct request *request = host->first; request != NULL; request = next) {
        next = request->next;
        if (request->op == op) {
            op->chunks[request->chunk - op->first_chunk] = CHUNK_UNSENT;
            op->repeats = true;
            psi_request_free(host, request);
        }
    }
    op->spread = &op->table->flat;
    for (uint32_t i = 0; begun && i < op->spread->lanes_used; i++) {
        const uint16_t lane = op->spread->lanes[i];

        if (op->table->by_host.lane_counts[lane] == 0) {
            psi_part_begin(op->client->lanes[lane], op);
        }
    }
}
