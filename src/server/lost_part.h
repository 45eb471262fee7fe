/*
 * lost_part.h - what may be missing of somebody who has left, and how it is told. For src/server only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_LOST_PART_H
#define SERVER_LOST_PART_H

#include "server/state.h"

/* Chunks of a table that are in one step, and may lack what somebody gave who has left. */
struct lost_part {
    uint64_t step;
    uint64_t chunks;
};

enum { LOST_STEPS_MAX = 4 }; /* chunks of one table are no further apart */

void lost_part_add(struct lost_part parts[LOST_STEPS_MAX], uint64_t step); /* one more chunk */
/* Counts how many it was asked to tell: of some ranks for each table, ... */
void lost_part_tell(const struct lane *lane, const struct table *table, uint32_t rank,
                    struct lost_part part, uint32_t *told);
/* ... of the others how many they are. */
void lost_part_tell_rest(const struct lane *lane, const struct table *table, uint32_t told);

#endif
