/*
 * redundancy.c - whether servers need copies; and who started the job hears who has which part.
 *
 * What is so now is compared with what was told last, in every tick: so nobody who changes it has to
 * think of telling, and another life of the master tells all of it again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/redundancy.h"

#include "master/state.h"

/* What a process says of itself: the index that it was started with. */
static uint32_t
index_of(const struct master *master, const struct member *lane)
{
    const uint32_t index = (uint32_t)(lane->process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));

    return lane->process != 0 && index < master->config.servers ? index : lane->rank;
}

bool
master_needs_copies(struct master *master)
{
    /* A table that is being opened may be refused; nothing is in it yet. */
    while (!master->is_frail && master->settled < master->tables &&
           master->table[master->settled] != NULL &&
           master->table[master->settled]->state != TABLE_OPENING) {
        const struct table *table = master->table[master->settled++];

        master->is_frail = table->state == TABLE_READY && !psi_spec_survives(&table->spec);
    }
    return master->is_frail ||
           (master->server[0].lanes > 0 && master->server[0].lane[0].step > 0); /* the job's */
}

static bool
has_copy(const struct server *server)
{
    return server->pair.stage == PAIR_FORMING || server->pair.stage == PAIR_WHOLE;
}

static enum psi_copy_state
state_of(struct master *master, const struct server *server)
{
    if (master_pair_is_whole(server)) {
        return PSI_COPY_WHOLE;
    }
    if (master_survives(master) && !master_needs_copies(master)) {
        return PSI_COPY_NEEDLESS;
    }
    return has_copy(server) ? PSI_COPY_FORMING : PSI_COPY_NONE;
}

static struct psi_tiding_place
look_at(struct master *master, const struct server *server)
{
    const bool is_here = !server->is_away && server->lanes > 0;

    return (struct psi_tiding_place){
        .by = is_here ? index_of(master, &server->lane[0]) : PSI_TIDING_NOBODY,
        .copy = has_copy(server) ? server->pair.copy[0].server : PSI_TIDING_NOBODY,
        .state = state_of(master, server)};
}

void
master_redundancy_tell(struct master *master)
{
    for (uint32_t index = 0; index < master->config.servers && master->view.id > 0; index++) {
        struct server *server = &master->server[index];
        const struct psi_tiding_place place = look_at(master, server);
        const struct psi_tiding tiding = {
            .kind = PSI_TIDING_PLACE, .role = PSI_TIDING_SERVER, .rank = index, .place = place};

        if (server->is_told && place.by == server->told.by && place.copy == server->told.copy &&
            place.state == server->told.state) {
            continue;
        }
        server->is_told = true;
        server->told = place;
        if (master->config.tell != NULL) {
            master->config.tell(master->config.tell_context, &tiding);
        }
    }
}
