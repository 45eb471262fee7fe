/*
 * urgent.h - how long a small tensor takes while a large one is in flight.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_URGENT_H
#define BENCH_URGENT_H

#include "measured.h"

/* Follows TEAM_URGENT; worker->measured and worker->memory are those of the large tensor. */
psd_status urgent_run(struct worker *worker, const struct team_order *order,
                      struct team_times *times, struct psd_error *err);

#endif
