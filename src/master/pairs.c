/*
 * pairs.c - copies: which lanes that stand by copy which server, and when they may take its places.
 *
 * A server has one copy, all of it in one other process: lanes that stand by there, one for each of
 * its lanes. Both sides hear of it with one number (PAIR). When every lane of the server has said
 * that its copy lacks nothing that was told (ELIGIBLE), the copy is whole: if the server dies now,
 * the copy takes its places and nothing is lost. A job that only sums has no copies, whatever it was
 * told: a server that comes back takes its place there, and carries its part of the load again.
 *
 * A copy is given up when it is gone, or when the server does not reach it. The server waits for it
 * until it hears so from here (UNPAIR), and from that moment on the copy may lack what is told. So
 * the number is crossed out first: no copy takes a place by a number that is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

static bool
has_copy(const struct server *server)
{
    return server->pair.stage == PAIR_FORMING || server->pair.stage == PAIR_WHOLE;
}

bool
master_pair_is_whole(const struct server *server)
{
    return server->pair.stage == PAIR_WHOLE;
}

/* The lane that stands by and is that copy; NULL: it is not connected. */
static struct session *
find_copy(const struct master *master, const struct copy *copy)
{
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && !session->guest.doomed &&
            session->kind == SESSION_OBSERVER && session->hello.role == PSI_ROLE_STANDBY &&
            session->hello.life == copy->life) {
            return session;
        }
    }
    return NULL;
}

bool
master_pair_is_here(const struct master *master, const struct server *server, uint64_t now_ns)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        const struct session *session =
            master_pair_is_whole(server) ? find_copy(master, &server->pair.copy[lane]) : NULL;

        if (session == NULL || now_ns - session->heard_ns >= dead_ns(master) / 2) {
            return false;
        }
    }
    return true;
}

bool
master_is_copy(const struct master *master, const struct session *session)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        const struct server *server = &master->server[index];

        for (uint32_t lane = 0; has_copy(server) && lane < server->lanes; lane++) {
            if (server->pair.copy[lane].life == session->hello.life) {
                return true;
            }
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------- orders --- */

static void
tell_copy(struct session *session, const struct server *server, uint32_t lane)
{
    struct psi_frame frame = master_frame(session->master, PSI_FRAME_PAIR);
    const struct psi_pair pair = {.server = server->lane[lane].rank,
                                  .lane = lane,
                                  .lanes = server->lanes,
                                  .life = server->lane[lane].life};

    frame.seq = server->pair.number;
    master_posted(session, psi_post_pair(session->guest.conn, &frame, &pair));
}

static void
tell_owner(const struct master *master, const struct server *server, uint32_t lane)
{
    struct session *session = server->lane[lane].session;
    const struct copy *copy = &server->pair.copy[lane];
    struct psi_frame frame = master_frame(master, PSI_FRAME_PAIR);
    struct psi_pair pair = {
        .server = copy->server, .lane = copy->lane, .lanes = copy->lanes, .life = copy->life};

    frame.seq = server->pair.number;
    memcpy(pair.address, copy->address, sizeof(pair.address));
    if (session != NULL) {
        master_posted(session, psi_post_pair(session->guest.conn, &frame, &pair));
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
    const struct server *server = &master->server[lane->rank];

    if (master->config.replicas == 0 || lane->session == NULL || server->is_promoting) {
        return;
    }
    if (has_copy(server)) {
        tell_owner(master, server, lane->lane);
    } else if (server->pair.stage == PAIR_NONE) {
        tell_unpaired(lane->session, UINT64_MAX);
    }
}

void
master_pair_greet(struct session *session)
{
    struct master *master = session->master;

    if (master->config.replicas == 0 || master->phase != PHASE_RUNNING) {
        return;
    }
    for (uint32_t index = 0; index < master->config.servers; index++) {
        const struct server *server = &master->server[index];

        for (uint32_t lane = 0; has_copy(server) && lane < server->lanes; lane++) {
            if (server->pair.copy[lane].life == session->hello.life) {
                tell_copy(session, server, lane);
                return;
            }
        }
    }
    tell_unpaired(session, UINT64_MAX); /* whatever it was a copy of */
    master_wake_at(master, 0);          /* it may be one */
}

/* ------------------------------------------------------------------------------- forming --- */

static bool
is_settled(const struct master *master, const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state != PSD_NODE_RUNNING || server->lane[lane].session == NULL) {
            return false;
        }
    }
    return master->view.id > 0 && !server->is_away && server->lanes > 0;
}

static void
take_copies(struct master *master, struct server *server, uint64_t process, uint64_t now_ns)
{
    struct pair *pair = &server->pair;
    uint32_t lane = 0;

    for (struct session *session = session_first(master); session != NULL && lane < server->lanes;
         session = session_next(session)) {
        if (master_pair_may_use(session, now_ns) && session->hello.host == process) {
            struct copy *copy = &pair->copy[lane++];

            *copy = (struct copy){.life = session->hello.life,
                                  .server = session->hello.rank,
                                  .lane = session->hello.lane,
                                  .lanes = session->hello.lanes};
            memcpy(copy->address, session->hello.address, sizeof(copy->address));
        }
    }
    pair->stage = PAIR_FORMING;
    for (lane = 0; lane < server->lanes; lane++) {
        tell_copy(find_copy(master, &pair->copy[lane]), server, lane);
        psi_fail_point(master_pair_ordered_one);
        tell_owner(master, server, lane);
    }
    psi_fail_point(master_pair_ordered);
}

static void
form(struct master *master, struct server *server, uint64_t now_ns)
{
    struct pair *pair = &server->pair;
    uint64_t process = 0;

    if (!is_settled(master, server)) {
        return;
    }
    if (now_ns < pair->retry_ns) {
        master_wake_at(master, pair->retry_ns);
        return;
    }
    if (!master_pair_find_process(master, server, now_ns, &process)) {
        master_pair_say_none(master, server, now_ns);
        pair->retry_ns = now_ns + RETRY_MS_MIN * MASTER_MS_NS;
        master_wake_at(master, pair->retry_ns);
        return;
    }
    free(pair->copy);
    pair->copy = calloc(server->lanes, sizeof(*pair->copy));
    if (pair->copy == NULL) {
        pair->retry_ns = now_ns + RETRY_MS_MAX * MASTER_MS_NS;
        return;
    }
    pair->process = process;
    pair->none_ns = 0;
    pair->number = (uint64_t)master->config.term << PAIR_COUNT_BITS | ++master->pairs;
    psi_log(master->log, PSI_LOG_DEBUG, "COPY", "server %u gets a copy, number %" PRIx64,
            server->lane[0].rank, pair->number);
    take_copies(master, server, process, now_ns);
}

static struct pair *
pair_of(struct session *session, const struct member *lane)
{
    struct server *server = &session->master->server[lane->rank];

    return has_copy(server) && server->pair.number == session->guest.inbox.frame.seq ? &server->pair
                                                                                     : NULL;
}

psd_status
master_on_eligible(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct member *lane = session->member;
    const struct server *server = &master->server[lane->rank];
    struct pair *pair = pair_of(session, lane);

    (void)body;
    (void)bytes;
    (void)err;
    if (pair == NULL || pair->stage == PAIR_WHOLE) {
        return PSD_OK;
    }
    pair->copy[lane->lane].eligible = true;
    psi_fail_point(master_pair_eligible);
    for (uint32_t i = 0; i < server->lanes; i++) {
        if (!pair->copy[i].eligible) {
            return PSD_OK;
        }
    }
    psi_fail_point(master_pair_whole);
    pair->stage = PAIR_WHOLE;
    pair->failures = 0;
    pair->shunned = 0;
    psi_log(master->log, PSI_LOG_INFO, "COPY-WHOLE",
            "server %u has a copy in server %u (%s): it may die, and nothing is lost", lane->rank,
            pair->copy[0].server, pair->copy[0].address);
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

void
master_pair_give_up(struct master *master, struct server *server, uint64_t number)
{
    struct pair *pair = &server->pair;

    if (number == 0) {
        pair->stage = PAIR_NONE; /* it has had none */
        return;
    }
    pair->stage = PAIR_ENDING;
    pair->number = number;
    pair->crossed = number;
    pair->mark = master_done_cross_out(master);
    master_wake_at(master, 0);
}

/* Nobody takes a place by this number any more. */
static void
cross_out(struct master *master, struct server *server, const char *reason)
{
    struct pair *pair = &server->pair;

    /* One that was never whole may be tried for long: said once. */
    psi_log(master->log, pair->failures == 0 ? PSI_LOG_WARN : PSI_LOG_DEBUG, "COPY-LOST",
            "server %u goes on without its copy in server %u (%s), and another is looked for: %s",
            server->lane[0].rank, pair->copy[0].server, pair->copy[0].address, reason);
    pair->shunned = pair->process;
    wait_before_retry(pair, psi_now_ns(master->env));
    master_pair_give_up(master, server, pair->number);
    psi_fail_point(master_pair_crossed_out);
}

/* The server may go on alone. */
static void
end_pair(struct master *master, struct server *server)
{
    struct pair *pair = &server->pair;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        struct session *copy = find_copy(master, &pair->copy[lane]);

        if (copy != NULL) {
            tell_unpaired(copy, pair->number);
        }
        if (server->lane[lane].session != NULL) {
            tell_unpaired(server->lane[lane].session, pair->number);
        }
    }
    psi_fail_point(master_pair_ended);
    pair->stage = PAIR_NONE;
}

psd_status
master_on_pair_lost(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct server *server = &master->server[session->member->rank];
    const uint64_t number = session->guest.inbox.frame.seq;
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(body, bytes, &verdict, err);

    if (status != PSD_OK) {
        return status;
    }
    if (master->phase != PHASE_RUNNING) {
        return PSD_OK; /* who has which copy is not known yet; then it is asked, and says it again */
    }
    if (pair_of(session, session->member) != NULL) {
        cross_out(master, server, verdict.text);
    } else if (server->pair.stage == PAIR_NONE && number > server->pair.crossed) {
        master_pair_give_up(master, server, number); /* one that nobody here knows */
    } else if (server->pair.stage != PAIR_ENDING && server->pair.number != number) {
        tell_unpaired(session, number);
    }
    return PSD_OK;
}

psd_status
master_on_copy_lost(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(body, bytes, &verdict, err);

    for (uint32_t index = 0; status == PSD_OK && index < master->config.servers; index++) {
        struct server *server = &master->server[index];

        for (uint32_t lane = 0; has_copy(server) && lane < server->lanes; lane++) {
            struct copy *copy = &server->pair.copy[lane];

            if (copy->life == session->hello.life &&
                server->pair.number == session->guest.inbox.frame.seq) {
                psi_log(master->log, PSI_LOG_WARN, "COPY-BROKEN", "copy of server %u (%s): %s",
                        index, copy->address, verdict.text);
                copy->is_broken = true;
                master_wake_at(master, 0);
            }
        }
    }
    return status;
}

/* Is a lane of the copy gone, or silent for too long? One that was told to take its place comes back
 * by that name. */
static bool
is_copy_lost(struct master *master, struct server *server, uint64_t now_ns)
{
    const uint64_t grace_ns = master->config.server_grace_ms * MASTER_MS_NS;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        struct copy *copy = &server->pair.copy[lane];
        const struct session *session = find_copy(master, copy);
        const uint64_t limit_ns = copy->is_placed ? grace_ns + dead_ns(master) : grace_ns;

        if (server->is_promoting && server->lane[lane].state != PSD_NODE_LOST) {
            continue; /* it has its place */
        }
        if (copy->is_broken) {
            return true;
        }
        if (session != NULL) {
            copy->gone_ns = 0;
            if (now_ns - session->heard_ns >= dead_ns(master)) {
                return true;
            }
            master_wake_at(master, session->heard_ns + dead_ns(master));
            continue;
        }
        if (copy->gone_ns == 0) {
            copy->gone_ns = now_ns;
        }
        if (now_ns - copy->gone_ns >= limit_ns) {
            return true;
        }
        master_wake_at(master, copy->gone_ns + limit_ns);
    }
    return false;
}

void
master_pair_gone(struct master *master, uint64_t process)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        struct server *server = &master->server[index];

        for (uint32_t lane = 0; has_copy(server) && lane < server->lanes; lane++) {
            if (server->pair.process == process) {
                server->pair.copy[lane].gone_ns = 1; /* long enough ago for any grace */
            }
        }
    }
}

void
master_pairs_tick(struct master *master, uint64_t now_ns)
{
    const bool needed = master_needs_copies(master);

    for (uint32_t index = 0; index < master->config.servers && master->config.replicas > 0;
         index++) {
        struct server *server = &master->server[index];

        if (has_copy(server) && !server->is_promoting && is_copy_lost(master, server, now_ns)) {
            cross_out(master, server, "it is gone");
        }
        if (server->pair.stage == PAIR_ENDING &&
            master_done_has_crossed_out(master, server->pair.mark)) {
            end_pair(master, server);
        }
        if (server->pair.stage == PAIR_NONE && needed) {
            form(master, server, now_ns);
        }
    }
}

/* ------------------------------------------------------------------------------ promoting --- */

bool
master_pair_promote(struct master *master, struct server *server, uint64_t now_ns)
{
    if (is_copy_lost(master, server, now_ns)) {
        return false;
    }
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        struct copy *copy = &server->pair.copy[lane];
        struct session *session =
            server->lane[lane].state == PSD_NODE_LOST ? find_copy(master, copy) : NULL;

        if (session != NULL && !session->placed) {
            master_give_place(session, &server->lane[lane], server->lanes, server->pair.number);
            copy->is_placed = true;
            psi_fail_point(master_promotion_ordered_one);
        }
    }
    psi_fail_point(master_promotion_ordered);
    return true;
}

/* Its process may have had the places of several servers: who started it hears when all are back. */
void
master_pair_promoted(const struct master *master, struct server *server)
{
    const struct member left = {.role = PSI_ROLE_SERVER, .rank = server->left_by};

    master_pair_over(server);
    for (uint32_t index = 0; index < master->config.servers; index++) {
        if (master->server[index].is_promoting &&
            master->server[index].left_by == server->left_by) {
            return;
        }
    }
    master_tell(master, PSI_TIDING_COPIED, &left, PSI_LOSS_NONE, "");
}

void
master_pair_over(struct server *server)
{
    server->pair.stage = PAIR_NONE;
    server->pair.retry_ns = 0;
    server->pair.failures = 0;
    server->is_promoting = false;
}

void
master_pair_free(struct server *server)
{
    free(server->pair.copy);
    server->pair.copy = NULL;
}
