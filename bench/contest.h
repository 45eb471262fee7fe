/*
 * contest.h - contestants take turns: one timed run of each, then the next of each.
 *
 * A machine's speed moves within minutes, so those who are compared must run side by side, and
 * while one runs the others' processes sleep.
 */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include "results.h"

/* Thread: owned by the runner. */
struct contestant {
    struct crew *crew; /* several contestants may share one */
    struct crew_order order;
    struct result *result;
};

/* Thread: immutable. */
struct contest_rules {
    double seconds;  /* of one timed run */
    uint32_t repeat; /* timed runs of each */
};

/* Warms everybody up, finds how many rounds fill a run, and has `repeat` runs of each. */
psd_status contest_run(struct contestant *contestants, size_t count,
                       const struct contest_rules *rules, struct psd_error *err);

#endif
