/*
 * options.h - the command line of psd_run.
 */
#ifndef LAUNCH_OPTIONS_H
#define LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "config/options.h"
#include "config/settings.h"

#define LAUNCH_NOT_GIVEN UINT32_MAX

/* Text is borrowed from argv. */
struct launch_options {
    bool help;
    bool version;
    const char *secret_file; /* NULL: a fresh secret */

    const char *cluster_config; /* NULL: this machine */
    const char *out;
    uint32_t servers; /* LAUNCH_NOT_GIVEN: 1, or what the file lists */
    uint32_t workers; /* likewise */
    const char *pass; /* NULL: not given */
    uint32_t max_restarts;
    uint32_t grace_ms;
    uint32_t timeout_s;    /* 0: any */
    const char *workdir;   /* NULL: not given */
    const char *interface; /* NULL: not given */
    struct psi_option_list forward;
    const char *name; /* of the job; NULL: after the command */
    bool replace;     /* end a job of that name first */
    bool detach;
    bool dry_run;
    bool check;
    const char *result_regex;
    const char *show;             /* ranks whose lines are shown; NULL: all */
    const char *log_mode;         /* launcher, nodes, both; NULL: launcher */
    const char *restart;          /* never, on-failure, exit-code; NULL: as on_worker_death says */
    const char *restart_scope;    /* process, group */
    const char *sync;             /* directory for other machines; NULL: none */
    bool keep_env;                /* the user's values of our variables win */
    uint32_t gpus_per_worker;     /* 0: as the cluster file says */
    const char *automatic;        /* on, off; NULL: not given */
    struct psi_settings settings; /* command line and environment */

    const char *command; /* one string; or */
    char *const *argv;   /* the words after "--"; NULL both: none given */
};

psd_status options_parse(int argc, char *const *argv, struct launch_options *options_p,
                         struct psd_error *err);

/* The answer to -h, to stdout. */
void options_help(void);

#endif
