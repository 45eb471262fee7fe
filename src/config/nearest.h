/*
 * nearest.h - the name somebody probably meant.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CONFIG_NEAREST_H
#define PSI_CONFIG_NEAREST_H

#include <stdbool.h>

/* Longer words are never suggested, and nothing is for them. */
enum { PSI_NEAREST_BYTES_MAX = 63 };

/* The search for the nearest of several names. Starts as {.word = what was written}. */
struct psi_nearest {
    const char *word;
    const char *name; /* the nearest so far; NULL: none is near enough to be meant */
    unsigned distance;
};

/* Compares one more name. Names are as in options: '-' and '_' are equal. */
void psi_nearest_try(struct psi_nearest *nearest, const char *name);

/* Equal names, '-' and '_' being one letter. word may go on after its first word_bytes bytes. */
bool psi_name_equal(const char *name, const char *word, unsigned long word_bytes);

#endif
