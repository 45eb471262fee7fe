/*
 * ranks.c - a set of ranks, and the nodes of the tree over them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "clock/clock.h"

void
psi_ranks_add(struct psi_ranks *set, uint32_t rank)
{
    psi_assert(rank < PSI_RANKS_MAX);
    set->word[rank / 64] |= UINT64_C(1) << (rank % 64);
}

void
psi_ranks_remove(struct psi_ranks *set, uint32_t rank)
{
    psi_assert(rank < PSI_RANKS_MAX);
    set->word[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}

bool
psi_ranks_has(const struct psi_ranks *set, uint32_t rank)
{
    psi_assert(rank < PSI_RANKS_MAX);
    return (set->word[rank / 64] >> (rank % 64) & 1) != 0;
}

uint32_t
psi_ranks_count(const struct psi_ranks *set)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < PSI_RANKS_MAX / 64; i++) {
        count += (uint32_t)__builtin_popcountll(set->word[i]);
    }
    return count;
}

uint32_t
psi_node_end(uint32_t first, uint32_t level, uint32_t workers)
{
    const uint32_t end = first + (UINT32_C(1) << level);

    return end < workers ? end : workers;
}

uint32_t
psi_ranks_node_level(const struct psi_ranks *set, uint32_t rank, uint32_t workers)
{
    uint32_t level = 0;
    uint32_t end = psi_node_end(rank, 0, workers);

    while (end < workers && rank % (UINT32_C(2) << level) == 0) {
        const uint32_t grown = psi_node_end(rank, level + 1, workers);

        while (end < grown && psi_ranks_has(set, end)) {
            end++;
        }
        if (end < grown) {
            break;
        }
        level++;
    }
    return level;
}
