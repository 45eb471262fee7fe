/*
 * clocks.h - how far the clock of a process is from the one that counts.
 *
 * The processes of a machine have one clock. How far those of two machines with workers are apart is known
 * from the ends of steps (late.h). For a machine with servers alone, it is between two bounds: the first
 * gradient of a round came to the server after the first push of it had begun, and the round had closed
 * before any of these pushes had ended. Of all rounds that are kept, the tightest bounds count.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_CLOCKS_H
#define LAUNCH_PAGE_CLOCKS_H

#include "launch/page/feed_state.h"

struct clock_offset {
    bool known;
    int64_t us;       /* ahead of the clock that counts */
    int64_t doubt_us; /* at most so much more or less; 0: it is that of a machine with workers */
};

/* Pure; with the feed's lock held. */
struct clock_offset clocks_worker(const struct feed *feed, uint32_t rank);
struct clock_offset clocks_server(const struct feed *feed, uint32_t server);

#endif
