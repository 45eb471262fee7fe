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
#include "master/rebuild.h"
#include "master/state.h"
#include "table/spec.h"

enum { FROM_WORKER = 1, FROM_LANE = 2, FROM_OBSERVER = 4, FROM_READER = 8 };

/* Who may send what. */
static const struct {
    uint8_t type;
    unsigned from;
    master_handler handle;
} dispatch_table[] = {
    {PSI_FRAME_PING, FROM_WORKER | FROM_LANE | FROM_OBSERVER | FROM_READER, master_on_ping},
    {PSI_FRAME_NODES, FROM_WORKER | FROM_LANE | FROM_OBSERVER, master_on_nodes},
    {PSI_FRAME_SUBSCRIBE, FROM_OBSERVER, master_on_subscribe},
    {PSI_FRAME_METRICS, FROM_WORKER | FROM_LANE, master_on_metrics},
    {PSI_FRAME_END, FROM_WORKER | FROM_LANE, master_on_end},
    {PSI_FRAME_BYE, FROM_WORKER, master_on_bye},
    {PSI_FRAME_BYE, FROM_LANE, master_on_lane_bye},
    {PSI_FRAME_TABLE_OPEN, FROM_WORKER, master_on_table_open},
    {PSI_FRAME_BARRIER, FROM_WORKER, master_on_barrier},
    {PSI_FRAME_WHY, FROM_WORKER, master_on_why},
    {PSI_FRAME_HAVE, FROM_WORKER, master_on_have},
    {PSI_FRAME_HINT, FROM_WORKER, master_on_hint},
    {PSI_FRAME_ACK, FROM_LANE, master_on_table_ack},
    {PSI_FRAME_VIEW_ACK, FROM_LANE, master_on_view_ack},
    {PSI_FRAME_DONE, FROM_LANE, master_on_done},
    {PSI_FRAME_WRITTEN, FROM_LANE, master_on_written},
    {PSI_FRAME_BLOCKS, FROM_LANE, master_on_blocks},
    {PSI_FRAME_PART, FROM_WORKER, master_on_part},
    {PSI_FRAME_EARLIER, FROM_LANE, master_on_earlier},
    {PSI_FRAME_ROWS_SAVED, FROM_LANE, master_on_rows_saved},
    {PSI_FRAME_VIEW_COMMIT, FROM_LANE, master_on_known_view},
    {PSI_FRAME_VIEW_COMMIT, FROM_OBSERVER, master_on_copied_view},
    {PSI_FRAME_TABLE_OPEN, FROM_LANE, master_on_known_table},
    {PSI_FRAME_TABLE_DROP, FROM_LANE, master_on_known_drop},
    {PSI_FRAME_TABLE_RESUME, FROM_LANE, master_on_known_resume},
    {PSI_FRAME_LANE_STATE, FROM_LANE, master_on_lane_state},
    {PSI_FRAME_ELIGIBLE, FROM_LANE, master_on_eligible},
    {PSI_FRAME_ELIGIBLE, FROM_OBSERVER, master_on_copy},
    {PSI_FRAME_PAIR_LOST, FROM_OBSERVER, master_on_copy_lost},
    {PSI_FRAME_PAIR_LOST, FROM_LANE, master_on_pair_lost},
    {PSI_FRAME_WORKER_STATE, FROM_WORKER, master_on_worker_state},
    {PSI_FRAME_VIEW_COMMIT, FROM_WORKER, master_on_recalled}, /* asked before it was let in */
    {PSI_FRAME_TABLE_INFO, FROM_WORKER, master_on_recalled},
    {PSI_FRAME_RECALL, FROM_WORKER, master_on_recalled},
};

void
master_session_close(struct session *session)
{
    psi_guest_close(&session->guest);
    master_wake_at(session->master, 0);
}

void
master_refuse(struct session *session, psd_status status, const char *format, ...)
{
    char text[PSI_TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    psi_guest_refuse(&session->guest, status, text);
}

void
master_posted(struct session *session, psd_status status)
{
    if (status == PSD_ERR_BUSY || status == PSD_ERR_NO_MEMORY || status == PSD_ERR_TOO_BIG) {
        psi_guest_doom(&session->guest);
        master_wake_at(session->master, 0);
    }
}

/* ------------------------------------------------------------------------------- meeting --- */

/* In no view, and no part of the job: what it says of it counts for nothing. */
static bool
is_outside(const struct psi_hello *hello)
{
    return hello->role == PSI_ROLE_OBSERVER || hello->role == PSI_ROLE_READER;
}

/* A later life of this job's master? Only members know. */
static bool
has_met_another(const struct master *master, const struct psi_hello *hello)
{
    return hello->term > master->config.term && !is_outside(hello) && hello->job != 0 &&
           (master->job == 0 || hello->job == master->job);
}

/* Of this job, and computing as it does? Else it is refused. */
static bool
fits(struct session *session)
{
    const struct psi_hello *hello = &session->hello;

    if (hello->job != 0 && session->master->job != 0 && hello->job != session->master->job) {
        master_refuse(session, PSD_ERR_REFUSED, "wants job %016" PRIx64 ", this is job %016" PRIx64,
                      hello->job, session->master->job);
        return false;
    }
    if (hello->kernel_revision != PSI_KERNEL_REVISION &&
        (hello->role == PSI_ROLE_SERVER || hello->kernel_revision != 0)) {
        master_refuse(session, PSD_ERR_VERSION,
                      "computes with kernels of revision %u, this job with revision %d",
                      hello->kernel_revision, PSI_KERNEL_REVISION);
        return false;
    }
    return true;
}

/* Its job is not over: whoever asks is not refused, but asks again, and finds the life that goes on with it. */
static bool
is_deposed(const struct master *master)
{
    return master->later_term != 0;
}

static psd_status
on_hello(struct psi_guest *guest, const struct psi_hello *said, struct psd_error *err)
{
    struct session *session = (struct session *)guest;
    struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;

    session->hello = *said;
    session->heard_ns = psi_now_ns(master->env);
    if (has_met_another(master, hello)) {
        master_leave(master, hello->term);
        return psi_fail(err, PSD_ERR_FENCED, "HELLO: it has met another life of the master");
    }
    if (is_deposed(master) && hello->role != PSI_ROLE_OBSERVER) {
        return psi_fail(err, PSD_ERR_FENCED, "HELLO to a master that another life has replaced");
    }
    if (hello->role == PSI_ROLE_READER) {
        return fits(session) ? master_admit_reader(session, err) : PSD_OK;
    }
    if (!master_rebuild_learns(master, hello)) {
        return psi_fail(err, PSD_ERR_BUSY, "HELLO before a server is back and knows the job");
    }
    if (master_rebuild_is_contradicted(session) || !fits(session)) {
        return PSD_OK;
    }
    if (hello->role == PSI_ROLE_OBSERVER) {
        const struct psi_welcome welcome = master_welcome(master);
        const struct psi_frame frame = master_answer(session, PSI_FRAME_WELCOME);

        session->kind = SESSION_OBSERVER;
        master_posted(session, psi_post_welcome(session->guest.conn, &frame, &welcome));
    } else if (hello->role == PSI_ROLE_STANDBY) {
        master_admit_standby(session);
    } else if (master->phase == PHASE_REBUILDING) {
        master_rebuild_admit(session);
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

/* A member that was declared dead speaks: it must learn it, whatever it says. */
void
master_refuse_the_dead(struct session *session)
{
    const uint32_t rank = session->hello.rank;
    const struct worker *worker;

    if (session->hello.role == PSI_ROLE_SERVER) {
        master_refuse(session, PSD_ERR_FENCED, "server %u was declared dead: %s", rank,
                      session->master->server[rank].lost_text);
        return;
    }
    worker = &session->master->worker[rank];
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
    const uint8_t type = session->guest.inbox.frame.type;
    unsigned from = session->kind == SESSION_READER ? FROM_READER : FROM_OBSERVER;

    psi_metric_add(session->master->metrics, PSI_METRIC_FRAMES_IN, 1);
    if (session->kind == SESSION_MEMBER) {
        from = session->member->role == PSI_ROLE_WORKER ? FROM_WORKER : FROM_LANE;
        if (!session->member->is_sure) {
            session->member->is_sure = true;
            master_wake_at(session->master, 0); /* it may begin */
        }
        session->member->spared_ns = 0; /* until then it may have given up waiting for WELCOME */
        master_member_heard(session->master, session->member, session->heard_ns);
    }
    for (size_t i = 0; i < sizeof(dispatch_table) / sizeof(dispatch_table[0]); i++) {
        if (dispatch_table[i].type != type || (dispatch_table[i].from & from) == 0) {
            continue;
        }
        if (session->master->phase >= PHASE_ENDING && (from & (FROM_WORKER | FROM_LANE)) != 0 &&
            type != PSI_FRAME_NODES && type != PSI_FRAME_BYE) {
            return PSD_OK; /* END is on its way: nothing else matters any more */
        }
        return dispatch_table[i].handle(session, body, bytes, err);
    }
    return psi_fail(err, PSD_ERR_PROTOCOL, "%s%s: not expected here", psi_frame_type_name(type),
                    from == FROM_READER ? " from a reader" : "");
}

/* -------------------------------------------------------------------------------- events --- */

static void
on_prefix(struct psi_guest *guest)
{
    struct session *session = (struct session *)guest;

    session->heard_ns = psi_now_ns(session->master->env);
}

static psd_status
on_frame(struct psi_guest *guest, void *payload, size_t bytes, struct psd_error *err)
{
    struct session *session = (struct session *)guest;
    psd_status status = PSD_OK;

    session->heard_ns = psi_now_ns(session->master->env);
    switch (session->kind) {
    case SESSION_STRANGER:
    case SESSION_WAITING:
        status = master_on_recalled(session, payload, bytes, err);
        break;
    case SESSION_FENCED:
        master_refuse_the_dead(session);
        break;
    case SESSION_OBSERVER:
    case SESSION_READER:
    case SESSION_MEMBER:
        status = dispatch(session, payload, bytes, err);
        break;
    }
    return guest->conn == NULL ? PSD_OK : status;
}

static void
on_turned_away(struct psi_guest *guest, const char *text)
{
    const struct session *session = (const struct session *)guest;

    if (session->hushed) {
        psi_log(session->master->log, PSI_LOG_INFO, "STANDS-BY", "%s", text);
        return;
    }
    psi_metric_add(session->master->metrics, PSI_METRIC_REFUSED, 1);
    master_warn(session->master, "MEMBER-REFUSED", guest->conn->peer, "%s", text);
}

static void
on_gone(struct psi_guest *guest, const char *peer, const struct psd_error *reason)
{
    const struct session *session = (const struct session *)guest;
    struct master *master = session->master;

    if (reason != NULL && session->kind == SESSION_MEMBER) {
        psi_log(master->log, PSI_LOG_DEBUG, "MEMBER-CUT", "%s: %s", session->member->address,
                reason->text);
        master_member_cut(master, session->member, psi_now_ns(master->env), reason);
    } else if (reason != NULL && session->kind == SESSION_READER) {
        psi_log(master->log, reason->status == PSD_ERR_PROTOCOL ? PSI_LOG_WARN : PSI_LOG_DEBUG,
                "READER-GONE", "%s: %s", peer, reason->text);
    } else if (reason != NULL && session->kind == SESSION_STRANGER) {
        psi_metric_add(master->metrics, PSI_METRIC_REFUSED, 1);
        master_warn(master, "STRANGER", peer, "%s", reason->text);
    }
    master_wake_at(master, 0); /* the tick frees it */
}

const struct psi_guest_events master_guest_events = {
    .payload_max = PSI_FRAME_CONTROL_MAX,
    .on_prefix = on_prefix,
    .on_hello = on_hello,
    .on_frame = on_frame,
    .on_refused = on_turned_away,
    .on_gone = on_gone,
};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct master *master = owner;
    struct session *session;

    if (master->guests.count >= master->config.workers + 4 * PSI_PLACES_MAX + MASTER_GUESTS_MAX) {
        master_warn(master, "STRANGER", conn->peer, "too many connections");
        return PSD_ERR_BUSY;
    }
    session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    session->master = master;
    session->heard_ns = psi_now_ns(master->env);
    psi_guest_begin(&session->guest, &master->guests, conn, events_p, owner_p);
    master_wake_at(master, session->heard_ns + MASTER_STRANGER_MS * MASTER_MS_NS);
    return PSD_OK;
}

/* Somebody who did not get as far as a session. */
static void
on_refused(void *owner, const char *peer, const struct psd_error *reason)
{
    struct master *master = owner;

    psi_metric_add(master->metrics, PSI_METRIC_REFUSED, 1);
    master_warn(master, "MEMBER-REFUSED", peer, "%s", reason->text);
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
        master_warn(session->master, "STRANGER", session->guest.conn->peer, "no HELLO in %d ms",
                    MASTER_STRANGER_MS);
    }
    master_session_close(session);
}

void
master_sessions_tick(struct master *master, uint64_t now_ns)
{
    psi_guests_cut_doomed(&master->guests);
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn == NULL) {
            continue;
        }
        if (session->kind == SESSION_WAITING && is_deposed(master)) {
            master_session_close(session);
        } else if (session->kind == SESSION_WAITING && master->phase >= PHASE_ENDING) {
            master_refuse(session, PSD_ERR_REFUSED, "the job is over: %s", master->end_text);
        } else if (session->kind == SESSION_READER) {
            master_reader_tell_tables(
                session); /* silent as it likes: the kernel sees that it is gone */
        } else if (session->kind != SESSION_MEMBER) {
            check_silence(session, now_ns);
        }
        if (session->guest.conn != NULL && session->subscription.every_ns != 0) {
            master_tell_subscriber(session, now_ns);
        }
    }
    master_watch(master);
}

void
master_sessions_reap(struct master *master, bool all)
{
    struct session *next;

    for (struct session *session = session_first(master); session != NULL; session = next) {
        next = session_next(session);
        if (all || session->guest.conn == NULL) {
            psi_guest_end(&session->guest);
            free(session);
        }
    }
}
