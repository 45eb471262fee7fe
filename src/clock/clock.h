/*
 * clock.h - who is at which step; may this push count, may this round close, may this read proceed.
 *
 * Pure: no I/O, no time, no memory of its own. One struct psi_clock per chunk; one rule and one set
 * of members per table. A rank's clock on a chunk, next[rank], is the first step whose gradient it
 * has not given.
 *
 * Bulk-synchronous (staleness 0): `version` rounds have closed, the value is that of step
 * `version`; a gradient of step c meets the others in round c, the open round is round `version`.
 * In the open round rank r has given its gradient exactly if next[r] == version + 1.
 *
 * Stale-synchronous, asynchronous: every gradient is applied by itself; `version` counts them.
 *
 * What was applied is told only when it is safe: `version` says what the chunk is, `committed` what
 * anybody may hear of it. Bulk-synchronous: committed is version, or version - 1 while the last
 * round is on its way to be safe; until then no other closes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLOCK_CLOCK_H
#define PSI_CLOCK_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum { PSI_RANKS_MAX = 1024 };

#define PSI_STEP_NEVER UINT64_MAX

/* What becomes of the job when a worker dies:
 * it fails, goes on without it, or waits for another. */
enum psi_death_policy { PSI_DEATH_FAIL = 0, PSI_DEATH_CONTINUE = 1, PSI_DEATH_WAIT = 2 };

/* A set of ranks. */
struct psi_ranks {
    uint64_t word[PSI_RANKS_MAX / 64];
};

void psi_ranks_add(struct psi_ranks *set, uint32_t rank);
void psi_ranks_remove(struct psi_ranks *set, uint32_t rank);
bool psi_ranks_has(const struct psi_ranks *set, uint32_t rank);
uint32_t psi_ranks_count(const struct psi_ranks *set);

/*
 * The tree over ranks along which gradients are added: node (level, i) has the ranks below
 * `workers` of [i << level, (i + 1) << level). The level of the largest node that begins at `rank`,
 * a member of the set, and whose ranks all are in the set.
 */
uint32_t psi_ranks_node_level(const struct psi_ranks *set, uint32_t rank, uint32_t workers);

/* The rank behind the last one of a node. */
uint32_t psi_node_end(uint32_t first, uint32_t level, uint32_t workers);

struct psi_clock_rule {
    uint32_t workers;   /* ranks 0..workers-1 */
    uint32_t staleness; /* PSD_STALENESS_UNBOUNDED: asynchronous */
    uint32_t backup;    /* a round closes with the first workers - backup gradients */
};

/* A rank takes part in the steps from joined_at[rank] on, below left_at[rank]: PSI_STEP_NEVER for a
 * member. */
struct psi_members {
    uint64_t *joined_at; /* borrowed; rule->workers entries */
    uint64_t *left_at;   /* likewise */
};

struct psi_clock {
    uint64_t version;
    uint64_t committed; /* <= version */
    uint64_t *next;     /* borrowed; rule->workers entries */
};

enum psi_admission {
    PSI_ADMIT_COUNT,     /* new: it counts */
    PSI_ADMIT_AGAIN,     /* given before, its round is still open: answer when it closes */
    PSI_ADMIT_DONE,      /* given before and applied: answer now, as done */
    PSI_ADMIT_DROPPED,   /* its round closed without it (backup workers, or the rank had left) */
    PSI_ADMIT_TOO_EARLY, /* a step too far ahead: the sender breaks the rules */
    PSI_ADMIT_MIXED,     /* a sum: it cannot count, some of its ranks have given and some not */
};

/*
 * May a gradient of `step` from `rank` count? A rank repeats only its last step. Unbounded tables:
 * see psi_clock_admit_sequence.
 */
enum psi_admission psi_clock_admit(const struct psi_clock_rule *rule,
                                   const struct psi_members *members, const struct psi_clock *clock,
                                   uint32_t rank, uint64_t step);

/* The same for a sum of the gradients of ranks first .. end - 1:
 * they count together, or not at all. */
enum psi_admission psi_clock_admit_sum(const struct psi_clock_rule *rule,
                                       const struct psi_members *members,
                                       const struct psi_clock *clock, uint32_t first, uint32_t end,
                                       uint64_t step);

/* The first step that the rank has to give to the chunk. */
uint64_t psi_clock_next(const struct psi_members *members, const struct psi_clock *clock,
                        uint32_t rank);

/* What an asynchronous table remembers of a rank: the last push applied. Starts as {0, 0}. */
struct psi_mark {
    uint32_t incarnation;
    uint64_t sequence;
};

/* COUNT when (incarnation, sequence) is above the mark as a pair, DONE when not. */
enum psi_admission psi_clock_admit_sequence(const struct psi_mark *mark, uint32_t incarnation,
                                            uint64_t sequence);

/*
 * Bulk-synchronous: has every rank that takes part in the open round given its gradient? With
 * backup workers `closing` is the set the coordinator chose for this round (NULL: it has not
 * chosen, so never); ranks outside it are not waited for. Never true for a round with no gradient
 * at all.
 */
bool psi_clock_round_full(const struct psi_clock_rule *rule, const struct psi_members *members,
                          const struct psi_clock *clock, const struct psi_ranks *closing);

/*
 * Bulk-synchronous: nobody takes part in the open round, and somebody does in a later one: all who
 * were there have left, and one that has joined waits for its first step.
 */
bool psi_clock_round_deserted(const struct psi_clock_rule *rule, const struct psi_members *members,
                              const struct psi_clock *clock);

/* Bulk-synchronous: who gave to the round `step`, which has closed; later ones have not. */
struct psi_ranks psi_clock_given(const struct psi_clock_rule *rule, const struct psi_clock *clock,
                                 uint64_t step);

/* May a pull at `step` be answered now? Stale-synchronous, asynchronous: as far as the gradients of
 * others go; what is shown must be committed as well. */
bool psi_clock_may_read(const struct psi_clock_rule *rule, const struct psi_members *members,
                        const struct psi_clock *clock, uint64_t step);

/* The first rank, from `from` on, that keeps the open round from closing or (stale-synchronous) a
 * read of `step` from being answered; -1: none. For messages that name who is missing. */
int32_t psi_clock_missing(const struct psi_clock_rule *rule, const struct psi_members *members,
                          const struct psi_clock *clock, uint64_t step, uint32_t from);

/*
 * The coordinator's side of backup workers, one per table: which ranks have sent everything of a
 * step. Rounds close in order.
 */
struct psi_quorum {
    uint64_t step;         /* the round being collected */
    struct psi_ranks have; /* ranks that are ready for it */
};

/* rank has everything of `step` on its way. Steps other than quorum->step are ignored. */
void psi_quorum_have(struct psi_quorum *quorum, uint32_t rank, uint64_t step);

/*
 * Enough for the round? True when as many live ranks have it as min(workers - backup, live ranks),
 * at least one. Then *closing_p is the set, and the quorum moves on to the next step.
 */
bool psi_quorum_close(struct psi_quorum *quorum, const struct psi_clock_rule *rule,
                      const struct psi_members *members, struct psi_ranks *closing_p);

#endif
