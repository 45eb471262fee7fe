/*
 * prepare.h - from the command line and the cluster file to a plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PREPARE_H
#define LAUNCH_PREPARE_H

#include <psd/status.h>

#include "cluster/cluster.h"
#include "launch/meet/remote_shell.h"
#include "launch/plan/layout.h"
#include "launch/plan/plan.h"
#include "launch/plan/tf_tasks.h"
#include "launch/prepare/options.h"
#include "launch/rules/watch.h"

/* What a command line comes to. */
struct prepared {
    struct plan plan;
    struct layout layout;
    struct watch_config watch;
    enum remote_shell_kind way;
    uint32_t requeues; /* how often a batch system has begun the job anew */
    char *pem_file;    /* NULL: none */
    char *username;    /* NULL: not said */
    struct words ssh_options;
    char program[4096];             /* path of psd_run */
    char note[TF_TASKS_NOTE_BYTES]; /* for the user: what is strange, but no mistake; "": nothing */
};

/* The psd_run that make up a job (multi_start.h): who takes part. */
struct prepare_tasks {
    struct layout_task *list;
    uint32_t count;
    bool may_return; /* one that is lost may be started again by somebody */
};

/*
 * Makes the plan and the rules of ending. PSD_ERR_INVALID: usage or cluster file; anything else:
 * the job cannot start. tasks: NULL: the machines are named by options, or here.
 */
psd_status prepare_job(const struct launch_options *options, char *const *environment,
                       const struct prepare_tasks *tasks, struct prepared *prepared_p,
                       struct psd_error *err);

/* Loads the cluster file. PSD_ERR_INVALID also when it is not there: that is a usage error, too. */
psd_status prepare_load_file(const char *path, struct psi_cluster *cluster_p,
                             struct psd_error *err);

/* The path of the psd_run that runs. */
psd_status prepare_own_program(char program_p[4096], struct psd_error *err);

/* How its machines are called. Borrows from it. */
struct remote_shell_rules prepare_shell_rules(const struct prepared *prepared);
void prepare_fini(struct prepared *prepared);

#endif
