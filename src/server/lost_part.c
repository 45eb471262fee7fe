/*
 * lost_part.c - says of workers that have left where they do not count, because a server died.
 *
 * The master may have said of one who left that it counts in all chunks of its last step. What it had given to
 * rounds that were open dies with a server, and nobody gives it again. Whoever takes the server's place says so
 * in the log: a copy (views.c), or another life of a server of sums (adopt.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>

#include "server/lost_part.h"

enum { RANKS_TOLD_MAX = 8 }; /* of one table */

void
lost_part_add(struct lost_part parts[LOST_STEPS_MAX], uint64_t step)
{
    unsigned i = 0;

    while (i < LOST_STEPS_MAX && parts[i].chunks > 0 && parts[i].step != step) {
        i++;
    }
    if (i < LOST_STEPS_MAX) {
        parts[i].step = step;
        parts[i].chunks++;
    }
}

void
lost_part_tell(const struct lane *lane, const struct table *table, uint32_t rank,
               struct lost_part part, uint32_t *told)
{
    if (part.chunks == 0 || ++*told > RANKS_TOLD_MAX) {
        return;
    }
    psi_log(&lane->log, PSI_LOG_INFO, "GIVEN-LOST",
            "worker %u has left, and does not count in %" PRIu64 " of %" PRIu64
            " chunks of step %" PRIu64 " of table %s here: what it gave to them, if anything, "
            "died with the server",
            rank, part.chunks, table->chunk_count, part.step, table->spec.name);
}

void
lost_part_tell_rest(const struct lane *lane, const struct table *table, uint32_t told)
{
    if (told > RANKS_TOLD_MAX) {
        psi_log(&lane->log, PSI_LOG_INFO, "GIVEN-LOST",
                "%u more workers have left, and do not count in table %s here, likewise",
                told - RANKS_TOLD_MAX, table->spec.name);
    }
}
