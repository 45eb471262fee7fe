/*
 * watch_machines.h - what becomes of a job whose machines are lost, and come back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_MACHINES_H
#define LAUNCH_WATCH_MACHINES_H

#include "launch/rules/watch_state.h"

uint32_t watch_machine_of(const struct watch *watch, uint32_t slot);

/* A machine is out of reach. Everything there ends by itself. */
void watch_machine_lost(struct watch *watch, const struct watch_event *event, uint64_t now_ms);
void watch_machine_back(struct watch *watch, uint32_t machine);

/* Whether a machine with workers alone that is lost now is waited for. */
bool watch_replaces(const struct watch *watch);

/* The first slot whose machine may come back, and until when; 0: none. */
uint32_t watch_first_away(const struct watch *watch, uint64_t *until_ms_p);

#endif
