/*
 * views.c - membership: one change at a time, lanes first.
 *
 * A worker leaves, joins or is replaced in three moves. VIEW_PROPOSE: every lane stops taking that
 * rank's gradients and reports what it has of them; if it joins, every lane reports how far it is, and
 * closes no later rounds meanwhile. VIEW_COMMIT to the lanes: how the rank counts in every table. When all of them have answered, VIEW_COMMIT to the workers; so no worker ever reaches a
 * lane that does not know its view. View 1 has only the last two moves. How the rank counts is
 * decided in given.c.
 *
 * Invariants
 *   - lanes are at most one view ahead of `view`, workers never;
 *   - what a lane reported is frozen there until the commit.
 *
 * A VIEW_ACK says by the view in its header which of the two it answers: the old one, VIEW_PROPOSE;
 * the new one, VIEW_COMMIT. So an answer repeated after a reconnect is not taken for the other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/state.h"
#include "view/roster.h"

/* -------------------------------------------------------------------------------- sending --- */

static uint32_t
next_id(const struct master *master)
{
    const uint32_t id =
        psi_view_next_id(master->view.id, master->config.term) + master->aborted_changes;

    psi_assert(psi_view_term(id) == master->config.term); /* a million changes in one life */
    return id;
}

static void
send_abort(const struct master *master, const struct member *lane)
{
    const struct psi_frame frame = master_frame(master, PSI_FRAME_VIEW_ABORT);

    if (lane->session != NULL) {
        master_posted(lane->session, psi_post(lane->session->guest.conn, &frame));
    }
}

static void
send_propose(struct master *master, struct member *lane)
{
    const struct psi_propose propose = {
        .id = next_id(master),
        .rank = master->change.who,
        .leaves = master->change.kind == PSI_VIEW_WORKER_LEFT,
        .joins = master->change.kind == PSI_VIEW_WORKER_JOINED,
    };
    const struct psi_frame frame = master_frame(master, PSI_FRAME_VIEW_PROPOSE);

    if (lane->session != NULL) {
        master_posted(lane->session, psi_post_propose(lane->session->guest.conn, &frame, &propose));
    }
}

static struct psi_view_place
place_now(const struct member *lane)
{
    struct psi_view_place place = {.server = lane->rank,
                                   .lane = lane->lane,
                                   .incarnation = lane->incarnation,
                                   .process = lane->process};

    memcpy(place.address, lane->address, sizeof(lane->address));
    return place;
}

/* The current view, in the master's scratch. */
static void
make_view(struct master *master, struct psi_view *view_p)
{
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        master->view_worker[rank].member = master->view.worker[rank].member;
        master->view_worker[rank].incarnation = master->view.worker[rank].incarnation;
        master->view_worker[rank].counts_from = master->view.worker[rank].counts_from;
        master->view_worker[rank].counts_until = master->view.worker[rank].counts_until;
        master->view_worker[rank].host = worker->host;
        memcpy(master->view_worker[rank].address, worker->host_address,
               sizeof(worker->host_address));
    }
    for (uint32_t i = 0; i < master->places; i++) {
        master->view_place[i] =
            master->view.id == 0 ? place_now(master->place[i]) : master->view.place[i];
    }
    *view_p = (struct psi_view){
        .id = master->view.id,
        .workers = master->config.workers,
        .changes = master->view.changes,
        .worker = master->view_worker,
        .places = master->places,
        .place = master->view_place,
    };
}

/* The one to come, likewise. */
static void
make_next_view(struct master *master, struct psi_view *view_p)
{
    const struct change *change = &master->change;

    make_view(master, view_p);
    view_p->id = next_id(master);
    view_p->change = change->kind;
    view_p->who = change->who;
    view_p->tables = change->tables;
    view_p->table = master->view_table;
    if (change->renews) {
        return;
    }
    switch (change->kind) {
    case PSI_VIEW_WORKER_LEFT:
        psi_view_count(&master->view_worker[change->who], false, change->counts);
        view_p->changes++;
        break;
    case PSI_VIEW_WORKER_JOINED:
        psi_view_count(&master->view_worker[change->who], true, change->counts);
        master->view_worker[change->who].incarnation = change->incarnation;
        view_p->changes++;
        break;
    case PSI_VIEW_WORKER_REPLACED:
        master->view_worker[change->who].member = true;
        master->view_worker[change->who].incarnation = change->incarnation;
        break;
    case PSI_VIEW_SERVER_BACK:
        for (uint32_t i = 0; i < master->places; i++) {
            if (master->place[i]->rank == change->who) {
                master->view_place[i] = master->place[i]->returned;
            }
        }
        break;
    default:
        break; /* the first: as it is */
    }
}

static void
send_view(struct master *master, struct member *member, const struct psi_view *view)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_VIEW_COMMIT);

    frame.view = view->id;
    if (member->session != NULL) {
        master_posted(member->session, psi_post_view(member->session->guest.conn, &frame, view));
    }
}

/* Of those that are lost nothing is awaited. */
static void
await_lanes(struct master *master, enum change_stage stage)
{
    master->change.stage = stage;
    master->change.acks_left = 0;
    for (uint32_t place = 0; place < master->places; place++) {
        struct member *lane = master->place[place];

        lane->acked = lane->state == PSD_NODE_LOST;
        master->change.acks_left += !lane->acked;
    }
}

static void
commit_to_lanes(struct master *master)
{
    struct psi_view view;

    await_lanes(master, STAGE_COMMITTED);
    make_next_view(master, &view);
    for (uint32_t place = 0; place < master->places; place++) {
        send_view(master, master->place[place], &view);
        psi_fail_point(master_view_committed_one);
    }
    psi_fail_point(master_view_committed);
}

/* Some lanes may not have the current view: nobody is to act on it before all of them have it. */
static bool
is_renewing(const struct master *master)
{
    return master->change.renews && master->change.stage != STAGE_IDLE;
}

static void
resend_renewed(struct master *master, struct member *member)
{
    struct psi_view view;

    if (member->role == PSI_ROLE_SERVER) {
        make_next_view(master, &view);
        send_view(master, member, &view);
        master_tables_resend(master, member, place_of(master, member));
        master_done_resend(master, member);
        master_pair_resend(master, member);
    }
}

void
master_view_tell(struct session *session)
{
    struct psi_frame frame = master_frame(session->master, PSI_FRAME_VIEW_COMMIT);
    struct psi_view view;

    make_view(session->master, &view);
    frame.view = view.id;
    master_posted(session, psi_post_view(session->guest.conn, &frame, &view));
}

void
master_view_resend(struct master *master, struct member *member)
{
    struct psi_view view;

    if (master->phase != PHASE_RUNNING) {
        return;
    }
    if (is_renewing(master)) {
        resend_renewed(master, member);
        return;
    }
    if (master->view.id > 0 &&
        (member->role == PSI_ROLE_SERVER || member->state == PSD_NODE_RUNNING)) {
        make_view(master, &view);
        send_view(master, member, &view);
    }
    if (member->role != PSI_ROLE_SERVER) {
        return;
    }
    master_tables_resend(master, member, place_of(master, member));
    if (master->change.stage == STAGE_PROPOSED && !member->acked) {
        send_propose(master, member);
    } else if (master->change.stage == STAGE_COMMITTED && !member->acked) {
        make_next_view(master, &view);
        send_view(master, member, &view);
    } else if (master->change.stage == STAGE_IDLE && master->aborted_changes > 0) {
        send_abort(master, member); /* it may have missed that, and hold rounds up */
    }
    master_quorum_resend(master, member);
    master_done_resend(master, member);
    master_pair_resend(master, member);
    master_saving_resend(master, member);
}

/* ----------------------------------------------------------------------------- the start --- */

bool
master_may_begin(const struct master *master, const struct member *member)
{
    return member->session != NULL && (member->is_sure || master->config.master_grace_ms == 0);
}

void
master_view_number_places(struct master *master)
{
    uint32_t lanes[PSI_SERVERS_MAX];

    for (uint32_t index = 0; index < master->config.servers; index++) {
        lanes[index] = master->server[index].lanes;
        for (uint32_t lane = 0; lane < lanes[index]; lane++) {
            master->place[master->places++] = &master->server[index].lane[lane];
        }
    }
    psi_loads_init(&master->loads, master->config.servers, lanes);
}

void
master_view_start(struct master *master)
{
    uint32_t members = 0;

    master_view_number_places(master);
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        struct worker *worker = &master->worker[rank];

        if (master_may_begin(master, &worker->member)) {
            master->view.worker[rank].member = true; /* of view 1, which is to come */
            master->view.worker[rank].incarnation = worker->member.incarnation;
            members++;
        } else if (worker->member.state == PSD_NODE_JOINED) {
            worker->wanted = CHANGE_JOIN;
        }
    }
    master->phase = PHASE_RUNNING;
    master->change = (struct change){.kind = PSI_VIEW_FIRST};
    psi_log(master->log, PSI_LOG_INFO, "JOB-START", "%u worker%s, %u server%s with %u lane%s",
            members, psi_plural(members), master->config.servers,
            psi_plural(master->config.servers), master->places, psi_plural(master->places));
    commit_to_lanes(master);
    master_wake_at(master, 0);
}

void
master_view_renew(struct master *master, const struct psi_view *view)
{
    master->change = (struct change){
        .kind = view->change, .who = view->who, .tables = view->tables, .renews = true};
    for (uint32_t i = 0; i < view->tables; i++) {
        master->view_table[i] = view->table[i];
    }
    commit_to_lanes(master);
}

/* ---------------------------------------------------------------------------- the changes --- */

static void
leave(struct master *master)
{
    master_given_leave(master);
    psi_fail_point(master_view_decided);
    commit_to_lanes(master);
    master_quorum_left(master, master->change.who);
}

static void
replace(struct master *master)
{
    if (master_given_resume(master) != PSD_OK) {
        master_end(master, PSI_EXIT_INTERNAL, PSD_ERR_NO_MEMORY, "master: out of memory");
        return;
    }
    commit_to_lanes(master);
}

static void
join(struct master *master)
{
    struct worker *worker = &master->worker[master->change.who];
    const uint64_t first_step = master_given_first_step(master);

    if (worker->join_step != 0 && (first_step == 0 || worker->join_step < first_step)) {
        master_worker_turn_away(master, worker, first_step);
        return;
    }
    if (master_given_join(master, worker->join_step) != PSD_OK) {
        master_end(master, PSI_EXIT_INTERNAL, PSD_ERR_NO_MEMORY, "master: out of memory");
        return;
    }
    psi_fail_point(master_join_decided);
    commit_to_lanes(master);
}

static void
on_view(struct master *master, const struct psi_view *old, const struct psi_view *now)
{
    static const char *const words[PSI_VIEW_CHANGES] = {
        [PSI_VIEW_FIRST] = "the start",
        [PSI_VIEW_WORKER_LEFT] = "a worker left",
        [PSI_VIEW_WORKER_REPLACED] = "a worker was replaced",
        [PSI_VIEW_SERVER_BACK] = "a server is back",
        [PSI_VIEW_WORKER_JOINED] = "a worker joined",
    };

    (void)old;
    for (uint32_t rank = 0; rank < now->workers; rank++) {
        struct worker *worker = &master->worker[rank];

        if (worker->member.state == PSD_NODE_JOINED &&
            now->worker[rank].incarnation == worker->member.incarnation) {
            worker->member.state = PSD_NODE_RUNNING;
        }
        if (worker->member.state == PSD_NODE_RUNNING) {
            send_view(master, &worker->member, now);
            psi_fail_point(master_view_told_one);
        }
    }
    for (uint32_t place = 0; place < master->places; place++) {
        struct member *lane = master->place[place];

        if (lane->state == PSD_NODE_JOINED && now->place[place].incarnation == lane->incarnation) {
            lane->state = PSD_NODE_RUNNING;
        }
    }
    psi_log(master->log, PSI_LOG_DEBUG, "VIEW", "view %u: %s", now->id, words[now->change]);
}

/* Who started the workers wants to know from which step on the set is another. */
static void
tell_step(const struct master *master)
{
    const bool joined = master->change.kind == PSI_VIEW_WORKER_JOINED;
    const struct psi_tiding tiding = {.kind = joined ? PSI_TIDING_COUNTS : PSI_TIDING_LEFT,
                                      .role = PSI_TIDING_WORKER,
                                      .rank = master->change.who,
                                      .step = master->change.counts};

    if (master->config.tell != NULL && !master->change.renews &&
        (joined || master->change.kind == PSI_VIEW_WORKER_LEFT)) {
        master->config.tell(master->config.tell_context, &tiding);
    }
}

/* Every lane has the new view: now the workers. */
static void
finish(struct master *master)
{
    struct psi_view old;
    struct psi_view view;

    make_next_view(master, &view);
    if (psi_view_take(&master->view, &view, &old) != PSD_OK) {
        master_end(master, PSI_EXIT_INTERNAL, PSD_ERR_NO_MEMORY, "master: out of memory");
        return;
    }
    on_view(master, &old, &view);
    tell_step(master);
    psi_fail_point(master_view_told);
    psi_view_fini(&old);
    master_readers_tell_view(master);
    master->change.stage = STAGE_IDLE;
    master->aborted_changes = 0;
    master_tables_look(master);
    master_view_advance(master);
}

static const enum psi_view_change changes[] = {
    [CHANGE_LEAVE] = PSI_VIEW_WORKER_LEFT,
    [CHANGE_REPLACE] = PSI_VIEW_WORKER_REPLACED,
    [CHANGE_JOIN] = PSI_VIEW_WORKER_JOINED,
};

static void
begin(struct master *master, struct worker *worker)
{
    master->change = (struct change){
        .kind = changes[worker->wanted],
        .who = worker->member.rank,
        .incarnation = worker->member.incarnation,
    };
    worker->wanted = CHANGE_NONE;
    for (uint32_t id = 0; id < master->tables; id++) {
        master->table[id]->given = (struct given){0};
    }
    await_lanes(master, STAGE_PROPOSED);
    for (uint32_t place = 0; place < master->places; place++) {
        send_propose(master, master->place[place]);
        psi_fail_point(master_view_proposed_one);
    }
    psi_fail_point(master_view_proposed);
}

/* The other life of a server that was lost. Nothing has to be reported: it has nothing, and the other
 * lanes' rounds go on. */
static void
begin_return(struct master *master, uint32_t index)
{
    struct server *server = &master->server[index];

    master->change = (struct change){.kind = PSI_VIEW_SERVER_BACK, .who = index};
    psi_fail_point(master_server_complete);
    server->is_away = false;
    server->is_back = false;
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        server->lane[lane].returned = place_now(&server->lane[lane]);
    }
    psi_log(master->log, master_is_moving(server) ? PSI_LOG_DEBUG : PSI_LOG_INFO, "MEMBER-BACK",
            master_pairs_promote(server) ? "server %u: its copy has its places after %" PRIu64 " ms"
                                         : "server %u is back, in another life, after %" PRIu64
                                           " ms",
            index, (psi_now_ns(master->env) - server->lost_ns) / MASTER_MS_NS);
    if (master_pairs_promote(server)) {
        psi_fail_point(master_promotion_complete);
        master_pair_promoted(master, server);
    }
    commit_to_lanes(master);
}

/* Begins with a server that is back. False: one is still away, so that nothing else may begin. */
static bool
advance_servers(struct master *master)
{
    bool away = false;

    for (uint32_t index = 0; index < master->config.servers; index++) {
        const struct server *server = &master->server[index];

        if (server->is_away && server->is_back && master->change.stage == STAGE_IDLE) {
            begin_return(master, index);
        }
        away = away || server->is_away;
    }
    return !away;
}

/* What the lanes have reported does not count any more: it is asked for again, later. */
static void
abort_change(struct master *master)
{
    struct worker *worker = &master->worker[master->change.who];

    worker->wanted = master->change.kind == PSI_VIEW_WORKER_LEFT     ? CHANGE_LEAVE
                     : master->change.kind == PSI_VIEW_WORKER_JOINED ? CHANGE_JOIN
                                                                     : CHANGE_REPLACE;
    master->aborted_changes++; /* what a lane says of this one, and comes later, is of no other */
    master->change.stage = STAGE_IDLE;
    for (uint32_t place = 0; place < master->places; place++) {
        send_abort(master, master->place[place]);
    }
    psi_fail_point(master_view_aborted);
}

/* A lane may wait with its word about the one that joins for another, who is dead, and whose turn
 * would come behind it. */
static bool
gives_way(const struct master *master)
{
    const struct worker *next = master_next_to_change(master);

    return master->change.stage == STAGE_PROPOSED &&
           master->change.kind == PSI_VIEW_WORKER_JOINED && next != NULL &&
           next->wanted != CHANGE_JOIN;
}

void
master_view_advance(struct master *master)
{
    if (master->phase == PHASE_RUNNING && gives_way(master)) {
        abort_change(master);
    }
    if (master->phase != PHASE_RUNNING || master->change.stage != STAGE_IDLE ||
        !advance_servers(master)) {
        return;
    }
    while (master->phase == PHASE_RUNNING && master->change.stage == STAGE_IDLE &&
           master_next_to_change(master) != NULL) {
        begin(master, master_next_to_change(master));
    }
}

void
master_view_forget(struct master *master, uint32_t rank)
{
    if (master->change.stage == STAGE_PROPOSED && master->change.kind == PSI_VIEW_WORKER_JOINED &&
        master->change.who == rank) {
        abort_change(master);
    }
    master->worker[rank].wanted = CHANGE_NONE;
}

void
master_view_lose(struct master *master, struct member *lane)
{
    struct change *change = &master->change;

    if (change->stage == STAGE_PROPOSED) {
        abort_change(master);
        return;
    }
    change->acks_left -= change->stage == STAGE_COMMITTED && !lane->acked;
    lane->acked = true;
    if (change->stage == STAGE_COMMITTED && change->acks_left == 0) {
        finish(master);
    }
}

psd_status
master_on_view_ack(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct change *change = &master->change;
    const uint32_t answered = session->guest.inbox.frame.view;
    struct psi_view_ack ack = {.given = master->given};
    const psd_status status = psi_view_ack_decode(body, bytes, &ack, err);

    if (status != PSD_OK) {
        return status;
    }
    if (change->stage == STAGE_IDLE || session->member->acked || ack.id != next_id(master) ||
        answered != (change->stage == STAGE_PROPOSED ? master->view.id : ack.id)) {
        return PSD_OK; /* an answer that was repeated after a reconnect */
    }
    for (uint32_t i = 0; i < ack.tables; i++) {
        if (ack.given[i].table >= master->tables) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "VIEW_ACK: no table %u", ack.given[i].table);
        }
    }
    for (uint32_t i = 0; i < ack.tables && change->stage == STAGE_PROPOSED; i++) {
        struct given *given = &master->table[ack.given[i].table]->given;

        if (change->kind == PSI_VIEW_WORKER_JOINED) {
            master_given_add_promise(given, &ack.given[i]);
        } else {
            master_given_add(given, &ack.given[i]);
        }
    }
    session->member->acked = true;
    psi_fail_point(master_view_acked_one);
    if (--change->acks_left > 0) {
        return PSD_OK;
    }
    psi_fail_point(master_view_acked);
    if (change->stage == STAGE_COMMITTED) {
        finish(master);
    } else if (change->kind == PSI_VIEW_WORKER_LEFT) {
        leave(master);
    } else if (change->kind == PSI_VIEW_WORKER_JOINED) {
        join(master);
    } else {
        replace(master);
    }
    return PSD_OK;
}
