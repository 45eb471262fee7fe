/*
 * tf_files.h - the TF_CONFIG of every task as a file: ps.json, worker_0.json, for people and for
 * psd_run --tf_config.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_TF_FILES_H
#define LAUNCH_TF_FILES_H

#include "launch/run/run_state.h"

/* Makes the directory if need be. */
psd_status tf_files_write(const struct run *run, const char *directory, struct psd_error *err);

#endif
