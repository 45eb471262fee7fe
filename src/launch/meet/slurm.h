/*
 * slurm.h - what Slurm says about the allocation that psd_run is in, or about the step that it is
 * a task of. All of it stands in the environment.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SLURM_H
#define LAUNCH_SLURM_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "cluster/hostlist.h"
#include "cluster/numberlist.h"

/* Thread: immutable once read. */
struct slurm {
    const char *job_id;        /* borrowed from the environment */
    const char *step_id;       /* likewise; NULL: not is_step */
    bool is_step;              /* psd_run is a task of a step; else it is in a script or shell */
    struct psi_hostlist nodes; /* of the step or of the allocation, in Slurm's order */
    struct psi_numberlist tasks_on; /* how many tasks each node has */
    uint32_t tasks;                 /* of all nodes */
    struct psi_numberlist ports;    /* reserved for the step on each node; none: not asked for */
    uint32_t restarts;              /* how often Slurm has begun the job anew */
    uint32_t node;                  /* is_step: index of our node ... */
    uint32_t local;                 /* ... and which of its tasks we are */
};

/* Whether psd_run was started inside an allocation. */
bool slurm_is_around(char *const *environment);

/* Whether it is one of several tasks of a step. */
bool slurm_is_one_of_many(char *const *environment);

/* PSD_ERR_INVALID names the variable that makes no sense, and the column. */
psd_status slurm_read(char *const *environment, struct slurm *slurm_p, struct psd_error *err);
void slurm_fini(struct slurm *slurm);

/* The number of a task when tasks are counted node by node. */
uint32_t slurm_task(const struct slurm *slurm, uint32_t node, uint32_t local);

#endif
