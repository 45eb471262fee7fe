/*
 * rank_set.h - what the oracle asks of sets of ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_RANK_SET_H
#define SIM_RANK_SET_H

#include <string.h>

#include "clock/clock.h"

enum { RANK_SET_WORDS = PSI_RANKS_MAX / 64 };

static inline struct psi_ranks
rank_set_all(void)
{
    struct psi_ranks all;

    memset(&all, 0xff, sizeof(all));
    return all;
}

/* Those of a that are not of b. */
static inline struct psi_ranks
rank_set_minus(const struct psi_ranks *a, const struct psi_ranks *b)
{
    struct psi_ranks rest;

    for (unsigned i = 0; i < RANK_SET_WORDS; i++) {
        rest.word[i] = a->word[i] & ~b->word[i];
    }
    return rest;
}

static inline bool
rank_set_is_empty(const struct psi_ranks *set)
{
    uint64_t some = 0;

    for (unsigned i = 0; i < RANK_SET_WORDS; i++) {
        some |= set->word[i];
    }
    return some == 0;
}

/* Are all of a of b? */
static inline bool
rank_set_is_within(const struct psi_ranks *a, const struct psi_ranks *b)
{
    const struct psi_ranks rest = rank_set_minus(a, b);

    return rank_set_is_empty(&rest);
}

#endif
