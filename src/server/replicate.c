/*
 * replicate.c - what makes a change of a chunk safe, before anybody is told of it.
 *
 * A change comes here with its gradients while they are still on the lane. Answers, and the next
 * round, wait until clock.committed has reached it. A lane without a copy has nobody to wait for:
 * what it has applied is committed. Nor has a table that workers can make anew.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/state.h"

void
replicate_alone(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    (void)lane;
    (void)round;
    chunk->clock.committed = chunk->clock.version;
}

void
replicate_to_copy(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    if (pair_has_table(chunk->table)) {
        pair_changed(lane, chunk, round);
    } else {
        replicate_alone(lane, chunk, round);
    }
}
