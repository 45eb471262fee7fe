/*
 * descriptors.c - how many descriptors a daemon may open, and how many of them strangers may hold.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/descriptors.h"

#include <sys/resource.h>

enum { STRANGERS_MAX = 256, STRANGERS_SHARE = 4 };

uint32_t
psi_descriptors_raise(void)
{
    struct rlimit limit = {0};
    struct rlimit wanted;

    (void)getrlimit(RLIMIT_NOFILE, &limit); /* with these arguments it cannot fail */
    wanted = (struct rlimit){.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &wanted) == 0) {
        limit = wanted;
    }
    return limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
}

uint32_t
psi_descriptors_for_strangers(uint32_t limit, uint32_t loops)
{
    const uint32_t share = limit / STRANGERS_SHARE / loops;

    if (share > STRANGERS_MAX) {
        return STRANGERS_MAX;
    }
    return share > 0 ? share : 1;
}
