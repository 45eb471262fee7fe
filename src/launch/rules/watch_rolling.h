/*
 * watch_rolling.h - all servers are started anew, one after the other, while the job goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_ROLLING_H
#define LAUNCH_WATCH_ROLLING_H

#include <stddef.h>

#include "launch/rules/watch_state.h"

/* limit_ms: how long each server may take until nothing is missing any more. Returns false if it
 * cannot be done; text_p says why. Otherwise watch_ops.tell_rolling() is called with every step. */
bool watch_rolling_begin(struct watch *watch, uint32_t limit_ms, uint64_t now_ms, char *text_p,
                         size_t size);

/* Whether it is under way. */
bool watch_is_rolling(const struct watch *watch);

/* Something may have changed: goes on with the next server, or gives up. */
void watch_rolling_step(struct watch *watch, uint64_t now_ms);

#endif
