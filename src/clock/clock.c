/*
 * clock.c - may this push count, may this round close, may this read proceed.
 *
 * Invariants
 *   - version and members aside, everything follows from next[]: the first step a rank has not
 *     given;
 *   - bulk-synchronous: next[rank] <= version + 1, since no gradient of a later round is admitted;
 *   - a rank has part in the steps from joined_at[rank] on that are below left_at[rank], in no other;
 *     next[rank] may be below joined_at[rank], and nobody waits for what is between them;
 *   - what may count is decided by version, what may be read by committed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "clock/clock.h"

#include <stddef.h>
#include <string.h>

#include <psd/psd.h>

#include "base/fail.h"

/* Does rank have part in the open round? With a chosen set: is it in it? */
static bool
in_round(const struct psi_members *members, const struct psi_clock *clock,
         const struct psi_ranks *closing, uint32_t rank)
{
    return members->joined_at[rank] <= clock->version && members->left_at[rank] > clock->version &&
           (closing == NULL || psi_ranks_has(closing, rank));
}

static enum psi_admission
admit_to_round(const struct psi_members *members, const struct psi_clock *clock, uint32_t rank,
               uint64_t step)
{
    const bool given = step < clock->next[rank];

    if (step < members->joined_at[rank]) {
        return PSI_ADMIT_DROPPED;
    }
    if (step < clock->version) {
        return given ? PSI_ADMIT_DONE : PSI_ADMIT_DROPPED;
    }
    if (step >= members->left_at[rank]) {
        return PSI_ADMIT_DROPPED;
    }
    if (step > clock->version) {
        return PSI_ADMIT_TOO_EARLY;
    }
    return given ? PSI_ADMIT_AGAIN : PSI_ADMIT_COUNT;
}

uint64_t
psi_clock_next(const struct psi_members *members, const struct psi_clock *clock, uint32_t rank)
{
    return clock->next[rank] > members->joined_at[rank] ? clock->next[rank]
                                                        : members->joined_at[rank];
}

/* Without rounds a gradient is applied when it comes:
 * a rank gives its steps one after the other. */
static enum psi_admission
admit_alone(const struct psi_members *members, const struct psi_clock *clock, uint32_t rank,
            uint64_t step)
{
    if (step < members->joined_at[rank]) {
        return PSI_ADMIT_DROPPED;
    }
    if (step < clock->next[rank]) {
        return PSI_ADMIT_DONE;
    }
    if (step >= members->left_at[rank]) {
        return PSI_ADMIT_DROPPED;
    }
    return step == psi_clock_next(members, clock, rank) ? PSI_ADMIT_COUNT : PSI_ADMIT_TOO_EARLY;
}

enum psi_admission
psi_clock_admit(const struct psi_clock_rule *rule, const struct psi_members *members,
                const struct psi_clock *clock, uint32_t rank, uint64_t step)
{
    psi_assert(rank < rule->workers);
    psi_assert(rule->staleness != PSD_STALENESS_UNBOUNDED);
    if (rule->staleness == 0) {
        return admit_to_round(members, clock, rank, step);
    }
    return admit_alone(members, clock, rank, step);
}

enum psi_admission
psi_clock_admit_sum(const struct psi_clock_rule *rule, const struct psi_members *members,
                    const struct psi_clock *clock, uint32_t first, uint32_t end, uint64_t step)
{
    const enum psi_admission admission = psi_clock_admit(rule, members, clock, first, step);

    for (uint32_t rank = first + 1; rank < end; rank++) {
        if (psi_clock_admit(rule, members, clock, rank, step) != admission) {
            return PSI_ADMIT_MIXED;
        }
    }
    return admission;
}

enum psi_admission
psi_clock_admit_sequence(const struct psi_mark *mark, uint32_t incarnation, uint64_t sequence)
{
    if (incarnation != mark->incarnation) {
        return incarnation > mark->incarnation ? PSI_ADMIT_COUNT : PSI_ADMIT_DONE;
    }
    return sequence > mark->sequence ? PSI_ADMIT_COUNT : PSI_ADMIT_DONE;
}

bool
psi_clock_round_full(const struct psi_clock_rule *rule, const struct psi_members *members,
                     const struct psi_clock *clock, const struct psi_ranks *closing)
{
    bool any = false;

    if (rule->staleness != 0 || (rule->backup > 0 && closing == NULL)) {
        return false;
    }
    for (uint32_t rank = 0; rank < rule->workers; rank++) {
        if (in_round(members, clock, closing, rank)) {
            if (clock->next[rank] <= clock->version) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

bool
psi_clock_round_deserted(const struct psi_clock_rule *rule, const struct psi_members *members,
                         const struct psi_clock *clock)
{
    bool later = false;

    for (uint32_t rank = 0; rank < rule->workers; rank++) {
        if (in_round(members, clock, NULL, rank)) {
            return false;
        }
        later = later || (members->left_at[rank] > clock->version &&
                          members->left_at[rank] > members->joined_at[rank]);
    }
    return later;
}

struct psi_ranks
psi_clock_given(const struct psi_clock_rule *rule, const struct psi_clock *clock, uint64_t step)
{
    struct psi_ranks given = {{0}};

    for (uint32_t rank = 0; rank < rule->workers; rank++) {
        if (clock->next[rank] > step) {
            psi_ranks_add(&given, rank);
        }
    }
    return given;
}

/* Stale-synchronous: a read of `step` wants all that rank has to give of the steps below
 * step - staleness. */
static bool
behind(const struct psi_clock_rule *rule, const struct psi_members *members,
       const struct psi_clock *clock, uint64_t step, uint32_t rank)
{
    const uint64_t wanted = step > rule->staleness ? step - rule->staleness : 0;
    const uint64_t left_at = members->left_at[rank];

    return psi_clock_next(members, clock, rank) < (wanted < left_at ? wanted : left_at);
}

bool
psi_clock_may_read(const struct psi_clock_rule *rule, const struct psi_members *members,
                   const struct psi_clock *clock, uint64_t step)
{
    if (rule->staleness == 0) {
        return clock->committed >= step;
    }
    return psi_clock_missing(rule, members, clock, step, 0) < 0;
}

int32_t
psi_clock_missing(const struct psi_clock_rule *rule, const struct psi_members *members,
                  const struct psi_clock *clock, uint64_t step, uint32_t from)
{
    if (rule->staleness == PSD_STALENESS_UNBOUNDED) {
        return -1;
    }
    for (uint32_t rank = from; rank < rule->workers; rank++) {
        const bool missing = rule->staleness == 0 ? in_round(members, clock, NULL, rank) &&
                                                        clock->next[rank] <= clock->version
                                                  : behind(rule, members, clock, step, rank);

        if (missing) {
            return (int32_t)rank;
        }
    }
    return -1;
}

void
psi_quorum_have(struct psi_quorum *quorum, uint32_t rank, uint64_t step)
{
    if (step == quorum->step) {
        psi_ranks_add(&quorum->have, rank);
    }
}

bool
psi_quorum_close(struct psi_quorum *quorum, const struct psi_clock_rule *rule,
                 const struct psi_members *members, struct psi_ranks *closing_p)
{
    struct psi_ranks ready = {{0}};
    uint32_t live = 0;
    uint32_t need = rule->workers > rule->backup ? rule->workers - rule->backup : 1;

    for (uint32_t rank = 0; rank < rule->workers; rank++) {
        if (members->left_at[rank] > quorum->step) {
            live++;
            if (psi_ranks_has(&quorum->have, rank)) {
                psi_ranks_add(&ready, rank);
            }
        }
    }
    if (live == 0 || psi_ranks_count(&ready) < (need < live ? need : live)) {
        return false;
    }
    *closing_p = ready;
    quorum->step++;
    memset(&quorum->have, 0, sizeof(quorum->have));
    return true;
}
