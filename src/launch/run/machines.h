/*
 * machines.h - machines come into a job, are lost, and come back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MACHINES_H
#define LAUNCH_MACHINES_H

#include <stdbool.h>

#include "launch/run/run_state.h"

/* To be called whenever something has happened: brings the machines in, and starts the job when all
 * are ready. */
void machines_gather(struct run *run);

/* The line of a machine has closed. */
void machines_closed(struct run *run, struct host *host);

/* A machine is lost. how: in words; NULL: its line was closed. silent: nothing came of it. */
void machines_lose(struct run *run, struct host *host, const char *how, bool silent);

/* It has not ended its processes in time. */
void machines_give_up(struct run *run, struct host *host);

/* A machine cannot be used. The others may have something to tell as well. */
void machines_refuse(struct run *run, struct host *host, const struct psd_error *why);

/* Somebody is at the door of join.h. */
void machines_join(struct run *run);

/* To be called whenever something has happened: machines that are back get what they need; then
 * their workers start. */
void machines_return(struct run *run);

#endif
