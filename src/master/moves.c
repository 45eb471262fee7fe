/*
 * moves.c - servers come and go: places move while training goes on.
 *
 * A server that comes has nothing but lanes that stand by. Which place it gets says move_plan.c, from what is
 * so now: this file remembers the one move that is under way, and a master that returns plans anew. A move goes
 * on in three steps, and until the last one is done the place stays where it is:
 *
 *   1. A lane of the other server becomes the copy of the place (pairs.c), slowly. With replicas that is in the
 *      stead of the copy it had; if the copy is there already, nothing has to be sent.
 *   2. The copy is whole: the lane that has the place is told to hand it over (GIVE_PLACE). It tells its copy
 *      as the last of all, which comes to us as the lane of that server, in another life.
 *   3. With that the copy has the place, as if the lane had died, and the lane stands by. A view says so to all.
 *
 * One place at a time, and only while nothing else changes: no server is away, no member is on its way, no
 * checkpoint is being written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "master/move_plan.h"
#include "master/redundancy.h"
#include "master/state.h"

enum {
    RETRY_MS_MIN = 500, /* after a move that was given up; twice as long each time, ... */
    RETRY_MS_MAX = 300000,
    PASS_MS = 5000,   /* a place waits for a checkpoint that is being written */
    GIVE_MS = 120000, /* a lane hands its place over between two rounds: longer than steps take */
};

static uint32_t
index_of(uint64_t process)
{
    return (uint32_t)(process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));
}

/* ---- what there is ------------------------------------------------------------------------- */

/* Lanes of the process that stand by and are nobody's copy, the best connection of each. */
static bool
is_spare(const struct master *master, const struct session *session, uint64_t now_ns)
{
    return master_stands_by(session, now_ns) && !master_is_copy(master, session) &&
           session->hello.host != 0 && index_of(session->hello.host) < master_indexes(master);
}

struct session *
master_move_spare(const struct master *master, uint64_t process, uint64_t now_ns)
{
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->hello.host == process && is_spare(master, session, now_ns)) {
            return session;
        }
    }
    return NULL;
}

/* Two lives of one server at a time: which of them stays will be seen. */
static void
note_process(uint64_t process, uint64_t *known, bool *is_doubtful)
{
    *is_doubtful = *is_doubtful || (*known != 0 && *known != process);
    *known = process;
}

/* False: somebody is on the way, or it cannot be said who is where. */
static bool
look_at_servers(const struct master *master, uint64_t now_ns, struct move_places *places_p,
                uint64_t process_p[PSI_SERVERS_MAX])
{
    bool is_doubtful = false;

    memset(process_p, 0, PSI_SERVERS_MAX * sizeof(*process_p));
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const struct pair *pair = master_pair_of(master, lane);

        if (lane->state != PSD_NODE_RUNNING || lane->session == NULL || lane->process == 0 ||
            index_of(lane->process) >= master_indexes(master)) {
            return false;
        }
        note_process(lane->process, &process_p[index_of(lane->process)], &is_doubtful);
        if (master_pair_has_copy(pair)) { /* who has nothing but copies is here, too */
            note_process(pair->copy.process, &process_p[pair->copy.server], &is_doubtful);
        }
    }
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (is_spare(master, session, now_ns)) {
            note_process(session->hello.host, &process_p[index_of(session->hello.host)],
                         &is_doubtful);
            places_p->server[index_of(session->hello.host)].spare++;
        }
    }
    for (uint32_t i = 0; i < PSI_SERVERS_MAX; i++) {
        places_p->server[i].is_here = process_p[i] != 0;
        places_p->server[i].is_leaving = master_is_leaving(master, process_p[i]);
    }
    return !is_doubtful;
}

static bool
look(const struct master *master, uint64_t now_ns, struct move_places *places_p,
     uint64_t process_p[PSI_SERVERS_MAX])
{
    *places_p = (struct move_places){.places = master->places};
    if (!look_at_servers(master, now_ns, places_p, process_p)) {
        return false;
    }
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const struct pair *pair = master_pair_of(master, lane);

        places_p->at[place] = index_of(lane->process);
        places_p->copy_at[place] = master_pair_has_copy(pair) ? pair->copy.server : MOVE_NOWHERE;
        places_p->bytes[place] = master->loads.bytes[place];
        places_p->waits[place] = now_ns < pair->move_retry_ns;
        places_p->shunned[place] = pair->moves_failed > 0 ? pair->move_shunned : MOVE_NOWHERE;
    }
    return true;
}

/* Does nothing else change? With replicas a place is moved when all others have whole copies: it may lose its
 * own by that. */
static bool
is_calm(struct master *master)
{
    if (master->view.id == 0 || master->change.stage != STAGE_IDLE ||
        master_next_to_change(master) != NULL) {
        return false;
    }
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const struct pair *pair = master_pair_of(master, lane);

        if (master->server[lane->rank].is_away || pair->stage == PAIR_ENDING ||
            pair->stage == PAIR_FORMING ||
            (master->config.replicas > 0 && master_needs_copies(master) &&
             pair->stage != PAIR_WHOLE)) {
            return false;
        }
    }
    return true;
}

/* ---- a move -------------------------------------------------------------------------------- */

static void
tell(const struct master *master, const struct psi_tiding *tiding)
{
    if (master->config.tell != NULL) {
        master->config.tell(master->config.tell_context, tiding);
    }
}

static void
begin(struct master *master, const struct move *plan, uint64_t process, uint64_t now_ns)
{
    struct member *lane = master->place[plan->place];
    struct pair *pair = master_pair_of(master, lane);

    master->moving = (struct moving){.is_active = true,
                                     .place = plan->place,
                                     .to = plan->to,
                                     .process = process,
                                     .is_copy = plan->is_copy,
                                     .began_ns = now_ns};
    if (master_pair_has_copy(pair) && pair->copy.process == process) {
        return;
    }
    psi_log(master->log, PSI_LOG_DEBUG, "MOVE", "%slane %u of server %u is to move to server %u",
            plan->is_copy ? "the copy of " : "", lane->lane, lane->rank, plan->to);
    pair->target = process;
    pair->retry_ns = 0;
    pair->why[0] = '\0';
    if (master_pair_has_copy(pair)) {
        master_pair_give_up(master, lane, pair->number);
    }
    master_wake_at(master, 0);
}

/* What keeps it from moving may last: a server without room, say. Said once. */
static void
give_up(struct master *master, const char *reason, uint64_t now_ns)
{
    struct moving *moving = &master->moving;
    const struct member *lane = master->place[moving->place];
    struct pair *pair = master_pair_of(master, lane);
    const bool is_news = strncmp(pair->move_why, reason, sizeof(pair->move_why) - 1) != 0;
    uint64_t delay_ms = RETRY_MS_MIN;

    for (uint32_t i = 0; i < pair->moves_failed && delay_ms < RETRY_MS_MAX; i++) {
        delay_ms *= 2;
    }
    delay_ms = delay_ms < RETRY_MS_MAX ? delay_ms : RETRY_MS_MAX;
    snprintf(pair->move_why, sizeof(pair->move_why), "%.*s", PAIR_WHY - 1, reason);
    psi_log(master->log, is_news ? PSI_LOG_WARN : PSI_LOG_DEBUG, "MOVE-OFF",
            "%slane %u of server %u does not move to server %u for now: %s; tried again in "
            "%" PRIu64 " ms, later each time",
            moving->is_copy ? "the copy of " : "", lane->lane, lane->rank, moving->to,
            pair->move_why, delay_ms);
    pair->target = 0;
    pair->moves_failed++;
    pair->move_shunned = moving->to;
    pair->move_retry_ns = now_ns + delay_ms * MASTER_MS_NS;
    *moving = (struct moving){.retry_ns = now_ns + RETRY_MS_MIN * MASTER_MS_NS};
    master_wake_at(master, moving->retry_ns);
    master_wake_at(master, pair->move_retry_ns);
}

static void
finish(struct master *master, uint64_t now_ns)
{
    struct moving *moving = &master->moving;
    const struct member *lane = master->place[moving->place];
    struct pair *pair = master_pair_of(master, lane);
    const struct psi_tiding tiding = {.kind = PSI_TIDING_MOVED,
                                      .role = PSI_TIDING_SERVER,
                                      .rank = lane->rank,
                                      .lane = lane->lane,
                                      .to = moving->to,
                                      .bytes = master->loads.bytes[moving->place]};

    pair->target = 0;
    pair->moves_failed = 0;
    pair->move_retry_ns = 0;
    pair->move_why[0] = '\0';
    psi_log(master->log, PSI_LOG_INFO, moving->is_copy ? "COPY-MOVED" : "PLACE-MOVED",
            "%slane %u of server %u has moved to server %u in %" PRIu64 " ms: %" PRIu64
            " bytes of values",
            moving->is_copy ? "the copy of " : "", lane->lane, lane->rank, moving->to,
            (now_ns - moving->began_ns) / MASTER_MS_NS, tiding.bytes);
    if (!moving->is_copy) {
        tell(master, &tiding);
    }
    *moving = (struct moving){0};
    master_wake_at(master, 0);
}

void
master_move_send(const struct master *master, const struct member *lane)
{
    const struct pair *pair = master_pair_of(master, lane);
    struct psi_frame frame = master_frame(master, PSI_FRAME_GIVE_PLACE);

    frame.seq = pair->number;
    if (pair->is_given && !pair->is_promoting && lane->session != NULL) {
        master_posted(lane->session, psi_post(lane->session->guest.conn, &frame));
    }
}

/* A checkpoint is one of places that stay where they are while it is written. The place lets it pass, but for
 * one that nobody waits for and that is of a step far ahead: it is begun again when the place has moved. */
static bool
lets_checkpoint_pass(struct master *master, uint64_t now_ns)
{
    struct moving *moving = &master->moving;

    if (master->saving.stage == SAVING_IDLE) {
        return false;
    }
    if (moving->passed_ns == 0) {
        moving->passed_ns = now_ns + PASS_MS * MASTER_MS_NS;
    }
    if (now_ns < moving->passed_ns) {
        master_wake_at(master, moving->passed_ns);
    } else if (master->saving.stage != SAVING_COMMITTING && !master->saving.is_urgent) {
        master_saving_give_up(master, "a place is about to move to another server");
    }
    return master->saving.stage != SAVING_IDLE;
}

static void
order(struct master *master, const struct member *lane, uint64_t now_ns)
{
    struct pair *pair = master_pair_of(master, lane);

    if (pair->is_given || lane->session == NULL || master->change.stage != STAGE_IDLE ||
        lets_checkpoint_pass(master, now_ns)) {
        return;
    }
    pair->is_given = true;
    pair->copy.is_placed = true;
    pair->copy.placed_ns = now_ns;
    master_move_send(master, lane);
    psi_fail_point(master_move_ordered);
}

/* Its lane was told to hand it over, and has not: some round of it does not end. */
static bool
is_overdue(struct master *master, const struct pair *pair, uint64_t now_ns)
{
    const uint64_t until_ns = pair->copy.placed_ns + GIVE_MS * MASTER_MS_NS;

    if (!pair->is_given || pair->copy.is_broken) {
        return false;
    }
    if (now_ns < until_ns) {
        master_wake_at(master, until_ns);
        return false;
    }
    return true;
}

bool
master_place_moves(const struct master *master)
{
    return master->moving.is_active && !master->moving.is_copy;
}

static void
go_on(struct master *master, uint64_t now_ns)
{
    const struct moving *moving = &master->moving;
    const struct member *lane = master->place[moving->place];
    struct pair *pair = master_pair_of(master, lane);
    const bool is_there = lane->state == PSD_NODE_RUNNING && !master->server[lane->rank].is_away;

    if (pair->is_promoting || lane->state == PSD_NODE_JOINED) {
        return; /* it is on its way, and no view has it */
    }
    if (is_there && !moving->is_copy && lane->process == moving->process) {
        finish(master, now_ns);
    } else if (lane->state == PSD_NODE_LOST) {
        give_up(master, "the server that has it is lost", now_ns);
    } else if (pair->stage == PAIR_WHOLE && pair->copy.process == moving->process) {
        if (moving->is_copy) {
            finish(master, now_ns);
        } else if (is_overdue(master, pair, now_ns)) {
            pair->copy.is_broken = true; /* which ends the pair, and then the move */
            snprintf(pair->copy.broken, sizeof(pair->copy.broken),
                     "lane %u of server %u did not hand its place over in %d s: a round there "
                     "does not end",
                     lane->lane, lane->rank, GIVE_MS / 1000);
        } else {
            order(master, lane, now_ns);
        }
    } else if (master_pair_has_copy(pair) && pair->target == 0 &&
               pair->copy.process != moving->process) {
        give_up(master, "the copy there was lost, and another server has one", now_ns);
    } else if (pair->stage == PAIR_NONE && pair->target == 0) {
        give_up(master,
                pair->why[0] != '\0' ? pair->why : "that server is gone, or has no lane to spare",
                now_ns);
    }
}

/* Where no replicas are wanted, a pair is a move: one that the last master had begun goes on. If its server was
 * lost, the place may be in the copy's process by another lane: then the copy is of no use. */
static bool
take_up(struct master *master, uint64_t now_ns)
{
    for (uint32_t place = 0; place < master->places && master->config.replicas == 0; place++) {
        const struct member *lane = master->place[place];
        struct pair *pair = master_pair_of(master, lane);
        const bool has_copy = master_pair_has_copy(pair) && !pair->is_promoting;

        if (has_copy && pair->copy.process == lane->process) {
            pair->copy.is_broken = true;
            snprintf(pair->copy.broken, sizeof(pair->copy.broken),
                     "its process has the place itself");
            master_wake_at(master, 0);
        } else if (has_copy) {
            master->moving = (struct moving){.is_active = true,
                                             .place = place,
                                             .to = pair->copy.server,
                                             .process = pair->copy.process,
                                             .began_ns = now_ns};
            return true;
        }
    }
    return false;
}

/* ---- time ---------------------------------------------------------------------------------- */

/* Where nothing fitted something may, now that there is another server. */
static void
note_staying(struct master *master, uint32_t staying)
{
    for (uint32_t place = 0; place < master->places && staying > master->staying; place++) {
        master_pair_of(master, master->place[place])->move_retry_ns = 0;
    }
    master->staying = staying;
}

static void
wake_for_next(struct master *master, uint64_t now_ns)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const uint64_t retry_ns = master_pair_of(master, master->place[place])->move_retry_ns;

        if (retry_ns > now_ns) {
            master_wake_at(master, retry_ns);
        }
    }
}

static void
plan_next(struct master *master, uint64_t now_ns)
{
    static _Thread_local struct move_places places;
    const bool copies = master->config.replicas > 0 && master_needs_copies(master);
    uint64_t process[PSI_SERVERS_MAX];
    struct move move;

    if (take_up(master, now_ns) || !is_calm(master) || !look(master, now_ns, &places, process)) {
        return;
    }
    note_staying(master, move_plan_staying(&places));
    if (master->staying > 0 && move_plan_next(&places, copies, &move)) {
        begin(master, &move, process[move.to], now_ns);
    } else {
        master->moving.is_stuck = true;
        wake_for_next(master, now_ns);
    }
}

void
master_moves_tick(struct master *master, uint64_t now_ns)
{
    if (!master_may_move(master)) {
        return;
    }
    if (master->moving.is_active) {
        go_on(master, now_ns);
    }
    if (!master->moving.is_active && now_ns < master->moving.retry_ns) {
        master_wake_at(master, master->moving.retry_ns);
    } else if (!master->moving.is_active) { /* at once: a checkpoint would be in its way */
        master->moving.is_stuck = false;
        plan_next(master, now_ns);
    }
    master_leaves_tick(master, now_ns);
}

/* ---- the copy comes ------------------------------------------------------------------------ */

bool
master_move_admits(const struct master *master, const struct member *lane,
                   const struct psi_hello *hello)
{
    const struct pair *pair = master_pair_of(master, lane);

    return master_may_move(master) && hello->incarnation == 0 && hello->pair != 0 &&
           hello->pair == pair->number && master_pair_has_copy(pair) && !pair->is_promoting &&
           pair->copy.life == hello->life && lane->state == PSD_NODE_RUNNING && master->view.id > 0;
}

bool
master_move_has_left(const struct master *master, const struct member *lane,
                     const struct psi_hello *hello)
{
    return master_may_move(master) && hello->incarnation != 0 && hello->life != lane->life &&
           hello->incarnation < lane->incarnation;
}

void
master_move_dismiss(struct session *session)
{
    const struct psi_hello *hello = &session->hello;

    session->hushed = true;
    master_refuse(session, PSD_ERR_STATE,
                  "server %u lane %u: it has moved to another server, stand by", hello->rank,
                  hello->lane);
}

void
master_move_take(struct session *session, struct member *lane)
{
    struct master *master = session->master;
    struct server *server = &master->server[lane->rank];
    struct pair *pair = master_pair_of(master, lane);
    struct session *old = lane->session;

    master_saving_give_up(master, "a place moves to another server");
    pair->stage = PAIR_WHOLE;
    pair->is_promoting = true;
    pair->is_planned = true;
    pair->left_by = master_process_index(master, lane);
    if (!server->is_away) {
        server->lost_ns = psi_now_ns(master->env);
        snprintf(server->lost_text, sizeof(server->lost_text), "a place of it moves");
    }
    server->is_away = true;
    server->is_back = false;
    server->is_placed = true;
    master_reach_forget_lane(master, lane);
    master_fence(lane);
    lane->state = PSD_NODE_LOST;
    psi_fail_point(master_move_taken);
    if (old != NULL) {
        master_move_dismiss(old);
    }
    master_tables_lose(master, place_of(master, lane), 1);
    master_view_lose(master, lane);
    master_done_look(master);
    if (master->phase == PHASE_RUNNING) {
        master_leave_numbers(master, lane);
        master_take_place(session, lane, session->hello.address);
    }
}
