/*
 * mirror.c - a lane that stands by and is the copy of another: whose copy, and what it has heard.
 *
 * The master says whose copy it is, and of which life: nobody else is listened to. What the owner
 * says comes with numbers, is applied in their order (mirror_apply.c) and acknowledged together, once
 * a turn or more often. An owner on this host lends what it says: it is applied from there. A copy never waits for anything, so two lanes that copy each other cannot wait in a
 * circle. When it is given the place it hears nothing more from the owner, dead or not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

enum { ACK_BYTES = 2 << 20 }; /* a word for less would wake the owner more often */

/* ---- beginning and ending ------------------------------------------------------------------ */

static void
end_session(struct mirror *mirror)
{
    if (mirror->session != NULL) {
        session_end(mirror->session); /* which forgets it here */
    }
}

static void
free_mirror(struct lane *lane)
{
    free(lane->mirror->view);
    mirror_rows_free(&lane->mirror->rows);
    mirror_parts_drop(lane);
    free(lane->mirror);
    lane->mirror = NULL;
}

/* All that it was told. */
static void
forget_contents(struct lane *lane)
{
    tables_destroy(lane);
    journal_free(lane);
    global_step_clear(lane);
    lane->journal = (struct journal){0};
    lane->kept = 0;
}

void
mirror_forget(struct lane *lane)
{
    if (lane->mirror == NULL) {
        return;
    }
    end_session(lane->mirror);
    forget_contents(lane);
    free_mirror(lane);
}

void
mirror_refused(struct lane *lane)
{
    if (lane->promoted == 0) {
        return;
    }
    forget_contents(lane);
    lane->promoted = 0;
    lane->copied_view = 0;
}

void
mirror_ended(struct lane *lane, uint64_t number)
{
    if (lane->mirror != NULL && lane->mirror->number <= number) {
        mirror_forget(lane);
    }
}

/* It has what a lane of the job has, but nobody knows it yet. */
static psd_status
begin(struct lane *lane, uint64_t number, const struct psi_pair *owner)
{
    if (lane_grow(lane, lane->job.workers) != PSD_OK) {
        return PSD_ERR_NO_MEMORY;
    }
    lane->mirror = calloc(1, sizeof(*lane->mirror));
    if (lane->mirror == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    lane->mirror->number = number;
    lane->mirror->owner = *owner;
    lane_take_name(lane, owner->server, owner->lane, owner->lanes);
    psi_fail_point(server_copy_ordered);
    psi_log(&lane->log, PSI_LOG_DEBUG, "COPY", "is to be a copy of lane %u of server %u",
            owner->lane, owner->server);
    return PSD_OK;
}

psd_status
mirror_ordered(struct lane *lane, const void *body, size_t bytes, struct psd_error *err)
{
    const uint64_t number = lane->master.peer.inbox.frame.seq;
    struct psi_pair owner;
    psd_status status = psi_pair_decode(body, bytes, &owner, err);

    if (status == PSD_OK && owner.lane >= owner.lanes) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "PAIR: lane %u of %u", owner.lane, owner.lanes);
    }
    if (status != PSD_OK || (lane->mirror != NULL && lane->mirror->number >= number)) {
        return status;
    }
    mirror_forget(lane);
    if (begin(lane, number, &owner) != PSD_OK) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to be a copy");
    }
    return PSD_OK;
}

bool
mirror_promote(struct lane *lane, uint64_t number)
{
    if (lane->mirror == NULL || lane->mirror->number != number || lane->mirror->is_broken) {
        return false;
    }
    end_session(lane->mirror);
    free_mirror(lane);
    lane->promoted = number;
    psi_fail_point(server_copy_promoted);
    return true;
}

/* ---- the owner ----------------------------------------------------------------------------- */

static void
acknowledge(const struct lane *lane, psd_status refused, const char *text)
{
    const struct mirror *mirror = lane->mirror;
    const struct psi_frame frame = {.type = PSI_FRAME_REPLICATE_ACK, .seq = mirror->applied};
    struct session *session = mirror->session;
    psd_status status;

    if (session == NULL) {
        return;
    }
    status = refused == PSD_OK ? psi_post(session->guest.conn, &frame)
                               : psi_post_error(session->guest.conn, &frame, refused, 0, text);
    if (status != PSD_OK) {
        psi_guest_doom(&session->guest);
    }
}

psd_status
mirror_hello(struct session *session, const struct psi_hello *hello, struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct mirror *mirror = lane->mirror;
    const struct psi_frame frame = {.type = PSI_FRAME_WELCOME};
    const struct psi_welcome welcome = lane->job;

    if (mirror == NULL || hello->rank != mirror->owner.server ||
        hello->lane != mirror->owner.lane || hello->life != mirror->owner.life ||
        hello->pair != mirror->number || hello->job != lane->job.job) {
        return psi_fail(err, PSD_ERR_BUSY,
                        "HELLO of server %u lane %u: no copy %llx of that life here", hello->rank,
                        hello->lane, (unsigned long long)hello->pair);
    }
    if (hello->kernel_revision != PSI_KERNEL_REVISION) {
        psi_guest_refuse(&session->guest, PSD_ERR_VERSION, "computes with other kernels");
        return PSD_OK;
    }
    end_session(mirror);
    session->is_owner = true;
    mirror->session = session;
    psi_fail_point(server_copy_met);
    (void)psi_post_welcome(session->guest.conn, &frame, &welcome);
    acknowledge(lane, PSD_OK, "");
    return PSD_OK;
}

void
mirror_session_gone(const struct session *session)
{
    if (session->lane->mirror != NULL && session->lane->mirror->session == session) {
        session->lane->mirror->session = NULL;
    }
}

/* All of this turn at once. */
static void
acknowledge_all(struct lane *lane)
{
    if (lane->mirror->ack_due) {
        lane->mirror->ack_due = false;
        lane->mirror->unacked_bytes = 0;
        acknowledge(lane, PSD_OK, "");
        psi_fail_point(server_copy_acked);
    }
}

/* What is on loan stays where it is until it has been applied. */
psd_status
mirror_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    struct slot *slot;

    if (session->guest.inbox.frame.type == PSI_FRAME_REPLICATE_PART) {
        return mirror_part_sink(session, sink_p, err);
    }
    slot = sink_p->lent == NULL ? NULL : slot_take(&session->lane->pool, 0);
    if (slot == NULL) {
        return psi_inbox_body(&session->guest.inbox, sink_p, err);
    }
    slot->loan = sink_p->loan;
    session->receiving = slot;
    sink_p->keep = true;
    return PSD_OK;
}

/* The owner has room for so much, and closes no round while that is full. */
static void
acknowledge_early(struct lane *lane, size_t bytes)
{
    lane->mirror->unacked_bytes += bytes;
    if (lane->mirror->unacked_bytes >= ACK_BYTES) {
        lane->mirror->ack_due = true;
        acknowledge_all(lane);
    }
}

static psd_status
hear(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct mirror *mirror = lane->mirror;
    const struct psi_frame *frame = &session->guest.inbox.frame;

    if (mirror == NULL || mirror->session != session) {
        return psi_fail(err, PSD_ERR_BUSY, "%s: of another copy", psi_frame_type_name(frame->type));
    }
    if (mirror->is_broken || frame->seq <= mirror->applied) {
        return PSD_OK; /* said again */
    }
    if (frame->seq != mirror->applied + 1) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s %llu to a copy, expected %llu",
                        psi_frame_type_name(frame->type), (unsigned long long)frame->seq,
                        (unsigned long long)mirror->applied + 1);
    }
    if (mirror_apply(lane, frame, payload, bytes, err) != PSD_OK) {
        psi_log(&lane->log, PSI_LOG_WARN, "COPY-BROKEN", "copy of lane %u of server %u: %s",
                mirror->owner.lane, mirror->owner.server, err->text);
        mirror->is_broken = true;
        acknowledge(lane, err->status, err->text);
        mirror_lost(lane, mirror->number, err->text);
        return PSD_OK;
    }
    mirror->applied = frame->seq;
    mirror->ack_due = true;
    lane->kept = frame->incarnation;
    lane->copied_view = frame->view;
    mirror->turn_bytes += bytes;
    acknowledge_early(lane, bytes);
    return PSD_OK;
}

psd_status
mirror_frame(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    const psd_status status = hear(session, payload, bytes, err);

    slot_give(&session->lane->pool, session->receiving);
    session->receiving = NULL;
    return status;
}

/* The owner may die before it has told: nobody may wait for this copy to take a place. */
void
mirror_lost(const struct lane *lane, uint64_t number, const char *text)
{
    const struct psi_frame frame = {.type = PSI_FRAME_PAIR_LOST, .seq = number};

    if (psi_master_link_is_up(&lane->master)) {
        (void)psi_post_error(lane->master.peer.conn, &frame, PSD_ERR_PEER_LOST, 0, text);
    }
}

void
mirror_tell(const struct lane *lane, const struct psi_welcome *welcome)
{
    const struct mirror *mirror = lane->mirror;
    const struct psi_frame view = {.type = PSI_FRAME_VIEW_COMMIT, .view = lane->copied_view};
    struct psi_frame frame = {.type = PSI_FRAME_ELIGIBLE};

    if (mirror != NULL && mirror->view != NULL && welcome->view == 0 &&
        welcome->term > psi_view_term(lane->copied_view)) {
        (void)psi_post_body(lane->master.peer.conn, &view, mirror->view, mirror->view_bytes);
    }
    if (mirror != NULL && mirror->is_broken) {
        mirror_lost(lane, mirror->number, "it is broken");
    } else if (mirror != NULL) {
        frame.seq = mirror->number;
        frame.rank = (uint16_t)mirror->owner.server;
        frame.chunk = mirror->owner.lane;
        frame.status = mirror->is_eligible ? PSD_OK : PSD_PENDING;
        (void)psi_post(lane->master.peer.conn, &frame);
    }
}

void
mirror_tick(struct lane *lane)
{
    struct mirror *mirror = lane->mirror;

    if (mirror->turn_bytes > 0 && mirror->parts.chunk == NULL) { /* else the change comes yet */
        mirror->burst_bytes = mirror->turn_bytes;
        mirror->turn_bytes = 0;
    }
    acknowledge_all(lane);
}
