/*
 * spin.h - waiting without giving up the core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SPIN_H
#define BENCH_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "timer.h"

/* Between two looks. */
static inline void
spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/*
 * A wait that spins, but not for ever: after some milliseconds without success the run is over and
 * the others are measured. Zero it before each wait.
 *
 * Thread: owned by the thread that waits.
 */
struct spin {
    uint32_t looks;
    uint64_t until_ns;
};

/* After a look without success: whether to look again. */
static inline bool
spin_more(struct spin *spin)
{
    enum { LOOKS_PER_CLOCK = 256, LIMIT_NS = 2000000 };

    if (++spin->looks % LOOKS_PER_CLOCK != 0) {
        return true;
    }
    if (spin->until_ns == 0) {
        spin->until_ns = timer_now_ns() + LIMIT_NS;
    }
    return timer_now_ns() < spin->until_ns;
}

#endif
