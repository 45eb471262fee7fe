/*
 * move_plan.h - which place moves next, when servers come and go.
 *
 * Pure: numbers in, one move out. Nothing is kept from one call to the next, so whoever asks again, another
 * life of the master too, comes to the same end.
 *
 *   - A server that is to leave gives all that it has, each place to the server that has least.
 *   - A server that has fewer places than its even share, rounded down, gets one from a server that has
 *     most: so what comes to a new server is at most its share, and between servers that have theirs nothing moves.
 *   - No place comes to a server that would get more than 1.2 times its even share of the bytes by it.
 *   - Copies are shared out by the same rule, apart from the places, once these are where they belong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_MOVE_PLAN_H
#define MASTER_MOVE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "shard/shard.h"

#define MOVE_NOWHERE UINT32_MAX

/* A process of a server, by the index that it was started with. */
struct move_server {
    bool is_here;
    bool is_leaving;
    uint32_t spare; /* lanes that stand by, and are nobody's copy */
};

/* Where it all is. at[], copy_at[]: by place, the index of the process; MOVE_NOWHERE: there is none. */
struct move_places {
    uint32_t places;
    uint32_t at[PSI_PLACES_MAX];
    uint32_t copy_at[PSI_PLACES_MAX];
    uint64_t bytes[PSI_PLACES_MAX];
    bool waits[PSI_PLACES_MAX];       /* it is not to be tried now: it failed lately ... */
    uint32_t shunned[PSI_PLACES_MAX]; /* ... to move to that server; MOVE_NOWHERE: to none */
    struct move_server server[PSI_SERVERS_MAX];
};

struct move {
    uint32_t place;
    uint32_t to;
    bool is_copy; /* not the place, but its copy */
};

/* False: everything is where it belongs, or nothing that is not can be moved. */
bool move_plan_next(const struct move_places *places, bool copies, struct move *move_p);

/* Servers that are here, and stay. */
uint32_t move_plan_staying(const struct move_places *places);

#endif
