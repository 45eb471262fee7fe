/*
 * backup.c - tables with backup workers: which ranks are in a round, as the master decided.
 *
 * The master says CLOSE for one step of a table after the other. What it said of the last steps is
 * kept: chunks close a round at different times, but none is far behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "server/state.h"

const struct psi_ranks *
backup_closing(const struct table *table, uint64_t step)
{
    const struct closing *closing;

    if (table->backup == NULL) {
        return NULL;
    }
    closing = &table->backup->closings[step % CLOSINGS_KEPT];
    return closing->known && closing->step == step ? &closing->ranks : NULL;
}

uint64_t
backup_goes_on_at(const struct table *table, uint64_t step)
{
    if (table->backup == NULL || step >= table->backup->decided) {
        return step;
    }
    if (step + CLOSINGS_KEPT < table->backup->decided) {
        step = table->backup->decided - CLOSINGS_KEPT;
    }
    while (backup_closing(table, step) == NULL) {
        step++;
    }
    return step;
}

void
backup_decide(struct lane *lane, struct table *table, const struct closing *closing)
{
    struct backup *backup = table->backup;

    if (closing->step + CLOSINGS_KEPT < backup->decided) {
        return; /* of no use any longer, and others are kept in its place */
    }
    backup->closings[closing->step % CLOSINGS_KEPT] = *closing;
    if (closing->step >= backup->decided) {
        backup->decided = closing->step + 1;
    }
    for (uint64_t i = 0; i < table->chunk_count && !lane->finished; i++) {
        round_try_close(lane, &table->chunks[i]);
    }
}
