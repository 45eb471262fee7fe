/*
 * processes.h - the processes of one row of the plan: jobs and peers live as long as the row, ceilings
 * as long as one size.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_PROCESSES_H
#define BENCH_PROCESSES_H

#include "group.h"
#include "plan.h"

/* Thread: owned by the runner. */
struct processes {
    const struct plan_row *row;
    struct group *groups[SUBJECTS];     /* of jobs and peers; several subjects share a job */
    struct ceiling *ceilings[SUBJECTS]; /* of this size */
};

/* Starts jobs and peers. Peers that are not installed are skipped with a line that says so.
 * launch: see options.h. */
psd_status processes_start(const struct plan_row *row, const char *launch,
                           struct processes *processes_p, struct psd_error *err);

/* Starts the ceilings for one size. */
psd_status processes_start_ceilings(struct processes *processes, uint64_t bytes,
                                    struct psd_error *err);
void processes_stop_ceilings(struct processes *processes);

/* The team of an subject; NULL: it does not take part. */
struct team *processes_team(const struct processes *processes, enum subject subject);

/* Ends everybody; PSD_ERR_JOB_FAILED: somebody did not end well. */
psd_status processes_end(struct processes *processes, struct psd_error *err);

/* After a failure. */
void processes_abandon(struct processes *processes);

#endif
