/*
 * roster.h - who counts in a step, by a view (pure).
 *
 * A view says of each rank since which step it counts and since which it does not (struct
 * psi_view_worker). All workers that are at a step see the same set, whichever of two views they have: the
 * later one changes nothing before a step that nobody reaches without it (docs/consistency.md, "Who
 * counts in a step").
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_VIEW_ROSTER_H
#define PSI_VIEW_ROSTER_H

#include <stddef.h>

#include "view/view.h"

#define PSI_INDEX_NONE UINT32_MAX

struct psi_roster {
    uint64_t version; /* how many changes count by then */
    uint64_t since;   /* the step of the last of them */
    uint32_t count;
    uint32_t index; /* of `self`; PSI_INDEX_NONE: not among them */
};

bool psi_view_counts(const struct psi_view *view, uint32_t rank, uint64_t step);

/* Who counts in the step. The first `capacity` of them, in order, are written to `ranks`. */
struct psi_roster psi_view_roster(const struct psi_view *view, uint64_t step, uint32_t self,
                                  uint32_t *ranks, size_t capacity);

/* The rank is a member from that step on, or no longer. */
void psi_view_count(struct psi_view_worker *worker, bool member, uint64_t step);

#endif
