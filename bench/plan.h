/*
 * plan.h - which jobs are started, with tensors of which sizes, and who takes part.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_PLAN_H
#define BENCH_PLAN_H

#include "options.h"

enum { PLAN_ROWS_MAX = 32 };

/* One job, and whom it meets. */
struct plan_row {
    enum transport transport;
    uint32_t workers;
    uint32_t servers;
    struct bench_sizes sizes;
    uint64_t subjects; /* SUBJECT_BITs */
};

struct plan {
    size_t count;
    struct plan_row rows[PLAN_ROWS_MAX];
};

void plan_make(const struct bench_options *options, struct plan *plan_p);

#endif
