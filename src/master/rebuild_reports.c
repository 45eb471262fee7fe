/*
 * rebuild_reports.c - what each lane tells another life of the master: its view, and who is done.
 *
 * A lane that is let in sends what it keeps in mind (server/journal.c), and LANE_STATE last. Here it
 * is only written down, lane by lane: no view is the truth before all have told, and what follows
 * from it rebuild.c decides. What they tell of tables is in rebuild_tables.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "master/rebuild.h"

void
master_report_free(struct member *lane)
{
    if (lane->report != NULL) {
        psi_view_fini(&lane->report->view);
        free(lane->report);
        lane->report = NULL;
    }
}

struct report *
master_report_of(const struct session *session)
{
    return session->master->phase == PHASE_REBUILDING ? session->member->report : NULL;
}

bool
master_lane_has_told(const struct member *lane)
{
    return lane->report != NULL && lane->report->is_whole;
}

/* ----------------------------------------------------------------------- letting them in --- */

bool
master_rebuild_learns(struct master *master, const struct psi_hello *hello)
{
    const uint64_t now_ns = psi_now_ns(master->env);

    /* A worker knows it, too, and may be the only one who does. */
    if (master->phase == PHASE_REBUILDING && master->job == 0 &&
        (hello->role == PSI_ROLE_SERVER || (hello->role == PSI_ROLE_WORKER && hello->view > 0))) {
        master->job = hello->job;
        if (hello->job != 0 && now_ns >= master_rebuild_patience_ns(master)) {
            master->begun_ns =
                now_ns; /* all may have been with the last master until now, and come together */
        }
    }
    if (master->phase == PHASE_REBUILDING && hello->view > master->told_view &&
        (master->job == 0 || hello->job == master->job)) {
        master->told_view = hello->view;
    }
    /* Who stands by is told which job it is when it is let in, and never again. */
    return master->phase != PHASE_REBUILDING || master->job != 0 ||
           (hello->job == 0 && hello->role != PSI_ROLE_STANDBY);
}

void
master_rebuild_admit(struct session *session)
{
    const struct psi_hello *hello = &session->hello;
    struct member *lane;

    if (hello->role != PSI_ROLE_SERVER || hello->job == 0 || hello->incarnation == 0) {
        master_wait_for_place(session);
        return;
    }
    if (!master_lane_has_place(session)) {
        return;
    }
    lane = &session->master->server[hello->rank].lane[hello->lane];
    if (lane->state != PSD_NODE_MISSING && lane->incarnation > hello->incarnation) {
        if (master_may_move(session->master)) {
            master_move_dismiss(session);
            return;
        }
        master_refuse(session, PSD_ERR_FENCED, "server %u has another life", hello->rank);
        return;
    }
    if (lane->session != NULL && lane->session != session) {
        master_session_close(lane->session);
    }
    master_report_free(lane);
    lane->report = calloc(1, sizeof(*lane->report));
    if (lane->report == NULL) {
        master_refuse(session, PSD_ERR_NO_MEMORY, "the master is out of memory");
        return;
    }
    lane->report->is_whole = hello->view == 0;
    if (session->master->places > 0) { /* it may be another life, or have told something else */
        master_tables_lose(session->master, place_of(session->master, lane), 1);
    }
    lane->incarnation = hello->incarnation - 1; /* taking the place counts a life */
    master_take_place(session, lane, hello->address);
    psi_fail_point(master_rebuild_begun);
}

/* ------------------------------------------------------------------------ what they tell --- */

/* Places are numbered as in every view of the job. */
static psd_status
number_places(struct master *master, const struct psi_view *view, struct psd_error *err)
{
    uint32_t lanes[PSI_SERVERS_MAX] = {0};

    for (uint32_t i = 0; i < view->places; i++) {
        if (view->place[i].server >= master->config.servers ||
            view->place[i].lane != lanes[view->place[i].server]++) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "VIEW_COMMIT: place %u is lane %u of server %u",
                            i, view->place[i].lane, view->place[i].server);
        }
    }
    for (uint32_t index = 0; index < master->config.servers; index++) {
        struct server *server = &master->server[index];

        if (lanes[index] == 0 || (server->lanes != 0 && server->lanes != lanes[index])) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "VIEW_COMMIT: server %u has %u lanes", index,
                            lanes[index]);
        }
        if (server->lanes == 0 && master_server_prepare(server, index, lanes[index]) != PSD_OK) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "VIEW_COMMIT: no memory");
        }
    }
    master_view_number_places(master);
    return PSD_OK;
}

static bool
has_our_places(const struct master *master, const struct psi_view *view)
{
    if (view->places != master->places) {
        return false;
    }
    for (uint32_t i = 0; i < view->places; i++) {
        if (view->place[i].server != master->place[i]->rank ||
            view->place[i].lane != master->place[i]->lane) {
            return false;
        }
    }
    return true;
}

psd_status
master_report_take_view(struct master *master, const void *body, size_t bytes,
                        struct psi_view *view_p, struct psd_error *err)
{
    psd_status status = psi_view_decode_new(body, bytes, view_p, err);

    if (status == PSD_OK && (view_p->id == 0 || psi_view_term(view_p->id) >= master->config.term ||
                             view_p->workers != master->config.workers)) {
        status = psi_fail(err, PSD_ERR_PROTOCOL,
                          "VIEW_COMMIT: view %u has %u workers, the job %u in term %u", view_p->id,
                          view_p->workers, master->config.workers, master->config.term);
    }
    if (status == PSD_OK && master->places == 0) {
        status = number_places(master, view_p, err);
    }
    if (status == PSD_OK && !has_our_places(master, view_p)) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "VIEW_COMMIT: other places than in other views");
    }
    if (status != PSD_OK) {
        psi_view_fini(view_p);
    }
    return status;
}

psd_status
master_on_known_view(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct report *report = master_report_of(session);

    return report == NULL || report->view.id != 0
               ? PSD_OK
               : master_report_take_view(session->master, body, bytes, &report->view, err);
}

psd_status
master_on_copied_view(struct session *session, const void *body, size_t bytes,
                      struct psd_error *err)
{
    struct master *master = session->master;
    struct psi_view view = {0};
    psd_status status;

    if (session->hello.role != PSI_ROLE_STANDBY) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "VIEW_COMMIT: not expected here");
    }
    if (master->phase != PHASE_REBUILDING) {
        return PSD_OK;
    }
    status = master_report_take_view(master, body, bytes, &view, err);
    if (status != PSD_OK) {
        return status;
    }
    if (view.id > master->copied_view.id) {
        psi_view_fini(&master->copied_view);
        master->copied_view = view;
    } else {
        psi_view_fini(&view);
    }
    return PSD_OK;
}

psd_status
master_on_lane_state(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct report *report = master_report_of(session);
    struct psi_lane_state state;
    psd_status status;

    if (report == NULL || report->view.id == 0) {
        return PSD_OK;
    }
    status = psi_lane_state_decode(body, bytes, &state, err);
    if (status == PSD_OK) {
        report->frozen = state.frozen;
        report->done = state.done;
        report->pair = state.pair;
        report->is_eligible = state.is_eligible;
        report->is_whole = true;
        psi_fail_point(master_rebuild_lane_told);
        for (uint32_t i = 0; i < state.crossed.places && i < master->places; i++) {
            const struct member *lane = master->place[i];
            uint64_t *crossed = &master->server[lane->rank].crossed[lane->lane];

            *crossed = state.crossed.number[i] > *crossed ? state.crossed.number[i] : *crossed;
        }
        if (state.load_barriers > master->barrier_released[PSI_BARRIER_LOAD]) {
            master->barrier_released[PSI_BARRIER_LOAD] = state.load_barriers;
            master->loaded = state.load_barriers;
        }
        for (size_t i = 0; i < sizeof(state.done.word) / sizeof(state.done.word[0]); i++) {
            master->done.word[i] |= state.done.word[i];
        }
        master_wake_at(master, 0);
    }
    return status;
}
