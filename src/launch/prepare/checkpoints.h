/*
 * checkpoints.h - where a job's checkpoints go, and from which one it goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CHECKPOINTS_H
#define LAUNCH_CHECKPOINTS_H

#include "launch/plan/plan.h"
#include "launch/prepare/options.h"

/*
 * Makes options of the daemons of --checkpoint, --checkpoint_every, --keep and --resume.
 * PSD_ERR_INVALID: they make no sense; PSD_ERR_CORRUPT, PSD_ERR_IO: nothing intact to resume.
 */
psd_status checkpoints_settle(const struct launch_options *options, struct plan *plan,
                              struct psd_error *err);

/*
 * The job goes on from the newest intact generation in the directory, instead of from what was said
 * before. Says which on stderr, and what is wrong with newer ones.
 */
psd_status checkpoints_resume(const char *directory, struct plan *plan, struct psd_error *err);

/* Is there any generation in it, intact or not? */
bool checkpoints_any(const char *directory);

#endif
