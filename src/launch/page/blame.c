/*
 * blame.c - whether it is one of several that is waited for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/blame.h"

#include <math.h>

/* How often chance may be taken for a fault; the bound is a cautious one. */
static const double chance = 0.1;

void
blame_add(struct blame *blame, uint64_t total_us, uint64_t waited_us)
{
    blame->now_us += (double)waited_us;
    blame->spent_us += total_us;
    if (blame->spent_us >= blame->stretch_us) {
        blame->us += blame->now_us;
        blame->squares += blame->now_us * blame->now_us;
        blame->now_us = 0;
        blame->spent_us = 0;
    }
}

/* Of two distributions over "this one" and "another one", how far the first is from the second. */
static double
divergence(double share, double fair)
{
    const double others = share < 1 ? (1 - share) * log((1 - share) / (1 - fair)) : 0;

    return share * log(share / fair) + others;
}

bool
blame_stands_out(const struct blame *blame, uint64_t one_us, uint32_t choices)
{
    const double us = blame->us + blame->now_us;
    const double squares = blame->squares + blame->now_us * blame->now_us;
    const double fair = 1.0 / choices;
    const double share = us > 0 ? fmin((double)one_us / us, 1) : 0;

    if (choices <= 1) {
        return true;
    }
    return share > fair &&
           us * us / squares * divergence(share, fair) >= log((double)choices / chance);
}
