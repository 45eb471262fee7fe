/*
 * sessions.c - workers' connections to a lane: who is there, and which frame goes where.
 *
 * A stranger has said nothing yet and may only say HELLO. A member has a rank and the incarnation
 * the current view gives that rank; an older life is told that it is fenced.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "rpc/identity.h"
#include "rpc/post.h"
#include "server/state.h"

#define RANK_STRANGER UINT32_MAX

static void
unlink_session(struct session *session)
{
    struct lane *lane = session->lane;

    if (session->rank == RANK_STRANGER) {
        struct session **link = &lane->strangers;

        while (*link != session) {
            link = &(*link)->next;
        }
        *link = session->next;
    } else if (lane->sessions[session->rank] == session) {
        lane->sessions[session->rank] = NULL;
    }
}

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

/* Frees the session; its connection is already gone. */
void
session_destroy(struct session *session)
{
    unlink_session(session);
    if (session->rank != RANK_STRANGER) {
        forget_requests(session);
        share_session_gone(session);
    }
    slot_give(&session->lane->pool, session->receiving);
    psi_inbox_fini(&session->inbox);
    free(session);
}

void
session_end(struct session *session)
{
    session->conn->ops->close(session->conn);
    session_destroy(session);
}

/* An answer could not be queued: cut, the worker will ask again. */
void
session_doom(struct session *session)
{
    session->is_doomed = true;
    session->lane->some_doomed = true;
}

/* Not inside an event: a session is never cut while its own frame is being handled. */
void
sessions_end_doomed(struct lane *lane)
{
    if (!lane->some_doomed) {
        return;
    }
    lane->some_doomed = false;
    for (uint32_t rank = 0; lane->sessions != NULL && rank < lane->job.workers; rank++) {
        if (lane->sessions[rank] != NULL && lane->sessions[rank]->is_doomed) {
            session_end(lane->sessions[rank]);
        }
    }
}

static void
warn_refused(struct lane *lane, const char *peer, const char *text)
{
    psi_count(&lane->counters->refused_in, 1);
    psi_limiter_warn(&lane->warnings, psi_now_ns(lane->env), "PEER-REFUSED", peer, text);
}

static void
refuse(struct session *session, psd_status status, const char *text)
{
    struct psi_conn *conn = session->conn;

    warn_refused(session->lane, conn->peer, text);
    psi_refuse(conn, status, text);
    session_destroy(session);
}

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    struct session *session = owner;
    const size_t limit = session->rank == RANK_STRANGER ? PSI_FRAME_HELLO_MAX : PSI_FRAME_CHUNK_MAX;
    const psd_status status = psi_inbox_prefix(&session->inbox, prefix, limit, size_p, err);

    (void)conn;
    if ((status == PSD_ERR_VERSION || status == PSD_ERR_REFUSED) &&
        session->rank == RANK_STRANGER) {
        refuse(session, status, err->text);
        return PSD_OK;
    }
    if (status == PSD_OK && session->rank == RANK_STRANGER &&
        session->inbox.frame.type != PSI_FRAME_HELLO) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s before HELLO",
                        psi_frame_type_name(session->inbox.frame.type));
    }
    return status;
}

static psd_status
on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
        struct psi_sink *sink_p, struct psd_error *err)
{
    struct session *session = owner;
    const psd_status status = psi_inbox_meta(&session->inbox, head, head_bytes, err);

    (void)conn;
    if (status != PSD_OK) {
        return status;
    }
    switch (session->inbox.frame.type) {
    case PSI_FRAME_PUSH:
    case PSI_FRAME_PUSH_PULL:
        return push_sink(session, sink_p, err);
    case PSI_FRAME_INIT:
    case PSI_FRAME_STATE_PUSH:
        return load_sink(session, sink_p, err);
    case PSI_FRAME_SHARE_DATA:
        return share_data_sink(session, sink_p, err);
    case PSI_FRAME_HELLO:
    case PSI_FRAME_SHARE_PULL:
    case PSI_FRAME_ACK: /* why a worker does not give its state */
        return psi_inbox_body(&session->inbox, sink_p, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s with a payload: not expected by a server",
                        psi_frame_type_name(session->inbox.frame.type));
    }
}

static void
welcome(struct session *session, uint32_t rank)
{
    struct lane *lane = session->lane;
    const struct psi_frame frame = {.type = PSI_FRAME_WELCOME, .view = lane->view.id};
    struct psi_welcome welcome = lane->job;

    unlink_session(session);
    session->rank = rank;
    if (lane->sessions[rank] != NULL) {
        session_end(lane->sessions[rank]); /* its old connection: this one replaces it */
    }
    lane->sessions[rank] = session;
    welcome.rank = rank;
    welcome.incarnation = lane->view.worker[rank].incarnation;
    welcome.window_bytes = lane->window_bytes;
    welcome.view = lane->view.id;
    (void)psi_post_welcome(session->conn, &frame, &welcome);
    want_session(session);
}

static psd_status
meet(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct psi_hello hello;
    char text[PSI_TEXT_MAX];
    const psd_status status = psi_hello_decode(payload, bytes, &hello, err);

    if (status != PSD_OK) {
        return status;
    }
    if (!psi_identity_allows(session->conn->identity, &hello)) {
        snprintf(text, sizeof(text), "server %u: HELLO of role %u rank %u from %s",
                 lane->config.server, hello.role, hello.rank, session->conn->identity);
        refuse(session, PSD_ERR_REFUSED, text);
        return PSD_OK;
    }
    if (lane->view.id == 0) {
        return psi_fail(err, PSD_ERR_BUSY, "HELLO before the job began");
    }
    if (hello.role != PSI_ROLE_WORKER || hello.rank >= lane->job.workers ||
        hello.job != lane->job.job) {
        snprintf(text, sizeof(text), "server %u: role %u rank %u is not of this job",
                 lane->config.server, hello.role, hello.rank);
        refuse(session, PSD_ERR_REFUSED, text);
        return PSD_OK;
    }
    if (!psi_view_has(&lane->view, hello.rank, hello.incarnation)) {
        snprintf(text, sizeof(text),
                 "worker %u incarnation %u: the job goes on with incarnation %u%s", hello.rank,
                 hello.incarnation, lane->view.worker[hello.rank].incarnation,
                 lane->view.worker[hello.rank].member ? "" : ", which has left");
        refuse(session, PSD_ERR_FENCED, text);
        return PSD_OK;
    }
    welcome(session, hello.rank);
    return PSD_OK;
}

static void
count(struct lane_counters *counters, const struct psi_frame *frame)
{
    psi_count(&counters->frames_in, 1);
    if (psi_frame_has_gradient(frame->type)) {
        psi_count(&counters->gradients_in, 1);
        psi_count(&counters->gradient_bytes_in, frame->payload_bytes);
    }
}

static psd_status
dispatch(struct session *session, void *payload, size_t bytes, struct psd_error *err)
{
    count(session->lane->counters, &session->inbox.frame);
    switch (session->inbox.frame.type) {
    case PSI_FRAME_PUSH:
    case PSI_FRAME_PUSH_PULL:
        return push_arrived(session, err);
    case PSI_FRAME_PULL:
    case PSI_FRAME_STATE_PULL:
        return pull_arrived(session, err);
    case PSI_FRAME_INIT:
    case PSI_FRAME_STATE_PUSH:
        return load_arrived(session, payload, err);
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
                        psi_frame_type_name(session->inbox.frame.type));
    }
}

/* Of the rank that it was met as, and of a life and a view that this lane goes by. */
static bool
is_admitted(const struct session *session, const struct psi_frame *frame)
{
    const struct psi_stamp stamp = {
        .rank = frame->rank, .incarnation = frame->incarnation, .view = frame->view};

    return frame->rank == session->rank &&
           psi_view_admits(&session->lane->view, &stamp, session->lane->since);
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct session *session = owner;
    const struct psi_frame *frame = &session->inbox.frame;
    psd_status status = psi_inbox_meta(&session->inbox, head, head_bytes, err);

    (void)conn;
    if (status == PSD_OK) {
        status = psi_inbox_verify(&session->inbox, payload, payload_bytes, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (session->rank == RANK_STRANGER) {
        return meet(session, payload, payload_bytes, err);
    }
    if (!is_admitted(session, frame)) {
        return psi_fail(
            err, PSD_ERR_PROTOCOL,
            "%s as worker %u incarnation %u, met as worker %u in view %u; its view is %u",
            psi_frame_type_name(frame->type), frame->rank, frame->incarnation, session->rank,
            session->lane->view.id, frame->view);
    }
    return dispatch(session, payload, payload_bytes, err);
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct session *session = owner;

    if (session->rank == RANK_STRANGER) {
        warn_refused(session->lane, conn->peer, reason->text);
    } else {
        psi_log(&session->lane->log,
                reason->status == PSD_ERR_PROTOCOL ? PSI_LOG_WARN : PSI_LOG_DEBUG, "WORKER-GONE",
                "worker %u (%s): %s", session->rank, conn->peer, reason->text);
    }
    session_destroy(session);
}

static const struct psi_conn_events session_events = {
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_close = on_close,
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
    session->conn = conn;
    session->rank = RANK_STRANGER;
    session->next = lane->strangers;
    lane->strangers = session;
    *events_p = &session_events;
    *owner_p = session;
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
