/*
 * job_json.h - a job as a JSON document: what `psd_run show` asks for, and result.json at the end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOB_JSON_H
#define LAUNCH_JOB_JSON_H

#include "launch/run/run_state.h"

/* Owned by the caller; NULL without memory. */
char *job_json_text(struct run *run);

/* The same with its feed, which is long: only for those who ask for it. */
char *job_json_with_feed(struct run *run);

/* The same of a job whose machines are still waited for, as far as there is something to tell. */
char *job_json_waiting(const struct run_args *args, const char *state);

/* Writes result.json into the directory of the logs, whole or not at all. */
psd_status job_json_write(struct run *run, struct psd_error *err);

#endif
