/*
 * timer.h - time, and what repeated measurements say.
 */
#ifndef BENCH_TIMER_H
#define BENCH_TIMER_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic. */
uint64_t timer_now_ns(void);

/* The middle value; the lower one of two. Sorts values in place; count > 0. */
double timer_median(double *values, size_t count);

/* How many rounds fill target_ns when `rounds` took elapsed_ns; at least 3. */
uint64_t timer_rounds(uint64_t target_ns, uint64_t rounds, uint64_t elapsed_ns);

#endif
