/*
 * control.h - a running job answers those who ask about it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CONTROL_H
#define LAUNCH_CONTROL_H

#include "launch/run/run_state.h"

/* Somebody is at the job's socket. */
void control_handle(struct run *run);

#endif
