/*
 * watch_stop.h - psd_run was asked to stop: at once, or when the job is saved.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_STOP_H
#define LAUNCH_WATCH_STOP_H

#include "launch/rules/watch_state.h"

void watch_interrupted(struct watch *watch, int number, uint64_t now_ms);

/* The checkpoint is there, or the wait for it is over: now the job is stopped. */
void watch_saving_over(struct watch *watch, uint64_t now_ms);

/* Asked to stop, it waits for a checkpoint first. */
bool watch_is_saving(const struct watch *watch);

#endif
