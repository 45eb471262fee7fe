/*
 * read_lanes.c - a reader's connections to lanes: made when a lane is first wanted, made anew after a
 * cut, moved with the lane's place.
 *
 * Nothing that a lane does ends a reading: it may be about to lose its place, to have no room, to be of
 * another life. It is tried again, or what the next view has in its place, until the caller gives up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/read/reader_state.h"
#include "rpc/identity.h"

static const uint64_t refused_again_ns = UINT64_C(250000000);
static const uint64_t busy_again_ns = UINT64_C(20000000);

static bool
is_wanted(const struct read_lane *lane)
{
    return lane->reader->reading.is_open && lane->next < lane->end;
}

/* ---- events of the peer -------------------------------------------------------------------- */

static void
hello(void *owner, struct psi_peer *peer, struct psi_hello *hello_p)
{
    const struct read_lane *lane = owner;

    (void)peer;
    hello_p->role = PSI_ROLE_READER;
    hello_p->rank = PSI_RANK_AUTO;
    hello_p->life = lane->reader->life;
    hello_p->job = lane->reader->job;
}

static void
on_up(void *owner, struct psi_peer *peer, const struct psi_welcome *welcome)
{
    struct read_lane *lane = owner;

    (void)peer;
    (void)welcome;
    lane->refused.status = PSD_OK;
    lane->request = 0;
    if (is_wanted(lane)) {
        reading_ask(lane);
    }
}

static void
on_down(void *owner, struct psi_peer *peer, const struct psd_error *reason)
{
    struct read_lane *lane = owner;

    (void)peer;
    lane->refused = *reason;
    lane->request = 0;
}

static void
on_refused(void *owner, struct psi_peer *peer, const struct psi_verdict *verdict)
{
    struct read_lane *lane = owner;

    psi_fail(&lane->refused, verdict->status, "%s", verdict->text);
    lane->again_ns = psi_now_ns(peer->env) + refused_again_ns;
}

static psd_status
on_head(void *owner, struct psi_peer *peer, struct psi_sink *sink_p, struct psd_error *err)
{
    const struct read_lane *lane = owner;
    const struct psi_frame *frame = &peer->inbox.frame;

    if (lane->request == 0 || frame->request != lane->request ||
        frame->payload_bytes != reading_answer_bytes(lane)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s of %u bytes from %s: nobody asked for it",
                        psi_frame_type_name(frame->type), frame->payload_bytes, peer->address);
    }
    return psi_inbox_body(&peer->inbox, sink_p, err);
}

/* ACK: it has no value to give, now or at all. */
static psd_status
declined(struct read_lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(payload, bytes, &verdict, err);

    if (status != PSD_OK || lane->request == 0 || lane->peer.inbox.frame.request != lane->request) {
        return status;
    }
    lane->request = 0;
    psi_fail(&lane->refused, verdict.status, "%s", verdict.text);
    if (verdict.status == PSD_ERR_BUSY) {
        lane->again_ns = psi_now_ns(lane->peer.env) + busy_again_ns;
    } else {
        struct psd_error why;

        psi_fail(&why, verdict.status, "table %s: %s", lane->reader->reading.args.table->spec.name,
                 verdict.text);
        reading_fail(lane->reader, &why);
    }
    return PSD_OK;
}

static psd_status
on_frame(void *owner, struct psi_peer *peer, void *payload, size_t bytes, struct psd_error *err)
{
    struct read_lane *lane = owner;

    switch (peer->inbox.frame.type) {
    case PSI_FRAME_VALUE:
    case PSI_FRAME_SPARSE_VALUE:
        return reading_answered(lane, payload, bytes, err);
    case PSI_FRAME_ACK:
        return declined(lane, payload, bytes, err);
    case PSI_FRAME_PONG:
        return PSD_OK;
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from a server: not expected by a reader",
                        psi_frame_type_name(peer->inbox.frame.type));
    }
}

static const struct psi_peer_events peer_events = {
    .hello = hello,
    .on_up = on_up,
    .on_down = on_down,
    .on_refused = on_refused,
    .on_head = on_head,
    .on_frame = on_frame,
};

/* ---- where lanes are ----------------------------------------------------------------------- */

void
read_lane_hang_up(struct read_lane *lane)
{
    if (lane->is_started) {
        psi_peer_close(&lane->peer);
        lane->is_started = false;
    }
    lane->request = 0;
    lane->again_ns = 0;
}

static void
call(struct read_lane *lane)
{
    psi_peer_start(&lane->peer, lane->reader->env, lane->at.address, &peer_events, lane,
                   lane->place);
    psi_identity_server(lane->peer.name, lane->at.server, lane->at.lane);
    lane->is_started = true;
}

static bool
is_same(const struct psi_view_place *a, const struct psi_view_place *b)
{
    return a->server == b->server && a->lane == b->lane && a->incarnation == b->incarnation &&
           strcmp(a->address, b->address) == 0;
}

psd_status
read_lanes_follow(struct psi_reader *reader, const struct psi_view *now, struct psd_error *err)
{
    if (reader->lane == NULL) {
        reader->lane = calloc(now->places + 1, sizeof(*reader->lane));
        if (reader->lane == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u lanes", now->places);
        }
        reader->lanes = now->places;
    }
    if (now->places != reader->lanes) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "view %u: %u places, expected %u", now->id,
                        now->places, reader->lanes);
    }
    for (uint32_t place = 0; place < reader->lanes; place++) {
        struct read_lane *lane = &reader->lane[place];

        if (!is_same(&lane->at, &now->place[place])) {
            read_lane_hang_up(lane);
        }
        lane->reader = reader;
        lane->place = place;
        lane->at = now->place[place];
    }
    return PSD_OK;
}

void
read_lanes_destroy(struct psi_reader *reader)
{
    for (uint32_t place = 0; place < reader->lanes; place++) {
        read_lane_hang_up(&reader->lane[place]);
    }
    free(reader->lane);
}

/* ---- time ---------------------------------------------------------------------------------- */

static void
tick(struct read_lane *lane, uint64_t now_ns)
{
    const bool may_go_on = now_ns >= lane->again_ns;

    if (lane->is_started && lane->peer.state == PSI_PEER_OFF && may_go_on) {
        read_lane_hang_up(lane); /* it was refused: from the beginning */
    }
    if (!lane->is_started && is_wanted(lane)) {
        call(lane);
    }
    if (lane->is_started) {
        psi_peer_tick(&lane->peer, now_ns);
    }
    if (lane->is_started && lane->peer.state == PSI_PEER_UP && lane->request == 0 && may_go_on &&
        is_wanted(lane)) {
        reading_ask(lane);
    }
}

void
read_lanes_tick(struct psi_reader *reader, uint64_t now_ns)
{
    for (uint32_t place = 0; place < reader->lanes; place++) {
        tick(&reader->lane[place], now_ns);
    }
}

static uint64_t
next_ns(const struct read_lane *lane)
{
    if (!lane->is_started) {
        return is_wanted(lane) ? 0 : UINT64_MAX;
    }
    if (lane->peer.state == PSI_PEER_OFF) {
        return lane->again_ns;
    }
    if (lane->peer.state == PSI_PEER_UP) {
        return is_wanted(lane) && lane->request == 0 ? lane->again_ns : UINT64_MAX;
    }
    return psi_peer_next_ns(&lane->peer);
}

uint64_t
read_lanes_next_ns(const struct psi_reader *reader)
{
    uint64_t first_ns = UINT64_MAX;

    for (uint32_t place = 0; place < reader->lanes; place++) {
        const uint64_t at_ns = next_ns(&reader->lane[place]);

        first_ns = at_ns < first_ns ? at_ns : first_ns;
    }
    return first_ns;
}

void
psi_reader_waits(const struct psi_reader *reader, char *text_p, size_t size)
{
    const struct psi_master_link *master = &reader->master;

    snprintf(text_p, size, "the master at %s%s%s", master->peer.address,
             psi_master_link_is_up(master) ? " has not told where the servers are" : ": ",
             psi_master_link_is_up(master) ? "" : master->peer.reason.text);
    for (uint32_t place = 0; place < reader->lanes; place++) {
        const struct read_lane *lane = &reader->lane[place];
        const char *why = lane->refused.status != PSD_OK ? lane->refused.text
                          : lane->is_started             ? lane->peer.reason.text
                                                         : "";

        if (is_wanted(lane)) {
            snprintf(text_p, size, "server %u lane %u at %s%s%s", lane->at.server, lane->at.lane,
                     lane->at.address, why[0] != '\0' ? ": " : "", why);
            return;
        }
    }
}
