/*
 * metrics.c - what members count, passed on to those who watch.
 *
 * Members tell only while an observer wants to know, and as often as the most curious one does. The
 * master looks whether it makes sense and passes it on as it came; it keeps nothing of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/resident.h"
#include "master/state.h"

/* An observer that reads slowly misses some, and hears of the next. */
static bool
has_room(struct session *session)
{
    struct psi_conn *conn = session->guest.conn;

    if (conn == NULL) {
        return false;
    }
    if (conn->ops->queued_bytes(conn) > MASTER_UNREAD_MAX) {
        psi_metric_add(session->master->metrics, PSI_METRIC_UNTOLD, 1);
        return false;
    }
    return true;
}

psd_status
master_on_metrics(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct member *member = session->member;
    struct psi_frame frame = master_frame(master, PSI_FRAME_METRICS);
    const psd_status status = psi_telling_decode(body, bytes, master->telling, err);

    if (status != PSD_OK) {
        return status;
    }
    frame.rank = (uint16_t)member->rank;
    frame.chunk = member->role == PSI_ROLE_SERVER ? member->lane : 0;
    frame.table = member->role;
    for (struct session *other = session_first(master); other != NULL;
         other = session_next(other)) {
        if (other->subscription.metrics && has_room(other)) {
            frame.request = other->subscription.request;
            other->subscription.behind += PSI_FRAME_BYTES + bytes;
            master_posted(other, psi_post_body(other->guest.conn, &frame, body, bytes));
        }
    }
    return PSD_OK;
}

/* ---- whether members tell ------------------------------------------------------------------ */

/* A member of an earlier version does not know SUBSCRIBE, and would hang up. */
static void
ask(const struct master *master, struct session *session)
{
    const struct psi_frame frame = master_frame(master, PSI_FRAME_SUBSCRIBE);
    const struct psi_subscribe subscribe = {.every_ms = master->watched_ms, .metrics = true};

    if (session->guest.conn != NULL && session->hello.tells) {
        master_posted(session, psi_post_subscribe(session->guest.conn, &frame, &subscribe));
    }
}

void
master_watch_member(const struct master *master, struct session *session)
{
    if (session != NULL && master->watched_ms > 0) {
        ask(master, session);
    }
}

/* As often as the most curious one wants to; 0: nobody does. */
static uint32_t
wanted_ms(const struct master *master)
{
    uint64_t every_ns = 0;

    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->subscription.metrics &&
            (every_ns == 0 || session->subscription.every_ns < every_ns)) {
            every_ns = session->subscription.every_ns;
        }
    }
    if (every_ns > 0 && every_ns < MASTER_METRICS_MS_MIN * MASTER_MS_NS) {
        every_ns = MASTER_METRICS_MS_MIN * MASTER_MS_NS;
    }
    return (uint32_t)(every_ns / MASTER_MS_NS);
}

void
master_watch(struct master *master)
{
    const uint32_t every_ms = wanted_ms(master);

    if (every_ms == master->watched_ms) {
        return;
    }
    master->watched_ms = every_ms;
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->kind == SESSION_MEMBER) {
            ask(master, session);
        }
    }
}

/* ---- its own ------------------------------------------------------------------------------- */

static void
measure(struct master *master)
{
    const struct psi_env_counts counts = psi_env_counts(master->env);
    uint64_t members = 0;
    uint64_t observers = 0;
    uint64_t queued = 0;
    uint64_t shared;

    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        members += session->guest.conn != NULL && session->kind == SESSION_MEMBER;
        queued += psi_conn_queued_bytes(session->guest.conn);
        observers += session->guest.conn != NULL && session->subscription.metrics;
    }
    psi_metric_set(master->metrics, PSI_METRIC_MEMBERS, members);
    psi_metric_set(master->metrics, PSI_METRIC_OBSERVERS, observers);
    psi_metric_set(master->metrics, PSI_METRIC_READERS, master_readers(master));
    psi_metric_set(master->metrics, PSI_METRIC_SEAL_TIME, counts.sealed_ns);
    psi_metric_set(master->metrics, PSI_METRIC_COPYING_TIME, counts.copied_ns);
    psi_metric_set(master->metrics, PSI_METRIC_FRAMES_OUT, counts.frames_out);
    psi_metric_set(master->metrics, PSI_METRIC_SEND_QUEUE, queued);
    if (master->config.resident != NULL) {
        psi_metric_set(master->metrics, PSI_METRIC_RESIDENT,
                       psi_resident_read(master->config.resident, &shared));
    }
    psi_metric_set(master->metrics, PSI_METRIC_VIEWS,
                   master->view.id & ((1u << PSI_VIEW_COUNT_BITS) - 1));
    if (master->config.cpu_ns != NULL) {
        psi_metric_set(master->metrics, PSI_METRIC_CPU_TIME, master->config.cpu_ns());
    }
}

/* In order of their numbers: one that is being opened holds up those behind it, for a moment. */
static void
tell_tables(struct session *session)
{
    const struct master *master = session->master;
    uint32_t *told = &session->subscription.tables_told;

    while (*told < master->tables && master->table[*told]->state != TABLE_OPENING &&
           has_room(session)) {
        if (master->table[*told]->state == TABLE_READY) {
            master_table_describe(session, master->table[*told], session->subscription.request);
        }
        (*told)++;
    }
}

void
master_tell_metrics(struct session *session)
{
    struct master *master = session->master;
    struct psi_frame frame = master_frame(master, PSI_FRAME_METRICS);

    if (!has_room(session)) {
        return;
    }
    frame.request = session->subscription.request;
    frame.table = PSI_ROLE_MASTER;
    measure(master);
    memset(master->telling, 0, sizeof(*master->telling));
    psi_telling_count(master->telling, master->metrics);
    master_posted(session, psi_post_telling(session->guest.conn, &frame, master->telling));
    tell_tables(session);
}
