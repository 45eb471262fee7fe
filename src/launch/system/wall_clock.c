/*
 * wall_clock.c - the time of day, for people and for comparing machines. Deadlines:
 * base/monotonic.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/wall_clock.h"

#include <time.h>

uint64_t
wall_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
