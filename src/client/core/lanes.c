/*
 * lanes.c - the connections to the lanes of the servers: made, kept up, ended, and asked why nothing
 * comes.
 *
 * What leaves when is in lane_send.c, what comes back in lane_answers.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "rpc/identity.h"
#include "rpc/post.h"

enum { CONNECTING_MAX = 16 }; /* lanes, while a worker joins */

const char *
psi_lane_name(const struct lane_link *lane, char *text, size_t size)
{
    if (lane->index == lane->client->lane_count) {
        snprintf(text, size, "the workers of this host");
    } else {
        snprintf(text, size, "server %u (%s)", lane->server, lane->peer.address);
    }
    return text;
}

void
psi_lane_hello(void *owner, struct psi_peer *peer, struct psi_hello *hello_p)
{
    const struct psi_client *client = ((struct lane_link *)owner)->client;

    (void)peer;
    hello_p->role = PSI_ROLE_WORKER;
    hello_p->rank = client->job.rank;
    hello_p->incarnation = client->job.incarnation;
    hello_p->life = client->life;
    hello_p->job = client->job.job;
}

void
psi_lane_came_up(struct lane_link *lane, uint64_t window_bytes)
{
    lane->ups++;
    lane->lends = lane->peer.conn->lends;
    lane->window_bytes = window_bytes < lane->client->config.window_bytes
                             ? window_bytes
                             : lane->client->config.window_bytes;
    for (struct request *request = lane->first; request != NULL; request = request->next) {
        request->parts = 0;
    }
    lane->resend = lane->first;
    psi_lane_mark_busy(lane);
}

/* Lane 0 counts the global step. Has this life of it what the last one had? It says from which life
 * on it does. */
static bool
has_global_step(struct lane_link *lane, const struct psi_welcome *welcome)
{
    const struct psi_view_place *place =
        psi_view_place(&lane->client->view, lane->server, lane->lane);
    const uint32_t last = lane->life;

    lane->life = place == NULL ? 0 : place->incarnation;
    return lane->index != 0 || !lane->client->step_used || last == 0 || last == lane->life ||
           (welcome->barriers != 0 && welcome->barriers <= last);
}

static void
on_up(void *owner, struct psi_peer *peer, const struct psi_welcome *welcome)
{
    struct lane_link *lane = owner;

    (void)peer;
    lane->client->lanes_up++;
    if (!has_global_step(lane, welcome)) {
        psi_client_over(lane->client, PSD_ERR_PEER_LOST,
                        "server %u was lost, and the global step with it", lane->server);
        return;
    }
    psi_lane_came_up(lane, welcome->window_bytes);
    lane->is_new = false;
    lane->pongs++;        /* WELCOME is a sign of life, too */
    psi_adopt_lane(lane); /* before anything else */
    psi_got_again(lane);
    psi_leave_lane(lane);
    if (lane->index == 0) {
        psi_control_resend(lane->client);
    }
}

static void
on_down(void *owner, struct psi_peer *peer, const struct psd_error *reason)
{
    struct lane_link *lane = owner;

    (void)peer;
    lane->client->lanes_up--;
    psi_reach_down(lane, reason);
    psi_lane_not_receiving(lane);
    psi_got_lost(lane);
    psi_share_lane_down(lane);
}

static void
on_refused(void *owner, struct psi_peer *peer, const struct psi_verdict *verdict)
{
    struct lane_link *lane = owner;
    char name[128];

    (void)peer;
    if (lane->client->leaving && verdict->status == PSD_ERR_FENCED) {
        return; /* servers know already that we have left: the master's answer is on its way */
    }
    psi_client_over(lane->client, (psd_status)verdict->status, "refused by %s: %s",
                    psi_lane_name(lane, name, sizeof(name)), verdict->text);
}

static const struct psi_peer_events lane_events = {
    .hello = psi_lane_hello,
    .on_up = on_up,
    .on_down = on_down,
    .on_refused = on_refused,
    .on_head = psi_lane_head,
    .on_frame = psi_lane_frame,
};

static struct lane_link *
find_link(const struct psi_client *client, const struct psi_view_place *place)
{
    for (uint32_t i = 0; i < client->lane_count; i++) {
        struct lane_link *lane = client->lanes[i];

        if (lane->server == place->server && lane->lane == place->lane) {
            return lane;
        }
    }
    return NULL;
}

/* The master, which knows the job's secret, says who is there. If it is somebody else by now, a later view
 * says where the place is; if nobody can reach it, the master is told (reach.c). */
static void
connect_to(struct lane_link *lane, const struct psi_view_place *place)
{
    psi_peer_start(&lane->peer, lane->client->env, place->address, &lane_events, lane, lane->index);
    psi_identity_server(lane->peer.name, place->server, place->lane);
    lane->peer.is_listed = true;
}

/* The host's own comes behind those of the servers. */
static psd_status
begin_links(struct psi_client *client, uint32_t places)
{
    struct lane_link *host = calloc(1, sizeof(*host));

    client->lanes = calloc(places + 1, sizeof(struct lane_link *));
    if (client->lanes == NULL || host == NULL) {
        free((void *)client->lanes);
        free(host);
        client->lanes = NULL;
        return PSD_ERR_NO_MEMORY;
    }
    host->client = client;
    host->server = UINT32_MAX;
    host->ups = UINT32_MAX / 2; /* never those of another lane */
    client->lanes[0] = host;
    return PSD_OK;
}

static psd_status
add_link(struct psi_client *client, const struct psi_view_place *place)
{
    const uint32_t index = client->lane_count;
    struct lane_link *lane = calloc(1, sizeof(*lane));

    if (lane == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    lane->client = client;
    lane->index = index;
    lane->server = place->server;
    lane->lane = place->lane;
    connect_to(lane, place);
    client->lanes[index + 1] = client->lanes[index];
    client->lanes[index + 1]->index = index + 1;
    client->lanes[index] = lane;
    client->lane_count = index + 1;
    return PSD_OK;
}

/* The server was lost, and has another life. What the old one has said and nobody has read counts no
 * more. What it has not answered of sums, of which the new one has nothing, is sent to it as if for
 * the first time. Of tables with an update rule it has all that was told, or the job would be over:
 * they go on as after a cut. */
static void
begin_another_life(struct lane_link *lane, const struct psi_view_place *place)
{
    struct psd_error reason;
    char name[128];

    lane->is_new = true;
    psi_fail(&reason, PSD_ERR_PEER_LOST, "%s was lost", psi_lane_name(lane, name, sizeof(name)));
    psi_peer_reset(&lane->peer, &reason);
    psi_peer_close(&lane->peer);
    psi_lane_unsend(lane);
    psi_gather_send_again(lane);
    psi_got_forget(lane);
    psi_reach_anew(lane);
    connect_to(lane, place);
}

static bool
has_another_life(const struct psi_view *old, const struct psi_view_place *place)
{
    const struct psi_view_place *before = psi_view_place(old, place->server, place->lane);

    return before != NULL && before->incarnation != place->incarnation;
}

static void
find_other_lives(struct psi_client *client, const struct psi_view *old, const struct psi_view *now)
{
    for (uint32_t i = 0; i < now->places; i++) {
        struct lane_link *lane = find_link(client, &now->place[i]);

        if (lane == NULL || !has_another_life(old, &now->place[i])) {
            continue;
        }
        begin_another_life(lane, &now->place[i]);
    }
}

/* Every lane of every server has a link of its own, from the first view on: where chunks are is
 * worked out when their table is opened. Later views may bring another life of a server. */
psd_status
psi_lanes_on_view(struct psi_client *client, const struct psi_view *old, const struct psi_view *now,
                  struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (old->id != 0) {
        find_other_lives(client, old, now);
        return PSD_OK;
    }
    status = begin_links(client, now->places);
    for (uint32_t i = 0; i < now->places && status == PSD_OK; i++) {
        status = find_link(client, &now->place[i]) == NULL ? add_link(client, &now->place[i])
                                                           : PSD_ERR_PROTOCOL;
    }
    if (status == PSD_ERR_PROTOCOL) {
        return psi_fail(err, status, "view %u: one lane of a server in two places", now->id);
    }
    return status == PSD_OK ? PSD_OK : psi_fail(err, status, "no memory for %u lanes", now->places);
}

/* The host's own; used only when a worker sends for this host. */
struct lane_link *
psi_host_lane(const struct psi_client *client)
{
    return client->lanes[client->lane_count];
}

void
psi_lanes_stop(struct psi_client *client)
{
    for (uint32_t i = 0; client->lanes != NULL && i <= client->lane_count; i++) {
        psi_peer_close(&client->lanes[i]->peer);
        psi_lane_not_receiving(client->lanes[i]);
        free(client->lanes[i]->bounce);
        free(client->lanes[i]->got);
        free((void *)client->lanes[i]->requests);
        if (client->lanes[i]->spare != NULL) {
            psi_pool_give(&client->lane_requests, client->lanes[i]->spare);
        }
        free(client->lanes[i]);
    }
    free((void *)client->lanes);
    client->lanes = NULL;
    client->lane_count = 0;
    client->busy = NULL;
}

/* Lanes let go of a worker that has said BYE, perhaps before it hears that it may go. But another
 * life of a server still has to hear what only this worker may have. */
static bool
is_wanted(const struct lane_link *lane)
{
    return !lane->client->leaving || lane->is_new;
}

/* Who joins connects to few at a time: proving who one is takes more memory, for each, than a lane that
 * is there, and a job may have a thousand. Later only those come that were lost. */
static bool
has_enough_to_do(const struct psi_client *client)
{
    uint32_t connecting = 0;

    if (client->state != PSI_CLIENT_JOINING || client->lane_count <= CONNECTING_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < client->lane_count; i++) {
        connecting += client->lanes[i]->peer.state == PSI_PEER_CONNECTING;
    }
    return connecting >= CONNECTING_MAX;
}

/* From where the last turn ended: those that nobody answers for do not keep others waiting. */
static void
connect_lanes(struct psi_client *client, uint64_t now_ns)
{
    const uint32_t from = client->connect_from;
    bool enough = has_enough_to_do(client);

    for (uint32_t i = 0; i < client->lane_count; i++) {
        const uint32_t index = (from + i) % client->lane_count;
        struct psi_peer *peer = &client->lanes[index]->peer;
        const bool waits = peer->state == PSI_PEER_WAITING;

        if (!is_wanted(client->lanes[index]) || (waits && enough)) {
            continue;
        }
        psi_peer_tick(peer, now_ns);
        if (waits && peer->state == PSI_PEER_CONNECTING) {
            client->connect_from = index + 1;
            enough = has_enough_to_do(client);
        }
    }
}

void
psi_lanes_tick(struct psi_client *client, uint64_t now_ns)
{
    if (!psi_lanes_up(client)) {
        connect_lanes(client, now_ns);
    }
    psi_lanes_room_tick(client, now_ns);
    psi_got_tick(client, now_ns);
}

uint64_t
psi_lanes_next_ns(const struct psi_client *client)
{
    uint64_t next_ns = client->room_ns != 0 ? client->room_ns : UINT64_MAX;
    const bool enough = !psi_lanes_up(client) && has_enough_to_do(client);

    next_ns = client->got_ns != 0 && client->got_ns < next_ns ? client->got_ns : next_ns;
    for (uint32_t i = 0; !psi_lanes_up(client) && i < client->lane_count; i++) {
        const struct psi_peer *peer = &client->lanes[i]->peer;
        const bool has_time =
            is_wanted(client->lanes[i]) && !(enough && peer->state == PSI_PEER_WAITING);
        const uint64_t peer_ns = has_time ? psi_peer_next_ns(peer) : UINT64_MAX;

        next_ns = peer_ns < next_ns ? peer_ns : next_ns;
    }
    return next_ns;
}

bool
psi_lanes_up(const struct psi_client *client)
{
    return client->lane_count > 0 && client->lanes_up == client->lane_count;
}

static void
ask_master_why(const struct psd_op *op)
{
    struct psi_frame frame = op->control.frame;

    frame.type = PSI_FRAME_WHY;
    if (op->kind == OP_BARRIER && psi_master_link_is_up(&op->client->master)) {
        (void)psi_post(op->client->master.peer.conn, &frame);
    }
}

static void
ask_lane_why(const struct lane_link *lane, const struct request *request)
{
    const struct psd_op *op = request->op;
    const struct psi_frame frame = {
        .type = PSI_FRAME_WHY,
        .view = lane->client->view.id,
        .request = request->id,
        .table = op->table->id,
        .chunk = request->chunk,
        .step = op->transfer.step + (psi_frame_has_gradient(op->transfer.type) ? 1 : 0),
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
    };

    (void)psi_post(lane->peer.conn, &frame);
}

/* The deadline is near: asks the first that has not answered what it is waiting for. */
void
psi_lane_ask_why(struct psd_op *op)
{
    struct psi_client *client = op->client;

    if (op->kind != OP_TRANSFER) {
        ask_master_why(op);
        return;
    }
    for (uint32_t i = 0; i < op->spread->lanes_used; i++) {
        const struct lane_link *lane = client->lanes[op->spread->lanes[i]];
        const struct request *request = lane->first;

        while (request != NULL && request->op != op) {
            request = request->next;
        }
        if (request != NULL && lane->is_self) {
            (void)psi_gather_why(op->table, request->chunk, op->because, sizeof(op->because));
            return;
        }
        if (request != NULL && lane->peer.state == PSI_PEER_UP) {
            ask_lane_why(lane, request);
            return;
        }
    }
}

/* The same for what is sent for this host. False: it has not left yet. */
bool
psi_lane_ask_why_node(const struct psd_op *op)
{
    const struct lane_link *lane = op->client->lanes[op->spread->places[op->first_chunk]];
    const struct request *request = lane->first;

    while (request != NULL && request->op != op) {
        request = request->next;
    }
    if (request != NULL && lane->peer.state == PSI_PEER_UP) {
        ask_lane_why(lane, request);
    }
    return request != NULL;
}
