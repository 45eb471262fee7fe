/*
 * cores.c - how many cores this process may use.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/cores.h"

#include <sched.h>

uint32_t
psi_usable_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}
