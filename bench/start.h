/*
 * start.h - how long a job takes from its command to its first barrier.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_START_H
#define BENCH_START_H

#include <psd/status.h>

#include "options.h"

/* Jobs with more and more workers on this host, each several times; prints a table. */
psd_status start_run(const struct bench_options *options, struct psd_error *err);

#endif
