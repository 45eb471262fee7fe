/*
 * standby.c - lanes that stand by, and the places of lost servers that they take.
 *
 * Every server has as many lanes that stand by as it has places. A lost server that is not started
 * again is no loss for tables that workers can make anew: another server's lanes take its places,
 * all of them in one server, because they are lost together. Each then joins by itself, as a lane
 * of a server that was started again does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "master/state.h"

void
master_admit_standby(struct session *session)
{
    const struct master *master = session->master;
    const struct psi_welcome welcome = master_welcome(master);
    const struct psi_frame frame = master_answer(session, PSI_FRAME_WELCOME);

    if (session->hello.rank >= master->config.servers) {
        master_refuse(session, PSD_ERR_REFUSED, "server %u: the job has %u", session->hello.rank,
                      master->config.servers);
    } else {
        session->kind = SESSION_OBSERVER;
        master_posted(session, psi_post_welcome(session->guest.conn, &frame, &welcome));
        if (master->phase >= PHASE_ENDING) { /* it comes late, and ends as all others do */
            master_send_end(session);
        } else {
            master_pair_greet(session);
        }
    }
}

/* Those that were not heard of lately are dead, or asleep. */
bool
master_stands_by(const struct session *session, uint64_t now_ns)
{
    const struct master_config *config = &session->master->config;
    const uint64_t dead_ns = config->heartbeat_ms * config->dead_heartbeats * MASTER_MS_NS;

    return session->guest.conn != NULL && !session->guest.doomed &&
           session->kind == SESSION_OBSERVER && session->hello.role == PSI_ROLE_STANDBY &&
           !session->placed && now_ns - session->heard_ns < dead_ns;
}

/* Copies stand by for the server that they are copies of. */
static bool
stands_by(const struct session *session, uint32_t server, uint64_t now_ns)
{
    return master_stands_by(session, now_ns) && session->hello.rank == server &&
           !master_is_copy(session->master, session);
}

static uint32_t
count_standby(const struct master *master, uint32_t server, uint64_t now_ns)
{
    uint32_t count = 0;

    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        count += stands_by(session, server, now_ns);
    }
    return count;
}

/* Lanes of its places that nobody has. */
static uint32_t
count_free(const struct server *server)
{
    uint32_t count = 0;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        count += server->lane[lane].state == PSD_NODE_LOST;
    }
    return count;
}

/* The one with most lanes to spare: it has taken least so far. */
static bool
find_host(const struct master *master, uint32_t lost, uint64_t now_ns, uint32_t *host_p)
{
    uint32_t most = count_free(&master->server[lost]) - 1;
    bool found = false;

    for (uint32_t index = 0; index < master->config.servers; index++) {
        const bool is_here = index != lost && !master->server[index].is_away;
        const uint32_t count = is_here ? count_standby(master, index, now_ns) : 0;

        if (count > most) {
            most = count;
            *host_p = index;
            found = true;
        }
    }
    return found;
}

void
master_give_place(struct session *session, const struct member *lane, uint32_t lanes,
                  uint64_t number)
{
    struct psi_frame order = master_frame(session->master, PSI_FRAME_TAKE_PLACE);

    order.rank = (uint16_t)lane->rank;
    order.chunk = lane->lane;
    order.step = lanes;
    order.seq = number;
    session->placed = true;
    master_posted(session, psi_post(session->guest.conn, &order));
}

static void
give_places(const struct master *master, const struct server *server, uint32_t host,
            uint64_t now_ns)
{
    struct session *session = session_first(master);

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state != PSD_NODE_LOST) {
            continue;
        }
        while (!stands_by(session, host, now_ns)) {
            session = session_next(session);
        }
        master_give_place(session, &server->lane[lane], server->lanes, 0);
    }
}

bool
master_place_elsewhere(struct master *master, uint32_t lost, uint64_t now_ns)
{
    struct server *server = &master->server[lost];
    const uint32_t free_lanes = count_free(server);
    const bool is_coming = free_lanes < server->lanes && !server->is_placed; /* by itself */
    uint32_t host = 0;

    if (free_lanes == 0 || is_coming || !find_host(master, lost, now_ns, &host)) {
        return false;
    }
    give_places(master, server, host, now_ns);
    server->is_placed = true;
    psi_fail_point(master_server_placed);
    psi_log(master->log, PSI_LOG_WARN, "SERVER-PLACED",
            "server %u was not started again in %u ms: server %u is to take its part", lost,
            master->config.server_return_ms, host);
    master_tell(master, PSI_TIDING_HOSTED, &server->lane[0], PSI_LOSS_NONE, "");
    return true;
}
