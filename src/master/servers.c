/*
 * servers.c - the places of servers: their lanes join, are lost together, and may have another life.
 *
 * What a server had is gone with it. Where workers can make it anew, from what they have been given
 * and have not been answered (tables of sums), the job waits for another life of the server:
 * started by whoever started the last one, with the same lanes and nothing in them. Until it is
 * back, nobody else's place changes. Where they cannot, the job is over.
 *
 * The old life may not be dead at all, only silent. It hears that it is out as soon as it speaks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/rebuild.h"
#include "master/state.h"

enum { SEEK_MS = 500 }; /* beside server_return_ms, between two looks for another server */

static uint32_t
count_places(const struct master *master)
{
    uint32_t places = 0;

    for (uint32_t index = 0; index < master->config.servers; index++) {
        places += master->server[index].lanes;
    }
    return places;
}

/* ------------------------------------------------------------------------------- joining --- */

psd_status
master_server_prepare(struct server *server, uint32_t index, uint32_t lanes)
{
    server->lane = calloc(lanes, sizeof(*server->lane));
    if (server->lane == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    server->lanes = lanes;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        server->lane[lane].role = PSI_ROLE_SERVER;
        server->lane[lane].rank = index;
        server->lane[lane].lane = lane;
    }
    return PSD_OK;
}

/* The first lane of a server tells how many there are. */
static bool
prepare_server(struct session *session, struct server *server)
{
    const struct psi_hello *hello = &session->hello;

    if (server->lanes != 0) {
        if (hello->lanes != server->lanes && server->is_away) {
            master_refuse(session, PSD_ERR_REFUSED,
                          "server %u: %u lane%s, the life that was lost had %u: start it with "
                          "--lanes %u",
                          hello->rank, hello->lanes, psi_plural(hello->lanes), server->lanes,
                          server->lanes);
            return false;
        }
        if (hello->lanes != server->lanes) {
            master_refuse(session, PSD_ERR_REFUSED,
                          "server %u: lane %u says %u lanes, another one said %u", hello->rank,
                          hello->lane, hello->lanes, server->lanes);
            return false;
        }
        return true;
    }
    if (count_places(session->master) + hello->lanes > PSI_PLACES_MAX) {
        master_refuse(session, PSD_ERR_REFUSED, "server %u: %u more lanes, the job may have %d",
                      hello->rank, hello->lanes, PSI_PLACES_MAX);
        return false;
    }
    if (master_server_prepare(server, hello->rank, hello->lanes) != PSD_OK) {
        master_refuse(session, PSD_ERR_NO_MEMORY, "server %u: the master is out of memory",
                      hello->rank);
        return false;
    }
    return true;
}

/* Is the place one that the job has? */
bool
master_lane_has_place(struct session *session)
{
    const struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;

    if (hello->rank >= master->config.servers) {
        master_refuse(session, PSD_ERR_REFUSED, "server %u: the job has %u server%s, 0..%u",
                      hello->rank, master->config.servers, psi_plural(master->config.servers),
                      master->config.servers - 1);
        return false;
    }
    if (hello->lanes == 0 || hello->lanes > PSI_LANES_MAX || hello->lane >= hello->lanes) {
        master_refuse(session, PSD_ERR_REFUSED, "server %u: lane %u of %u, at most %d", hello->rank,
                      hello->lane, hello->lanes, PSI_LANES_MAX);
        return false;
    }
    if (hello->address[0] == '\0') {
        master_refuse(session, PSD_ERR_REFUSED, "server %u lane %u: no address for workers",
                      hello->rank, hello->lane);
        return false;
    }
    return prepare_server(session, &master->server[hello->rank]);
}

static void
seek_later(const struct master *master, struct server *server, uint64_t now_ns)
{
    server->seek_ns = now_ns + (master->config.server_return_ms + SEEK_MS) * MASTER_MS_NS;
}

/* Its holder is cut off, and may turn out to be dead. */
static bool
may_become_free(const struct master *master, const struct member *lane)
{
    return lane->session == NULL && (master->phase == PHASE_GATHERING || master->view.id > 0);
}

/* Has a copy taken the place of this server, or is about to? Then another life of it stands by. */
static bool
is_replaced(const struct master *master, const struct server *server, const struct member *lane,
            const struct psi_hello *hello)
{
    if (master->config.replicas == 0 || hello->incarnation != 0 || lane->life == hello->life) {
        return false;
    }
    if (server->is_promoting) {
        return lane->state != PSD_NODE_LOST || server->pair.copy[lane->lane].life != hello->life;
    }
    if (lane->state == PSD_NODE_LOST) { /* one that was a copy says by which number */
        return hello->pair <= server->pair.crossed && master_tables_frail(master) != NULL;
    }
    return lane->state != PSD_NODE_MISSING && lane->session != NULL;
}

/* Its process is here, at least: who started it hears so once. */
static void
stand_by(struct session *session, const struct member *place)
{
    const struct member member = {
        .role = PSI_ROLE_SERVER, .rank = place->rank, .process = session->hello.host};

    session->hushed = true;
    if (session->hello.lane == 0) {
        master_tell(session->master, PSI_TIDING_JOINED, &member, PSI_LOSS_NONE, "");
    }
}

void
master_admit_lane(struct session *session)
{
    struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;
    struct server *server;
    struct member *member;

    if (!master_lane_has_place(session)) {
        return;
    }
    server = &master->server[hello->rank];
    member = &server->lane[hello->lane];
    if (is_replaced(master, server, member, hello)) {
        stand_by(session, member);
        master_refuse(session, PSD_ERR_STATE, "server %u lane %u: its copy has its place, stand by",
                      hello->rank, hello->lane);
    } else if (member->state == PSD_NODE_MISSING) {
        member->incarnation = 0;
        master_take_place(session, member, hello->address);
    } else if (member->life == hello->life && member->state == PSD_NODE_LOST) {
        master_refuse(session, PSD_ERR_FENCED, "server %u was declared dead: %s", hello->rank,
                      server->lost_text);
    } else if (member->life == hello->life) {
        master_come_back(session, member);
    } else if (member->state == PSD_NODE_LOST && hello->incarnation != 0) {
        master_refuse(session, PSD_ERR_FENCED, "server %u has to begin another life: %s",
                      hello->rank, server->lost_text);
    } else if (master->config.replicas > 0 && hello->incarnation != 0 &&
               hello->incarnation < member->incarnation) {
        master_refuse(session, PSD_ERR_FENCED, "server %u has another life", hello->rank);
    } else if (member->state == PSD_NODE_LOST) {
        seek_later(master, server, psi_now_ns(master->env)); /* the others of its life follow */
        master_take_place(session, member, hello->address);
        psi_fail_point(master_lane_admitted);
    } else if (may_become_free(master, member)) {
        master_wait_for_place(session);
    } else {
        master_refuse(session, PSD_ERR_REFUSED, "server %u lane %u is taken by %s", hello->rank,
                      hello->lane, member->address);
    }
}

bool
master_admit_late_lane(struct session *session)
{
    const struct psi_hello *hello = &session->hello;
    const struct master *master = session->master;
    struct member *member;

    if (hello->role != PSI_ROLE_SERVER || hello->rank >= master->config.servers ||
        hello->lane >= master->server[hello->rank].lanes) {
        return false;
    }
    member = &master->server[hello->rank].lane[hello->lane];
    if (master_rebuild_knows(master, member, hello)) {
        member->life = hello->life;
    }
    if (member->state == PSD_NODE_MISSING || member->state == PSD_NODE_LOST ||
        member->life != hello->life) {
        return false;
    }
    master_come_back(session, member);
    return true;
}

/* -------------------------------------------------------------------------------- losing --- */

bool
master_survives(const struct master *master)
{
    return master->config.server_wait_ms > 0 && master->config.policy != PSI_DEATH_WAIT;
}

/* Can workers make anew what the server had, or has its copy all of it? View 1 must be known to all:
 * until then they know no server that they could do without. */
bool
master_outlives(const struct master *master, const struct server *server)
{
    return master_survives(master) && master->phase == PHASE_RUNNING && master->view.id > 0 &&
           (master_tables_frail(master) == NULL || server->is_promoting ||
            master_pair_is_whole(server));
}

/* What would have kept a copy of what the server had. */
static const char *
what_saves(const struct master *master)
{
    if (master->config.replicas > 0) {
        return ": it had no whole copy at that moment";
    }
    if (!master_survives(master)) {
        return master->config.policy == PSI_DEATH_WAIT
                   ? " (no copy can be kept with on_worker_death=wait)"
                   : " (no copy can be kept with sum_failover=off)";
    }
    return master->config.servers > 1
               ? " (replicas=1, psd_run --replicas 1, keeps a copy)"
               : " (with psd_run --servers 2 --replicas 1 another server keeps a copy)";
}

/* Adds to the news of a loss why it is the end of a job that has tables. */
static void
explain(const struct master *master, const char *reason, char *text_p, size_t size)
{
    const char *frail = master_tables_frail(master);

    if (frail != NULL) {
        snprintf(text_p, size, "%.250s; its part of table %.100s is lost with it%s", reason, frail,
                 what_saves(master));
    } else if (master->tables > 0 && master->config.server_wait_ms == 0) {
        snprintf(text_p, size, "%.300s; it is not waited for (sum_failover is off)", reason);
    } else if (master->tables > 0 && master->config.policy == PSI_DEATH_WAIT) {
        snprintf(text_p, size, "%.300s; it is not waited for (on_worker_death is wait)", reason);
    } else {
        snprintf(text_p, size, "%s", reason);
    }
}

static void
end_job(struct master *master, const struct member *lane, enum psi_loss loss, const char *reason)
{
    master_blame(master, lane, loss);
    master_end(master, PSI_EXIT_SERVER_LOST, PSD_ERR_PEER_LOST, "server %u (%s) lost: %s",
               lane->rank, lane->address, reason);
}

bool
master_is_knocking(const struct master *master, const struct member *lane)
{
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_WAITING &&
            session->hello.role == PSI_ROLE_SERVER && session->hello.rank == lane->rank &&
            session->hello.lane == lane->lane) {
            return true;
        }
    }
    return false;
}

/* Another life of the server may be here already, and wait for the place: then nobody has to be
 * told to start one. */
static uint32_t
count_knocking(const struct master *master, const struct server *server)
{
    uint32_t count = 0;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        count += master_is_knocking(master, &server->lane[lane]);
    }
    return count;
}

static uint32_t
count_joined(const struct server *server)
{
    uint32_t count = 0;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        count += server->lane[lane].state == PSD_NODE_JOINED;
    }
    return count;
}

/* A master that returned has not met the process that is lost, and takes it for the one of the place's
 * own index. If that one is here, it was another that had the place: who started it knows which. */
static bool
is_mistaken(const struct master *master, const struct member *lane)
{
    const uint64_t index_bits = (UINT64_C(1) << PSI_PROCESS_INDEX_BITS) - 1;

    for (const struct session *session = session_first(master);
         session != NULL && lane->process == 0 && master->config.replicas > 0;
         session = session_next(session)) {
        if (session->guest.conn != NULL && !session->guest.doomed &&
            (session->hello.role == PSI_ROLE_SERVER || session->hello.role == PSI_ROLE_STANDBY) &&
            session->hello.host != 0 && (session->hello.host & index_bits) == lane->rank) {
            return true;
        }
    }
    return false;
}

/* Who started the server starts it again. A process may have had the places of several: it is started
 * once. */
static void
await_another(struct master *master, const struct member *lane, enum psi_loss loss)
{
    struct server *home = &master->server[master_process_index(master, lane)];

    if (is_mistaken(master, lane)) {
        return;
    }
    if (master->config.replicas == 0 || home->awaited == 0 || home->awaited != lane->process) {
        home->awaited = lane->process;
        master_tell(master, PSI_TIDING_AWAITED, lane, loss, "");
        psi_fail_point(master_server_awaited);
    }
}

/* A lane of a life that is on its way into the job. Others may be of a later one: a process that
 * died before all of its lanes were here left some places for the next. They stay, and while one is
 * here nobody is told to start another. */
static void
lose_newcomer(struct master *master, struct member *lane, enum psi_loss loss, const char *reason)
{
    struct server *server = &master->server[lane->rank];

    psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
            "server %u lane %u (%s) lost before it was back: %s", lane->rank, lane->lane,
            lane->address, reason);
    server->is_back = false;
    server->seek_ns = psi_now_ns(master->env) + master->config.server_return_ms * MASTER_MS_NS;
    snprintf(server->lost_text, sizeof(server->lost_text), "%s", reason);
    master_fence(lane);
    lane->state = PSD_NODE_LOST;
    if (count_joined(server) == 0 && count_knocking(master, server) == 0) {
        await_another(master, lane, loss);
    }
    master_tables_lose(master, place_of(master, lane), 1);
    master_view_lose(master, lane, 1);
    master_done_look(master);
    master_wake_at(master, 0);
}

static void
log_loss(const struct master *master, const struct member *lane, const char *reason)
{
    const struct server *server = &master->server[lane->rank];

    if (server->is_promoting) {
        psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
                "server %u (%s) lost: %s; its copy in server %u (%s) takes its places, and nothing "
                "is lost",
                lane->rank, lane->address, reason, server->pair.copy[0].server,
                server->pair.copy[0].address);
        return;
    }
    psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
            "server %u (%s) lost: %s; the job waits %u ms for ps_server --index %u --lanes %u to "
            "be started again (server_wait_ms)",
            lane->rank, lane->address, reason, master->config.server_wait_ms, lane->rank,
            server->lanes);
}

void
master_server_lost(struct master *master, struct member *member, enum psi_loss loss,
                   const char *reason)
{
    struct server *server = &master->server[member->rank];
    const uint32_t knocking = count_knocking(master, server);
    char text[PSI_TEXT_MAX];

    master_tell(master, PSI_TIDING_LOST, member, loss, reason);
    master_reach_forget_server(master, member->rank);
    if (server->is_promoting) {
        master_pair_over(server); /* what the copy had is gone, too */
    }
    if (server->is_away && member->state == PSD_NODE_JOINED && master_outlives(master, server)) {
        lose_newcomer(master, member, loss, reason);
        return;
    }
    member->state = PSD_NODE_LOST;
    if (!master_outlives(master, server)) {
        explain(master, reason, text, sizeof(text));
        psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST", "server %u (%s) lost: %s", member->rank,
                member->address, text);
        end_job(master, member, loss, text);
        return;
    }
    server->is_promoting = master_pair_is_whole(server);
    server->left_by = master_process_index(master, member);
    log_loss(master, member, reason);
    if (!server->is_away) { /* else it has been waited for since then */
        server->lost_ns = psi_now_ns(master->env);
    }
    server->is_away = true;
    server->is_back = false;
    /* If some of its lanes are here, the last master had found a host, and not told all of it. */
    server->is_placed = knocking > 0 && knocking < server->lanes;
    server->seek_ns = psi_now_ns(master->env) + master->config.server_return_ms * MASTER_MS_NS;
    server->loss = loss;
    snprintf(server->lost_text, sizeof(server->lost_text), "%s", reason);
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        master_fence(&server->lane[lane]); /* they had what they had together */
        server->lane[lane].state = PSD_NODE_LOST;
    }
    psi_fail_point(master_server_lost);
    if (knocking == 0) {
        await_another(master, member, loss);
    }
    master_tables_lose(master, master->loads.first_place[member->rank], server->lanes);
    master_view_lose(master, server->lane, server->lanes);
    master_done_look(master);
    master_wake_at(master, 0);
}

/* ------------------------------------------------------------------------------ returning --- */

/* All lanes of another life are here, know it, and have opened all tables. */
static bool
is_complete(const struct master *master, const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state != PSD_NODE_JOINED ||
            !master_may_begin(master, &server->lane[lane])) {
            return false;
        }
    }
    return master_tables_are_open(master, master->loads.first_place[server->lane[0].rank],
                                  server->lanes);
}

/* A server none of whose lanes is here may come again with another number of them. */
static void
forget_empty_server(struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state != PSD_NODE_MISSING) {
            return;
        }
    }
    free(server->lane);
    server->lane = NULL;
    server->lanes = 0;
}

/* Some of its lanes are here, by themselves; of the others nothing is heard. */
static bool
is_half_there(const struct master *master, const struct server *server)
{
    const uint32_t joined = count_joined(server);

    return joined > 0 && joined < server->lanes && count_knocking(master, server) == 0;
}

/* It had time to be started again: another server may take its places. That may die, too, or have
 * none to spare yet, or an order may be lost. A life that does not get here is started once more. */
static void
seek_host(struct master *master, struct server *server, uint64_t now_ns)
{
    if (now_ns >= server->seek_ns) {
        if (!master_place_elsewhere(master, server->lane[0].rank, now_ns) &&
            is_half_there(master, server)) {
            master_tell(master, PSI_TIDING_AWAITED, &server->lane[0], server->loss, "");
        }
        seek_later(master, server, now_ns);
    }
    master_wake_at(master, server->seek_ns);
}

void
master_server_tick(struct master *master, struct server *server, uint64_t now_ns)
{
    uint64_t deadline_ns;
    char reason[PSI_TEXT_MAX];

    if (master->phase == PHASE_GATHERING) {
        forget_empty_server(server);
        return;
    }
    if (!server->is_away) {
        return;
    }
    server->is_back = is_complete(master, server);
    deadline_ns = server->lost_ns + master->config.server_wait_ms * MASTER_MS_NS;
    if (server->is_back) {
        return;
    }
    if (server->is_promoting && !master_pair_promote(master, server, now_ns)) {
        master_pair_over(server);
        if (!master_outlives(master, server)) {
            snprintf(reason, sizeof(reason), "%.300s; and its copy is lost with it",
                     server->lost_text);
            end_job(master, &server->lane[0], server->loss, reason);
            return;
        }
    }
    if (now_ns < deadline_ns) {
        if (!server->is_promoting) {
            seek_host(master, server, now_ns);
        }
        master_wake_at(master, deadline_ns);
        return;
    }
    snprintf(reason, sizeof(reason), "%.400s; not started again in %u ms (server_wait_ms)",
             server->lost_text, master->config.server_wait_ms);
    end_job(master, &server->lane[0], server->loss, reason);
}
