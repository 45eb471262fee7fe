/*
 * nodes.c - the table of nodes: what members report, and who is told of it: once, or
 * again and again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
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

/* Has it had no chance yet to tell this life of the master where it is? */
static bool
is_step_unknown(const struct master *master, const struct member *member)
{
    return master->config.term > 1 && member->report_ns == 0;
}

static void
fill_worker(struct psd_node *node, const struct master *master, const struct member *member)
{
    node->role = PSD_ROLE_WORKER;
    node->rank = member->rank;
    node->state = member->state;
    node->incarnation = member->incarnation;
    node->step = member->step;
    node->steps_per_s = is_step_unknown(master, member) ? NAN : member->steps_per_s;
    node->value = member->value;
    snprintf(node->value_name, sizeof(node->value_name), "%s", member->value_name);
    snprintf(node->address, sizeof(node->address), "%s", member->address);
}

/* A rank that others may come to have is nobody. */
static bool
is_in_it(const struct master *master, uint32_t rank)
{
    return rank < master->config.size || master->worker[rank].member.state != PSD_NODE_MISSING;
}

static void
fill(const struct master *master, struct psd_node *node)
{
    node->role = PSD_ROLE_MASTER;
    node->incarnation = master->config.term > 0 ? master->config.term : 1;
    node->state = master->view.id > 0 ? PSD_NODE_RUNNING : PSD_NODE_JOINED;
    if (master->phase >= PHASE_ENDING) {
        node->state = PSD_NODE_DONE;
    }
    snprintf(node->address, sizeof(node->address), "%s", master->address);
    for (uint32_t index = 0; index < master->config.servers; index++) {
        fill_server(++node, &master->server[index], index);
    }
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        if (is_in_it(master, rank)) {
            fill_worker(++node, master, &master->worker[rank].member);
        }
    }
}

static psd_status
send_nodes(struct session *session, uint32_t request)
{
    const struct master *master = session->master;
    struct psi_frame frame = master_frame(master, PSI_FRAME_NODES_INFO);
    struct psi_nodes nodes = {.count = 1 + master->config.servers,
                              .readers = master_readers(master)};

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        nodes.count += is_in_it(master, rank);
    }
    nodes.node = calloc(nodes.count, sizeof(*nodes.node));
    if (nodes.node == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    fill(master, nodes.node);
    frame.request = request;
    master_posted(session, psi_post_nodes(session->guest.conn, &frame, &nodes));
    free(nodes.node);
    return PSD_OK;
}

psd_status
master_on_nodes(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    (void)body;
    (void)bytes;
    if (send_nodes(session, session->guest.inbox.frame.request) != PSD_OK) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "NODES: the master is out of memory");
    }
    return PSD_OK;
}

/* A second SUBSCRIBE takes the place of the first. */
psd_status
master_on_subscribe(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct subscription *subscription = &session->subscription;
    struct psi_subscribe asked;
    const psd_status status = psi_subscribe_decode(body, bytes, &asked, err);

    if (status != PSD_OK) {
        return status;
    }
    if (asked.every_ms != 0 && asked.every_ms < MASTER_TELL_MS_MIN) {
        asked.every_ms = MASTER_TELL_MS_MIN;
    }
    subscription->request = session->guest.inbox.frame.request;
    subscription->every_ns = asked.every_ms * MASTER_MS_NS;
    subscription->due_ns = 0;
    subscription->metrics = asked.metrics && asked.every_ms != 0;
    master_wake_at(session->master, 0);
    return PSD_OK;
}

/* Who has not taken the last one yet gets no further one: a slow reader reads fewer, never older.
 * METRICS behind it do not count: that the master lives is told however many of them wait. */
static bool
has_taken_nodes(const struct session *session)
{
    const struct psi_conn *conn = session->guest.conn;

    return conn->ops->queued_bytes(conn) <= session->subscription.behind;
}

void
master_tell_subscriber(struct session *session, uint64_t now_ns)
{
    struct subscription *subscription = &session->subscription;

    if (now_ns >= subscription->due_ns) {
        if (has_taken_nodes(session)) {
            if (subscription->metrics) {
                master_tell_metrics(session);
            }
            subscription->behind = 0;
            if (session->guest.conn != NULL) {
                (void)send_nodes(session, subscription->request); /* without memory: next time */
            }
        }
        subscription->due_ns = now_ns + subscription->every_ns;
    }
    master_wake_at(session->master, subscription->due_ns);
}
