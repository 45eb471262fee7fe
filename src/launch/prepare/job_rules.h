/*
 * job_rules.h - by which rules a job goes on and ends, from its options and settings.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOB_RULES_H
#define LAUNCH_JOB_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/plan/layout.h"
#include "launch/plan/plan.h"
#include "launch/prepare/options.h"
#include "launch/rules/watch.h"

/* --restart of single workers needs a job that waits for them, and says so to the daemons.
 * PSD_ERR_INVALID: options that contradict each other. */
psd_status job_rules_apply_restart(const struct launch_options *options,
                                   struct psi_settings *settings, struct psd_error *err);

/* Copies of what servers hold need another server, and a job that may go on without one; where nobody
 * has said whether there are any, the machines decide. PSD_ERR_INVALID. */
psd_status job_rules_settle_replicas(struct psi_settings *settings, const struct layout *layout,
                                     struct plan *plan, struct psd_error *err);

/* Slots for servers that may come while the job runs (max_servers). PSD_ERR_INVALID: none can. */
psd_status job_rules_make_room(const struct psi_settings *settings, struct layout *layout,
                               struct plan *plan, struct psd_error *err);

/* A batch system takes workers away and brings them back: the job waits, unless told not to. */
psd_status job_rules_apply_joining(struct psi_settings *settings, uint32_t wait_s,
                                   struct psd_error *err);

/* Of a job whose workers psd_run starts itself --min_workers is the master's setting. */
psd_status job_rules_min_workers(const struct launch_options *options,
                                 struct psi_settings *settings, struct psd_error *err);

/* Restarts of single workers. */
uint32_t job_rules_restarts(const struct launch_options *options,
                            const struct psi_settings *settings);

/* Borrows from the layout. may_return: a machine that is lost may be started again by somebody. */
struct watch_config job_rules(const struct launch_options *options,
                              const struct psi_settings *settings, const struct plan *plan,
                              const struct layout *layout, bool may_return);

#endif
