/*
 * cores.c - the cores this process may use, and how its threads share them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

uint32_t
psi_usable_cores(void)
{
    cpu_set_t set;
    long online;

    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    online = sysconf(_SC_NPROCESSORS_ONLN); /* more of them than a cpu_set_t holds */
    return online > 1 ? (uint32_t)online : 1;
}

void
psi_cores_keep_to_share(uint32_t index, uint32_t shares)
{
    cpu_set_t usable;
    cpu_set_t share;
    uint32_t seen = 0;
    uint32_t count;

    if (sched_getaffinity(0, sizeof(usable), &usable) != 0) {
        return;
    }
    count = (uint32_t)CPU_COUNT(&usable);
    if (shares < 2 || shares > count) {
        return;
    }
    CPU_ZERO(&share);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &usable)) {
            if (seen * shares / count == index) {
                CPU_SET(core, &share);
            }
            seen++;
        }
    }
    (void)sched_setaffinity(0, sizeof(share), &share); /* refused: the scheduler decides, as ever */
}
