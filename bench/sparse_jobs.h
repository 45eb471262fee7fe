/*
 * sparse_jobs.h - jobs whose workers look rows up and push them, beside plain memory and caches.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SPARSE_JOBS_H
#define BENCH_SPARSE_JOBS_H

#include <stdio.h>

#include "options.h"

/* Prints a table. lines: gets a line of JSON for each row; NULL: nobody wants them. */
psd_status sparse_jobs_run(const struct bench_options *options, FILE *lines, struct psd_error *err);

#endif
