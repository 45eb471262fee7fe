/*
 * monotonic.c - the time of a clock that nobody sets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/monotonic.h"

#include <time.h>

uint64_t
psi_monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
psi_monotonic_ms(void)
{
    return psi_monotonic_ns() / 1000000;
}
