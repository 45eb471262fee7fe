/*
 * ranges.h - which parts of a file lie in the files of earlier generations. Pure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_RANGES_H
#define PSI_CHECKPOINT_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* These bytes are those at the same place in that generation's file. */
struct psi_range {
    uint64_t generation;
    uint64_t begin;
    uint64_t end;
};

/* Thread: owned by its caller. */
struct psi_ranges {
    struct psi_range *list; /* settled: by rising places, none touches another of its generation */
    size_t count;
    size_t capacity;
};

void psi_ranges_fini(struct psi_ranges *ranges);

/* Joins the last one if it goes on where that ends. False: no memory. */
bool psi_ranges_add(struct psi_ranges *ranges, struct psi_range range);

/* Sorts and joins. False: two overlap, or one is empty. */
bool psi_ranges_settle(struct psi_ranges *ranges);

uint64_t psi_ranges_bytes(const struct psi_ranges *ranges);

/* Of settled ones: which one `at` lies in, or the first behind it; their count if there is none. */
size_t psi_ranges_find(const struct psi_ranges *ranges, uint64_t at);

#endif
