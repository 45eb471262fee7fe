/*
 * sparse_store.h - how fast a lane's rows are found and changed, beside a plain hash table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SPARSE_STORE_H
#define BENCH_SPARSE_STORE_H

#include <stdio.h>

#include "options.h"

/* Prints a table; lines of JSON go to `lines` (NULL: nowhere). PSD_ERR_CORRUPT: a bit was wrong. */
psd_status sparse_store_run(const struct bench_options *options, FILE *lines,
                            struct psd_error *err);

#endif
