/*
 * scratch.h - a directory for what workers on this machine write and nobody wants to keep.
 *
 * The agent makes it before the first worker and removes it with all its content after the last.
 * One whose agent was killed is removed by the next agent of the same user that makes one here: an
 * agent holds a lock on its directory as long as it lives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SCRATCH_H
#define LAUNCH_SCRATCH_H

#include <psd/status.h>

enum { SCRATCH_PATH_BYTES = 512 };

/* Thread: owned by the agent. All zero but lock == -1: there is none. */
struct scratch {
    char path[SCRATCH_PATH_BYTES];
    int lock; /* -1: none; closed in children */
};

/* base: TMPDIR or /tmp. */
psd_status scratch_create(struct scratch *scratch_p, const char *base, struct psd_error *err);

void scratch_destroy(struct scratch *scratch);

#endif
