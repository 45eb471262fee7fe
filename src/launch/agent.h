/*
 * agent.h - the process that is the parent of all the others on one machine.
 *
 * It starts what it is told to, reports what ends, and ends everything, children of children
 * included, when it is told to or when the line to psd_run closes, whatever closed it.
 */
#ifndef LAUNCH_AGENT_H
#define LAUNCH_AGENT_H

#include <sys/types.h>

#include <psd/status.h>

struct agent {
    pid_t pid;
    int fd; /* psd_run's end of the line: link.h */
};

/* Starts the agent of this machine. Call it before any thread and before opening anything. */
psd_status agent_fork(struct agent *agent_p, int secret_fd, struct psd_error *err);

/*
 * After the agent died too early: kills what it was parent of, which became ours to adopt
 * (agent_fork saw to it). Returns when nothing is left.
 */
void agent_bury(const struct agent *agent);

#endif
