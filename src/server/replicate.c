/*
 * replicate.c - a change of a chunk travels down its chain before anybody is told of it.
 *
 * The chain has length one today: the change is replicated as soon as it is made. Fail-over adds
 * the backup here; answers already wait for round_replicated().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/state.h"

void
replicate_round(struct lane *lane, struct chunk *chunk)
{
    round_replicated(lane, chunk);
}
