/*
 * role.h - the slot of a process, and what it says of its role.
 *
 * Slots number the processes of a job: the master is 0, the servers are 1..S, the workers S+1..S+W.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_ROLE_H
#define LAUNCH_ROLE_H

#include <stdint.h>

enum launch_role { LAUNCH_MASTER, LAUNCH_SERVER, LAUNCH_WORKER };

static inline enum launch_role
role_of_slot(uint32_t slot, uint32_t servers)
{
    return slot == 0 ? LAUNCH_MASTER : slot <= servers ? LAUNCH_SERVER : LAUNCH_WORKER;
}

/* The number of a process within its role. */
static inline uint32_t
role_index(uint32_t slot, uint32_t servers)
{
    return slot == 0 ? 0 : slot <= servers ? slot - 1 : slot - 1 - servers;
}

static inline const char *
role_name(enum launch_role role)
{
    static const char *const names[] = {"master", "server", "worker"};

    return names[role];
}

#endif
