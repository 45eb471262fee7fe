/*
 * rebuild_truth.c - another life of the master: which of the views that lanes tell of is the truth, and
 * whether that is enough to go on.
 *
 * The highest one is: whatever the last master decided after it reached nobody who is here. Lanes may
 * tell of less, or not be in it at all: some because a master that had not met them gave their place
 * to others, some because the last one had let them in and not told anybody yet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/rebuild.h"
#include "master/state.h"

const struct psi_view *
master_truth_find(const struct master *master)
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

/* In that view, were both in one process? Then they were lost together. */
static bool
was_same_part(const struct psi_view *view, const struct member *one, const struct member *other)
{
    return psi_view_place(view, one->rank, one->lane)->process ==
           psi_view_place(view, other->rank, other->lane)->process;
}

bool
master_truth_gave_up(const struct master *master, const struct psi_view *view,
                     const struct member *lane)
{
    const struct server *server = &master->server[lane->rank];

    /* Where a single place may move, what became of that says nothing of a lane that is here. */
    if (master_may_move(master) && master_lane_has_told(lane) &&
        lane->incarnation == psi_view_place(view, lane->rank, lane->lane)->incarnation) {
        return false;
    }
    for (uint32_t i = 0; i < server->lanes; i++) {
        const struct member *other = &server->lane[i];

        if (other->incarnation > psi_view_place(view, other->rank, i)->incarnation &&
            was_same_part(view, lane, other)) {
            return true;
        }
    }
    return false;
}

void
master_truth_dismiss(struct master *master, const struct psi_view *view)
{
    for (uint32_t place = 0; place < master->places; place++) {
        struct member *lane = master->place[place];
        struct session *session = lane->session;

        if (master_lane_has_told(lane) && &lane->report->view != view &&
            lane->incarnation < psi_view_place(view, lane->rank, lane->lane)->incarnation) {
            master_tables_lose(master, place, 1);
            master_report_free(lane);
            master_fence(lane);
            lane->state = PSD_NODE_MISSING;
            lane->life = 0;
            if (session != NULL && master_may_move(master)) {
                master_move_dismiss(session);
            } else if (session != NULL) {
                master_refuse(session, PSD_ERR_FENCED, "server %u has another life", lane->rank);
            }
        }
    }
}

bool
master_truth_is_gone(const struct master *master, const struct psi_view *view,
                     const struct member *lane)
{
    return !master_truth_gave_up(master, view, lane) &&
           master_process_is_gone(master, psi_view_place(view, lane->rank, lane->lane)->process);
}

/* A server whose process has ended is not waited for; but the last master may have told its copy to take the
 * place, and that is on its way here by either name. */
static bool
is_waited_for(const struct master *master, const struct psi_view *view, const struct member *lane)
{
    if (!master_truth_is_gone(master, view, lane)) {
        return true;
    }
    return master->config.replicas > 0 && !master_pair_claims(master, lane) &&
           (master_known_are_frail(master) ||
            psi_now_ns(master->env) < master_rebuild_copies_ns(master));
}

/* Who has a place, and has not told yet? Where the last master had given up the life that the view
 * has, lanes of the next are awaited; those that it had not met have nothing to tell. */
static bool
is_missing(const struct master *master, const struct psi_view *view, const struct member *lane)
{
    const bool has_nothing = lane->report == NULL && master_truth_gave_up(master, view, lane) &&
                             (master->config.replicas > 0 ? master_promoted_knocks(master, lane)
                                                          : master_is_knocking(master, lane));

    return !master_lane_has_told(lane) && !has_nothing && is_waited_for(master, view, lane);
}

bool
master_truth_is_told(const struct master *master, const struct psi_view *view)
{
    for (uint32_t place = 0; place < master->places; place++) {
        if (is_missing(master, view, master->place[place])) {
            return false;
        }
    }
    return true;
}

bool
master_truth_all_done(const struct psi_ranks *done, const struct psi_view *view)
{
    for (uint32_t rank = 0; rank < view->workers; rank++) {
        if (view->worker[rank].member && !psi_ranks_has(done, rank)) {
            return false;
        }
    }
    return true;
}

bool
master_truth_is_over(const struct master *master, const struct psi_view *view)
{
    if (!master_truth_all_done(&master->done, view)) {
        return false;
    }
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];

        if (master_lane_has_told(lane) && !master_truth_all_done(&lane->report->done, view)) {
            return false;
        }
    }
    return true;
}

/* A lane that had a place in the view does. Those of a later life were about to hear of all tables, and
 * may not have, unless they are copies, which have what the dead had. */
bool
master_truth_is_enough(const struct master *master, const struct psi_view *view)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];

        if (master_lane_has_told(lane) &&
            lane->incarnation <= psi_view_place(view, lane->rank, lane->lane)->incarnation) {
            return true;
        }
    }
    return master_may_pair(master) && master_tables_frail(master) != NULL;
}
