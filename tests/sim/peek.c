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
