/*
 * row_policy.h - what a sparse table has beside a dense one: which rows come to be, which go, and
 * rules that see a row as a whole. Pure: defaults, checks, comparison.
 *
 * Everything here is decided by steps and ids alone, never by clocks on the wall, arrival order or
 * placement: so a run, its repetition and a copy on another server keep the same rows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TABLE_ROW_POLICY_H
#define PSI_TABLE_ROW_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/psd.h>

enum { PSI_ADMIT_AFTER_MAX = 255 };

/* What happens to a new row when there is no room for it (capacity_rows). */
enum psi_full {
    PSI_FULL_REFUSE = 0, /* its lane is full: the push fails, by name */
    PSI_FULL_OLDEST = 1, /* its bucket is: the rows that were not touched for longest make room */
    PSI_FULL_SPILL = 2,  /* likewise; but they go to the disk, and come back when they are wanted */
    PSI_FULLS,
};

/* A zero means: off, or the default in brackets. Thread: immutable once made. */
struct psi_row_policy {
    /* Rules that see the whole row. */
    bool row_wise;      /* adagrad: one number of state per row, the mean of the squares */
    double group_lasso; /* ftrl: rows whose norm stays below become 0 as a whole */

    /* Which rows come to be. A row that is not admitted keeps its initial value. */
    uint32_t admit_after;    /* [1] closed steps in which its id was pushed, 1..255 */
    uint32_t admit_window;   /* [1024] steps after which what was counted is halved */
    uint32_t admit_counters; /* [by capacity_rows, 1024 at least] of 8 bits, per bucket */
    double admit_share;      /* in (0, 1): each time with this probability, by a hash */

    /* Which rows go. */
    uint64_t capacity_rows; /* of the whole table; each lane has the share of its buckets.
                               PSI_FULL_SPILL: in memory */
    enum psi_full full;
    uint32_t idle_steps;  /* rows that were not touched for longer go */
    double norm_min;      /* rows with a smaller L2 norm go */
    uint32_t sweep_every; /* [1024] steps: how often each bucket is looked through for these two */
};

/* Replaces every 0 that stands for a default. */
void psi_row_policy_fill(struct psi_row_policy *policy, uint32_t bucket_bits);

/* What else of a table matters to it. */
struct psi_row_subject {
    const char *name;
    psd_dtype dtype;
    uint64_t count; /* numbers of a row */
    psd_rule rule;
    psd_init init;
};

/* Does it make sense, defaults filled in, for this table? psi_spec_check_rows() asks. */
psd_status psi_row_policy_check(const struct psi_row_policy *policy,
                                const struct psi_row_subject *spec, struct psd_error *err);

/* NULL when equal; else the name of the first field that differs. */
const char *psi_row_policy_difference(const struct psi_row_policy *a,
                                      const struct psi_row_policy *b);

/* Numbers of state of a row: those of the rule for each element, or one for all of them. */
uint32_t psi_row_state_numbers(const struct psi_row_policy *policy, psd_rule rule, uint32_t width);

/* What `count` buckets from `first` on have of capacity_rows: the shares of all buckets differ by one
 * row at most, and add up to it. UINT64_MAX: as many as there is memory for. */
uint64_t psi_row_policy_share(const struct psi_row_policy *policy, uint32_t bucket_bits,
                              uint32_t first, uint32_t count);

#endif
