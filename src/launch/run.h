/*
 * run.h - carries a plan out: brings the machines in, gives their agents the orders of watch.c,
 * shows and logs.
 */
#ifndef LAUNCH_RUN_H
#define LAUNCH_RUN_H

#include "launch/layout.h"
#include "launch/plan.h"
#include "launch/watch.h"

struct run_args {
    const struct plan *plan;
    const struct layout *layout;
    struct watch_config watch;
    const char *job;          /* its name */
    const char *out;          /* directory for the logs */
    const char *runlog;       /* psd_run's own log */
    char *const *environment; /* psd_run's own */
    int secret_fd;            /* the job's secret, for every process */

    const char *program;             /* path of psd_run */
    const char *pem_file;            /* (optional) */
    const char *username;            /* (optional) for machines that name none */
    const struct words *ssh_options; /* (optional) */
    const char *interface;           /* (optional) */
};

/* Runs the job to its end and returns the exit code of psd_run. Call it before any thread. */
int run_job(const struct run_args *args);

#endif
