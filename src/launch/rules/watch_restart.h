/*
 * watch_restart.h - who failed lives again, after a while.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_RESTART_H
#define LAUNCH_WATCH_RESTART_H

#include "launch/rules/watch_state.h"

/*
 * How long to wait before a process that failed is started again: not at all if it lived for 10 s.
 * Otherwise delay_ms, and twice as long each time, up to 30 s. Without the delay, a process that
 * lacks a file, a port or a GPU's memory would use up all its restarts before that is there.
 * *hasty_p: short lives in a row so far.
 */
uint32_t watch_restart_delay_ms(uint32_t delay_ms, uint64_t lived_ms, uint32_t *hasty_p);

/* A life of the master, or of a server, that does not count against the number of restarts. */
enum { WATCH_SERVED_MS = 60000 };

/* Whether the next end of the master need not be the job's. */
bool watch_may_restart_master(const struct watch *watch, uint64_t now_ms);

/* A worker is to live again, now or after a while. */
void watch_start_again(struct watch *watch, uint32_t slot, uint64_t now_ms);

/* When the next restart, or the master's word about a server, is due; UINT64_MAX: neither. Then
 * starts those that are. */
uint64_t watch_next_due(const struct watch *watch);
void watch_start_due(struct watch *watch, uint64_t now_ms);

#endif
