/*
 * sparse_cold.h - a lane's rows when memory does not hold them all, beside the same rows in memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SPARSE_COLD_H
#define BENCH_SPARSE_COLD_H

#include <stdio.h>

#include <psd/status.h>

/* Memory holds so many rows; there are as many, 4 and 10 times as many. Those that it does not hold go
 * to TMPDIR, or /var/tmp. What the kernel keeps of that file in memory is its affair: a control group
 * bounds it, if this process is in one. */
psd_status sparse_cold_run(size_t hot_rows, double seconds, FILE *lines, struct psd_error *err);

#endif
