/*
 * reach.c - which lanes this worker reaches: it beats them all, and tells the master of those that
 * it does not reach.
 *
 * A beat is a PING, which the lane answers. So there are always bytes on their way, and the kernel
 * notices when nothing comes back, in whichever direction the network fails. It then ends the
 * connection, and attempts to make it anew fail likewise. Silence on a connection that stands is no
 * matter of reach: the lane may be stopped, or busy, which the master sees for itself.
 *
 * Beats are counted, not milliseconds: time in which this process was stopped is one beat.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/lane_parts.h"
#include "rpc/post.h"

#define MS_NS UINT64_C(1000000)

/* So many beats without a word are as long as a member may be silent. */
static uint32_t
beats_max(const struct psi_client *client)
{
    const uint32_t beats = client->master.dead_ms / client->master.heartbeat_ms;

    return beats > 0 ? beats : 1;
}

/* Says something of a lane to the master. False: it could not be said. */
static bool
hint(const struct lane_link *lane, psd_status status, const char *text)
{
    const struct psi_client *client = lane->client;
    const struct psi_view_place *place = psi_view_place(&client->view, lane->server, lane->lane);
    const struct psi_frame frame = {.type = PSI_FRAME_HINT,
                                    .view = client->view.id,
                                    .rank = (uint16_t)lane->server,
                                    .chunk = lane->lane,
                                    .incarnation =
                                        place == NULL ? 0 : (uint16_t)place->incarnation};

    if (!psi_master_link_is_up(&client->master)) {
        return false;
    }
    return (status == PSD_OK
                ? psi_post(client->master.peer.conn, &frame)
                : psi_post_error(client->master.peer.conn, &frame, status, 0, text)) == PSD_OK;
}

/* In which the lane is, by the view; 0: not known. */
static uint64_t
process_of(const struct lane_link *lane)
{
    const struct psi_view_place *place =
        psi_view_place(&lane->client->view, lane->server, lane->lane);

    return place == NULL ? 0 : place->process;
}

/* Is another lane of the same server and process still not reached? */
static bool
is_partly_unreached(const struct lane_link *lane)
{
    for (uint32_t i = 0; i < lane->client->lane_count; i++) {
        const struct lane_link *other = lane->client->lanes[i];

        if (other->server == lane->server && other->is_unreached &&
            process_of(other) == process_of(lane)) {
            return true;
        }
    }
    return false;
}

/* It is heard again. */
static void
reached(struct lane_link *lane)
{
    lane->missed = 0;
    if (lane->is_unreached) {
        lane->is_unreached = false;
        if (!is_partly_unreached(lane)) {
            (void)hint(lane, PSD_OK, NULL); /* lost: then the master has lost the other, too */
        }
    }
}

/* Said again and again: the master may be another one, or may not have listened yet. */
static void
missed(struct lane_link *lane)
{
    const uint32_t limit = beats_max(lane->client);

    lane->missed++;
    if (lane->peer.state != PSI_PEER_UP && lane->missed >= limit &&
        (!lane->is_unreached || lane->missed % limit == 0)) {
        lane->is_unreached = hint(lane, PSD_ERR_TIMEOUT, lane->peer.reason.text);
    }
}

static void
ping(const struct lane_link *lane)
{
    const struct psi_client *client = lane->client;
    const struct psi_frame frame = {.type = PSI_FRAME_PING,
                                    .view = client->view.id,
                                    .rank = (uint16_t)client->job.rank,
                                    .incarnation = (uint16_t)client->job.incarnation};
    struct psi_conn *conn = lane->peer.conn;

    /* What waits to be sent does as well, and is not to become more. */
    if (lane->peer.state == PSI_PEER_UP && conn->ops->queued_bytes(conn) == 0) {
        (void)psi_post(conn, &frame); /* a failure comes back as on_close */
    }
}

void
psi_reach_beat(struct psi_client *client)
{
    const uint64_t now_ns = psi_now_ns(client->env);

    /* A program may have a PING sent to the master with every step. */
    if (client->state != PSI_CLIENT_RUNNING || client->leaving || now_ns < client->beat_ns ||
        client->master.heartbeat_ms == 0) {
        return;
    }
    client->beat_ns = now_ns + client->master.heartbeat_ms * MS_NS / 2;
    for (uint32_t i = 0; i < client->lane_count; i++) {
        struct lane_link *lane = client->lanes[i];
        const uint64_t heard = lane->frames_in + lane->pongs;

        if (lane->heard != heard) {
            lane->heard = heard;
            reached(lane);
        } else {
            missed(lane);
        }
        ping(lane);
    }
}

/* Its connection ended. If somebody ended it, the master may want to know. */
void
psi_reach_down(struct lane_link *lane, const struct psd_error *reason)
{
    if (lane->client->state == PSI_CLIENT_RUNNING && !lane->client->leaving && !lane->is_new &&
        reason->status != PSD_ERR_TIMEOUT) {
        (void)hint(lane, PSD_ERR_PEER_LOST, reason->text);
    }
}

/* It has another life, at another address perhaps: nothing is known of that. */
void
psi_reach_anew(struct lane_link *lane)
{
    lane->missed = 0;
    lane->is_unreached = false;
}
