/*
 * adopt_reports.h - what workers have told of a chunk that is adopted. For adopt.c and
 * adopt_reports.c only; state.h has what others ask.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_ADOPT_REPORTS_H
#define SERVER_ADOPT_REPORTS_H

#include "server/state.h"

enum { NOBODY = -1 };

/* What one worker has reported of one chunk. */
struct report {
    bool here;
    uint8_t has;   /* enum psi_has */
    uint64_t base; /* the first step that it is not through with */
};

struct adopting {
    struct report *reports; /* per rank */
    uint32_t missing;       /* members that have not told */
    int64_t asked;          /* rank that was asked for the result; NOBODY */
    uint64_t asked_step;
    uint32_t asked_part; /* sums of rows: which part of it; the ones before are here */
};

/* What the reports say, taken together. */
struct findings {
    uint64_t step;            /* the smallest base */
    struct psi_ranks pushers; /* who has to be given its result */
    struct psi_ranks holders; /* who has it, and is not through with it */
    struct psi_ranks showers; /* who can show it: holders, and those who went on and keep it */
    int64_t ahead;            /* somebody who has gone on; NOBODY: nobody has */
    int64_t far;              /* ... further than can be */
};

static inline bool
adopt_is_member(const struct lane *lane, uint32_t rank)
{
    return lane->view.worker[rank].member;
}

/* Of those who have told and are members. */
struct findings adopt_find(const struct lane *lane, const struct chunk *chunk);

#endif
