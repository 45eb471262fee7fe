/*
 * what_runs.h - what a job comes to, so that `psd_run run` can tell whether it is the job that
 * runs already: not how it was written, where its logs go, or who looks on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WHAT_RUNS_H
#define LAUNCH_WHAT_RUNS_H

#include <stddef.h>

#include "launch/prepare/options.h"
#include "launch/prepare/prepare.h"

/* A JSON object of strings, owned by the caller; NULL: no memory. It holds the command as it is,
 * with all that a log would mask: for the user's own eyes. */
char *what_runs(const struct launch_options *options, const struct prepared *prepared);

/* What two of them do not have in common: "command, machines"; "": nothing. */
void what_runs_differ(const char *one, const char *other, char *text_p, size_t size);

#endif
