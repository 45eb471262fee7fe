/*
 * master.c - the life of a job's master: create, tick, end.
 *
 * Invariants
 *   - phase only grows;
 *   - due_ns is never later than the first deadline: a tick recomputes it, an event only lowers it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/master.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/rebuild.h"
#include "master/redundancy.h"
#include "master/state.h"

void
master_wake_at(struct master *master, uint64_t at_ns)
{
    if (at_ns < master->due_ns) {
        master->due_ns = at_ns;
    }
}

struct psi_frame
master_frame(const struct master *master, uint8_t type)
{
    return (struct psi_frame){.type = type, .view = master->view.id};
}

struct psi_frame
master_answer(const struct session *session, uint8_t type)
{
    struct psi_frame frame = master_frame(session->master, type);

    frame.request = session->guest.inbox.frame.request;
    frame.seq = session->guest.inbox.frame.seq;
    frame.table = session->guest.inbox.frame.table;
    return frame;
}

void
master_warn(struct master *master, const char *id, const char *peer, const char *format, ...)
{
    char text[PSI_TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    psi_limiter_warn(&master->limiter, psi_now_ns(master->env), id, peer, text);
}

static psd_status
allocate(struct master *master, struct psd_error *err)
{
    const uint32_t workers = master->config.workers;

    master->worker = calloc(workers, sizeof(*master->worker));
    master->server = calloc(master_indexes(master), sizeof(*master->server));
    master->view_worker = calloc(workers, sizeof(*master->view_worker));
    master->view_place = calloc(PSI_PLACES_MAX, sizeof(*master->view_place));
    master->view_table = calloc(PSI_TABLES_MAX, sizeof(*master->view_table));
    master->given = calloc(PSI_TABLES_MAX, sizeof(*master->given));
    master->table = calloc(PSI_TABLES_MAX, sizeof(*master->table));
    master->metrics = psi_metrics_create();
    master->telling = calloc(1, sizeof(*master->telling));
    if (master->worker == NULL || master->server == NULL || master->view_worker == NULL ||
        master->view_place == NULL || master->view_table == NULL || master->given == NULL ||
        master->table == NULL || master->metrics == NULL || master->telling == NULL ||
        psi_view_init(&master->view, workers) != PSD_OK) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "master: out of memory");
    }
    for (uint32_t rank = 0; rank < workers; rank++) {
        master->worker[rank].member.role = PSI_ROLE_WORKER;
        master->worker[rank].member.rank = rank;
    }
    return PSD_OK;
}

psd_status
master_create(struct psi_env *env, const struct master_config *config, const struct psi_log *log,
              struct master **master_p, struct psd_error *err)
{
    struct master *master;
    psd_status status;

    if (config->start_workers > config->workers || config->size > config->workers) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "a job that begins with %u of %u workers, and has room for %u",
                        config->start_workers, config->size, config->workers);
    }
    if (config->workers == 0 || config->workers > PSI_RANKS_MAX || config->servers == 0 ||
        config->servers > PSI_SERVERS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "a job of %u workers and %u servers: 1 to %d workers, 1 to %d servers",
                        config->workers, config->servers, PSI_RANKS_MAX, PSI_SERVERS_MAX);
    }
    master = calloc(1, sizeof(*master));
    if (master == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "master: no %zu bytes", sizeof(*master));
    }
    master->env = env;
    master->log = log;
    master->limiter.log = log;
    master->guests.events = &master_guest_events;
    master->config = *config;
    master->config.listen_address = NULL;
    master->config.start_workers =
        config->start_workers == 0 ? config->workers : config->start_workers;
    master->config.size = config->size == 0 ? config->workers : config->size;
    master->begun_ns = psi_now_ns(env);
    master->waiting_since_ns = master->begun_ns;
    master->phase = config->term > 1 ? PHASE_REBUILDING : PHASE_GATHERING;
    master->missing_line_ns = master->waiting_since_ns + MASTER_MISSING_MS * MASTER_MS_NS;
    while (master->job == 0 && master->phase != PHASE_REBUILDING) {
        master->job = env->ops->random(env);
    }
    status = allocate(master, err);
    if (status == PSD_OK) {
        status = env->ops->listen(env, config->listen_address, &master_listener_events, master,
                                  &master->listener, master->address, err);
    }
    if (status != PSD_OK) {
        master_destroy(master);
        return status;
    }
    *master_p = master;
    return PSD_OK;
}

void
master_destroy(struct master *master)
{
    if (master == NULL) {
        return;
    }
    master_saving_free(master);
    master_sessions_reap(master, true);
    if (master->listener != NULL) {
        master->env->ops->unlisten(master->env, master->listener);
    }
    for (uint32_t id = 0; id < master->tables; id++) {
        master_table_destroy(master->table[id]);
    }
    master_quorum_destroy(master);
    for (uint32_t rank = 0; master->worker != NULL && rank < master->config.workers; rank++) {
        free(master->worker[rank].arrival);
    }
    for (uint32_t index = 0; master->server != NULL && index < master->config.servers; index++) {
        for (uint32_t lane = 0; lane < master->server[index].lanes; lane++) {
            master_report_free(&master->server[index].lane[lane]);
        }
        free(master->server[index].pair);
        free(master->server[index].lane);
    }
    free(master->unreached_ns);
    free(master->table);
    free(master->given);
    free(master->telling);
    free(master->metrics);
    free(master->view_table);
    free(master->view_place);
    free(master->view_worker);
    psi_view_fini(&master->view);
    psi_view_fini(&master->copied_view);
    master_recall_free(master);
    free(master->server);
    free(master->worker);
    free(master);
}

const char *
master_address(const struct master *master)
{
    return master->address;
}

/* Who still has to hear of the end:
 * everybody, but after a good end the workers have left already. */
static bool
has_to_hear(const struct master *master, const struct session *session)
{
    if (session->guest.conn == NULL || session->kind != SESSION_MEMBER) {
        return false;
    }
    if (session->member->role == PSI_ROLE_SERVER) {
        return session->member->state != PSD_NODE_DONE;
    }
    return master->end_status != PSD_OK && session->member->state != PSD_NODE_DONE;
}

static bool
reads(const struct session *session)
{
    return session->guest.conn != NULL && session->kind == SESSION_READER;
}

/* A server may have nothing but lanes that stand by. */
static bool
stands_by(const struct session *session)
{
    return master_may_pair(session->master) && session->guest.conn != NULL &&
           session->kind == SESSION_OBSERVER && session->hello.role == PSI_ROLE_STANDBY;
}

void
master_send_end(struct session *session)
{
    const struct master *master = session->master;
    const struct psi_frame frame = master_frame(master, PSI_FRAME_END);

    master_posted(session, psi_post_error(session->guest.conn, &frame, master->end_status,
                                          master->end_code, master->end_text));
}

/* Who started the master hears why, before anybody can die of it. */
static void
tell_end(const struct master *master)
{
    const struct member *blamed = master->blamed;
    struct psi_tiding tiding = {.kind = PSI_TIDING_END, .code = master->end_code};

    if (master->config.tell == NULL || master->end_status == PSD_OK) {
        return;
    }
    if (blamed != NULL) {
        tiding.role = blamed->role == PSI_ROLE_WORKER ? PSI_TIDING_WORKER : PSI_TIDING_SERVER;
        tiding.rank = master_process_index(master, blamed);
        tiding.life = blamed->role == PSI_ROLE_WORKER ? 0 : blamed->process;
        tiding.loss = master->blamed_loss;
    }
    snprintf(tiding.text, sizeof(tiding.text), "%.500s", master->end_text);
    master->config.tell(master->config.tell_context, &tiding);
}

void
master_end(struct master *master, int exit_code, psd_status status, const char *format, ...)
{
    const uint32_t grace_ms = status == PSD_OK ? master->config.lost_grace_ms : 0;
    va_list args;

    if (master->phase >= PHASE_ENDING) {
        return;
    }
    master->phase = PHASE_ENDING;
    master->end_ns = psi_now_ns(master->env) +
                     (grace_ms > MASTER_END_MS ? grace_ms : MASTER_END_MS) * MASTER_MS_NS;
    master->end_status = status;
    master->end_code = exit_code;
    va_start(args, format);
    vsnprintf(master->end_text, sizeof(master->end_text), format, args);
    va_end(args);
    tell_end(master);
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (has_to_hear(master, session) || stands_by(session) || reads(session)) {
            master_send_end(session);
        }
    }
    master_wake_at(master, 0);
}

void
master_leave(struct master *master, uint32_t term)
{
    master->phase = PHASE_OVER;
    master->later_term = term;
    master->end_status = PSD_ERR_FENCED;
    master->end_code = PSI_EXIT_FENCED;
    snprintf(master->end_text, sizeof(master->end_text),
             "another life of the master has taken over: its term is %u, this one's %u", term,
             master->config.term);
    psi_log(master->log, PSI_LOG_ERROR, "JOB-END", "%s (exit code %d)", master->end_text,
            master->end_code);
    master_wake_at(master, 0);
}

uint32_t
master_later_term(const struct master *master)
{
    return master->later_term;
}

void
master_stop(struct master *master, int exit_code, const char *reason)
{
    master_end(master, exit_code, PSD_ERR_JOB_FAILED, "%s", reason);
}

/* A job that ended well ended well for a lane, too, whose connection was cut in that moment: it has
 * its grace to come back and hear it. */
static bool
lane_is_away(const struct master *master)
{
    for (uint32_t place = 0; place < master->places && master->end_status == PSD_OK; place++) {
        const struct member *lane = master->place[place];

        if (lane->session == NULL && lane->state != PSD_NODE_DONE) {
            return true;
        }
    }
    return false;
}

/* Lanes say BYE when they have read END, and members close: waiting for that, rather than closing
 * first, lets no END be lost in a reset connection. */
static void
ending_tick(struct master *master, uint64_t now_ns)
{
    bool waiting = lane_is_away(master) || master->lingers ||
                   (master->end_status == PSD_OK && !master_done_is_heard(master));

    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        waiting = waiting || (has_to_hear(master, session) && !session->guest.doomed);
    }
    if (waiting && now_ns < master->end_ns) {
        master_wake_at(master, master->end_ns);
        return;
    }
    master->phase = PHASE_OVER;
    psi_log(master->log, master->end_status == PSD_OK ? PSI_LOG_INFO : PSI_LOG_ERROR, "JOB-END",
            "%s (exit code %d)", master->end_text, master->end_code);
}

/* Who is not there yet, or does not know the first view. */
static void
name_missing(const struct master *master, struct names *names)
{
    const bool gathering = master->phase == PHASE_GATHERING;

    for (uint32_t index = 0; index < master->config.servers; index++) {
        const struct server *server = &master->server[index];
        bool here = server->lanes > 0;

        for (uint32_t lane = 0; lane < server->lanes; lane++) {
            const struct member *member = &server->lane[lane];

            here = here && (gathering ? master_may_begin(master, member) : member->acked);
        }
        if (!here) {
            master_names_add(names, "server", index);
        }
    }
    if (gathering) {
        master_missing_workers(master, names);
    }
    master_names_end(names);
}

static void
gathering_tick(struct master *master, uint64_t now_ns)
{
    struct names names = {0};
    uint64_t late_ns;

    if (master->view.id > 0) {
        return;
    }
    name_missing(master, &names);
    if (names.count == 0 && master->phase == PHASE_GATHERING) {
        master_view_start(master);
        return;
    }
    if (master->config.late_workers && names.count == names.workers) {
        master->waiting_since_ns = now_ns;
    }
    late_ns = master->waiting_since_ns + master->config.start_timeout_ms * MASTER_MS_NS;
    if (now_ns >= late_ns) {
        master_end(master, PSI_EXIT_START_TIMEOUT, PSD_ERR_TIMEOUT,
                   "waiting for %s: not here after %u ms", names.text,
                   master->config.start_timeout_ms);
        return;
    }
    if (now_ns >= master->missing_line_ns) {
        psi_log(master->log, PSI_LOG_INFO, "JOB-WAITING", "waiting for %s", names.text);
        master->missing_line_ns = now_ns + MASTER_MISSING_MS * MASTER_MS_NS;
    }
    master_wake_at(master, late_ns);
    master_wake_at(master, master->missing_line_ns);
}

void
master_tick(struct master *master)
{
    const uint64_t now_ns = psi_now_ns(master->env);
    const uint64_t late_ns = master->config.heartbeat_ms * MASTER_MS_NS;

    /* A master that was stopped, or starved, has not heard anybody: that is nobody's death. No more than the time that
     * it missed is forgiven, or a master that is late again and again would never see one. Of what came meanwhile some
     * may have been read, and ask for this tick: that says nothing of when it was due. */
    if (master->planned_ns != 0 && now_ns > late_ns && now_ns - late_ns > master->planned_ns) {
        master_members_forgive(master, now_ns - master->planned_ns, now_ns);
    }
    master->due_ns = UINT64_MAX;
    master_sessions_tick(master, now_ns);
    if (master->phase == PHASE_REBUILDING) {
        master_rebuild_tick(master, now_ns);
    }
    if (master->phase == PHASE_GATHERING || master->phase == PHASE_RUNNING) {
        master_members_tick(master, now_ns);
    }
    if (master->phase == PHASE_GATHERING || master->phase == PHASE_RUNNING) {
        gathering_tick(master, now_ns);
    }
    if (master->phase == PHASE_RUNNING) {
        master_reach_tick(master, now_ns);
    }
    if (master->phase == PHASE_RUNNING) {
        master_moves_tick(master, now_ns);
        master_pairs_tick(master, now_ns);
        master_view_advance(master);
        master_quorum_tick(master, now_ns);
        master_saving_tick(master, now_ns);
        master_redundancy_tell(master);
    }
    if (master->phase == PHASE_ENDING) {
        ending_tick(master, now_ns);
    }
    master_sessions_reap(master, false);
    master->planned_ns = master->due_ns > now_ns ? master->due_ns : now_ns;
}

uint64_t
master_next_ns(const struct master *master)
{
    return master->due_ns;
}

bool
master_finished(const struct master *master, int *exit_code_p, const char **text_p)
{
    if (master->phase != PHASE_OVER) {
        return false;
    }
    *exit_code_p = master->end_code;
    *text_p = master->end_text;
    return true;
}
