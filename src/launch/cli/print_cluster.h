/*
 * print_cluster.h - psd_run --print_cluster: which task of a Slurm allocation is what, and where it
 * is reached, for scripts that set up their processes themselves.
 *
 *     {"ps": ["10.0.0.1:12000"], "worker": ["10.0.0.1:12001", "10.0.0.2:12000"]}
 *     worker 1
 *
 * In a task of a step, the second line is its own place. The ports are those that Slurm reserved
 * for the step (srun --resv-ports), else a range that follows from the number of the job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PRINT_CLUSTER_H
#define LAUNCH_PRINT_CLUSTER_H

#include "launch/prepare/options.h"
#include "launch/run/run.h"

/* Prints to stdout and returns the exit code. args: what run_job() needs besides the plan, to ask
 * the nodes for their addresses. */
int print_cluster(const struct launch_options *options, struct run_args *args,
                  struct psd_error *err);

#endif
