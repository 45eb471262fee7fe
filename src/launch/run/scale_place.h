/*
 * scale_place.h - what psd_run scale does for workers and for servers alike: it finds a machine for
 * one more, and answers who asked.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SCALE_PLACE_H
#define LAUNCH_SCALE_PLACE_H

#include <stdio.h>

#include "launch/run/run_state.h"

enum { SCALE_LINE_BYTES = 400, SCALE_HOST_BYTES = 256 };

/* What differs between them. */
struct scale_kind {
    /* Why no more of them can be on the machine; NULL: they can. */
    const char *(*obstacle)(const struct run *run, uint32_t machine);
    /* So many of them are there. */
    uint32_t (*present)(const struct run *run, uint32_t machine);
};

/* The machine with the fewest of them; LAYOUT_NOWHERE: none can have any. */
uint32_t scale_emptiest_machine(const struct run *run, const struct scale_kind *kind);

/* The machine of that name; false: there is none, or it can have none of them, and why. */
bool scale_find_machine(const struct run *run, const struct scale_kind *kind, const char *name,
                        uint32_t *machine_p, char *why_p, size_t size);

/* A line for the console, the log of the run and who asked (NULL: nobody did). */
void scale_tell(struct run *run, FILE *answer, const char *line);

/* Does what was asked, and writes a line for each process; false: it cannot be done, and why. */
typedef bool (*scale_change_fn)(struct run *run, const void *asked, FILE *answer, char *why_p,
                                size_t size);

/* "done" and these lines, or "refused" and why. The caller's to free; NULL: there is no memory. */
char *scale_answer(struct run *run, scale_change_fn change, const void *asked);

#endif
