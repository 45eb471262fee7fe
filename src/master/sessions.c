/*
 * sessions.c - the master's connections: accept, meet, dispatch, close.
 *
 * A connection begins as a stranger's. Its first frame must be a HELLO; what it may send from then
 * on depends on what it is. Anything else ends the connection, never more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "master/state.h"
#include "rpc/identity.h"
#include "table/spec.h"

enum { FROM_WORKER = 1, FROM_LANE = 2, FROM_OBSERVER = 4 };

/* Who may send what. */
static const struct {
    uint8_t type;
    unsigned from;
    master_handler handle;
} dispatch_table[] = {
    {PSI_FRAME_PING, FROM_WORKER | FROM_LANE | FROM_OBSERVER, master_on_ping},
    {PSI_FRAME_NODES, FROM_WORKER | FROM_LANE | FROM_OBSERVER, master_on_nodes},
    {PSI_FRAME_SUBSCRIBE, FROM_OBSERVER, master_on_subscribe},
    {PSI_FRAME_END, FROM_WORKER | FROM_LANE, master_on_end},
    {PSI_FRAME_BYE, FROM_WORKER, master_on_bye},
    {PSI_FRAME_BYE, FROM_LANE, master_on_lane_bye},
    {PSI_FRAME_TABLE_OPEN, FROM_WORKER, master_on_table_open},
    {PSI_FRAME_BARRIER, FROM_WORKER, master_on_barrier},
    {PSI_FRAME_WHY, FROM_WORKER, master_on_why},
    {PSI_FRAME_HAVE, FROM_WORKER, master_on_have},
    {PSI_FRAME_ACK, FROM_LANE, master_on_table_ack},
    {PSI_FRAME_VIEW_ACK, FROM_LANE, master_on_view_ack},
};

void
master_session_close(struct session *session)
{
    if (session->conn != NULL) {
        session->conn->ops->close(session->conn);
        session->conn = NULL;
        master_wake_at(session->master, 0);
    }
}

void
master_refuse(struct session *session, psd_status status, const char *format, ...)
{
    char text[PSI_TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    master_warn(session->master, "MEMBER-REFUSED", session->conn->peer, "%s", text);
    psi_refuse(session->conn, status, text);
    session->conn = NULL;
    master_wake_at(session->master, 0);
}

void
master_posted(struct session *session, psd_status status)
{
    if (status == PSD_ERR_BUSY || status == PSD_ERR_NO_MEMORY || status == PSD_ERR_TOO_BIG) {
        session->broken = true;
        master_wake_at(session->master, 0);
    }
}

/* ------------------------------------------------------------------------------- meeting --- */

static psd_status
meet(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct psi_hello *hello = &session->hello;
    psd_status status;

    if (session->inbox.frame.type != PSI_FRAME_HELLO) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s before HELLO",
                        psi_frame_type_name(session->inbox.frame.type));
    }
    status = psi_hello_decode(body, bytes, hello, err);
    if (status != PSD_OK) {
        master_refuse(session, status, "%s", err->text);
    } else if (!psi_identity_allows(session->conn->identity, hello)) {
        master_refuse(session, PSD_ERR_REFUSED, "HELLO of role %u rank %u from %s", hello->role,
                      hello->rank, session->conn->identity);
    } else if (hello->job != 0 && hello->job != master->job) {
        master_refuse(session, PSD_ERR_REFUSED, "wants job %016" PRIx64 ", this is job %016" PRIx64,
                      hello->job, master->job);
    } else if (hello->kernel_revision != PSI_KERNEL_REVISION &&
               (hello->role == PSI_ROLE_SERVER || hello->kernel_revision != 0)) {
        master_refuse(session, PSD_ERR_VERSION,
                      "computes with kernels of revision %u, this job with revision %d",
                      hello->kernel_revision, PSI_KERNEL_REVISION);
    } else if (hello->role == PSI_ROLE_OBSERVER) {
        const struct psi_welcome welcome = master_welcome(master);
        const struct psi_frame frame = master_answer(session, PSI_FRAME_WELCOME);

        session->kind = SESSION_OBSERVER;
        master_posted(session, psi_post_welcome(session->conn, &frame, &welcome));
    } else if (master->phase >= PHASE_ENDING && master_admit_late_lane(session)) {
        master_send_end(session);
    } else if (master->phase >= PHASE_ENDING && master_admit_late_worker(session)) {
        /* it repeats its BYE, and that is answered */
    } else if (master->phase >= PHASE_ENDING) {
        master_refuse(session, PSD_ERR_REFUSED, "the job is over: %s", master->end_text);
    } else {
        master_admit(session);
    }
    return PSD_OK;
}

/* A worker that was declared dead speaks: it must learn it, whatever it says. */
static void
refuse_the_dead(struct session *session)
{
    const struct worker *worker = &session->master->worker[session->hello.rank];

    if (worker->member.incarnation != session->hello.incarnation) {
        master_refuse(session, PSD_ERR_FENCED, "rank %u was replaced", worker->member.rank);
    } else {
        master_refuse(session, PSD_ERR_FENCED, "worker %u was declared dead: %s",
                      worker->member.rank, worker->lost_text);
    }
}

static psd_status
dispatch(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    const uint8_t type = session->inbox.frame.type;
    unsigned from = FROM_OBSERVER;

    if (session->kind == SESSION_MEMBER) {
        from = session->member->role == PSI_ROLE_WORKER ? FROM_WORKER : FROM_LANE;
        master_member_heard(session->master, session->member, session->heard_ns);
    }
    for (size_t i = 0; i < sizeof(dispatch_table) / sizeof(dispatch_table[0]); i++) {
        if (dispatch_table[i].type != type || (dispatch_table[i].from & from) == 0) {
            continue;
        }
        if (session->master->phase >= PHASE_ENDING && from != FROM_OBSERVER &&
            type != PSI_FRAME_NODES && dispatch_table[i].handle != master_on_lane_bye) {
            return PSD_OK; /* END is on its way: nothing else matters any more */
        }
        return dispatch_table[i].handle(session, body, bytes, err);
    }
    return psi_fail(err, PSD_ERR_PROTOCOL, "%s: not expected here", psi_frame_type_name(type));
}

/* -------------------------------------------------------------------------------- events --- */

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    struct session *session = owner;
    const bool stranger = session->kind == SESSION_STRANGER;
    psd_status status;

    if (session->conn == NULL) {
        return psi_fail(err, PSD_ERR_CLOSED, "%s: session is over", conn->peer);
    }
    session->heard_ns = psi_now_ns(session->master->env);
    status = psi_inbox_prefix(&session->inbox, prefix,
                              stranger ? PSI_FRAME_HELLO_MAX : PSI_FRAME_CONTROL_MAX, size_p, err);
    if ((status == PSD_ERR_VERSION || status == PSD_ERR_REFUSED) && stranger) {
        master_refuse(session, status, "%s", err->text);
        *size_p = (struct psi_frame_size){0};
        return PSD_OK; /* closing already, once the reason is out */
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
    return status == PSD_OK ? psi_inbox_body(&session->inbox, sink_p, err) : status;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct session *session = owner;
    psd_status status;

    (void)conn;
    if (session->conn == NULL) {
        return PSD_OK;
    }
    session->heard_ns = psi_now_ns(session->master->env);
    status = psi_inbox_meta(&session->inbox, head, head_bytes, err);
    if (status == PSD_OK) {
        status = psi_inbox_verify(&session->inbox, payload, payload_bytes, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    switch (session->kind) {
    case SESSION_STRANGER:
        status = meet(session, payload, payload_bytes, err);
        break;
    case SESSION_WAITING:
        status = psi_fail(err, PSD_ERR_PROTOCOL, "%s before WELCOME",
                          psi_frame_type_name(session->inbox.frame.type));
        break;
    case SESSION_FENCED:
        refuse_the_dead(session);
        break;
    case SESSION_OBSERVER:
    case SESSION_MEMBER:
        status = dispatch(session, payload, payload_bytes, err);
        break;
    }
    return session->conn == NULL ? PSD_OK : status;
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct session *session = owner;
    struct master *master = session->master;

    if (session->conn == NULL) {
        return;
    }
    session->conn = NULL;
    if (session->kind == SESSION_MEMBER) {
        psi_log(master->log, PSI_LOG_DEBUG, "MEMBER-CUT", "%s: %s", session->member->address,
                reason->text);
        master_member_cut(master, session->member, psi_now_ns(master->env));
    } else if (session->kind == SESSION_STRANGER) {
        master_warn(master, "STRANGER", conn->peer, "%s", reason->text);
    }
    master_wake_at(master, 0);
}

static const struct psi_conn_events conn_events = {
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_close = on_close,
};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct master *master = owner;
    struct session *session;

    if (master->session_count >= master->config.workers + PSI_PLACES_MAX + MASTER_GUESTS_MAX) {
        master_warn(master, "STRANGER", conn->peer, "too many connections");
        return PSD_ERR_BUSY;
    }
    session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    session->master = master;
    session->conn = conn;
    session->heard_ns = psi_now_ns(master->env);
    session->next = master->sessions;
    master->sessions = session;
    master->session_count++;
    master_wake_at(master, session->heard_ns + MASTER_STRANGER_MS * MASTER_MS_NS);
    *events_p = &conn_events;
    *owner_p = session;
    return PSD_OK;
}

/* Somebody who did not get as far as a session. */
static void
on_refused(void *owner, const char *peer, const struct psd_error *reason)
{
    master_warn(owner, "MEMBER-REFUSED", peer, "%s", reason->text);
}

const struct psi_listener_events master_listener_events = {.on_accept = on_accept,
                                                           .on_refused = on_refused};

/* ---------------------------------------------------------------------------------- time --- */

/* Members have their own deadlines; everybody else may not be silent for ever. */
static void
check_silence(struct session *session, uint64_t now_ns)
{
    const uint64_t silence_ms =
        session->kind == SESSION_STRANGER ? MASTER_STRANGER_MS : MASTER_GUEST_MS;
    const uint64_t deadline_ns = session->heard_ns + silence_ms * MASTER_MS_NS;

    if (now_ns < deadline_ns) {
        master_wake_at(session->master, deadline_ns);
        return;
    }
    if (session->kind == SESSION_STRANGER) {
        master_warn(session->master, "STRANGER", session->conn->peer, "no HELLO in %d ms",
                    MASTER_STRANGER_MS);
    }
    master_session_close(session);
}

void
master_sessions_tick(struct master *master, uint64_t now_ns)
{
    for (struct session *session = master->sessions; session != NULL; session = session->next) {
        if (session->conn == NULL) {
            continue;
        }
        if (session->broken) {
            master_session_close(session);
            if (session->kind == SESSION_MEMBER) {
                master_member_cut(master, session->member, now_ns);
            }
        } else if (session->kind == SESSION_WAITING && master->phase >= PHASE_ENDING) {
            master_refuse(session, PSD_ERR_REFUSED, "the job is over: %s", master->end_text);
        } else if (session->kind != SESSION_MEMBER) {
            check_silence(session, now_ns);
        }
        if (session->conn != NULL && session->subscription.every_ns != 0) {
            master_tell_subscriber(session, now_ns);
        }
    }
}

void
master_sessions_reap(struct master *master, bool all)
{
    struct session **link = &master->sessions;

    while (*link != NULL) {
        struct session *session = *link;

        if (all) {
            master_session_close(session);
        }
        if (session->conn != NULL) {
            link = &session->next;
            continue;
        }
        *link = session->next;
        psi_inbox_fini(&session->inbox);
        free(session);
        master->session_count--;
    }
}
