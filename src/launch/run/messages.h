/*
 * messages.h - what the agents tell psd_run of their processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MESSAGES_H
#define LAUNCH_MESSAGES_H

#include "launch/run/run_state.h"

/* Something came from the agent of a machine, or its line has closed. */
void messages_read(struct run *run, struct host *host);

/* Who started us in the background is told how the start went, once. */
void messages_tell_detached(struct run *run, const char *how);

#endif
