/*
 * runner.h - measures what the plan says and reports it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "options.h"

/* Prints the tables and writes the results. PSD_ERR_CORRUPT: a bit was wrong. */
psd_status runner_run(const struct bench_options *options, struct psd_error *err);

#endif
