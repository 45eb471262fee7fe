/*
 * pairs_promote.c - copies take the places of lanes that are lost, or have handed theirs over.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "master/state.h"

bool
master_pairs_promote(const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->pair[lane].is_promoting) {
            return true;
        }
    }
    return false;
}

bool
master_is_moving(const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->pair[lane].is_promoting && server->pair[lane].is_planned) {
            return true;
        }
    }
    return false;
}

bool
master_pair_promote(struct master *master, struct member *lane, uint64_t now_ns)
{
    struct pair *pair = master_pair_of(master, lane);
    struct session *session;

    if (master_pair_copy_is_lost(master, pair, now_ns)) {
        return false;
    }
    session = master_pair_find_copy(master, &pair->copy);
    if (session != NULL && !session->placed) {
        master_give_place(session, lane, master->server[lane->rank].lanes, pair->number);
        pair->copy.is_placed = true;
        pair->copy.placed_ns = now_ns;
        psi_fail_point(master_promotion_ordered_one);
    }
    return true;
}

/* Is a part of that process still on its way to its copies? */
static bool
is_leaving(const struct master *master, uint32_t left_by)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct pair *pair = master_pair_of(master, master->place[place]);

        if (pair->is_promoting && pair->left_by == left_by) {
            return true;
        }
    }
    return false;
}

/* A process may have had places of several servers: who started it hears when all are back. */
void
master_pair_promoted(const struct master *master, struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        struct pair *pair = &server->pair[lane];
        const struct member left = {.role = PSI_ROLE_SERVER, .rank = pair->left_by};
        bool is_planned;

        if (!pair->is_promoting) {
            continue;
        }
        is_planned = pair->is_planned;
        master_pair_over(pair);
        if (!is_planned && !is_leaving(master, pair->left_by)) {
            master_tell(master, PSI_TIDING_COPIED, &left, PSI_LOSS_NONE, "");
        }
    }
}

void
master_pair_over(struct pair *pair)
{
    pair->stage = PAIR_NONE;
    pair->retry_ns = 0;
    pair->failures = 0;
    pair->target = 0;
    pair->is_given = false;
    pair->is_planned = false;
    pair->is_promoting = false;
}
