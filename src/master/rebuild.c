/*
 * rebuild.c - another life of the master: it knows nothing, and hears everything from the lanes.
 *
 * Lanes and workers go on while there is no master, and knock until there is one. A lane is let in
 * at once and tells what it keeps in mind (rebuild_reports.c). Workers wait. When every lane of the
 * highest view has told, or has been away for too long, that view is the truth (rebuild_truth.c):
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
 * If no lane has any view, but workers have one, they are asked for it (rebuild_recall.c). If nobody has, the
 * job had not begun, and gathers.
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

uint64_t
master_rebuild_patience_ns(const struct master *master)
{
    return master->begun_ns + search_ns(master);
}

void
master_rebuild_spare(const struct master *master, struct member *member)
{
    member->spared_ns = psi_now_ns(master->env) + search_ns(master);
}

/* Workers that knock hear why. */
void
master_rebuild_give_up(struct master *master, int exit_code, psd_status status, const char *text)
{
    master->lingers = true;
    master_end(master, exit_code, status, "the master returned, and cannot go on: %s", text);
}

uint64_t
master_rebuild_copies_ns(const struct master *master)
{
    const uint64_t late_ns = master->begun_ns + COPIES_MS * MASTER_MS_NS;

    return late_ns < master_rebuild_patience_ns(master) ? late_ns
                                                        : master_rebuild_patience_ns(master);
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
    if (!psi_ranks_has(&master->dead, rank)) {
        master_rebuild_spare(master, member); /* so far it was not let in */
    }
    snprintf(member->address, sizeof(member->address), "not back yet");
    worker->host = was->host;
    memcpy(worker->host_address, was->address, sizeof(worker->host_address));
    if (done) {
        member->state = PSD_NODE_DONE;
        worker->wanted = was->member ? CHANGE_LEAVE : CHANGE_NONE;
    } else if (was->member) {
        member->state = PSD_NODE_RUNNING;
        worker->is_untold = true;
    } else if (was->incarnation == 0) {
        member->state = PSD_NODE_MISSING; /* nobody has had it */
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

    server->lost_ns = psi_now_ns(master->env);
    server->seek_ns = server->lost_ns + master->config.server_return_ms * MASTER_MS_NS;
    server->loss = PSI_LOSS_SILENT;
    snprintf(server->lost_text, sizeof(server->lost_text), "before the master returned");
    for (uint32_t i = 0; i < server->lanes; i++) {
        struct member *lane = &server->lane[i];
        const struct psi_view_place *place = psi_view_place(view, index, i);
        const bool was_given_up = master_truth_gave_up(master, view, lane);

        server->is_away = server->is_away || was_given_up;
        if (!was_given_up) {
            lane->state = PSD_NODE_RUNNING;
        } else if (lane->incarnation <= place->incarnation || !master_lane_has_told(lane)) {
            master_fence(lane); /* what it may have missed, nobody knows */
            lane->state = PSD_NODE_LOST;
        }
        if (lane->report == NULL) {
            lane->incarnation = place->incarnation;
            lane->process = place->process;
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

static void
lose_the_missing(struct master *master, const struct psi_view *view)
{
    for (uint32_t place = 0; place < master->places && master->phase == PHASE_RUNNING; place++) {
        struct member *lane = master->place[place];

        const bool is_away = lane->state == PSD_NODE_RUNNING && !master_lane_has_told(lane);

        if (is_away && master_truth_is_gone(master, view, lane)) {
            master_server_lost(master, lane, PSI_LOSS_CLOSED, "its process has ended");
        } else if (is_away) {
            master_server_lost(master, lane, PSI_LOSS_SILENT, "not back since the master returned");
        }
    }
}

/* Lanes that are not here may have heard END from the last master, and left; or are on their way. So
 * are workers whose BYE was not answered: they say it once more. */
static void
end_well(struct master *master)
{
    master_admit_waiting(master);
    master_end(master, PSI_EXIT_OK, PSD_OK, "all workers are done");
    if (master->end_ns < master_rebuild_patience_ns(master)) {
        master->end_ns = master_rebuild_patience_ns(master);
    }
}

/* Of those who were done before this life began, one may not have heard it: it is on its way here, to ask
 * once more. In the first life only one that is cut off at this moment is. */
void
master_rebuild_end_well(struct master *master)
{
    master_end(master, PSI_EXIT_OK, PSD_OK, "all workers are done");
    if (!master_done_is_heard(master) && master->end_ns < master_rebuild_patience_ns(master)) {
        master->end_ns = master_rebuild_patience_ns(master);
    }
}

static void
go_on(struct master *master, const struct psi_view *truth)
{
    if (!is_calm(master, truth)) {
        master_view_renew(master, truth);
        psi_fail_point(master_rebuild_renewed);
    }
    lose_the_missing(master, truth);
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
    master_pairs_restore(master);
    return master_tables_settle(master);
}

/* Is that enough to go on? Else the job is over. */
static bool
is_enough(struct master *master, const struct psi_view *truth, bool is_recalled)
{
    const struct table *table = undecidable(master);
    char text[PSI_TEXT_MAX];

    if (master_truth_all_done(&master->done, truth)) {
        return true;
    }
    if (!is_recalled && !master_truth_is_enough(master, truth)) {
        master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, PSD_ERR_PEER_LOST,
                               "all servers that knew its tables are lost; those that are here "
                               "were started again since, and had not heard of all");
        return false;
    }
    if (table != NULL) {
        snprintf(text, sizeof(text),
                 "its last life alone knew who is in the next step of table %.200s (backup_workers "
                 "%u)",
                 table->spec.name, table->spec.backup_workers);
        master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, PSD_ERR_PEER_LOST, text);
        return false;
    }
    return true;
}

static void
take_up(struct master *master, const struct psi_view *truth)
{
    const bool is_recalled =
        master_truth_find(master) == NULL; /* by workers: they know all tables */

    psi_fail_point(master_rebuild_decided);
    if (restore(master, truth) != PSD_OK) {
        master_rebuild_give_up(master, PSI_EXIT_INTERNAL, PSD_ERR_NO_MEMORY, "out of memory");
        return;
    }
    psi_fail_point(master_rebuild_restored);
    if (!is_enough(master, truth, is_recalled)) {
        return;
    }
    psi_log(master->log, PSI_LOG_INFO, "MASTER-BACK",
            "the master is back, in its life %u: it goes on with view %u, after %" PRIu64 " ms",
            master->config.term, truth->id,
            (psi_now_ns(master->env) - master->begun_ns) / MASTER_MS_NS);
    if (master_truth_is_over(master, truth)) {
        end_well(master);
    } else {
        go_on(master, truth);
    }
    if (is_recalled) {
        master_recall_lose_the_rest(master);
    }
    psi_fail_point(master_rebuild_done);
    for (uint32_t place = 0; place < master->places; place++) {
        master_report_free(master->place[place]);
    }
    master_gone_again(master);
    master_recall_free(master);
    psi_view_fini(&master->copied_view);
    master_wake_at(master, 0);
}

/* ------------------------------------------------------------- a view, but nobody's lane --- */

static void
give_up_unknown(struct master *master)
{
    struct names missing = {0};
    char text[PSI_TEXT_MAX];

    master_rebuild_absent(master, &missing);
    if (missing.count == 0) {
        snprintf(text, sizeof(text),
                 "no server knows what workers know, all have begun another life");
    } else {
        snprintf(text, sizeof(text), "who knew what the job had come to is not back: %s",
                 missing.text);
    }
    master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, PSD_ERR_PEER_LOST, text);
}

/* No lane tells, and somebody knows that the job had begun. */
static void
recall(struct master *master, uint64_t now_ns)
{
    const struct psi_view *told = &master->recall.view;
    const struct psi_view *truth =
        told->id > 0 && master->copied_view.id > told->id ? &master->copied_view : told;
    const bool are_gone = now_ns >= master_rebuild_patience_ns(master) ||
                          (truth->id > 0 && master_truth_is_told(master, truth));
    const uint64_t late_ns =
        master_rebuild_patience_ns(master) + search_ns(master); /* as any worker has */

    master_recall_ask(master, now_ns);
    if (are_gone && master_recall_has_all(master)) {
        take_up(master, truth);
    } else if (now_ns >= late_ns && truth->id > 0) {
        take_up(master, truth);
    } else if (now_ns >= late_ns) {
        give_up_unknown(master);
    } else {
        master_wake_at(master, now_ns < master_rebuild_patience_ns(master)
                                   ? master_rebuild_patience_ns(master)
                                   : late_ns);
        if (now_ns < master_rebuild_copies_ns(master)) {
            master_wake_at(master, master_rebuild_copies_ns(master));
        }
    }
}

void
master_rebuild_tick(struct master *master, uint64_t now_ns)
{
    const struct psi_view *highest = master_truth_find(master);

    if (highest != NULL) {
        master_truth_dismiss(master, highest);
    }
    if (highest == NULL && master->told_view > 0) {
        recall(master, now_ns);
    } else if (highest == NULL) {
        master_rebuild_gather(master, now_ns);
    } else if (now_ns >= master_rebuild_patience_ns(master) ||
               (master_truth_is_told(master, highest) &&
                (!master_pairs_are_missing(master) ||
                 now_ns >= master_rebuild_copies_ns(master)))) {
        take_up(master, highest);
    } else {
        master_wake_at(master, master_rebuild_patience_ns(master));
        if (now_ns < master_rebuild_copies_ns(master)) {
            master_wake_at(master, master_rebuild_copies_ns(master));
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
