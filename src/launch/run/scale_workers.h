/*
 * scale_workers.h - psd_run scale --workers: workers for a job that runs, or fewer of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SCALE_WORKERS_H
#define LAUNCH_SCALE_WORKERS_H

#include "launch/run/run_state.h"

/*
 * What a line to the control socket gets, to be freed; NULL: it is none of these.
 *   "scale workers SIGN NUMBER GRACE_S STEP HOST": "done" and a line for each worker; or "refused" and one with
 *   the reason. SIGN is +, - or =; STEP is that of --at_step, HOST the machine: 0 and - if they were not said.
 */
char *scale_workers_answer(struct run *run, const char *line);

/* What the master tells of who counts from which step on. */
void scale_workers_told(struct run *run, const struct psi_tiding *tiding, uint32_t slot);

/* "2 workers joined on the way, 1 was asked to leave"; "": nobody did, or was. */
void scale_workers_text(const struct run *run, char *text_p, size_t size);

#endif
