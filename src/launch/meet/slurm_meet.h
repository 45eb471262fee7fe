/*
 * slurm_meet.h - how the tasks of a Slurm step, each a psd_run, find the first of them.
 *
 * Task 0 opens a door on its node: on a port that Slurm reserved, else on the first free one of a
 * few that follow from the numbers of job and step. Whoever knocks is told in one line which step
 * this is, where its psd_run listens, and the job's secret as a MUNGE credential (munge.h), which
 * may be seen by anybody. The others know node and ports as well as task 0 does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SLURM_MEET_H
#define LAUNCH_SLURM_MEET_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/meet/joiner.h"
#include "launch/meet/slurm.h"

/* Thread: owned by the main thread of psd_run. */
struct slurm_meet;

struct slurm_meet_config {
    const struct slurm *slurm; /* borrowed until slurm_meet_close() */
    const char *step;          /* "JOB.STEP"; copied */
    bool munge;                /* the secret goes with it; else all have the same file */
    uint16_t port;             /* of the door; 0: one of those that follow from `step` */
};

/* Task 0 opens its door, and says nothing yet. */
psd_status slurm_meet_open(const struct slurm_meet_config *config, struct slurm_meet **meet_p,
                           struct psd_error *err);

/* Task 0: from now on a process of its own answers at the door. Call it before any thread. */
psd_status slurm_meet_answer(struct slurm_meet *meet, int secret_fd, struct psd_error *err);

/* Task 0: where its psd_run listens; 0: not at present. */
void slurm_meet_tell(struct slurm_meet *meet, uint16_t port);

/* Other tasks: the secret. Waits until task 0 has opened. Returns the descriptor, as
 * launch_secret_offer() does; -1 with err. */
int slurm_meet_secret(struct slurm_meet *meet, uint32_t wait_ms, struct psd_error *err);

/* Other tasks: where task 0 is, as joiner_find() says. */
psd_status slurm_meet_find(struct slurm_meet *meet, char address_p[JOINER_ADDRESS_BYTES],
                           struct psd_error *err);

/* NULL is fine. */
void slurm_meet_close(struct slurm_meet *meet);

#endif
