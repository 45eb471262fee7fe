/*
 * standby.c - lanes that stand by, and the places of lost servers that they take.
 *
 * Every server has as many lanes that stand by as it has places. A lost server that is not started
 * again is no loss for tables that workers can make anew: lanes of other servers take its places,
 * spread over them, so that its load is shared. Each then joins by itself, as a lane of a server that
 * was started again does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "master/state.h"

void
master_admit_standby(struct session *session)
{
    const struct master *master = session->master;
    struct psi_welcome welcome = master_welcome(master);
    const struct psi_frame frame = master_answer(session, PSI_FRAME_WELCOME);

    welcome.servers =
        master_indexes(master); /* it may have a place, though the job has one server */
    if (session->hello.rank >= master_indexes(master)) {
        master_refuse(session, PSD_ERR_REFUSED, "server %u: the job has %u", session->hello.rank,
                      master_indexes(master));
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

/* Whoever was cut off together with the one that is lost has not been declared dead yet, perhaps. */
static bool
was_heard_lately(const struct session *session, uint64_t now_ns)
{
    return now_ns - session->heard_ns < master_dead_ms(session->master) * MASTER_MS_NS / 2;
}

/* A process that has just been lost stands by for nobody, whatever it said last; nor does one that whoever
 * started it kills to begin another, because what it had of others was lost with it. */
static bool
is_lost(const struct master *master, const struct session *session)
{
    const struct server *server = &master->server[session->hello.rank];

    if (master->config.tell != NULL && session->hello.host != 0 &&
        server->awaited == session->hello.host) {
        return true;
    }
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].state == PSD_NODE_LOST &&
            server->lane[lane].process == session->hello.host) {
            return true;
        }
    }
    return false;
}

/* Copies stand by for the lane that they are copies of. */
static bool
stands_by(const struct master *master, const struct session *session, uint64_t now_ns)
{
    return master_stands_by(session, now_ns) && was_heard_lately(session, now_ns) &&
           !is_lost(master, session) && !master_is_copy(master, session) &&
           !master_is_leaving(master, session->hello.host);
}

/* A place that nobody has, nor is about to have. */
static bool
is_free(const struct server *server, uint32_t lane)
{
    return server->lane[lane].state == PSD_NODE_LOST && !server->pair[lane].is_promoting;
}

bool
master_has_free_place(const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (is_free(server, lane)) {
            return true;
        }
    }
    return false;
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
    for (struct session *same = session_first(session->master); same != NULL;
         same = session_next(same)) { /* a connection that it has lost may still be here */
        same->placed = same->placed || (same->hello.role == PSI_ROLE_STANDBY &&
                                        same->hello.life == session->hello.life);
    }
    session->placed = true;
    master_posted(session, psi_post(session->guest.conn, &order));
}

/* Another life of a server that is looked for stands by before it takes its places: it does not take them
 * from itself. `own`: that server; PSI_SERVERS_MAX: none is looked for. */
static bool
may_host(const struct master *master, const struct session *session, uint32_t own, uint64_t now_ns)
{
    return session->hello.rank != own && stands_by(master, session, now_ns);
}

/* The lane of a process that has fewest places; of several the first behind the lost server, on the ring.
 * NULL: nobody stands by. */
static struct session *
find_host(const struct master *master, uint32_t lost, uint32_t own, const uint32_t *load,
          uint64_t now_ns)
{
    const uint32_t servers = master_indexes(master);
    struct session *best = NULL;

    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        const uint32_t index = session->hello.rank;
        const uint32_t distance = (index + servers - lost) % servers;

        if (!may_host(master, session, own, now_ns)) {
            continue;
        }
        if (best == NULL || load[index] < load[best->hello.rank] ||
            (load[index] == load[best->hello.rank] &&
             distance < (best->hello.rank + servers - lost) % servers)) {
            best = session;
        }
    }
    return best;
}

static bool
is_enough(const struct master *master, uint32_t places, uint32_t own, uint64_t now_ns)
{
    uint32_t count = 0;

    for (struct session *session = session_first(master); session != NULL && count < places;
         session = session_next(session)) {
        count += may_host(master, session, own, now_ns);
    }
    return count >= places;
}

/* Places are shared out: each goes to who has fewest. "server 0, server 2" of them all. */
static void
give_places(const struct master *master, const struct server *server, uint32_t own, uint64_t now_ns,
            struct names *hosts)
{
    uint32_t load[PSI_SERVERS_MAX] = {0};
    bool is_named[PSI_SERVERS_MAX] = {false};

    for (uint32_t place = 0; place < master->places; place++) {
        if (master->place[place]->state != PSD_NODE_LOST) {
            load[master_process_index(master, master->place[place])]++;
        }
    }
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        struct session *session = is_free(server, lane)
                                      ? find_host(master, server->lane[0].rank, own, load, now_ns)
                                      : NULL;

        if (session != NULL) {
            load[session->hello.rank]++;
            master_give_place(session, &server->lane[lane], server->lanes, 0);
            if (!is_named[session->hello.rank]) {
                is_named[session->hello.rank] = true;
                master_names_add(hosts, "server", session->hello.rank);
            }
        }
    }
    master_names_end(hosts);
}

bool
master_place_elsewhere(struct master *master, uint32_t lost, uint64_t now_ns)
{
    struct server *server = &master->server[lost];
    const struct member home = {.role = PSI_ROLE_SERVER, .rank = lost};
    uint32_t free_lanes = 0;
    bool is_coming = false; /* by itself */
    bool was_at_home = false;
    struct names hosts = {0};
    uint32_t own;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        free_lanes += is_free(server, lane);
        is_coming = is_coming || (server->lane[lane].state == PSD_NODE_JOINED &&
                                  !server->pair[lane].is_promoting && !server->is_placed);
        was_at_home =
            was_at_home || (is_free(server, lane) && !master_is_guest(master, &server->lane[lane]));
    }
    own = was_at_home ? lost : PSI_SERVERS_MAX;
    if (free_lanes == 0 || is_coming || !is_enough(master, free_lanes, own, now_ns)) {
        return false;
    }
    give_places(master, server, own, now_ns, &hosts);
    server->is_placed = true;
    psi_fail_point(master_server_placed);
    if (!was_at_home) { /* what others had taken over goes on to the next */
        psi_log(master->log, PSI_LOG_WARN, "SERVER-PLACED",
                "server %u: %s %s to take what was lost of its part", lost, hosts.text,
                hosts.count > 1 ? "are" : "is");
    } else if (master_seek_is_cut_off(server->loss)) {
        psi_log(master->log, PSI_LOG_WARN, "SERVER-PLACED",
                "server %u is not heard, and nobody has started it again: %s %s to take its part",
                lost, hosts.text, hosts.count > 1 ? "are" : "is");
    } else {
        psi_log(master->log, PSI_LOG_WARN, "SERVER-PLACED",
                "server %u was not started again in %u ms: %s %s to take its part", lost,
                master->config.server_return_ms, hosts.text, hosts.count > 1 ? "are" : "is");
    }
    if (was_at_home || server->is_missed) { /* else its process may be here, and stand by */
        server->is_missed = true;
        master_tell(master, PSI_TIDING_HOSTED, &home, PSI_LOSS_NONE, "");
    }
    return true;
}
