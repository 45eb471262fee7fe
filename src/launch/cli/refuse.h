/*
 * refuse.h - what psd_run says when it does not start a job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_REFUSE_H
#define LAUNCH_REFUSE_H

#include <psd/status.h>

/* Says why, and returns the exit code: mistakes in the usage have one of their own. */
int refuse(const struct psd_error *err);

#endif
