/*
 * redundancy.c - whether servers need copies; and who started the job hears who has which part.
 *
 * What is so now is compared with what was told last, in every tick: so nobody who changes it has to
 * think of telling, and another life of the master tells all of it again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/redundancy.h"

#include <assert.h>

#include "master/state.h"

bool
master_needs_copies(struct master *master)
{
    /* A table that is being opened may be refused; nothing is in it yet. */
    while (!master->is_frail && master->settled < master->tables &&
           master->table[master->settled] != NULL &&
           master->table[master->settled]->state != TABLE_OPENING) {
        const struct table *table = master->table[master->settled++];

        master->is_frail =
            table->state == TABLE_READY &&
            !psi_spec_is_remade(&table->spec, master->config.policy == PSI_DEATH_WAIT);
    }
    return master->is_frail ||
           (master->server[0].lanes > 0 && master->server[0].lane[0].step > 0); /* the job's */
}

static enum psi_copy_state
state_of(struct master *master, const struct server *server)
{
    if (server->lanes > 0 && master_pairs_are_whole(server)) {
        return PSI_COPY_WHOLE;
    }
    if (master_survives(master) && !master_needs_copies(master)) {
        return PSI_COPY_NEEDLESS;
    }
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (!master_pair_has_copy(&server->pair[lane])) {
            return PSI_COPY_NONE;
        }
    }
    return server->lanes > 0 ? PSI_COPY_FORMING : PSI_COPY_NONE;
}

static_assert((int)PSI_TIDING_LANES >= (int)PSI_LANES_MAX, "every lane of a server has room");

/* Its place is taken, and a view has it. */
static bool
is_here(const struct server *server, const struct member *lane)
{
    return lane->state == PSD_NODE_RUNNING || (!server->is_away && lane->state == PSD_NODE_JOINED);
}

static struct psi_tiding_place
look_at(struct master *master, const struct server *server)
{
    struct psi_tiding_place place = {.lanes = server->lanes, .state = state_of(master, server)};

    for (uint32_t i = 0; i < server->lanes; i++) {
        const struct member *lane = &server->lane[i];
        const struct pair *pair = &server->pair[i];

        place.by[i] =
            is_here(server, lane) ? master_process_index(master, lane) : PSI_TIDING_NOBODY;
        place.copy[i] = master_pair_has_copy(pair) ? pair->copy.server : PSI_TIDING_NOBODY;
    }
    return place;
}

void
master_redundancy_tell(struct master *master)
{
    for (uint32_t index = 0; index < master->config.servers && master->view.id > 0; index++) {
        struct server *server = &master->server[index];
        const struct psi_tiding_place place = look_at(master, server);
        const struct psi_tiding tiding = {
            .kind = PSI_TIDING_PLACE, .role = PSI_TIDING_SERVER, .rank = index, .place = place};

        if (server->lanes == 0 ||
            (server->is_told && psi_tiding_place_same(&place, &server->told))) {
            continue;
        }
        server->is_told = true;
        server->told = place;
        if (master->config.tell != NULL) {
            master->config.tell(master->config.tell_context, &tiding);
        }
    }
}
