/*
 * gather_state.h - the machines of a job, and what they have to be told before it can begin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_GATHER_STATE_H
#define LAUNCH_GATHER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/link/sync.h"
#include "launch/plan/neighbours.h"
#include "launch/plan/plan.h"
#include "launch/run/host.h"
#include "launch/run/run_args.h"

/* Thread: owned by the main thread of psd_run. */
struct gather {
    const struct run_args *args;
    const struct plan *plan;
    const struct layout *layout;
    struct host *hosts; /* one for each machine */
    uint32_t host_count;
    struct computers computers; /* numbered when all have said hello, and when one is back */
    const char *directory;      /* psd_run's own: machines work there if they have it */
    const struct sync *sync;    /* (optional) files for other machines */
    const char *logs;           /* (optional) directory for the machines' own logs */
    const char *logs_token;     /* (optional) a file that tells them that it is psd_run's own */
    uint64_t failed_ms;         /* when the first machine could not be reached; 0: not yet */
};

#endif
