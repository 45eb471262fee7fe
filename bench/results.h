/*
 * results.h - what was measured: one entry for each subject in each situation.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_RESULTS_H
#define BENCH_RESULTS_H

#include <stddef.h>

#include "subjects.h"
#include "team.h"

enum { RESULTS_MAX = 2048, RESULT_REPEAT_MAX = 101 };

enum transport { TRANSPORT_SHM, TRANSPORT_TCP, TRANSPORT_TLS };

const char *transport_name(enum transport transport);

/* Subjects that met: only they are compared. */
struct situation {
    enum transport transport;
    uint32_t workers;
    uint32_t servers;
    uint64_t bytes;
};

/* Thread: owned by the runner. */
struct result {
    struct situation situation;
    enum subject subject;
    enum subject_timing timing;
    bool shared;                        /* workers have the values in a server's memory */
    uint32_t repeat;                    /* timed runs so far */
    double round_ns[RESULT_REPEAT_MAX]; /* one round, in each run */
    double median_ns[RESULT_REPEAT_MAX];
    double p90_ns[RESULT_REPEAT_MAX];
    double p99_ns[RESULT_REPEAT_MAX];
    double cpu_ns[RESULT_REPEAT_MAX]; /* of all its processes, for one round */
    double idle_ns;                   /* while others ran ... */
    double idle_cpu_ns;               /* ... and what it used then */
};

/* A middle value and its neighbours. */
struct spread {
    double middle;
    double least;
    double most;
};

/* Thread: owned by the runner. */
struct results {
    struct result *list[RESULTS_MAX];
    size_t count;
};

/* A new entry; NULL: no memory. The results own it. */
struct result *results_add(struct results *results, const struct situation *situation,
                           enum subject subject, enum subject_timing timing);
void results_fini(struct results *results);

/* NULL: nobody measured that. */
const struct result *results_find(const struct results *results, const struct situation *situation,
                                  enum subject subject, enum subject_timing timing);

/* The best of those that its subject is measured by; NULL: none took part. */
const struct result *results_reference(const struct results *results, const struct result *result);

/* One run more. */
void result_note(struct result *result, const struct team_times *times, uint64_t rounds);

/* Whether it was measured there. */
bool result_is_of(const struct result *result, const struct situation *situation);

/* So small that a round trip matters most, and medians tell more than means. */
bool result_is_small(const struct result *result);

/* Asked for shared memory and got none: it was measured over tcp and must not be called shm. */
bool result_missed_shm(const struct result *result);

struct spread result_spread(const double *values, size_t count);

/* How much sooner `result` is through than `reference`, run by run: subjects take turns, so the
 * n-th runs of both stood under the same star. More is better for result. small: by the median of
 * rounds, not by their mean. */
struct spread result_ratio(const struct result *result, const struct result *reference, bool small);

/* Bytes per nanosecond, that is gigabytes per second, of each worker's tensor; and elements. */
struct spread result_speed(const struct result *result);
double result_elements(const struct result *result);

/* Of all processes, for a gigabyte of one worker's tensor. */
double result_cpu_s_per_gb(const struct result *result);

#endif
