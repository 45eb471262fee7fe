/*
 * timer.h - time, and what repeated measurements say.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_TIMER_H
#define BENCH_TIMER_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic. */
uint64_t timer_now_ns(void);

/* CPU time of all threads of this process. */
uint64_t timer_cpu_ns(void);

/* The middle value; the lower one of two. Sorts values in place; count > 0. */
double timer_median(double *values, size_t count);

/* The value that `percent` of them do not exceed, of values in rising order; count > 0. */
void timer_sort(uint64_t *values, size_t count);
uint64_t timer_percentile(const uint64_t *sorted, size_t count, unsigned percent);

/* How many rounds fill target_ns when `rounds` took elapsed_ns; at least 3. */
uint64_t timer_rounds(uint64_t target_ns, uint64_t rounds, uint64_t elapsed_ns);

/*
 * How many cores other programs kept busy since timer_load_begin(). They distort what is measured,
 * by less for ratios than for times, but they do.
 *
 * Thread: owned by the runner.
 */
struct timer_load {
    uint64_t at_ns;
    double all_s; /* CPU time of the machine, and of this program and its children that ended */
    double own_s;
};

void timer_load_begin(struct timer_load *load);
double timer_load_foreign(const struct timer_load *load);

#endif
