/*
 * sparse_growth.h - a lane's rows grow from none to very many: the longest stop, and the memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SPARSE_GROWTH_H
#define BENCH_SPARSE_GROWTH_H

#include <stdio.h>

#include <psd/status.h>

/* Without and with the thread that touches memory ahead (store/sparse/ahead.h). 50 million rows take
 * 8 GB and minutes. */
psd_status sparse_growth_run(size_t rows, FILE *lines, struct psd_error *err);

#endif
