/*
 * rolling.h - servers that are restarted one after the other: what those who asked for it are told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_ROLLING_H
#define LAUNCH_ROLLING_H

#include "launch/run/run_state.h"

/* watch_ops.tell_rolling(): the restart is one step further. */
void rolling_tell(struct run *run);

/* What a line to the control socket gets, to be freed; NULL: it is none of these.
 *   "restart servers SECONDS": "going", or "refused" and a line with the reason.
 *   "restart from N": "going", "done" or "failed", and the lines from the N-th on. */
char *rolling_answer(struct run *run, const char *line);

#endif
