/*
 * prepare.h - from the command line and the cluster file to a plan.
 */
#ifndef LAUNCH_PREPARE_H
#define LAUNCH_PREPARE_H

#include <psd/status.h>

#include "launch/options.h"
#include "launch/plan.h"
#include "launch/watch.h"

/*
 * Makes the plan and the rules of ending. PSD_ERR_INVALID: usage or cluster file; anything else:
 * the job cannot start on this machine.
 */
psd_status prepare_job(const struct launch_options *options, char *const *environment,
                       struct plan *plan_p, struct watch_config *watch_p, struct psd_error *err);

#endif
