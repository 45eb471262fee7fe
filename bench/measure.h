/*
 * measure.h - subjects take turns: one timed run of each, then the next of each.
 *
 * A machine's speed moves within minutes, so those who are compared must run side by side, and
 * while one runs the others' processes sleep.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "results.h"

/* Thread: owned by the runner. */
struct measurement {
    struct team *team; /* several measurements may share one */
    struct team_order order;
    struct result *result;
};

/* Thread: immutable. */
struct measure_rules {
    double seconds;  /* of one timed run */
    uint32_t repeat; /* timed runs of each */
};

/* Warms everybody up, finds how many rounds fill a run, and has `repeat` runs of each. */
psd_status measure_run(struct measurement *measurements, size_t count,
                       const struct measure_rules *rules, struct psd_error *err);

#endif
