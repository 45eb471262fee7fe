/*
 * roster.c - who counts in a step, by a view.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "view/roster.h"

/* Who has come may have left before, and who has left may not have counted yet. */
bool
psi_view_counts(const struct psi_view *view, uint32_t rank, uint64_t step)
{
    const struct psi_view_worker *worker = &view->worker[rank];

    if (worker->member) {
        return step >= worker->counts_from || step < worker->counts_until;
    }
    return step >= worker->counts_from && step < worker->counts_until;
}

static uint64_t
later(uint64_t a, uint64_t b, uint64_t step)
{
    return b > a && b <= step ? b : a;
}

struct psi_roster
psi_view_roster(const struct psi_view *view, uint64_t step, uint32_t self, uint32_t *ranks,
                size_t capacity)
{
    struct psi_roster roster = {.version = view->changes, .index = PSI_INDEX_NONE};

    for (uint32_t rank = 0; rank < view->workers; rank++) {
        const struct psi_view_worker *worker = &view->worker[rank];

        roster.version -= worker->counts_from > step ? 1 : 0;
        roster.version -= worker->counts_until > step ? 1 : 0;
        roster.since = later(roster.since, worker->counts_from, step);
        roster.since = later(roster.since, worker->counts_until, step);
        if (!psi_view_counts(view, rank, step)) {
            continue;
        }
        if (rank == self) {
            roster.index = roster.count;
        }
        if (roster.count < capacity) {
            ranks[roster.count] = rank;
        }
        roster.count++;
    }
    return roster;
}

void
psi_view_count(struct psi_view_worker *worker, bool member, uint64_t step)
{
    worker->member = member;
    if (member) {
        worker->counts_from = step;
    } else {
        worker->counts_until = step;
    }
}
