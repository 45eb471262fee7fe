/*
 * servers.c - the places of servers: their lanes join, and come back in another life after a loss
 * (server_loss.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/rebuild.h"
#include "master/state.h"

/* So many numbers each has in 16 bits. */
enum { LIVES_OF_A_TERM = UINT16_MAX / (PSI_TERM_MAX + 1) };

uint32_t
master_count_lanes(const struct server *server, psd_node_state state)
{
    uint32_t count = 0;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        count += server->lane[lane].state == state;
    }
    return count;
}

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
    server->pair = calloc(lanes, sizeof(*server->pair));
    if (server->lane == NULL || server->pair == NULL) {
        free(server->lane);
        free(server->pair);
        server->lane = NULL;
        server->pair = NULL;
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

/* Is the place one that the job has? */
bool
master_lane_has_place(struct session *session)
{
    const struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;

    if (hello->rank >= master->config.servers && hello->rank < master_indexes(master)) {
        stand_by(session, &(struct member){.rank = hello->rank});
        master_refuse(session, PSD_ERR_STATE,
                      "server %u lane %u: it came when the job had begun, stand by", hello->rank,
                      hello->lane);
        return false;
    }
    if (hello->rank >= master_indexes(master) && master_may_move(master)) {
        master_refuse(session, PSD_ERR_REFUSED,
                      "server %u: the job has room for %u server%s, 0..%u (max_servers)",
                      hello->rank, master_indexes(master), psi_plural(master_indexes(master)),
                      master_indexes(master) - 1);
        return false;
    }
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

/* Its holder is cut off, and may turn out to be dead. */
static bool
may_become_free(const struct master *master, const struct member *lane)
{
    return lane->session == NULL && (master->phase == PHASE_GATHERING || master->view.id > 0);
}

/* Has a copy taken the place of this lane, or another server, or is about to? Then another life of it stands
 * by. */
static bool
is_replaced(const struct master *master, const struct server *server, const struct member *lane,
            const struct psi_hello *hello)
{
    const struct pair *pair = &server->pair[lane->lane];

    if (hello->incarnation != 0 || lane->life == hello->life) {
        return false;
    }
    if (master->config.replicas == 0 && hello->pair != 0) { /* it comes for a move that is off */
        return lane->state == PSD_NODE_RUNNING;
    }
    if (master->config.replicas == 0) { /* with the rest of its life it may have a place */
        return lane->state == PSD_NODE_RUNNING && lane->session != NULL &&
               master_is_guest(master, lane) && master_survives(master);
    }
    if (pair->is_promoting) {
        return lane->state != PSD_NODE_LOST || pair->copy.life != hello->life;
    }
    if (lane->state == PSD_NODE_LOST) { /* one that was a copy says by which number */
        return hello->pair <= server->crossed[lane->lane] && master_tables_frail(master) != NULL;
    }
    return lane->state != PSD_NODE_MISSING && lane->session != NULL;
}

/* An earlier life of the master may have let others into the place of which nobody has told this one:
 * two of them with one number would be taken for each other by who has heard of one. */
void
master_leave_numbers(const struct master *master, struct member *lane)
{
    const uint32_t term = master->config.term;
    const uint32_t first = term > 1 ? (term - 1) * LIVES_OF_A_TERM : 0;

    lane->incarnation = lane->incarnation < first ? first : lane->incarnation;
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
    if (master_move_admits(master, member, hello)) {
        master_move_take(session, member);
    } else if (master_move_has_left(master, member, hello)) {
        master_move_dismiss(session);
    } else if (is_replaced(master, server, member, hello)) {
        stand_by(session, member);
        master_refuse(session, PSD_ERR_STATE, "server %u lane %u: %s has its place, stand by",
                      hello->rank, hello->lane,
                      master->config.replicas > 0 ? "its copy" : "another server");
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
        /* the others of its life follow */
        master_seek_later(master, server, psi_now_ns(master->env));
        master_leave_numbers(master, member);
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

/* ------------------------------------------------------------------------------ returning --- */

/* All lanes that were lost have another life here, know it, and have opened all tables. */
static bool
is_complete(const struct master *master, const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state != PSD_NODE_RUNNING &&
            (server->lane[lane].state != PSD_NODE_JOINED ||
             !master_may_begin(master, &server->lane[lane]))) {
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
    free(server->pair);
    server->lane = NULL;
    server->pair = NULL;
    server->lanes = 0;
}

/* Some of its lanes are here, by themselves; of the others nothing is heard. */
static bool
is_half_there(const struct master *master, const struct server *server)
{
    uint32_t joined = 0;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        joined += server->lane[lane].state == PSD_NODE_JOINED && !server->pair[lane].is_promoting;
    }
    return joined > 0 && master_count_lanes(server, PSD_NODE_LOST) > 0 &&
           master_count_knocking(master, server) == 0;
}

/* It had time to be started again: another server may take its places. That may die, too, or an order may
 * be lost; or none has lanes to spare that were heard of lately. A life that does not get here is started once
 * more. */
static void
seek_host(struct master *master, struct server *server, uint64_t now_ns)
{
    const struct member home = {.role = PSI_ROLE_SERVER, .rank = server->lane[0].rank};

    if (now_ns >= server->seek_ns) {
        if (master_place_elsewhere(master, server->lane[0].rank, now_ns)) {
            master_seek_later(master, server, now_ns);
        } else if (is_half_there(master, server)) {
            server->is_missed = true;
            master_tell(master, PSI_TIDING_AWAITED, &home, server->loss, "");
            master_seek_later(master, server, now_ns);
        } else {
            master_seek_soon(server, now_ns);
        }
    }
    master_wake_at(master, server->seek_ns);
}

/* False: a copy is lost, and what it had is nowhere else. */
static bool
promote(struct master *master, struct server *server, uint64_t now_ns)
{
    const char *frail = master_tables_frail(master);
    char reason[PSI_TEXT_MAX];

    for (uint32_t i = 0; i < server->lanes; i++) {
        struct member *lane = &server->lane[i];

        if (!server->pair[i].is_promoting || lane->state != PSD_NODE_LOST ||
            master_pair_promote(master, lane, now_ns)) {
            continue;
        }
        master_pair_over(&server->pair[i]);
        if (!master_outlives(master, lane)) {
            snprintf(reason, sizeof(reason),
                     "%.300s; its part of %s%.100s is lost with it, and so is its copy",
                     server->lost_text, frail != NULL ? "table " : "the job",
                     frail != NULL ? frail : "");
            master_end_by_server(master, lane, server->loss, reason);
            return false;
        }
    }
    psi_fail_point(master_promotion_ordered);
    return true;
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
    if (master_pairs_promote(server) && !promote(master, server, now_ns)) {
        return;
    }
    if (now_ns < deadline_ns) {
        if (master_has_free_place(server)) { /* copies come by themselves */
            seek_host(master, server, now_ns);
        }
        master_wake_at(master, deadline_ns);
        return;
    }
    snprintf(reason, sizeof(reason), "%.400s; not started again in %u ms (server_wait_ms)",
             server->lost_text, master->config.server_wait_ms);
    master_end_by_server(master, &server->lane[0], server->loss, reason);
}
