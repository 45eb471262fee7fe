/*
 * nodes.c - the table of nodes: what members report, and who asks for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "master/state.h"

/* Weight of the newest interval in the smoothed rate. */
static const double rate_weight = 0.25;

void
master_node_report(struct member *member, const struct psi_ping *ping, uint64_t now_ns)
{
    if (member->report_ns != 0 && now_ns > member->report_ns) {
        const double seconds = (double)(now_ns - member->report_ns) / 1e9;
        const double steps = ping->step > member->step ? (double)(ping->step - member->step) : 0;

        member->steps_per_s += rate_weight * (steps / seconds - member->steps_per_s);
    }
    member->report_ns = now_ns;
    member->step = ping->step;
    member->value = ping->value;
    snprintf(member->value_name, sizeof(member->value_name), "%s", ping->name);
}

static void
fill_server(struct psd_node *node, const struct server *server, uint32_t index)
{
    psd_node_state state = server->lanes > 0 ? PSD_NODE_RUNNING : PSD_NODE_MISSING;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        const psd_node_state other = server->lane[lane].state;

        if (other == PSD_NODE_LOST || (state != PSD_NODE_LOST && other < state)) {
            state = other;
        }
    }
    node->role = PSD_ROLE_SERVER;
    node->rank = index;
    node->state = state;
    if (server->lanes > 0) {
        node->incarnation = server->lane[0].incarnation;
        snprintf(node->address, sizeof(node->address), "%s", server->lane[0].address);
    }
}

static void
fill_worker(struct psd_node *node, const struct member *member)
{
    node->role = PSD_ROLE_WORKER;
    node->rank = member->rank;
    node->state = member->state;
    node->incarnation = member->incarnation;
    node->step = member->step;
    node->steps_per_s = member->steps_per_s;
    node->value = member->value;
    snprintf(node->value_name, sizeof(node->value_name), "%s", member->value_name);
    snprintf(node->address, sizeof(node->address), "%s", member->address);
}

psd_status
master_on_nodes(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    const struct master *master = session->master;
    const struct psi_frame frame = master_answer(session, PSI_FRAME_NODES_INFO);
    struct psi_nodes nodes = {.count = 1 + master->config.servers + master->config.workers};
    struct psd_node *node;

    (void)body;
    (void)bytes;
    nodes.node = calloc(nodes.count, sizeof(*nodes.node));
    if (nodes.node == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "NODES: the master is out of memory");
    }
    node = nodes.node;
    node->role = PSD_ROLE_MASTER;
    node->incarnation = 1;
    node->state = master->view > 0 ? PSD_NODE_RUNNING : PSD_NODE_JOINED;
    if (master->phase >= PHASE_ENDING) {
        node->state = PSD_NODE_DONE;
    }
    snprintf(node->address, sizeof(node->address), "%s", master->address);
    for (uint32_t index = 0; index < master->config.servers; index++) {
        fill_server(++node, &master->server[index], index);
    }
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        fill_worker(++node, &master->worker[rank].member);
    }
    master_posted(session, psi_post_nodes(session->conn, &frame, &nodes));
    free(nodes.node);
    return PSD_OK;
}
