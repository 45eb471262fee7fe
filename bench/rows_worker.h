/*
 * rows_worker.h - a worker of a Poseidon job that asks for rows of sparse tables and pushes them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_ROWS_WORKER_H
#define BENCH_ROWS_WORKER_H

#include <psd/psd.h>

#include "team.h"

struct rows_table;

/* Thread: owned by the worker's thread. */
struct rows_worker {
    psd_context *context;
    struct rows_table *first; /* every kind of table that was ordered so far */
    uint32_t count;
};

/* Follows a TEAM_ROWS order. The first one about a table opens and fills it. */
psd_status rows_worker_follow(struct rows_worker *worker, const struct team_order *order,
                              struct team_times *times, struct psd_error *err);
void rows_worker_fini(struct rows_worker *worker);

#endif
