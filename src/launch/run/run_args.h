/*
 * run_args.h - what run_job() is told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RUN_ARGS_H
#define LAUNCH_RUN_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/agent/agent.h"
#include "launch/meet/join.h"
#include "launch/meet/remote_shell.h"
#include "launch/page/page.h"
#include "launch/plan/layout.h"
#include "launch/plan/plan.h"
#include "launch/rules/watch.h"
#include "launch/run/shown.h"

/* Borrowed until run_job() returns. */
struct run_args {
    const struct plan *plan;
    const struct layout *layout;
    struct watch_config watch;
    const char *job;       /* its name */
    const char *command;   /* of the workers, as it was given; masked */
    const char *arguments; /* all of psd_run's command line; masked */
    const char *what;      /* (optional) what it comes to: what_runs.h */
    uint32_t attempt;      /* restarts of the whole job before this one */
    bool begins_anew;      /* ... which may follow upon a failure */
    uint32_t delay_ms;  /* to wait before anything is started, so that the last failure may pass */
    uint32_t requeues;  /* of the job by a batch system before this life */
    bool *port_taken_p; /* set when the job failed because a worker's port was taken */
    int listener;       /* for show, logs and stop; -1: none */
    const char *entry_path;    /* of the listener; NULL: none */
    int detach_fd;             /* told how the start went; -1: not detached */
    bool check;                /* only look whether all machines are ready */
    char (*addresses_p)[64];   /* (optional) check: their addresses, by machine, instead of words */
    const char *result_regex;  /* (optional) extended regular expression */
    const char *tensorboard;   /* (optional) directory for its files */
    bool unwatched;            /* there is no feed, and processes tell nothing of what they count */
    const char *show;          /* (optional) ranks whose lines are shown: "0,2-3", "none" */
    bool logs_on_nodes;        /* other machines write logs of their processes ... */
    bool logs_here;            /* ... and psd_run does, too */
    const char *sync;          /* (optional) directory that other machines get */
    const char *tf_config_dir; /* (optional) directory for the TF_CONFIG of every task */
    const char *out;           /* directory for the logs */
    char **directory_p; /* of this job's logs, from the first attempt on; owned by the caller */
    const char *runlog; /* psd_run's own log */
    char *const *environment; /* psd_run's own */
    int secret_fd;            /* the job's secret, for every process */
    const char *secret_file;  /* (optional) where it came from */

    struct remote_shell_rules shell;
    const char *interface; /* (optional) */

    const struct page_args *page; /* (optional) the page on which people watch */
    struct shown *shown;          /* what they are shown, through all attempts; NULL with check */
    struct join *join;            /* (optional) where the machines that join are: join.h */
    struct agent_handle agent;    /* (optional) of this machine; pid 0: it is to be forked */
    const char *advertised;       /* (optional) address under which others reach this machine */
    void (*tick)(void *context);  /* (optional) called every second */
    void *tick_context;
    int *signal_p; /* (optional) set to the signal that asked psd_run to stop; SIGINT for psd_run
                      stop */
    uint64_t
        *saved_p; /* (optional) set to the step at which it was saved before a signal stopped it */
    bool *
        asked_p; /* (optional) set when one that joined was asked to leave, so that the job is saved and stopped */
    bool *began_p; /* (optional) set when the first process was started */
};

#endif
