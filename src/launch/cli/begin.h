/*
 * begin.h - a job from its command line to its exit code: looked at, named, perhaps in the
 * background, perhaps several times.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_BEGIN_H
#define LAUNCH_BEGIN_H

#include "launch/prepare/options.h"

/* Returns the exit code of psd_run. */
int begin_job(const struct launch_options *options, char *const *argv);

#endif
