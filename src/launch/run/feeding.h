/*
 * feeding.h - tells the feed (launch/page/feed.h) what psd_run knows of its job.
 *
 * Most of it is looked up again and again: so whoever changes the state of a process, of the job or
 * of its cause has nothing to remember.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_FEEDING_H
#define LAUNCH_FEEDING_H

#include "launch/run/run_state.h"

/* If there is no memory for a feed, nobody can watch, and the job goes on. */
void feeding_begin(struct run *run);

/* Looks, if it is time for it. */
void feeding_look(struct run *run, uint64_t now_ms);

/* The job has ended: the last state, and the curves as a file among the logs. */
void feeding_end(struct run *run);

#endif
