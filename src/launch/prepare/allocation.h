/*
 * allocation.h - the nodes and tasks of a Slurm allocation as the machines and processes of a job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_ALLOCATION_H
#define LAUNCH_ALLOCATION_H

#include "cluster/cluster.h"
#include "launch/meet/slurm.h"
#include "launch/plan/roles.h"
#include "launch/prepare/options.h"

/*
 * What each task is: as --roles or "tasks" list them, or as --servers and --placement say; without
 * any of them all are workers, and roles_p->servers is 0. PSD_ERR_INVALID: the list is not as long
 * as there are tasks, or two of them contradict each other.
 */
psd_status allocation_roles(const struct launch_options *options, const struct psi_cluster *cluster,
                            const struct slurm *slurm, struct roles *roles_p,
                            struct psd_error *err);

/*
 * Names the nodes of the processes in a cluster that has none. Where no task is a server, every
 * node has one beside its tasks. The master is on the first node unless the cluster says otherwise.
 */
psd_status allocation_fill(const struct slurm *slurm, const struct roles *roles,
                           struct psi_cluster *cluster, struct psd_error *err);

#endif
