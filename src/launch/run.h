/*
 * run.h - carries a plan out: starts the agent, gives it the orders of watch.c, shows and logs.
 */
#ifndef LAUNCH_RUN_H
#define LAUNCH_RUN_H

#include "launch/plan.h"
#include "launch/watch.h"

struct run_args {
    const struct plan *plan;
    struct watch_config watch;
    const char *out;          /* directory for the logs */
    const char *runlog;       /* psd_run's own log */
    char *const *environment; /* psd_run's own */
    int secret_fd;            /* the job's secret, for every process */
};

/* Runs the job to its end and returns the exit code of psd_run. Call it before any thread. */
int run_job(const struct run_args *args);

#endif
