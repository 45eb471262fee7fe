/*
 * timer.c - time, and what repeated measurements say.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "timer.h"

#include <stdlib.h>
#include <time.h>

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 1000000 };

uint64_t
timer_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int
by_value(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

double
timer_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[(count - 1) / 2];
}

uint64_t
timer_rounds(uint64_t target_ns, uint64_t rounds, uint64_t elapsed_ns)
{
    const double fit = (double)target_ns * (double)rounds / (double)(elapsed_ns + 1);

    if (fit < ROUNDS_MIN) {
        return ROUNDS_MIN;
    }
    return fit > ROUNDS_MAX ? ROUNDS_MAX : (uint64_t)fit;
}
