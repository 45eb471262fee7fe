/*
 * emit_sbatch.h - psd_run --emit sbatch: a script for sbatch that runs the same job.
 *
 * Arguments of the script are those of the line of --setup: with --setup 'module load python/$1',
 * `sbatch job.sh 3.11` chooses the version.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_EMIT_SBATCH_H
#define LAUNCH_EMIT_SBATCH_H

#include <stdio.h>

#include "launch/prepare/options.h"

/* argv: psd_run's own, which the script repeats. program: path of psd_run. PSD_ERR_INVALID: the
 * options do not say how many tasks there are, or contradict each other. */
psd_status emit_sbatch(const struct launch_options *options, char *const *argv, const char *program,
                       FILE *stream, struct psd_error *err);

#endif
