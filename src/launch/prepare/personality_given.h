/*
 * personality_given.h - what kind of script the options say it is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PERSONALITY_GIVEN_H
#define LAUNCH_PERSONALITY_GIVEN_H

#include "launch/plan/plan.h"
#include "launch/plan/tf_tasks.h"
#include "launch/prepare/options.h"

/* Fills in the plan's personality; with --tf_config also who there is, and a note for the user. */
psd_status personality_given(const struct launch_options *options, char *const *environment,
                             struct plan *plan, char note_p[TF_TASKS_NOTE_BYTES],
                             struct psd_error *err);

#endif
