/*
 * pair_places.c - copies: in which other process the copy of a lane is made.
 *
 * In one on another machine than the lane's, if there is any. At first the other servers take turns, in
 * the order of a ring that begins behind the lane's own server: the copy of its k-th lane is in the k-th
 * of them. So each server's load is shared by all others if it dies, and who has what is a matter of
 * numbers alone. A copy that is made later, because one was lost, goes to the process that would take the
 * least of what dies together with the lane, and of these to the one that has least to do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "master/state.h"

enum { NONE_MS = 5000 }; /* without any place for a copy, before a line about it */

/* The part of an address that names the machine. */
static size_t
machine_bytes(const char *address)
{
    const char *colon = strrchr(address, ':');

    return colon == NULL ? strlen(address) : (size_t)(colon - address);
}

static bool
same_machine(const char *a, const char *b)
{
    return machine_bytes(a) == machine_bytes(b) && strncmp(a, b, machine_bytes(a)) == 0;
}

/* ---------------------------------------------------------------------------------- room --- */

psd_status
master_room_init(struct room *room, const struct master *master, uint64_t now_ns)
{
    uint32_t sessions = 1;

    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        sessions++;
    }
    *room = (struct room){.spare = calloc(sessions, sizeof(struct session *)),
                          .load = calloc(PSI_SERVERS_MAX, sizeof(*room->load))};
    if (room->spare == NULL || room->load == NULL) {
        master_room_fini(room);
        return PSD_ERR_NO_MEMORY;
    }
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (master_stands_by(session, now_ns) && !master_is_copy(master, session)) {
            room->spare[room->spares++] = session;
        }
    }
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const struct pair *pair = master_pair_of(master, lane);

        if (lane->state != PSD_NODE_LOST) {
            room->load[master_process_index(master, lane)]++;
        }
        if (master_pair_has_copy(pair)) {
            room->load[pair->copy.server]++;
        }
    }
    return PSD_OK;
}

void
master_room_fini(struct room *room)
{
    free(room->spare);
    free(room->load);
    *room = (struct room){0};
}

/* Where a copy is looked for: first only in servers that stay, and on other machines. */
struct search {
    bool far;
    bool staying;
};

/* What a copy of the lane may be made in: not the lane's own process, nor its machine, nor a server that is to
 * leave, unless there is no other. One that is to leave keeps it where no other had room. */
static bool
may_hold(const struct session *session, const struct member *lane, struct search search)
{
    const struct master *master = session->master;

    return session->hello.host != lane->process &&
           !(search.staying && master_is_leaving(master, session->hello.host) &&
             master_pair_of(master, lane)->moves_failed == 0) &&
           !(search.far && same_machine(session->hello.address, lane->address));
}

/* How far the server is behind the lane's own, on the ring. */
static uint32_t
ring_distance(const struct master *master, const struct session *session, const struct member *lane)
{
    return (session->hello.rank + master_indexes(master) - lane->rank) % master_indexes(master);
}

/* By server: copies in it of lanes that die together with this one. There is one process of each that lanes
 * stand by in, but for a moment when another life of it begins. */
static void
count_shares(const struct master *master, const struct member *lane,
             uint32_t share_p[PSI_SERVERS_MAX])
{
    memset(share_p, 0, PSI_SERVERS_MAX * sizeof(*share_p));
    for (uint32_t place = 0; place < master->places; place++) {
        const struct pair *pair = master_pair_of(master, master->place[place]);

        if (master_pair_has_copy(pair) && master->place[place]->process == lane->process) {
            share_p[pair->copy.server]++;
        }
    }
}

/* The server whose turn it is; PSI_SERVERS_MAX: there is none. */
static uint32_t
find_turn(const struct room *room, const struct master *master, const struct member *lane,
          struct search search)
{
    bool is_candidate[PSI_SERVERS_MAX] = {false};
    uint32_t candidates = 0;

    for (uint32_t i = 0; i < room->spares; i++) {
        const struct session *session = room->spare[i];

        if (may_hold(session, lane, search) && !is_candidate[session->hello.rank]) {
            is_candidate[session->hello.rank] = true;
            candidates++;
        }
    }
    for (uint32_t step = 1, turn = 0; candidates > 0 && step <= master_indexes(master); step++) {
        const uint32_t index = (lane->rank + step) % master_indexes(master);

        if (is_candidate[index] && turn++ == lane->lane % candidates) {
            return index;
        }
    }
    return PSI_SERVERS_MAX;
}

/* Is it better than the best so far? In the order of the questions: did the other one just fail; is it to
 * leave; whose turn is it; who takes less of what dies together; who has less to do; who comes first on the ring? */
static bool
is_better(const struct room *room, const struct master *master, const struct member *lane,
          const struct session *one, const struct session *best, uint32_t turn,
          const uint32_t share[PSI_SERVERS_MAX])
{
    const uint64_t shunned = master_pair_of(master, lane)->shunned;
    const uint64_t merit[6] = {
        one->hello.host == shunned,  master_is_leaving(master, one->hello.host),
        one->hello.rank != turn,     share[one->hello.rank],
        room->load[one->hello.rank], ring_distance(master, one, lane)};
    const uint64_t other[6] = {
        best->hello.host == shunned,  master_is_leaving(master, best->hello.host),
        best->hello.rank != turn,     share[best->hello.rank],
        room->load[best->hello.rank], ring_distance(master, best, lane)};

    for (unsigned i = 0; i < 6; i++) {
        if (merit[i] != other[i]) {
            return merit[i] < other[i];
        }
    }
    return false;
}

/* The place in `spare` of the best lane; UINT32_MAX: none will do. Lanes of one process are as good. */
static uint32_t
find_best(const struct room *room, const struct master *master, const struct member *lane,
          struct search search)
{
    const bool is_first = master_pair_of(master, lane)->number == 0;
    const uint32_t turn = is_first ? find_turn(room, master, lane, search) : PSI_SERVERS_MAX;
    uint32_t best = UINT32_MAX;
    uint32_t share[PSI_SERVERS_MAX];

    count_shares(master, lane, share);
    for (uint32_t i = 0; i < room->spares; i++) {
        const struct session *session = room->spare[i];

        if (!may_hold(session, lane, search)) {
            continue;
        }
        if (best == UINT32_MAX ||
            (session->hello.host != room->spare[best]->hello.host &&
             is_better(room, master, lane, session, room->spare[best], turn, share))) {
            best = i;
        }
    }
    return best;
}

/* Also by another connection of it that is not known to be gone: it is one lane, and one copy. */
void
master_room_forget(struct room *room, uint64_t life)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < room->spares; i++) {
        if (room->spare[i]->hello.life != life) {
            room->spare[kept++] = room->spare[i];
        }
    }
    room->spares = kept;
}

struct session *
master_room_take(struct room *room, const struct master *master, const struct member *lane)
{
    static const struct search searches[] = {
        {true, true}, {false, true}, {true, false}, {false, false}};
    uint32_t best = UINT32_MAX;
    struct session *session;

    for (unsigned i = 0; i < sizeof(searches) / sizeof(searches[0]) && best == UINT32_MAX; i++) {
        best = find_best(room, master, lane, searches[i]);
    }
    if (best == UINT32_MAX) {
        return NULL;
    }
    session = room->spare[best];
    room->load[session->hello.rank]++;
    master_room_forget(room, session->hello.life);
    return session;
}

/* ------------------------------------------------------------------------------- telling --- */

void
master_pair_say_none(struct master *master, struct server *server, uint64_t now_ns)
{
    uint32_t without = 0;
    char lanes[48] = "";

    if (server->none_ns == 0) {
        server->none_ns = now_ns + NONE_MS * MASTER_MS_NS;
    }
    if (now_ns < server->none_ns) {
        return;
    }
    server->none_ns = UINT64_MAX; /* said once */
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        without += !master_pair_has_copy(&server->pair[lane]);
    }
    if (without < server->lanes) {
        snprintf(lanes, sizeof(lanes), " of %u of its %u lanes", without, server->lanes);
    }
    psi_log(master->log, PSI_LOG_WARN, "COPY-NONE",
            "server %u has no copy%s, and its death would be the end: no other server has a lane "
            "to spare; start the servers that are gone again",
            server->lane[0].rank, lanes);
}

void
master_copies_name(const struct server *server, char text_p[MASTER_COPIES_TEXT])
{
    bool is_named[PSI_SERVERS_MAX] = {false};
    size_t used = 0;

    snprintf(text_p, MASTER_COPIES_TEXT, "no server");
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        const struct copy *copy = &server->pair[lane].copy;

        if (master_pair_has_copy(&server->pair[lane]) && !is_named[copy->server] &&
            used < MASTER_COPIES_TEXT) {
            is_named[copy->server] = true;
            used += (size_t)snprintf(text_p + used, MASTER_COPIES_TEXT - used, "%sserver %u (%s)",
                                     used > 0 ? ", " : "", copy->server, copy->address);
        }
    }
}
