/*
 * pair_places.c - copies: in which other process the copy of a server is made.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
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

bool
master_pair_may_use(const struct session *session, uint64_t now_ns)
{
    return master_stands_by(session, now_ns) && !master_is_copy(session->master, session);
}

static uint32_t
count_free(const struct master *master, uint64_t process, uint64_t now_ns)
{
    uint32_t count = 0;

    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        count += master_pair_may_use(session, now_ns) && session->hello.host == process;
    }
    return count;
}

/* How good a place for the copy the process of this lane is; 0: none at all. Best is another
 * machine; then one that has not just failed; then the one with most lanes to spare. */
static uint32_t
merit(const struct master *master, const struct server *server, const struct session *session,
      uint64_t now_ns)
{
    const uint64_t process = session->hello.host;
    const uint32_t spare = count_free(master, process, now_ns);

    if (process == server->lane[0].process || spare < server->lanes) {
        return 0;
    }
    return spare + (process != server->pair.shunned ? 4 * PSI_PLACES_MAX : 0) +
           (same_machine(session->hello.address, server->lane[0].address) ? 0 : 8 * PSI_PLACES_MAX);
}

bool
master_pair_find_process(const struct master *master, const struct server *server, uint64_t now_ns,
                         uint64_t *process_p)
{
    uint32_t best = 0;

    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        const uint32_t found =
            master_pair_may_use(session, now_ns) ? merit(master, server, session, now_ns) : 0;

        if (found > best) {
            best = found;
            *process_p = session->hello.host;
        }
    }
    return best > 0;
}

/* Who has most lanes to spare, apart from the server itself; NULL: nobody has any. */
static const struct session *
find_best(const struct master *master, const struct server *server, uint64_t now_ns,
          uint32_t *spare_p)
{
    const struct session *best = NULL;

    *spare_p = 0;
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        const uint64_t process = session->hello.host;
        const uint32_t spare =
            master_pair_may_use(session, now_ns) ? count_free(master, process, now_ns) : 0;

        if (process != server->lane[0].process && spare > *spare_p) {
            best = session;
            *spare_p = spare;
        }
    }
    return best;
}

void
master_pair_say_none(struct master *master, struct server *server, uint64_t now_ns)
{
    struct pair *pair = &server->pair;
    const uint32_t rank = server->lane[0].rank;
    const struct session *best;
    uint32_t spare;

    if (pair->none_ns == 0) {
        pair->none_ns = now_ns + NONE_MS * MASTER_MS_NS;
    }
    if (now_ns < pair->none_ns) {
        return;
    }
    pair->none_ns = UINT64_MAX; /* said once */
    best = find_best(master, server, now_ns, &spare);
    if (best == NULL) {
        psi_log(master->log, PSI_LOG_WARN, "COPY-NONE",
                "server %u has no copy, and its death would be the end: no other server has a lane "
                "to spare; start the servers that are gone again",
                rank);
    } else {
        psi_log(master->log, PSI_LOG_WARN, "COPY-NONE",
                "server %u has no copy, and its death would be the end: it has %u lane%s, and no "
                "other server has as many to spare (server %u has %u); start the servers that are "
                "gone again, and all with as many lanes (--lanes)",
                rank, server->lanes, psi_plural(server->lanes), best->hello.rank, spare);
    }
}
