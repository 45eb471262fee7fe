/*
 * members.c - the places of a job, of workers and lanes alike: taken, held, and lost.
 *
 * A place is told from its holder: the holder is a *life*, a random number that every process
 * draws. The same life coming back is a reconnect. Another life is refused while the holder lives,
 * waits while it is uncertain, and becomes the replacement when the holder is dead and the policy
 * says so. Who may take which place, and what follows from a loss: workers.c and servers.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/state.h"

static const char *
role_name(const struct member *member)
{
    return member->role == PSI_ROLE_WORKER ? "worker" : "server";
}

/* ------------------------------------------------------------------------------- tidings --- */

/* Who starts processes knows a server by the index that its process was started with. A lane may have
 * the place of another. */
uint32_t
master_process_index(const struct master *master, const struct member *member)
{
    const uint32_t index = (uint32_t)(member->process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));

    /* It is what the process says of itself. */
    return member->role == PSI_ROLE_SERVER && member->process != 0 && index < master_indexes(master)
               ? index
               : member->rank;
}

void
master_tell(const struct master *master, enum psi_tiding_kind kind, const struct member *member,
            enum psi_loss loss, const char *text)
{
    struct psi_tiding tiding = {
        .kind = kind,
        .role = member->role == PSI_ROLE_WORKER ? PSI_TIDING_WORKER : PSI_TIDING_SERVER,
        .rank = master_process_index(master, member),
        .step = kind == PSI_TIDING_DONE ? member->step : 0,
        .life = kind == PSI_TIDING_JOINED && member->role != PSI_ROLE_WORKER ? member->process : 0,
        .loss = loss};

    if (master->config.tell != NULL) {
        snprintf(tiding.text, sizeof(tiding.text), "%s", text);
        master->config.tell(master->config.tell_context, &tiding);
    }
}

/* Whether the job misses somebody who does not talk. */
static bool
is_awaited(const struct master *master, const struct member *member)
{
    return master->phase <= PHASE_RUNNING &&
           (member->state == PSD_NODE_JOINED || member->state == PSD_NODE_RUNNING);
}

void
master_member_heard(const struct master *master, struct member *member, uint64_t now_ns)
{
    if (member->missed) {
        master_no_longer_missed(master, member, now_ns);
    }
    member->heard_ns = now_ns;
    if (member->quiet) {
        member->quiet = false;
        master_tell(master, PSI_TIDING_HEARD, member, PSI_LOSS_NONE, "");
    }
}

/* --------------------------------------------------------------------------------- names --- */

void
master_names_add(struct names *names, const char *role, uint32_t rank)
{
    const size_t used = strlen(names->text);

    if (names->count++ < MASTER_NAMES_MAX) {
        snprintf(names->text + used, sizeof(names->text) - used, "%s%s %u", used > 0 ? ", " : "",
                 role, rank);
    }
}

void
master_names_end(struct names *names)
{
    const size_t used = strlen(names->text);

    if (names->count > MASTER_NAMES_MAX) {
        snprintf(names->text + used, sizeof(names->text) - used, " and %u more",
                 names->count - MASTER_NAMES_MAX);
    }
}

/* ------------------------------------------------------------------------------- joining --- */

struct psi_welcome
master_welcome(const struct master *master)
{
    const uint64_t silence_ms = master_dead_ms(master);

    return (struct psi_welcome){
        .workers = master->config.workers,
        .servers = master->config.servers,
        .heartbeat_ms = master->config.heartbeat_ms,
        .dead_ms = silence_ms < UINT32_MAX ? (uint32_t)silence_ms : UINT32_MAX,
        .policy = (uint8_t)master->config.policy,
        .job = master->job,
        .view = master->view.id,
        .load_barriers = master->barrier_released[PSI_BARRIER_LOAD],
        .survives = master_survives(master),
        .term = master->config.term,
        .master_grace_ms = master->config.master_grace_ms,
        .elastic = master_is_elastic(master),
        .size = master->config.size,
    };
}

/* WELCOME, then whatever the holder may have missed. */
static void
welcome(struct session *session, struct member *member)
{
    struct master *master = session->master;
    const struct psi_frame frame = master_frame(master, PSI_FRAME_WELCOME);
    struct psi_welcome message = master_welcome(master);

    message.rank = member->rank;
    message.incarnation = member->incarnation;
    if (member->role == PSI_ROLE_WORKER) {
        message.barriers = master->worker[member->rank].barrier_base[PSI_BARRIER_CALLED];
    }
    session->kind = SESSION_MEMBER;
    session->member = member;
    member->session = session;
    member->process = session->hello.host;
    member->hinted_ns = 0;
    if (member->role == PSI_ROLE_WORKER) {
        master_reach_forget_worker(master, member->rank); /* it says it again */
    }
    master_member_heard(master, member, psi_now_ns(master->env));
    master_posted(session, psi_post_welcome(session->guest.conn, &frame, &message));
    master_view_resend(master, member);
    master_watch_member(master, session);
    master_wake_at(master, 0);
}

/* A server is connected when all its lanes are. */
static bool
is_connected(const struct master *master, const struct member *member)
{
    const struct server *server = &master->server[member->rank];

    if (member->role == PSI_ROLE_WORKER) {
        return member->session != NULL;
    }
    for (uint32_t i = 0; i < server->lanes; i++) {
        if (server->lane[i].session == NULL) {
            return false;
        }
    }
    return true;
}

void
master_come_back(struct session *session, struct member *member)
{
    struct session *old = member->session;

    if (old != NULL && old != session) {
        master_session_close(old);
    }
    psi_log(session->master->log, PSI_LOG_DEBUG, "MEMBER-BACK", "%s %u is back from %s",
            role_name(member), member->rank, session->guest.conn->peer);
    welcome(session, member);
    if (is_awaited(session->master, member) && is_connected(session->master, member)) {
        master_tell(session->master, PSI_TIDING_BACK, member, PSI_LOSS_NONE, "");
    }
}

/* A server is here when all its lanes are. */
static bool
is_whole(const struct master *master, const struct member *member)
{
    const struct server *server = &master->server[member->rank];

    if (member->role == PSI_ROLE_WORKER) {
        return true;
    }
    for (uint32_t i = 0; i < server->lanes; i++) {
        if (server->lane[i].state != PSD_NODE_JOINED && server->lane[i].state != PSD_NODE_RUNNING) {
            return false;
        }
    }
    return true;
}

/* A worker is here, or with this lane the last of a server. Processes that take the places of others have
 * been here before: if they have them all, it is the part that is here, not the process that it was of. Of
 * copies that take places another word follows. */
static void
tell_joined(const struct master *master, const struct member *member)
{
    struct member part = {.role = PSI_ROLE_SERVER, .rank = member->rank};
    bool is_promoting = false;

    if (member->role == PSI_ROLE_WORKER) {
        master_tell(master, PSI_TIDING_JOINED, member, PSI_LOSS_NONE, "");
        return;
    }
    for (uint32_t i = 0; i < master->server[member->rank].lanes; i++) {
        const struct member *lane = &master->server[member->rank].lane[i];

        if (!master_is_guest(master, lane) && !master_pair_of(master, lane)->is_promoting) {
            master_tell(master, PSI_TIDING_JOINED, lane, PSI_LOSS_NONE, "");
            return;
        }
        is_promoting = is_promoting || master_pair_of(master, lane)->is_promoting;
    }
    if (!is_promoting) {
        part.process = master_find_process(master, member->rank);
        master_tell(master, PSI_TIDING_JOINED, &part, PSI_LOSS_NONE, "");
    }
}

void
master_take_place(struct session *session, struct member *member, const char *address)
{
    member->state = PSD_NODE_JOINED;
    member->incarnation++;
    member->life = session->hello.life;
    member->process = session->hello.host;
    member->is_sure = false;
    member->done_acked = 0;
    member->quiet = false;
    member->missed = false;
    member->report_ns = 0;
    member->step = 0;
    member->steps_per_s = 0;
    member->value = 0;
    member->value_name[0] = '\0';
    snprintf(member->address, sizeof(member->address), "%s", address);
    if (member->role == PSI_ROLE_WORKER) {
        psi_log(session->master->log, PSI_LOG_INFO, "MEMBER-JOINED", "worker %u joined from %s%s",
                member->rank, address,
                session->master->worker[member->rank].wanted == CHANGE_REPLACE
                    ? ", as a replacement"
                    : "");
    } else {
        struct server *server = &session->master->server[member->rank];

        psi_log(session->master->log, PSI_LOG_INFO, "MEMBER-JOINED", "server %u lane %u joined: %s",
                member->rank, member->lane, address);
        server->is_missed = server->is_missed && master_is_guest(session->master, member);
    }
    if (is_whole(session->master, member)) {
        tell_joined(session->master, member);
    }
    welcome(session, member);
}

void
master_wait_for_place(struct session *session)
{
    session->kind = SESSION_WAITING;
}

void
master_admit(struct session *session)
{
    if (session->hello.role == PSI_ROLE_SERVER) {
        master_admit_lane(session);
    } else {
        master_admit_worker(session);
    }
}

/* -------------------------------------------------------------------------------- losing --- */

void
master_member_cut(const struct master *master, struct member *member, uint64_t now_ns,
                  const struct psd_error *reason)
{
    member->session = NULL;
    member->cut_ns = now_ns;
    member->is_cut_off = reason != NULL && reason->status == PSD_ERR_TIMEOUT;
    if (is_awaited(master, member)) {
        master_tell(master, PSI_TIDING_CUT, member, PSI_LOSS_NONE, "");
    }
}

void
master_fence(struct member *member)
{
    struct session *session = member->session;

    if (session != NULL) {
        session->kind = SESSION_FENCED;
        session->member = NULL;
        session->hello.rank = member->rank;
        session->hello.incarnation = member->incarnation;
        member->session = NULL;
    }
}

void
master_blame(struct master *master, const struct member *member, enum psi_loss loss)
{
    if (master->phase < PHASE_ENDING) {
        master->blamed = member;
        master->blamed_loss = loss;
    }
}

/* Before the start a place is simply free again. */
static void
free_place(struct master *master, struct member *member, const char *reason)
{
    psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST", "%s %u (%s) lost before the start: %s",
            role_name(member), member->rank, member->address, reason);
    if (member->session != NULL) {
        master_session_close(member->session);
        member->session = NULL;
    }
    member->state = PSD_NODE_MISSING;
    member->life = 0;
    master_wake_at(master, 0);
}

void
master_member_lost(struct master *master, struct member *member, enum psi_loss loss,
                   const char *reason)
{
    if (master->phase == PHASE_GATHERING) {
        free_place(master, member, reason);
    } else if (member->role == PSI_ROLE_WORKER) {
        master_worker_lost(master, &master->worker[member->rank], loss, reason);
    } else {
        master_server_lost(master, member, loss, reason);
    }
}

void
master_admit_waiting(struct master *master)
{
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_WAITING) {
            master_admit(session);
        }
    }
}

void
master_members_tick(struct master *master, uint64_t now_ns)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        struct server *server = &master->server[index];

        for (uint32_t lane = 0; lane < server->lanes && master->phase < PHASE_ENDING; lane++) {
            master_look_at_silence(master, &server->lane[lane], now_ns);
        }
        if (master->phase < PHASE_ENDING) {
            master_server_tick(master, server, now_ns);
        }
    }
    for (uint32_t rank = 0; rank < master->config.workers && master->phase < PHASE_ENDING; rank++) {
        master_look_at_silence(master, &master->worker[rank].member, now_ns);
        master_worker_tick(master, &master->worker[rank], now_ns);
    }
    if (master->phase < PHASE_ENDING) {
        master_admit_waiting(master);
    }
}

/* ---------------------------------------------------------------------------- from members --- */

psd_status
master_on_ping(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    const struct psi_frame pong = master_answer(session, PSI_FRAME_PONG);
    struct psi_ping ping;
    const psd_status status = psi_ping_decode(body, bytes, &ping, err);

    if (status == PSD_OK) {
        if (session->kind == SESSION_MEMBER) {
            master_node_report(session->member, &ping, session->heard_ns);
        }
        master_posted(session, psi_post(session->guest.conn, &pong));
    }
    return status;
}

/* A lane has read END. */
psd_status
master_on_lane_bye(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    (void)body;
    (void)bytes;
    if (session->master->phase < PHASE_ENDING) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "BYE from a server before the end");
    }
    session->member->state = PSD_NODE_DONE;
    master_wake_at(session->master, 0);
    return PSD_OK;
}

/* A member that gives up says why. */
psd_status
master_on_end(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct member *member = session->member;
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(body, bytes, &verdict, err);

    if (status != PSD_OK || member->state == PSD_NODE_DONE) {
        return status;
    }
    if (member->role == PSI_ROLE_WORKER || master->phase == PHASE_GATHERING) {
        master_session_close(session);
        master_member_cut(master, member, session->heard_ns, NULL);
        master_member_lost(master, member, PSI_LOSS_GAVE_UP, verdict.text);
    } else {
        psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST", "server %u (%s) gave up: %s",
                member->rank, member->address, verdict.text);
        master_blame(master, member, PSI_LOSS_GAVE_UP);
        master_end(master, verdict.exit_code != 0 ? verdict.exit_code : PSI_EXIT_SERVER_LOST,
                   verdict.status < 0 ? (psd_status)verdict.status : PSD_ERR_PEER_LOST,
                   "server %u: %s", member->rank, verdict.text);
    }
    return PSD_OK;
}
