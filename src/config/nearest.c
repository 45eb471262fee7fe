/*
 * nearest.c - the name somebody probably meant: the one with the fewest edits.
 *
 * An edit is a letter added, left out, replaced, or swapped with its neighbour.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/nearest.h"

#include <stddef.h>
#include <string.h>

static char
fold(char letter)
{
    return letter == '-' ? '_' : letter;
}

bool
psi_name_equal(const char *name, const char *word, unsigned long word_bytes)
{
    for (size_t i = 0; i < word_bytes; i++) {
        if (name[i] == '\0' || fold(name[i]) != fold(word[i])) {
            return false;
        }
    }
    return name[word_bytes] == '\0';
}

static unsigned
least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static unsigned
edits(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    unsigned rows[3][PSI_NEAREST_BYTES_MAX + 1]; /* of the last two letters of a, and this one */

    for (unsigned j = 0; j <= b_bytes; j++) {
        rows[0][j] = j;
    }
    for (unsigned i = 1; i <= a_bytes; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *before = rows[(i + 2) % 3];
        const unsigned *before_that = rows[(i + 1) % 3];

        row[0] = i;
        for (unsigned j = 1; j <= b_bytes; j++) {
            const bool equal = fold(a[i - 1]) == fold(b[j - 1]);

            row[j] = least(least(before[j], row[j - 1]) + 1, before[j - 1] + !equal);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1])) {
                row[j] = least(row[j], before_that[j - 2] + 1);
            }
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

void
psi_nearest_try(struct psi_nearest *nearest, const char *name)
{
    const size_t word_bytes = strlen(nearest->word);
    const size_t name_bytes = strlen(name);
    unsigned distance;

    if (word_bytes > PSI_NEAREST_BYTES_MAX || name_bytes > PSI_NEAREST_BYTES_MAX) {
        return;
    }
    distance = edits(nearest->word, word_bytes, name, name_bytes);
    /* A third of the letters wrong is another word, not a slip. */
    if (distance * 3 > name_bytes + 2) {
        return;
    }
    if (nearest->name == NULL || distance < nearest->distance) {
        nearest->name = name;
        nearest->distance = distance;
    }
}
