/*
 * move_leave.c - servers that are to leave: when they may, and what keeps them.
 *
 * Who started the job names a server that is to leave. Its places move to the others (moves.c), and the copies
 * that it has. When nothing is left, and no place lacks a copy that it is to have, the server is drained: whoever
 * started it ends it then. What cannot be given away keeps it, and that is said, once for each reason.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "master/redundancy.h"
#include "master/state.h"

enum { STUCK_MS = 2000 }; /* nothing can be moved, for so long: it is said */

static uint32_t
index_of(uint64_t process)
{
    return (uint32_t)(process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));
}

bool
master_is_leaving(const struct master *master, uint64_t process)
{
    const uint32_t index = index_of(process);

    return process != 0 && index < master_indexes(master) &&
           master->server[index].leaving == process;
}

void
master_move_leave(struct master *master, uint32_t index, uint64_t process)
{
    struct server *server;

    if (index >= master_indexes(master) || index_of(process) != index || !master_may_move(master)) {
        return;
    }
    server = &master->server[index];
    if (server->leaving != process) {
        psi_log(master->log, PSI_LOG_INFO, "SERVER-LEAVES",
                "server %u is to leave: its places move to the others first", index);
        server->leaving = process;
        server->is_drained_told = false;
        server->held[0] = '\0';
    }
    master_wake_at(master, 0);
}

static bool
has_place(const struct master *master, uint32_t place, uint64_t process)
{
    const struct member *lane = master->place[place];
    const struct pair *pair = master_pair_of(master, lane);

    return lane->process == process || (pair->stage != PAIR_NONE && pair->copy.process == process);
}

static bool
lacks_copy(struct master *master, uint32_t place)
{
    return master->config.replicas > 0 && master_needs_copies(master) &&
           !master_pair_is_whole(master_pair_of(master, master->place[place]));
}

/* The first place that keeps the server, for a reason that is known if there is such a one; master->places: it
 * may go. */
static uint32_t
find_keeper(struct master *master, uint64_t process)
{
    uint32_t found = master->places;

    for (uint32_t place = 0; place < master->places; place++) {
        if (has_place(master, place, process) || lacks_copy(master, place)) {
            if (master_pair_of(master, master->place[place])->move_why[0] != '\0') {
                return place;
            }
            found = found == master->places ? place : found;
        }
    }
    return found;
}

static void
tell(struct master *master, enum psi_tiding_kind kind, uint32_t index, const char *text)
{
    struct psi_tiding tiding = {.kind = kind,
                                .role = PSI_TIDING_SERVER,
                                .rank = index,
                                .life =
                                    kind == PSI_TIDING_DRAINED ? master->server[index].leaving : 0};

    snprintf(tiding.text, sizeof(tiding.text), "%s", text);
    if (master->config.tell != NULL) {
        master->config.tell(master->config.tell_context, &tiding);
    }
}

/* For how long has nothing moved that could? A server that is about to come back may change that. */
static bool
is_stuck(struct master *master, struct server *server, uint64_t now_ns)
{
    if (!master->moving.is_stuck) {
        server->stuck_ns = 0;
        return false;
    }
    if (server->stuck_ns == 0) {
        server->stuck_ns = now_ns + STUCK_MS * MASTER_MS_NS;
    }
    if (now_ns >= server->stuck_ns) {
        return true;
    }
    master_wake_at(master, server->stuck_ns);
    return false;
}

static void
tell_held(struct master *master, uint32_t index, uint32_t place, uint64_t now_ns)
{
    struct server *server = &master->server[index];
    const struct member *lane = master->place[place];
    const char *why = master_pair_of(master, lane)->move_why;
    const bool stuck = is_stuck(master, server, now_ns);
    char text[sizeof(server->held)];

    if (why[0] == '\0' && !stuck) {
        return; /* it is on its way */
    }
    snprintf(text, sizeof(text), "%slane %u of server %u has no room elsewhere: %s",
             lane->process == server->leaving ? "" : "the copy of ", lane->lane, lane->rank,
             why[0] != '\0' ? why : "they have no lane to spare (standby_lanes)");
    if (strcmp(text, server->held) == 0) {
        return;
    }
    snprintf(server->held, sizeof(server->held), "%s", text);
    psi_log(master->log, PSI_LOG_WARN, "SERVER-HELD", "server %u cannot leave: %s", index, text);
    tell(master, PSI_TIDING_HELD, index, text);
}

/* Is everybody where the view says, and is nobody awaited? A place that has moved is not in the view before all
 * lanes have it. Should the master die, the next one goes by that of the lanes: until they know where the place is
 * now, the process that had it must live. */
static bool
is_in_view(const struct master *master)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];

        if (lane->state != PSD_NODE_RUNNING || lane->session == NULL || lane->process == 0 ||
            master->server[lane->rank].is_away) {
            return false;
        }
    }
    return !master->moving.is_active && master->change.stage == STAGE_IDLE;
}

static void
look_at(struct master *master, uint32_t index, uint64_t now_ns)
{
    struct server *server = &master->server[index];
    const uint32_t keeper = find_keeper(master, server->leaving);

    if (keeper < master->places) {
        tell_held(master, index, keeper, now_ns);
    } else if (is_in_view(master)) {
        server->is_drained_told = true;
        psi_log(master->log, PSI_LOG_INFO, "SERVER-DRAINED",
                "server %u has nothing of the job any more, and may leave", index);
        tell(master, PSI_TIDING_DRAINED, index, "");
    }
}

void
master_leaves_tick(struct master *master, uint64_t now_ns)
{
    for (uint32_t index = 0; index < master_indexes(master); index++) {
        const struct server *server = &master->server[index];

        if (server->leaving != 0 && !server->is_drained_told) {
            look_at(master, index, now_ns);
        }
    }
}
