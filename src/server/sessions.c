/*
 * sessions.c - workers' connections to a lane: who is there, and which frame goes where.
 *
 * A stranger has said nothing yet and may only say HELLO. A reader has no rank: reading.c. A member has a rank and the incarnation
 * the current view gives that rank; an older life is told that it is fenced.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

#define RANK_STRANGER UINT32_MAX

/* What the worker had asked for it asks again when it is back; what it has given stays given. */
static void
forget_requests(struct session *session)
{
    struct lane *lane = session->lane;

    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; i < table->chunk_count; i++) {
            if (table->chunks[i].parked != NULL) {
                parked_forget_sender(lane, &table->chunks[i], session->rank);
            }
        }
    }
}

/* Ends the connection too, if it is still there. */
void
session_end(struct session *session)
{
    struct lane *lane = session->lane;

    psi_guest_end(&session->guest);
    if (session->rank != RANK_STRANGER) {
        if (lane->sessions[session->rank] == session) {
            lane->sessions[session->rank] = NULL;
        }
        forget_requests(session);
        share_session_gone(session);
        adopt_session_gone(session);
    }
    reader_gone(session);
    mirror_session_gone(session);
    slot_give(&lane->pool, session->receiving);
    row_parts_drop(session);
    free(session->releases.result);
    free(session->asks.result);
    free(session);
}

static void
warn_refused(struct lane *lane, const char *peer, const char *text)
{
    psi_metric_add(lane->metrics, PSI_METRIC_REFUSED, 1);
    psi_limiter_warn(&lane->warnings, psi_now_ns(lane->env), "PEER-REFUSED", peer, text);
}

static bool
is_result(const struct psi_guest *guest)
{
    return (guest->inbox.frame.flags & PSI_FLAG_RESULT) != 0;
}

static psd_status
on_head(struct psi_guest *guest, struct psi_sink *sink_p, struct psd_error *err)
{
    struct session *session = (struct session *)guest;

    if (session->is_owner) {
        return mirror_sink(session, sink_p, err);
    }
    if (session->reader != NULL) {
        return reader_sink(session, sink_p, err);
    }
    switch (guest->inbox.frame.type) {
    case PSI_FRAME_SPARSE_PUSH:
    case PSI_FRAME_SPARSE_PUSH_PULL:
    case PSI_FRAME_PUSH:
    case PSI_FRAME_PUSH_PULL:
        return is_result(guest) ? result_sink(session, sink_p, err)
                                : push_sink(session, sink_p, err);
    case PSI_FRAME_INIT:
    case PSI_FRAME_STATE_PUSH:
        return load_sink(session, sink_p, err);
    case PSI_FRAME_SHARE_DATA:
        return share_data_sink(session, sink_p, err);
    case PSI_FRAME_ADOPT:
    case PSI_FRAME_GOT:
    case PSI_FRAME_SHARE_PULL:
    case PSI_FRAME_SPARSE_PULL:
    case PSI_FRAME_ACK: /* why a worker does not give its state */
        return psi_inbox_body(&guest->inbox, sink_p, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s with a payload: not expected by a server",
                        psi_frame_type_name(guest->inbox.frame.type));
    }
}

static void
welcome(struct session *session, uint32_t rank)
{
    struct lane *lane = session->lane;
    const struct psi_frame frame = {.type = PSI_FRAME_WELCOME, .view = lane->view.id};
    struct psi_welcome welcome = lane->job;

    session->rank = rank;
    if (lane->sessions[rank] != NULL) {
        session_end(lane->sessions[rank]); /* its old connection: this one replaces it */
    }
    lane->sessions[rank] = session;
    welcome.rank = rank;
    welcome.incarnation = lane->view.worker[rank].incarnation;
    welcome.window_bytes = lane->window_bytes;
    welcome.view = lane->view.id;
    welcome.barriers = lane->kept;
    (void)psi_post_welcome(session->guest.conn, &frame, &welcome);
    want_session(session);
    hold_ask_again(lane, rank);
}

/* Is this life of the server the one that the view has? A worker that knows only the one before it
 * may find this one at the same address. */
static bool
is_in_view(const struct lane *lane)
{
    const struct psi_view_place *here =
        psi_view_place(&lane->view, lane->config.server, lane->config.lane);

    return lane->view.id > 0 &&
           (!lane->job.survives || here == NULL || here->incarnation == lane->job.incarnation);
}

static psd_status
on_hello(struct psi_guest *guest, const struct psi_hello *hello, struct psd_error *err)
{
    struct session *session = (struct session *)guest;
    const struct lane *lane = session->lane;
    char text[PSI_TEXT_MAX];

    if (hello->role == PSI_ROLE_SERVER) {
        return mirror_hello(session, hello, err);
    }
    if (!is_in_view(lane)) {
        return psi_fail(err, PSD_ERR_BUSY,
                        lane->view.id == 0 ? "HELLO before the job began"
                                           : "HELLO before the server is back in the job");
    }
    if (hello->role == PSI_ROLE_READER) {
        return reader_hello(session, hello);
    }
    if (hello->role != PSI_ROLE_WORKER || hello->rank >= lane->rows ||
        hello->job != lane->job.job) {
        snprintf(text, sizeof(text), "server %u: role %u rank %u is not of this job",
                 lane->config.server, hello->role, hello->rank);
        psi_guest_refuse(guest, PSD_ERR_REFUSED, text);
        return PSD_OK;
    }
    if (!psi_view_has(&lane->view, hello->rank, hello->incarnation)) {
        snprintf(text, sizeof(text),
                 "worker %u incarnation %u: the job goes on with incarnation %u%s", hello->rank,
                 hello->incarnation, lane->view.worker[hello->rank].incarnation,
                 lane->view.worker[hello->rank].member ? "" : ", which has left");
        psi_guest_refuse(guest, PSD_ERR_FENCED, text);
        return PSD_OK;
    }
    welcome(session, hello->rank);
    return PSD_OK;
}

static void
count(struct psi_metrics *metrics, const struct psi_frame *frame)
{
    psi_metric_add(metrics, PSI_METRIC_FRAMES_IN, 1);
    if (psi_frame_has_gradient(frame->type)) {
        psi_metric_add(metrics, PSI_METRIC_GRADIENTS_IN, 1);
        psi_metric_add(metrics, PSI_METRIC_GRADIENT_BYTES_IN, frame->payload_bytes);
    }
}

static psd_status
gradient_arrived(struct session *session, void *payload, size_t bytes, struct psd_error *err)
{
    if (is_result(&session->guest)) {
        return result_arrived(session, payload, bytes, err);
    }
    return psi_frame_is_sparse(session->guest.inbox.frame.type)
               ? rows_push_arrived(session, payload, bytes, err)
               : push_arrived(session, err);
}

static psd_status
dispatch(struct session *session, void *payload, size_t bytes, struct psd_error *err)
{
    count(session->lane->metrics, &session->guest.inbox.frame);
    switch (session->guest.inbox.frame.type) {
    case PSI_FRAME_PUSH:
    case PSI_FRAME_PUSH_PULL:
    case PSI_FRAME_SPARSE_PUSH:
    case PSI_FRAME_SPARSE_PUSH_PULL:
        return gradient_arrived(session, payload, bytes, err);
    case PSI_FRAME_PULL:
    case PSI_FRAME_STATE_PULL:
        return pull_arrived(session, err);
    case PSI_FRAME_SPARSE_PULL:
        return rows_pull_arrived(session, payload, bytes, err);
    case PSI_FRAME_INIT:
    case PSI_FRAME_STATE_PUSH:
        return load_arrived(session, payload, err);
    case PSI_FRAME_ADOPT:
        return adopt_arrived(session, payload, bytes, err);
    case PSI_FRAME_GOT:
        return got_arrived(session, payload, bytes, err);
    case PSI_FRAME_BYE:
        return bye_arrived(session, err);
    case PSI_FRAME_WHY:
        return why_arrived(session, err);
    case PSI_FRAME_STEP_ADD:
        return step_add_arrived(session, err);
    case PSI_FRAME_SHARE_PULL:
        return share_pull_arrived(session, payload, bytes, err);
    case PSI_FRAME_SHARE_DATA:
    case PSI_FRAME_ACK:
        return share_data_arrived(session, payload, bytes, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: not expected by a server",
                        psi_frame_type_name(session->guest.inbox.frame.type));
    }
}

static psd_status
on_frame(struct psi_guest *guest, void *payload, size_t bytes, struct psd_error *err)
{
    static const struct psi_frame pong = {.type = PSI_FRAME_PONG};
    struct session *session = (struct session *)guest;
    psd_status status;

    if (guest->inbox.frame.type == PSI_FRAME_PING) {
        (void)psi_post(guest->conn, &pong); /* whatever its view: that it is heard is all it asks */
        return PSD_OK;
    }
    if (session->is_owner) {
        return mirror_frame(session, payload, bytes, err);
    }
    if (session->reader != NULL) {
        return reader_frame(session, payload, bytes, err);
    }
    status =
        psi_guest_speaks_as(guest, session->rank, &session->lane->view, session->lane->since, err);
    return status == PSD_OK ? dispatch(session, payload, bytes, err) : status;
}

static void
on_turned_away(struct psi_guest *guest, const char *text)
{
    warn_refused(((struct session *)guest)->lane, guest->conn->peer, text);
}

static void
on_gone(struct psi_guest *guest, const char *peer, const struct psd_error *reason)
{
    struct session *session = (struct session *)guest;

    if (reason != NULL && session->is_owner) {
        psi_log(&session->lane->log, PSI_LOG_DEBUG, "OWNER-GONE", "%s: %s", peer, reason->text);
    } else if (reason != NULL && session->reader != NULL) {
        psi_log(&session->lane->log,
                reason->status == PSD_ERR_PROTOCOL ? PSI_LOG_WARN : PSI_LOG_DEBUG, "READER-GONE",
                "%s: %s", peer, reason->text);
    } else if (reason != NULL && session->rank == RANK_STRANGER) {
        warn_refused(session->lane, peer, reason->text);
    } else if (reason != NULL) {
        psi_log(&session->lane->log,
                reason->status == PSD_ERR_PROTOCOL ? PSI_LOG_WARN : PSI_LOG_DEBUG, "WORKER-GONE",
                "worker %u (%s): %s", session->rank, peer, reason->text);
    }
    session_end(session);
}

const struct psi_guest_events lane_guest_events = {
    .payload_max = PSI_FRAME_CHUNK_MAX,
    .on_hello = on_hello,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_refused = on_turned_away,
    .on_gone = on_gone,
};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct lane *lane = owner;
    struct session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    session->lane = lane;
    session->rank = RANK_STRANGER;
    psi_guest_begin(&session->guest, &lane->guests, conn, events_p, owner_p);
    return PSD_OK;
}

/* Somebody who did not get as far as a session. */
static void
on_refused(void *owner, const char *peer, const struct psd_error *reason)
{
    warn_refused(owner, peer, reason->text);
}

const struct psi_listener_events lane_listener_events = {.on_accept = on_accept,
                                                         .on_refused = on_refused};
