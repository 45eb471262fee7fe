/*
 * rebuild.c - another life of the master: it knows nothing, and hears everything from the lanes.
 *
 * Lanes and workers go on while there is no master, and knock until there is one. A lane is let in
 * at once and tells what it keeps in mind (rebuild_reports.c). Workers wait. When every lane of the
 * highest view has told, or has been away for too long, that view is the truth:
 *
 *   - what it decided may have reached some lanes only, or another change may have been proposed
 *     and never decided. Then all lanes hear it once more, under a number of ours that is higher
 *     than whatever the last master chose, and only when they all have it do workers. If all lanes
 *     have it and none is frozen there is nothing to do;
 *   - a lower view is no truth, whoever tells of it first: the others may have acted on the next;
 *   - a table is open if all lanes that count have it ready; another one is opened once more;
 *   - a lane whose life is later than the one in the view is on its way into the job: the last
 *     master had given up the earlier one;
 *   - workers are those of the view. Who does not come back is lost; who was done, is done.
 *
 * If no lane has any view, the job had not begun, and gathers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "master/rebuild.h"

enum { COPIES_MS = 2000 }; /* for copies to come back to a master that returned */

/* How long a member may take to find this master: an attempt to connect to the last one may have to
 * time out first, and then it is judged as any other silence. But those who have found it wait
 * meanwhile, and have a limit, too. */
static uint64_t
search_ns(const struct master *master)
{
    const uint64_t dead_ms = (uint64_t)master->config.heartbeat_ms * master->config.dead_heartbeats;
    const uint64_t search_ms = MASTER_ATTEMPT_MS + dead_ms;
    const uint64_t limit_ms = master->config.master_grace_ms / 2;

    return (limit_ms > 0 && limit_ms < search_ms ? limit_ms : search_ms) * MASTER_MS_NS;
}

static uint64_t
patience_ns(const struct master *master)
{
    return master->begun_ns + search_ns(master);
}

/* Workers that knock hear why. */
void
master_rebuild_give_up(struct master *master, int exit_code, psd_status status, const char *text)
{
    master->lingers = true;
    master_end(master, exit_code, status, "the master returned, and cannot go on: %s", text);
}

/* Until when copies may come that lanes have told of. Without them the job goes on, and others are
 * made. */
static uint64_t
copies_ns(const struct master *master)
{
    const uint64_t late_ns = master->begun_ns + COPIES_MS * MASTER_MS_NS;

    return late_ns < patience_ns(master) ? late_ns : patience_ns(master);
}

/* ------------------------------------------------------------------------------ the truth --- */

/* The highest view that a lane tells of, or a copy, whose owner may have acted on it and died; NULL: no
 * lane has any. */
static const struct psi_view *
highest_view(const struct master *master)
{
    const struct psi_view *highest = NULL;

    for (uint32_t place = 0; place < master->places; place++) {
        const struct report *report = master->place[place]->report;

        if (report != NULL && report->is_whole && report->view.id > 0 &&
            (highest == NULL || report->view.id > highest->id)) {
            highest = &report->view;
        }
    }
    return highest != NULL && master->copied_view.id > highest->id ? &master->copied_view : highest;
}

/* Had the last master given up the server's life that the view has? Then a lane of a later one is
 * here. */
static bool
is_given_up(const struct master *master, const struct psi_view *view, uint32_t index)
{
    const struct server *server = &master->server[index];

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].incarnation > psi_view_place(view, index, lane)->incarnation) {
            return true;
        }
    }
    return false;
}

/* Who has a place, and has not told yet? Where the last master had given up the life that the view
 * has, lanes of the next are awaited; those that it had not met have nothing to tell. */
static bool
is_missing(const struct master *master, const struct psi_view *view, const struct member *lane)
{
    const bool has_nothing = lane->report == NULL && is_given_up(master, view, lane->rank) &&
                             (master->config.replicas > 0 ? master_promoted_knocks(master, lane)
                                                          : master_is_knocking(master, lane));

    return !master_lane_has_told(lane) && !has_nothing;
}

static bool
have_all_told(const struct master *master, const struct psi_view *view)
{
    for (uint32_t place = 0; place < master->places; place++) {
        if (is_missing(master, view, master->place[place])) {
            return false;
        }
    }
    return true;
}

/* A BYE is no decision: whoever knows of one, it was said. */
static bool
are_all_done(const struct psi_ranks *done, const struct psi_view *view)
{
    for (uint32_t rank = 0; rank < view->workers; rank++) {
        if (view->worker[rank].member && !psi_ranks_has(done, rank)) {
            return false;
        }
    }
    return true;
}

/* Does every lane that has told know that all workers are done? If one does not, no master has said
 * END yet, and who is not here did not leave of that. */
static bool
may_be_over(const struct master *master, const struct psi_view *view)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];

        if (master_lane_has_told(lane) && !are_all_done(&lane->report->done, view)) {
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------- taking it up --- */

static void
restore_worker(struct master *master, const struct psi_view *view, uint32_t rank)
{
    struct worker *worker = &master->worker[rank];
    struct member *member = &worker->member;
    const struct psi_view_worker *was = &view->worker[rank];
    const bool done = psi_ranks_has(&master->done, rank);

    member->incarnation = was->incarnation;
    member->life = 0; /* it says which, when it comes */
    member->cut_ns = psi_now_ns(master->env);
    member->spared_ns = member->cut_ns + search_ns(master); /* so far it was not let in */
    snprintf(member->address, sizeof(member->address), "not back yet");
    worker->host = was->host;
    memcpy(worker->host_address, was->address, sizeof(worker->host_address));
    if (done) {
        member->state = PSD_NODE_DONE;
        worker->wanted = was->member ? CHANGE_LEAVE : CHANGE_NONE;
    } else if (was->member) {
        member->state = PSD_NODE_RUNNING;
        worker->is_untold = true;
    } else {
        member->state = PSD_NODE_LOST;
        worker->loss = PSI_LOSS_SILENT;
        snprintf(worker->lost_text, sizeof(worker->lost_text), "before the master returned");
    }
}

static void
restore_server(struct master *master, const struct psi_view *view, uint32_t index)
{
    struct server *server = &master->server[index];

    server->is_away = is_given_up(master, view, index);
    server->lost_ns = psi_now_ns(master->env);
    server->seek_ns = server->lost_ns + master->config.server_return_ms * MASTER_MS_NS;
    server->loss = PSI_LOSS_SILENT;
    snprintf(server->lost_text, sizeof(server->lost_text), "before the master returned");
    for (uint32_t i = 0; i < server->lanes; i++) {
        struct member *lane = &server->lane[i];
        const struct psi_view_place *place = psi_view_place(view, index, i);

        if (!server->is_away) {
            lane->state = PSD_NODE_RUNNING;
        } else if (lane->incarnation <= place->incarnation || !master_lane_has_told(lane)) {
            master_fence(lane); /* what it may have missed, nobody knows */
            lane->state = PSD_NODE_LOST;
        }
        if (lane->report == NULL) {
            lane->incarnation = place->incarnation;
            snprintf(lane->address, sizeof(lane->address), "%s", place->address);
        }
    }
}

/* Do all lanes have the view, and does none wait for the next? */
static bool
is_calm(const struct master *master, const struct psi_view *view)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];

        if (lane->state != PSD_NODE_LOST && master_lane_has_told(lane) &&
            (lane->report->view.id != view->id || lane->report->frozen)) {
            return false;
        }
    }
    return true;
}

/* A table whose rounds the last master decided: what it was about to decide nobody knows. */
static const struct table *
undecidable(const struct master *master)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        if (master->table[id]->state != TABLE_DROPPED &&
            master->table[id]->spec.backup_workers > 0) {
            return master->table[id];
        }
    }
    return NULL;
}

/* Of another life of its server: which cannot do without this one. */
static bool
has_other_lanes(const struct master *master, const struct member *lost)
{
    const struct server *server = &master->server[lost->rank];

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state == PSD_NODE_JOINED) {
            return true;
        }
    }
    return false;
}

static void
lose_the_missing(struct master *master)
{
    for (uint32_t place = 0; place < master->places && master->phase == PHASE_RUNNING; place++) {
        struct member *lane = master->place[place];

        const bool is_gone = lane->state == PSD_NODE_RUNNING && !master_lane_has_told(lane);
        const bool is_half_there =
            lane->state == PSD_NODE_LOST && !master->server[lane->rank].is_promoting &&
            !master_is_knocking(master, lane) && has_other_lanes(master, lane);

        if (is_gone || is_half_there) {
            master_server_lost(master, lane, PSI_LOSS_SILENT, "not back since the master returned");
        }
    }
}

static bool
are_workers_away(const struct master *master)
{
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct member *member = &master->worker[rank].member;

        if (member->state == PSD_NODE_DONE && member->session == NULL) {
            return true;
        }
    }
    return false;
}

/* Lanes that are not here may have heard END from the last master, and left; or are on their way. So
 * are workers whose BYE was not answered. */
static void
end_well(struct master *master)
{
    master_admit_waiting(master);
    master->lingers = are_workers_away(master);
    master_end(master, PSI_EXIT_OK, PSD_OK, "all workers are done");
    if (master->end_ns < patience_ns(master)) {
        master->end_ns = patience_ns(master);
    }
}

/* Of those who were done before this life began, one may not have heard it: it is on its way here, to ask
 * once more. In the first life there is none. */
void
master_rebuild_end_well(struct master *master)
{
    bool unmet = false;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct member *member = &master->worker[rank].member;

        unmet = unmet || (member->state == PSD_NODE_DONE && member->life == 0);
    }
    master_end(master, PSI_EXIT_OK, PSD_OK, "all workers are done");
    if (unmet && master->end_ns < patience_ns(master)) {
        master->lingers = true;
        master->end_ns = patience_ns(master);
    }
}

static void
go_on(struct master *master, const struct psi_view *truth)
{
    if (!is_calm(master, truth)) {
        master_view_renew(master, truth);
        psi_fail_point(master_rebuild_renewed);
    }
    lose_the_missing(master);
    for (uint32_t place = 0; place < master->places && master->phase == PHASE_RUNNING; place++) {
        master_tables_resend(master, master->place[place], place);
        master_done_resend(master, master->place[place]);
        master_pair_resend(master, master->place[place]);
    }
    for (struct session *session = session_first(master);
         session != NULL && master->phase == PHASE_RUNNING; session = session_next(session)) {
        if (master_stands_by(session, psi_now_ns(master->env))) {
            master_pair_greet(session);
        }
    }
}

/* The view is the truth: all that follows from it. */
static psd_status
restore(struct master *master, const struct psi_view *truth)
{
    struct psi_view old;
    const psd_status status = psi_view_take(&master->view, truth, &old);

    if (status != PSD_OK) {
        return status;
    }
    psi_view_fini(&old);
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        restore_worker(master, truth, rank);
    }
    for (uint32_t index = 0; index < master->config.servers; index++) {
        restore_server(master, truth, index);
    }
    master->done_mark = psi_ranks_count(&master->done) > 0 || master->loaded > 0 ||
                        master_pairs_were_crossed(master);
    master->phase = PHASE_RUNNING;
    if (master_pairs_restore(master) != PSD_OK) {
        return PSD_ERR_NO_MEMORY;
    }
    return master_tables_settle(master);
}

static void
take_up(struct master *master, const struct psi_view *truth)
{
    const struct table *table;
    char text[PSI_TEXT_MAX];

    psi_fail_point(master_rebuild_decided);
    if (restore(master, truth) != PSD_OK) {
        master_rebuild_give_up(master, PSI_EXIT_INTERNAL, PSD_ERR_NO_MEMORY, "out of memory");
        return;
    }
    psi_fail_point(master_rebuild_restored);
    table = are_all_done(&master->done, truth) ? NULL : undecidable(master);
    if (table != NULL) {
        snprintf(text, sizeof(text),
                 "its last life alone knew who is in the next step of table %.200s (backup_workers "
                 "%u)",
                 table->spec.name, table->spec.backup_workers);
        master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, PSD_ERR_PEER_LOST, text);
        return;
    }
    psi_log(master->log, PSI_LOG_INFO, "MASTER-BACK",
            "the master is back, in its life %u: it goes on with view %u, after %" PRIu64 " ms",
            master->config.term, truth->id,
            (psi_now_ns(master->env) - master->begun_ns) / MASTER_MS_NS);
    if (may_be_over(master, truth)) {
        end_well(master);
    } else {
        go_on(master, truth);
    }
    psi_fail_point(master_rebuild_done);
    for (uint32_t place = 0; place < master->places; place++) {
        master_report_free(master->place[place]);
    }
    psi_view_fini(&master->copied_view);
    master_wake_at(master, 0);
}

/* ----------------------------------------------------------------------- no view at all --- */

/* Is a lane here that has no view, in the job already or on its way into it? One that has is about
 * to tell of it. */
static bool
is_here(const struct master *master, uint32_t index, uint32_t lane)
{
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->hello.role == PSI_ROLE_SERVER &&
            session->hello.rank == index && session->hello.lane == lane &&
            session->hello.view == 0 &&
            (session->kind == SESSION_WAITING || session->kind == SESSION_MEMBER)) {
            return true;
        }
    }
    return false;
}

static uint32_t
lanes_of(const struct master *master, uint32_t index)
{
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->hello.role == PSI_ROLE_SERVER &&
            session->hello.rank == index) {
            return session->hello.lanes;
        }
    }
    return 0;
}

/* Then none of them has a view, and the job has not begun. */
static bool
are_all_here(const struct master *master, struct names *missing)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        const uint32_t lanes = lanes_of(master, index);
        bool here = lanes > 0;

        for (uint32_t lane = 0; lane < lanes; lane++) {
            here = here && is_here(master, index, lane);
        }
        if (!here) {
            master_names_add(missing, "server", index);
        }
    }
    master_names_end(missing);
    return missing->count == 0;
}

static void
gather(struct master *master, uint64_t now_ns)
{
    const uint64_t late_ns = master->begun_ns + master->config.start_timeout_ms * MASTER_MS_NS;
    struct names missing = {0};
    char text[PSI_TEXT_MAX];

    if (are_all_here(master, &missing) && master->told_view > 0) {
        master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, PSD_ERR_PEER_LOST,
                               "no server knows what workers know, all have begun another life");
    } else if (missing.count == 0) {
        master->is_new_job = master->job == 0;
        while (master->job == 0) {
            master->job = master->env->ops->random(master->env);
        }
        master->phase = PHASE_GATHERING;
        for (uint32_t index = 0; index < master->config.servers; index++) {
            for (uint32_t lane = 0; lane < master->server[index].lanes; lane++) {
                master_report_free(&master->server[index].lane[lane]);
            }
        }
    } else if (master->told_view > 0 && now_ns >= patience_ns(master)) {
        snprintf(text, sizeof(text), "who knew what the job had come to is not back: %s",
                 missing.text);
        master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, PSD_ERR_PEER_LOST, text);
    } else if (now_ns >= late_ns) {
        snprintf(text, sizeof(text), "%s not here after %u ms", missing.text,
                 master->config.start_timeout_ms);
        master_rebuild_give_up(master, PSI_EXIT_START_TIMEOUT, PSD_ERR_TIMEOUT, text);
    } else {
        master_wake_at(master, late_ns);
        master_wake_at(master, now_ns < patience_ns(master) ? patience_ns(master) : late_ns);
    }
}

void
master_rebuild_tick(struct master *master, uint64_t now_ns)
{
    const struct psi_view *highest = highest_view(master);

    if (highest == NULL) {
        gather(master, now_ns);
    } else if (now_ns >= patience_ns(master) ||
               (have_all_told(master, highest) &&
                (!master_pairs_are_missing(master) || now_ns >= copies_ns(master)))) {
        take_up(master, highest);
    } else {
        master_wake_at(master, patience_ns(master));
        if (now_ns < copies_ns(master)) {
            master_wake_at(master, copies_ns(master));
        }
    }
}

/* ---------------------------------------------------------- those who come back later --- */

bool
master_rebuild_knows(const struct master *master, const struct member *member,
                     const struct psi_hello *hello)
{
    return member->state != PSD_NODE_MISSING && member->life == 0 && hello->job == master->job &&
           hello->job != 0 && hello->incarnation == member->incarnation;
}

bool
master_rebuild_replaces(const struct master *master, const struct member *member,
                        const struct psi_hello *hello)
{
    return member->state == PSD_NODE_RUNNING && member->life == 0 && hello->job == master->job &&
           hello->job != 0 && hello->incarnation > member->incarnation &&
           master->config.policy == PSI_DEATH_WAIT;
}

bool
master_rebuild_awaits_state(const struct master *master)
{
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        if (worker->is_untold && worker->member.state == PSD_NODE_RUNNING) {
            return true;
        }
    }
    return false;
}

bool
master_rebuild_is_contradicted(struct session *session)
{
    struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;
    char text[PSI_TEXT_MAX];

    if (master->phase != PHASE_GATHERING || master->config.term < 2 || hello->view == 0 ||
        hello->role == PSI_ROLE_OBSERVER || (hello->job != master->job && !master->is_new_job)) {
        return false;
    }
    snprintf(text, sizeof(text), "no server knows what %s %u knows, view %u of the job",
             hello->role == PSI_ROLE_SERVER ? "server" : "worker", hello->rank, hello->view);
    master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, PSD_ERR_PEER_LOST, text);
    master_refuse(session, PSD_ERR_REFUSED, "the job is over: %s", master->end_text);
    return true;
}
