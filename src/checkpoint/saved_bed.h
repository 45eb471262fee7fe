/*
 * saved_bed.h - a job of two servers whose one table is saved again and again: for tests of what is left of the
 * files when something goes wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_SAVED_BED_H
#define PSI_CHECKPOINT_SAVED_BED_H

#include "checkpoint/earlier.h"
#include "checkpoint/outline.h"

enum { PIECES = 6, ELEMENTS = 40, PIECE = ELEMENTS * 4 };

/* Two servers of a job: what they remember, and the table that they share. */
struct server_pair {
    const char *path;
    struct psi_earlier earlier[2];
    uint64_t last;
    uint64_t tokens;
    float values[PIECES][ELEMENTS];
    bool writes_all; /* the next one */
};

void pair_init(struct server_pair *pair, const char *path);
void pair_fini(struct server_pair *pair);

/* At this step the piece changes. */
void change_piece(struct server_pair *pair, unsigned piece, uint64_t step);

/* What each piece was at a step: piece i changes at the steps that i + 2 divides, all at step 1. */
void go_to(struct server_pair *pair, uint64_t step);

struct psi_outline outline_of(uint64_t step);

/* One generation, as the master and two servers make it. Two are kept. */
psd_status save_step(struct server_pair *pair, const struct psi_disk *disk, uint64_t step);

/* So many generations are whole, and have what there was at their steps; the newest of them is of that step. */
unsigned count_whole(const char *path, uint64_t *newest_step_p);

/* *state: the path of an empty directory. */
int make_directory(void **state);
int remove_directory(void **state);
void clear_directory(const char *path);

#endif
