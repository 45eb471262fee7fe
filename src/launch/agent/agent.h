/*
 * agent.h - the process that is the parent of all the others on one machine.
 *
 * It starts what it is told to, hands on what they print, reports what ends, and ends everything,
 * children of children included, when it is told to or when psd_run is gone: the line closes, or
 * nothing comes over it for the time of the lease.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_AGENT_H
#define LAUNCH_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/types.h>

#include <psd/status.h>

struct agent_handle {
    pid_t pid;
    int fd; /* psd_run's end of the line: link.h */
};

/* Starts the agent of this machine, which takes psd_run's entry out of the list of jobs when
 * psd_run dies; entry_path is NULL when there is none. lease_ms: silence after which it gives up,
 * counted from the first greeting on; 0: any. detached: psd_run is in the background. Call it
 * before any thread and before opening anything. */
psd_status agent_fork(struct agent_handle *agent_p, char *const *environment,
                      const char *entry_path, uint32_t lease_ms, bool detached,
                      struct psd_error *err);

/* `psd_run --agent`: the agent of a machine that ssh or srun reached. Returns the exit code. */
int agent_serve(char *const *environment);

#endif
