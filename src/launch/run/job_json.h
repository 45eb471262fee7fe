/*
 * job_json.h - a job as a JSON document: what `psd_run show` asks for, and result.json at the end.
 */
#ifndef LAUNCH_JOB_JSON_H
#define LAUNCH_JOB_JSON_H

#include "launch/run/run_state.h"

/* Owned by the caller; NULL without memory. */
char *job_json_text(struct run *run);

/* Writes result.json into the directory of the logs, whole or not at all. */
psd_status job_json_write(struct run *run, struct psd_error *err);

#endif
