/*
 * wall_clock.h - the time of day, for people and for comparing machines. Deadlines:
 * base/monotonic.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WALL_CLOCK_H
#define LAUNCH_WALL_CLOCK_H

#include <stdint.h>

uint64_t wall_clock_ms(void); /* since 1970 */

#endif
