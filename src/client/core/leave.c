/*
 * leave.c - leaving the job.
 *
 * The results that this worker keeps can be shown by nobody when it is gone. Another worker may
 * still lack one of them, and if the server dies then, the sum is lost. So each server whose results
 * are kept is told first (BYE), and says so when everybody has them (BYE, too). Then the master is
 * told. What is held needs no such word: it is not done before everybody has it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "client/core/core.h"
#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "rpc/post.h"

static bool
keeps_results_of(const struct lane_link *lane)
{
    const struct psi_client *client = lane->client;

    for (size_t i = 0; i < client->table_count; i++) {
        const struct psd_table *table = client->tables[i];

        for (uint32_t j = 0; table->results != NULL && j < table->flat.lane_counts[lane->index];
             j++) {
            if (table->results[table->flat.lane_chunks[lane->index][j]].has == PSI_HAS_KEPT) {
                return true;
            }
        }
    }
    return false;
}

/* The master may be told now, if no server has to be waited for. */
static void
go_if_all_agree(struct psi_client *client)
{
    struct psd_op *bye = client->pending;

    while (bye != NULL && bye->kind != OP_BYE) {
        bye = bye->next;
    }
    for (uint32_t i = 0; i < client->lane_count; i++) {
        if (client->lanes[i]->parting) {
            return;
        }
    }
    if (bye != NULL && !client->leaving) {
        client->leaving = true;
        psi_control_send(bye);
    }
}

void
psi_leave_begin(struct psi_client *client)
{
    for (uint32_t i = 0; i < client->lane_count; i++) {
        client->lanes[i]->parting = keeps_results_of(client->lanes[i]);
        psi_leave_lane(client->lanes[i]);
    }
    go_if_all_agree(client);
}

void
psi_leave_lane(struct lane_link *lane)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_BYE,
        .view = lane->client->view.id,
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
    };

    if (lane->parting && lane->peer.state == PSI_PEER_UP &&
        psi_post(lane->peer.conn, &frame) != PSD_OK) {
        psi_lane_break(lane, "send failed");
    }
}

void
psi_leave_agreed(struct lane_link *lane)
{
    lane->parting = false;
    go_if_all_agree(lane->client);
}

/* What leaving waits for, for whoever has waited too long. */
void
psi_leave_describe(struct psd_op *op)
{
    const struct psi_client *client = op->client;
    char name[128];
    size_t used = 0;

    for (uint32_t i = 0; i < client->lane_count && used + 200 < sizeof(op->because); i++) {
        const struct lane_link *lane = client->lanes[i];

        if (lane->parting) {
            used += (size_t)snprintf(op->because + used, sizeof(op->because) - used, "%s%s: %s",
                                     used > 0 ? "; " : "", psi_lane_name(lane, name, sizeof(name)),
                                     lane->peer.state == PSI_PEER_UP
                                         ? "its last sums are not yet at every worker"
                                         : "lost; waiting for it to come back");
        }
    }
}

void
psi_client_left(struct psi_client *client)
{
    psi_client_over(client, PSD_ERR_CLOSED, "worker %u has left the job (psd_leave)",
                    client->job.rank);
}
