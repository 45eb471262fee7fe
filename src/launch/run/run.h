/*
 * run.h - carries a plan out: brings the machines in, gives their agents the orders of watch.c,
 * shows and logs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RUN_H
#define LAUNCH_RUN_H

#include "launch/run/run_args.h"

/* Runs the job to its end and returns the exit code of psd_run. Call it before any thread. */
int run_job(const struct run_args *args);

#endif
