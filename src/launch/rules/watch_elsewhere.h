/*
 * watch_elsewhere.h - servers and the master of a machine that is gone go on elsewhere.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_ELSEWHERE_H
#define LAUNCH_WATCH_ELSEWHERE_H

#include "launch/rules/watch_state.h"

/* May the job go on without this machine, which has servers or the master? Yes, if another machine can
 * have them, and the job does without the workers there. Whether it then can is up to the master. */
bool watch_elsewhere_may(const struct watch *watch, uint32_t machine, uint64_t now_ms);

/* Whether its workers are all that a job misses that ends with this machine: the servers there had whole copies, or
 * nothing that workers cannot make anew, and the master could have gone elsewhere. */
bool watch_elsewhere_misses_workers(const struct watch *watch, uint32_t machine, uint64_t now_ms);

/* A server or the master is about to be started: if its machine is lost, on another one. */
void watch_elsewhere_move(struct watch *watch, uint32_t slot);

#endif
