/*
 * monotonic.c - clocks that nobody sets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/monotonic.h"

#include <time.h>

static inline uint64_t
read_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
psi_monotonic_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t
psi_monotonic_ms(void)
{
    return psi_monotonic_ns() / 1000000;
}

uint64_t
psi_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t
psi_process_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}
