/*
 * report.h - what psd_run says about a job: as it starts, when a process ends, at the end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_REPORT_H
#define LAUNCH_REPORT_H

#include <stdint.h>

#include "launch/run/run_state.h"

void report_begin(const struct run *run);

/* What the job consists of: "1 chief, 2 workers, 1 ps". */
void report_parts(const struct run *run, char *text_p, size_t size);

/* All machines are ready: which they are, and how workers learn their place. */
void report_gathered(struct run *run);

/* A machine was lost: `how`, or NULL: as its ssh or its agent, of that pid, ended. Keeps the words
 * in host->loss. */
void report_lost(struct run *run, struct host *host, pid_t pid, const char *how);

/* A machine did not end its processes in time, as far as we can hear. */
void report_given_up(struct run *run, const struct host *host);

/* What the master told of a process. */
void report_told(struct run *run, const struct psi_tiding *tiding, uint32_t slot);

/* A worker runs and has not joined, while others wait for it. */
void report_late(struct run *run, uint32_t slot, uint64_t waited_ms);

/* A process ended, and watch.c has seen it. Says so when nobody else will: a restart, a worker that
 * the job goes on without. */
void report_exit(struct run *run, const struct watch_event *event);

/* --check: the machines and what is wrong with them, to stdout. */
void report_check(const struct run *run);

/* The closing summary; with the last lines of the process that failed. */
void report_end(struct run *run, uint64_t elapsed_ms);

#endif
