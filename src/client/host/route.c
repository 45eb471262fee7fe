/*
 * route.c - workers of one host: who sends for it, and the way there.
 *
 * Every worker that may be on one host with others listens on loopback and tells the master
 * (HELLO), who tells all (the view). Of those with the same guess the lowest rank sends for the
 * host; the others connect to it. What they prove there, and that memory can be shared with it, is
 * proof of the same host: the guess is only where to look. Whoever does not get there pushes to the
 * servers as ever.
 *
 * The one that sends says for which tables, and to which lanes (OFFER); each of the others answers
 * from which step on it pushes these through it (ROUTE). So both know what to wait for. If the
 * connection ends, what is unanswered goes to the servers: each gradient counts once, whichever way
 * it comes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/state.h"
#include "client/host/gather.h"
#include "rpc/identity.h"
#include "rpc/post.h"

enum {
    ATTEMPTS_SOON = 1, /* while the job waits for it to begin */
    ATTEMPTS_MAX = 20, /* then the guess was wrong */
};

/* ---- the others --------------------------------------------------------------------------- */

/* Tells the one that sends for this host what comes through it from now on. */
static void
take_offer(struct psd_table *table)
{
    struct psi_client *client = table->client;
    struct lane_link *host = psi_host_lane(client);
    struct psi_ranks lanes = {{0}};
    const struct psi_frame frame = {
        .type = PSI_FRAME_ROUTE,
        .view = client->view.id,
        .table = table->id,
        .step = psi_table_first_unsent_step(table),
        .rank = (uint16_t)client->job.rank,
        .incarnation = (uint16_t)client->job.incarnation,
    };

    if (host->peer.state != PSI_PEER_UP || table->route_from != PSI_STEP_NEVER) {
        return;
    }
    for (uint32_t i = 0; i < client->lane_count; i++) {
        if (psi_ranks_has(&client->offered_lanes, i) && !client->lanes[i]->lends) {
            psi_ranks_add(&lanes, i);
        }
    }
    if (psi_table_spread_by_host(table, &lanes) == PSD_OK &&
        psi_post_ranks(host->peer.conn, &frame, &lanes) == PSD_OK) {
        table->route_from = frame.step;
    }
}

static void
lose_route(struct psi_client *client)
{
    for (size_t i = 0; i < client->table_count; i++) {
        struct psd_table *table = client->tables[i];

        table->route_from = PSI_STEP_NEVER;
        for (struct psd_op *op = table->last_op; op != NULL; op = op->table_prev) {
            if (op->spread == &table->by_host) {
                psi_lane_reroute(op);
            }
        }
    }
}

static void
on_up(void *owner, struct psi_peer *peer, const struct psi_welcome *welcome)
{
    struct lane_link *lane = owner;

    if (!peer->conn->lends) {
        psi_peer_close(peer); /* not on this host, or without shared memory: no use */
        return;
    }
    psi_lane_came_up(lane, welcome->window_bytes);
}

/* It does not come back: whoever sends for us has left, or the job is over. */
static void
on_down(void *owner, struct psi_peer *peer, const struct psd_error *reason)
{
    struct lane_link *lane = owner;

    (void)reason;
    psi_peer_close(peer);
    lose_route(lane->client);
}

static void
on_refused(void *owner, struct psi_peer *peer, const struct psi_verdict *verdict)
{
    struct lane_link *lane = owner;

    (void)peer;
    (void)verdict; /* the guess was wrong: each pushes its own */
    lose_route(lane->client);
}

static const struct psi_peer_events route_events = {
    .hello = psi_lane_hello,
    .on_up = on_up,
    .on_down = on_down,
    .on_refused = on_refused,
    .on_head = psi_lane_head,
    .on_frame = psi_lane_frame,
};

static bool
remember_offer(struct psi_client *client, uint32_t table)
{
    if (table >= PSI_TABLES_MAX) {
        return true; /* there is none */
    }
    if (table >= client->offered_capacity) {
        const uint32_t capacity = 2 * table + 16;
        bool *grown = realloc(client->offered, capacity * sizeof(*grown));

        if (grown == NULL) {
            return false;
        }
        memset(grown + client->offered_capacity, 0, capacity - client->offered_capacity);
        client->offered = grown;
        client->offered_capacity = capacity;
    }
    client->offered[table] = true;
    return true;
}

psd_status
psi_route_offered(struct lane_link *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_client *client = lane->client;
    const uint32_t id = lane->peer.inbox.frame.table;
    struct psi_ranks lanes;
    struct psd_table *table;
    psd_status status;

    if (lane != psi_host_lane(client)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "OFFER from a server: not expected");
    }
    status = psi_ranks_decode(payload, bytes, &lanes, err);
    if (status != PSD_OK) {
        return status;
    }
    client->offered_lanes = lanes;
    table = psi_table_find(client, id);
    if (table != NULL) {
        take_offer(table);
    } else if (!remember_offer(client, id)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for an offer");
    }
    return PSD_OK;
}

/* ---- both --------------------------------------------------------------------------------- */

bool
psi_route_carries(const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    return table->route_from <= step && chunk < table->chunk_count &&
           table->by_host.places[chunk] == table->client->lane_count;
}

/* A server wants a chunk that goes through the host. If that is another worker, it has to hear of
 * it, once: it may have all there is of it, and wait for room. */
void
psi_route_want(struct psi_client *client, const struct psi_frame *wanted)
{
    struct lane_link *host = psi_host_lane(client);
    const struct psd_table *table = psi_table_find(client, wanted->table);
    struct psi_frame relayed = *wanted;

    if (table == NULL || !psi_route_carries(table, wanted->chunk, wanted->step)) {
        return;
    }
    psi_lane_want(host, wanted);
    if (host->is_self) {
        psi_gather_wanted(table, wanted);
    } else if (table->relayed[wanted->chunk] <= wanted->step) {
        relayed.rank = (uint16_t)client->job.rank;
        relayed.incarnation = (uint16_t)client->job.incarnation;
        if (psi_post(host->peer.conn, &relayed) == PSD_OK) {
            table->relayed[wanted->chunk] = wanted->step + 1;
        }
    }
}

void
psi_route_table(struct psd_table *table)
{
    const struct psi_client *client = table->client;

    if (client->host != NULL) {
        psi_host_offer(table);
    } else if (table->id < client->offered_capacity && client->offered[table->id]) {
        take_offer(table);
    }
}

/* Before the master is told: it passes the address on. */
void
psi_route_open(struct psi_client *client)
{
    if (client->config.host != 0 && client->config.host_address != NULL &&
        client->env->ops->listen(client->env, client->config.host_address,
                                 &psi_host_listener_events, client, &client->listener,
                                 client->host_address, NULL) != PSD_OK) {
        client->listener = NULL;
        client->host_address[0] = '\0'; /* each pushes its own */
    }
}

static void
close_door(struct psi_client *client)
{
    if (client->listener != NULL) {
        client->env->ops->unlisten(client->env, client->listener);
        client->listener = NULL;
    }
}

static void
connect_to(struct psi_client *client, uint32_t rank)
{
    struct lane_link *host = psi_host_lane(client);
    const struct psi_hello other = {
        .role = PSI_ROLE_WORKER,
        .rank = rank,
        .incarnation = client->view.worker[rank].incarnation,
        .job = client->job.job,
    };

    psi_peer_start(&host->peer, client->env, client->view.worker[rank].address, &route_events, host,
                   host->index);
    psi_identity_of(&other, host->peer.name);
}

/* Only where a dead worker ends the job: then what was given for others is never taken back. */
void
psi_route_start(struct psi_client *client)
{
    const struct psi_view_worker *self = &client->view.worker[client->job.rank];
    uint32_t first = UINT32_MAX;
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < client->job.workers; rank++) {
        const struct psi_view_worker *worker = &client->view.worker[rank];

        if (self->host != 0 && worker->host == self->host && worker->member) {
            first = first == UINT32_MAX ? rank : first;
            count++;
        }
    }
    client->sender = first;
    if (client->host_address[0] == '\0' || count < 2 || client->job.policy != PSI_DEATH_FAIL ||
        client->job.elastic) {
        client->sender = UINT32_MAX;
    }
    if (client->sender != client->job.rank || psi_host_start(client, count) != PSD_OK) {
        close_door(client);
    }
}

static bool
some_lane_is_elsewhere(const struct psi_client *client)
{
    uint32_t i = 0;

    while (i < client->lane_count && client->lanes[i]->lends) {
        i++;
    }
    return i < client->lane_count;
}

/* All lanes are up. If all are on this host, nobody has to send for it. */
void
psi_route_begin(struct psi_client *client)
{
    if (client->route_begun) {
        return;
    }
    client->route_begun = true;
    if (!some_lane_is_elsewhere(client)) {
        close_door(client);
        psi_host_stop(client);
    } else if (client->sender != UINT32_MAX && client->sender != client->job.rank) {
        connect_to(client, client->sender);
    }
}

void
psi_route_stop(struct psi_client *client)
{
    close_door(client);
    psi_host_stop(client);
}

void
psi_route_tick(struct psi_client *client, uint64_t now_ns)
{
    struct psi_peer *peer;

    if (client->host != NULL) {
        psi_host_tick(client, now_ns);
    }
    if (client->lanes == NULL) {
        return;
    }
    peer = &psi_host_lane(client)->peer;
    if (peer->state != PSI_PEER_OFF && peer->state != PSI_PEER_UP) {
        psi_peer_tick(peer, now_ns);
        if (peer->failures >= ATTEMPTS_MAX) {
            psi_peer_close(peer);
        }
    }
}

/* Whether the job may begin: the way is open, there is none, or it takes too long. */
bool
psi_route_settled(const struct psi_client *client)
{
    const struct psi_peer *peer = &psi_host_lane(client)->peer;

    return client->route_begun && (peer->state == PSI_PEER_OFF || peer->state == PSI_PEER_UP ||
                                   peer->failures >= ATTEMPTS_SOON);
}

uint64_t
psi_route_next_ns(const struct psi_client *client)
{
    uint64_t next_ns = UINT64_MAX;

    if (client->host != NULL) {
        next_ns = psi_host_next_ns(client);
    }
    if (client->lanes != NULL && psi_host_lane(client)->peer.env != NULL) {
        const uint64_t peer_ns = psi_peer_next_ns(&psi_host_lane(client)->peer);

        next_ns = peer_ns < next_ns ? peer_ns : next_ns;
    }
    return next_ns;
}
