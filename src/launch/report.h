/*
 * report.h - what psd_run says about a job: as it starts, when a process ends, at the end.
 */
#ifndef LAUNCH_REPORT_H
#define LAUNCH_REPORT_H

#include <stdint.h>

#include "launch/run_state.h"

void report_begin(const struct run *run);

/* A process ended, and watch.c has seen it. Says so when nobody else will: a restart, a worker that
 * the job goes on without. */
void report_exit(struct run *run, const struct watch_event *event);

/* The closing summary; with the last lines of the process that failed. */
void report_end(struct run *run, uint64_t elapsed_ms);

#endif
