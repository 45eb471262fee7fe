/*
 * group.h - programs started for one subject, whose workers call the runner.
 *
 * A group has a directory for logs and for the socket at which the runner listens. Its programs
 * start the workers in whatever way is theirs; each worker calls, and the group is complete.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_GROUP_H
#define BENCH_GROUP_H

#include <sys/types.h>

#include "team.h"

/* Thread: owned by the runner. */
struct group {
    char name[32]; /* for messages */
    bool restless; /* its programs do not sleep when they have nothing to do: they are stopped */
    struct team team;
    pid_t pids[TEAM_MAX + 1]; /* of what was started here */
    uint32_t pid_count;
    int listener;
    char directory[64]; /* removed when all went well */
    char control[96];   /* the socket's path, for the workers' command lines */
};

psd_status group_init(struct group *group, const char *name, struct psd_error *err);

/* Starts a program; what it prints goes into the log. words and environment as in process.h. */
psd_status group_start(struct group *group, const char *const *words,
                       const char *const *environment, struct psd_error *err);

/* Waits until this many workers have called. */
psd_status group_gather(struct group *group, uint32_t workers, struct psd_error *err);

/* Lets the workers leave and waits for the programs. PSD_ERR_JOB_FAILED: one did not end well; the
 * logs stay and the message says where. */
psd_status group_end(struct group *group, struct psd_error *err);

/* After a failure: stops the programs, keeps the logs and says where they are. */
void group_abandon(struct group *group);

/* A worker's side: calls the runner. */
psd_status group_call(const char *control, int *fd_p, struct psd_error *err);

#endif
