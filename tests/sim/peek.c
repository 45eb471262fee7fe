/*
 * peek.c - the master's inside, in a file of its own: its names are those of the simulator, too.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "peek.h"

#include "master/state.h"

bool
peek_is_changing(const struct master *master)
{
    return master->change.stage != STAGE_IDLE;
}

bool
peek_is_whole(const struct master *master, uint32_t server, uint32_t lane)
{
    return lane < master->server[server].lanes &&
           master_pair_is_whole(&master->server[server].pair[lane]);
}

bool
peek_has_places(const struct master *master, uint64_t process)
{
    for (uint32_t place = 0; place < master->places; place++) {
        if (master->place[place]->process == process) {
            return true;
        }
    }
    return false;
}

bool
peek_is_moving_to_empty(const struct master *master, uint32_t *index_p)
{
    *index_p = master->moving.to;
    return master->moving.is_active && !peek_has_places(master, master->moving.process);
}

bool
peek_was_given(const struct master *master, uint64_t life)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const struct pair *pair = master_pair_of(master, lane);

        if (lane->life == life && pair->is_promoting && pair->is_planned) {
            return true;
        }
    }
    return false;
}

static uint32_t
index_of(uint64_t process)
{
    return (uint32_t)(process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));
}

/* Processes that are here by what the master knows, and are not to leave. */
static uint32_t
count_staying(const struct master *master)
{
    bool is_here[PSI_SERVERS_MAX] = {false};
    uint32_t count = 0;

    for (uint32_t place = 0; place < master->places; place++) {
        is_here[index_of(master->place[place]->process)] =
            !master_is_leaving(master, master->place[place]->process);
    }
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (master_stands_by(session, psi_now_ns(master->env)) &&
            !master_is_leaving(master, session->hello.host)) {
            is_here[index_of(session->hello.host)] = true;
        }
    }
    for (uint32_t i = 0; i < PSI_SERVERS_MAX; i++) {
        count += is_here[i];
    }
    return count;
}

struct peek_move
peek_move(const struct master *master)
{
    const struct moving *moving = &master->moving;
    struct peek_move move = {.to = moving->to, .staying = count_staying(master)};

    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const struct pair *pair = master_pair_of(master, lane);
        const uint64_t bytes = master->loads.bytes[place] + 1;
        const bool is_there = moving->is_copy
                                  ? master_pair_has_copy(pair) && pair->copy.server == moving->to
                                  : index_of(lane->process) == moving->to;

        move.all_bytes += moving->is_copy && !master_pair_has_copy(pair) ? 0 : bytes;
        move.bytes += is_there || place == moving->place ? bytes : 0;
        if (place == moving->place) {
            move.owner = lane->process;
            move.is_from_leaving =
                master_is_leaving(master, moving->is_copy ? pair->copy.process : lane->process);
        }
    }
    return move;
}
