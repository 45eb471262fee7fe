/*
 * pairs.c - copies: which lanes that stand by copy which lanes of servers, and when they may take their
 * places.
 *
 * Every lane of a server has one copy: a lane that stands by in another process. The copies of one
 * server's lanes are spread over the other servers (pair_places.c), so that its load is shared when it
 * dies. Both sides hear of a copy with one number (PAIR). When the lane has said that its copy lacks
 * nothing that was told (ELIGIBLE), the copy is whole: if the lane dies now, the copy takes its place and
 * nothing is lost. A server may die when the copies of all lanes in its process are whole. A job that only
 * sums has no copies, whatever it was told: a server that comes back takes its place there, and carries its
 * part of the load again.
 *
 * A copy is given up when it is gone, or when its lane does not reach it; the others stay, so that no more
 * is copied again than was lost. The lane waits for it until it hears so from here (UNPAIR), and from that
 * moment on the copy may lack what is told. So the number is crossed out first: no copy takes a place by a
 * number that is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/redundancy.h"
#include "master/state.h"

enum {
    PAIR_COUNT_BITS = 32, /* of a number; the rest is the term of the master */
    RETRY_MS_MIN = 200,   /* before another copy is tried, twice as long each time, ... */
    RETRY_MS_MAX = 30000,
};

static uint64_t
dead_ns(const struct master *master)
{
    return (uint64_t)master->config.heartbeat_ms * master->config.dead_heartbeats * MASTER_MS_NS;
}

struct pair *
master_pair_of(const struct master *master, const struct member *lane)
{
    return &master->server[lane->rank].pair[lane->lane];
}

bool
master_pair_has_copy(const struct pair *pair)
{
    return pair->stage == PAIR_FORMING || pair->stage == PAIR_WHOLE;
}

bool
master_pair_is_whole(const struct pair *pair)
{
    return pair->stage == PAIR_WHOLE;
}

bool
master_pairs_are_whole(const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (!master_pair_is_whole(&server->pair[lane])) {
            return false;
        }
    }
    return true;
}

/* The lane that stands by and is that copy; NULL: it is not connected. A connection that it has lost may
 * still be here: it is the one that was heard last. */
struct session *
master_pair_find_copy(const struct master *master, const struct copy *copy)
{
    struct session *found = NULL;

    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && !session->guest.doomed &&
            session->kind == SESSION_OBSERVER && session->hello.role == PSI_ROLE_STANDBY &&
            session->hello.life == copy->life &&
            (found == NULL || session->heard_ns > found->heard_ns)) {
            found = session;
        }
    }
    return found;
}

bool
master_pair_is_here(const struct master *master, const struct pair *pair, uint64_t now_ns)
{
    const struct session *session =
        master_pair_is_whole(pair) ? master_pair_find_copy(master, &pair->copy) : NULL;

    return session != NULL && now_ns - session->heard_ns < dead_ns(master) / 2;
}

/* The lane whose copy this life is; NULL: it is none. */
static const struct member *
find_owner(const struct master *master, uint64_t life)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        const struct server *server = &master->server[index];

        for (uint32_t lane = 0; lane < server->lanes; lane++) {
            if (master_pair_has_copy(&server->pair[lane]) && server->pair[lane].copy.life == life) {
                return &server->lane[lane];
            }
        }
    }
    return NULL;
}

bool
master_is_copy(const struct master *master, const struct session *session)
{
    return find_owner(master, session->hello.life) != NULL;
}

/* ------------------------------------------------------------------------------- orders --- */

static void
tell_copy(struct session *session, const struct member *lane)
{
    const struct master *master = session->master;
    struct psi_frame frame = master_frame(master, PSI_FRAME_PAIR);
    const struct psi_pair pair = {.server = lane->rank,
                                  .lane = lane->lane,
                                  .lanes = master->server[lane->rank].lanes,
                                  .life = lane->life};

    frame.seq = master_pair_of(master, lane)->number;
    master_posted(session, psi_post_pair(session->guest.conn, &frame, &pair));
}

static void
tell_owner(const struct master *master, const struct member *lane)
{
    const struct copy *copy = &master_pair_of(master, lane)->copy;
    struct psi_frame frame = master_frame(master, PSI_FRAME_PAIR);
    struct psi_pair pair = {
        .server = copy->server, .lane = copy->lane, .lanes = copy->lanes, .life = copy->life};

    frame.seq = master_pair_of(master, lane)->number;
    frame.step = master_pair_of(master, lane)->target != 0 ? master->config.move_bytes_per_s : 0;
    memcpy(pair.address, copy->address, sizeof(pair.address));
    if (lane->session != NULL) {
        master_posted(lane->session, psi_post_pair(lane->session->guest.conn, &frame, &pair));
    }
}

static void
tell_unpaired(struct session *session, uint64_t number)
{
    struct psi_frame frame = master_frame(session->master, PSI_FRAME_UNPAIR);

    frame.seq = number;
    master_posted(session, psi_post(session->guest.conn, &frame));
}

void
master_pair_resend(const struct master *master, const struct member *lane)
{
    const struct pair *pair = master_pair_of(master, lane);

    if (!master_may_pair(master) || lane->session == NULL || pair->is_promoting) {
        return;
    }
    if (master_pair_has_copy(pair)) {
        tell_owner(master, lane);
        master_move_send(master, lane);
    } else if (pair->stage == PAIR_NONE) {
        tell_unpaired(lane->session, UINT64_MAX);
    }
}

void
master_pair_greet(struct session *session)
{
    struct master *master = session->master;
    const struct member *owner;

    if (!master_may_pair(master) || master->phase != PHASE_RUNNING) {
        return;
    }
    owner = find_owner(master, session->hello.life);
    if (owner != NULL) {
        tell_copy(session, owner);
        return;
    }
    tell_unpaired(session, UINT64_MAX); /* whatever it was a copy of */
    master_wake_at(master, 0);          /* it may be one */
}

/* ------------------------------------------------------------------------------- forming --- */

static bool
is_settled(const struct master *master, const struct member *lane)
{
    return lane->state == PSD_NODE_RUNNING && lane->session != NULL && master->view.id > 0 &&
           !master->server[lane->rank].is_away;
}

static void
take_copy(struct master *master, const struct member *lane, struct session *session)
{
    struct pair *pair = master_pair_of(master, lane);

    pair->copy = (struct copy){.life = session->hello.life,
                               .process = session->hello.host,
                               .server = session->hello.rank,
                               .lane = session->hello.lane,
                               .lanes = session->hello.lanes};
    memcpy(pair->copy.address, session->hello.address, sizeof(pair->copy.address));
    pair->number = (uint64_t)master->config.term << PAIR_COUNT_BITS | ++master->pairs;
    pair->stage = PAIR_FORMING;
    psi_log(master->log, PSI_LOG_DEBUG, "COPY",
            "server %u lane %u gets a copy in server %u, number %" PRIx64, lane->rank, lane->lane,
            pair->copy.server, pair->number);
    tell_copy(session, lane);
    psi_fail_point(master_pair_ordered_one);
    tell_owner(master, lane);
    psi_fail_point(master_pair_ordered);
}

/* The copy is made where the place is to move to. If that is gone, it does not move. */
static void
form_there(struct master *master, const struct member *lane, struct room *room, uint64_t now_ns)
{
    struct pair *pair = master_pair_of(master, lane);
    struct session *session = master_move_spare(master, pair->target, now_ns);

    if (session == NULL) {
        pair->target = 0;
    } else {
        take_copy(master, lane, session);
        master_room_forget(room, session->hello.life);
    }
}

/* `room` is looked for when the first lane needs it. */
static void
form(struct master *master, const struct member *lane, struct room *room, uint64_t now_ns)
{
    struct server *server = &master->server[lane->rank];
    struct pair *pair = master_pair_of(master, lane);
    struct session *session;

    if (!is_settled(master, lane)) {
        return;
    }
    if (now_ns < pair->retry_ns) {
        master_wake_at(master, pair->retry_ns);
        return;
    }
    if (pair->target != 0) {
        form_there(master, lane, room, now_ns);
        return;
    }
    if (room->spare == NULL && master_room_init(room, master, now_ns) != PSD_OK) {
        pair->retry_ns = now_ns + RETRY_MS_MAX * MASTER_MS_NS;
        return;
    }
    session = master_room_take(room, master, lane);
    if (session == NULL) {
        master_pair_say_none(master, server, now_ns);
        pair->retry_ns = now_ns + RETRY_MS_MIN * MASTER_MS_NS;
        master_wake_at(master, pair->retry_ns);
        return;
    }
    server->none_ns = 0;
    take_copy(master, lane, session);
}

/* Of the number in the frame; NULL: it is that of another. */
static struct pair *
pair_meant(const struct session *session)
{
    struct pair *pair = master_pair_of(session->master, session->member);

    return master_pair_has_copy(pair) && pair->number == session->guest.inbox.frame.seq ? pair
                                                                                        : NULL;
}

static void
log_whole(const struct master *master, const struct member *lane)
{
    char copies[MASTER_COPIES_TEXT];
    char process[64] = "";

    if (master_is_guest(master, lane)) {
        snprintf(process, sizeof(process), " (in the process of server %u)",
                 master_process_index(master, lane));
    }
    master_copies_name(&master->server[lane->rank], copies);
    psi_log(master->log, PSI_LOG_INFO, "COPY-WHOLE",
            "server %u%s has a copy in %s: it may die, and nothing is lost", lane->rank, process,
            copies);
}

psd_status
master_on_eligible(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct server *server = &master->server[session->member->rank];
    struct pair *pair = pair_meant(session);

    (void)body;
    (void)bytes;
    (void)err;
    if (pair == NULL || pair->stage == PAIR_WHOLE) {
        return PSD_OK;
    }
    pair->stage = PAIR_WHOLE;
    pair->failures = 0;
    pair->shunned = 0;
    psi_fail_point(master_pair_eligible);
    if (master->config.replicas > 0 && master_pairs_are_whole(server)) {
        psi_fail_point(master_pair_whole);
        log_whole(master, session->member);
    }
    master_wake_at(master, 0); /* who started the job hears of it */
    return PSD_OK;
}

/* -------------------------------------------------------------------------------- ending --- */

static void
wait_before_retry(struct pair *pair, uint64_t now_ns)
{
    uint64_t delay_ms = RETRY_MS_MIN;

    for (uint32_t i = 0; i < pair->failures && delay_ms < RETRY_MS_MAX; i++) {
        delay_ms *= 2;
    }
    pair->failures++;
    pair->retry_ns = now_ns + (delay_ms < RETRY_MS_MAX ? delay_ms : RETRY_MS_MAX) * MASTER_MS_NS;
}

/* Before any lane hears of it: all that do may die together with this master. */
static void
tell_crossed(const struct master *master, const struct member *lane)
{
    const struct psi_tiding tiding = {.kind = PSI_TIDING_CROSSED,
                                      .role = PSI_TIDING_SERVER,
                                      .rank = lane->rank,
                                      .lane = lane->lane,
                                      .life = master->server[lane->rank].crossed[lane->lane]};

    if (master->config.tell != NULL) {
        master->config.tell(master->config.tell_context, &tiding);
    }
}

void
master_pair_give_up(struct master *master, const struct member *lane, uint64_t number)
{
    struct pair *pair = master_pair_of(master, lane);

    if (number == 0) {
        pair->stage = PAIR_NONE; /* it has had none */
        return;
    }
    pair->stage = PAIR_ENDING;
    pair->number = number;
    pair->mark = 0;
    master->server[lane->rank].crossed[lane->lane] = number;
    tell_crossed(master, lane);
    master_wake_at(master, 0);
}

/* Nobody takes a place by this number any more. */
static void
cross_out(struct master *master, const struct member *lane, const char *reason)
{
    struct pair *pair = master_pair_of(master, lane);

    /* One that was never whole may be tried for long: said once. */
    psi_log(master->log, pair->failures == 0 ? PSI_LOG_WARN : PSI_LOG_DEBUG, "COPY-LOST",
            "server %u goes on without its copy in server %u (%s)%s: %s", lane->rank,
            pair->copy.server, pair->copy.address,
            master->config.replicas > 0 ? ", and another is looked for" : "", reason);
    snprintf(pair->why, sizeof(pair->why), "%.*s", PAIR_WHY - 1, reason);
    pair->target = 0; /* a move there is off */
    pair->is_given = false;
    pair->shunned = pair->copy.process;
    wait_before_retry(pair, psi_now_ns(master->env));
    master_pair_give_up(master, lane, pair->number);
    psi_fail_point(master_pair_crossed_out);
}

/* In one message for all: copies are lost together. */
void
master_pairs_tell_crossed(struct master *master)
{
    uint64_t mark = 0;

    for (uint32_t place = 0; place < master->places; place++) {
        struct pair *pair = master_pair_of(master, master->place[place]);

        if (pair->stage == PAIR_ENDING && pair->mark == 0) {
            mark = mark != 0 ? mark : master_done_cross_out(master);
            pair->mark = mark;
        }
    }
}

/* The lane may go on alone. */
static void
end_pair(struct master *master, const struct member *lane)
{
    struct pair *pair = master_pair_of(master, lane);
    struct session *copy = master_pair_find_copy(master, &pair->copy);

    if (copy != NULL) {
        tell_unpaired(copy, pair->number);
    }
    if (lane->session != NULL) {
        tell_unpaired(lane->session, pair->number);
    }
    psi_fail_point(master_pair_ended);
    pair->stage = PAIR_NONE;
}

psd_status
master_on_pair_lost(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct member *lane = session->member;
    const struct pair *pair = master_pair_of(master, lane);
    const uint64_t number = session->guest.inbox.frame.seq;
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(body, bytes, &verdict, err);

    if (status != PSD_OK) {
        return status;
    }
    if (master->phase != PHASE_RUNNING) {
        return PSD_OK; /* who has which copy is not known yet; then it is asked, and says it again */
    }
    if (pair_meant(session) != NULL) {
        cross_out(master, lane, verdict.text);
    } else if (pair->stage == PAIR_NONE &&
               number > master->server[lane->rank].crossed[lane->lane]) {
        master_pair_give_up(master, lane, number); /* one that nobody here knows */
    } else if (pair->stage != PAIR_ENDING && pair->number != number) {
        tell_unpaired(session, number);
    }
    return PSD_OK;
}

psd_status
master_on_copy_lost(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct member *owner = find_owner(master, session->hello.life);
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(body, bytes, &verdict, err);

    if (status == PSD_OK && owner != NULL) {
        struct pair *pair = master_pair_of(master, owner);

        if (pair->number == session->guest.inbox.frame.seq) {
            psi_log(master->log, pair->failures == 0 ? PSI_LOG_WARN : PSI_LOG_DEBUG, "COPY-BROKEN",
                    "copy of server %u lane %u (%s): %s", owner->rank, owner->lane,
                    pair->copy.address, verdict.text);
            pair->copy.is_broken = true;
            snprintf(pair->copy.broken, sizeof(pair->copy.broken), "%.*s", PAIR_WHY - 1,
                     verdict.text);
            master_wake_at(master, 0);
        }
    }
    return status;
}

/* Is the copy gone, or silent for too long? One that was told to take its place comes back by that
 * name, and what is left then is a connection that it has lost before. */
bool
master_pair_copy_is_lost(struct master *master, struct pair *pair, uint64_t now_ns)
{
    const uint64_t grace_ns = master->config.server_grace_ms * MASTER_MS_NS;
    struct copy *copy = &pair->copy;
    const struct session *session = master_pair_find_copy(master, copy);
    const uint64_t limit_ns = copy->is_placed ? grace_ns + dead_ns(master) : grace_ns;

    if (copy->is_broken) {
        return true;
    }
    if (session != NULL && session->heard_ns >= copy->placed_ns) {
        copy->gone_ns = 0;
        master_wake_at(master, session->heard_ns + dead_ns(master));
        return now_ns - session->heard_ns >= dead_ns(master);
    }
    if (copy->gone_ns == 0) {
        copy->gone_ns = now_ns;
    }
    if (now_ns - copy->gone_ns >= limit_ns) {
        return true;
    }
    master_wake_at(master, copy->gone_ns + limit_ns);
    return false;
}

void
master_pair_gone(struct master *master, uint64_t process)
{
    for (uint32_t place = 0; place < master->places; place++) {
        struct pair *pair = master_pair_of(master, master->place[place]);

        if (master_pair_has_copy(pair) && pair->copy.process == process) {
            pair->copy.gone_ns = 1; /* long enough ago for any grace */
        }
    }
}

void
master_pairs_tick(struct master *master, uint64_t now_ns)
{
    const bool needed = master->config.replicas > 0 && master_needs_copies(master);
    struct room room = {0};

    if (!master_may_pair(master)) {
        return;
    }
    for (uint32_t place = 0; place < master->places; place++) {
        struct pair *pair = master_pair_of(master, master->place[place]);

        if (master_pair_has_copy(pair) && !pair->is_promoting &&
            master_pair_copy_is_lost(master, pair, now_ns)) {
            cross_out(master, master->place[place],
                      pair->copy.is_broken ? pair->copy.broken : "it is gone");
        }
    }
    master_pairs_tell_crossed(master);
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const struct pair *pair = master_pair_of(master, lane);

        if (pair->stage == PAIR_ENDING && master_done_has_crossed_out(master, pair->mark)) {
            end_pair(master, lane);
        }
        if (pair->stage == PAIR_NONE && (needed || pair->target != 0)) {
            form(master, lane, &room, now_ns);
        }
    }
    master_room_fini(&room);
}
