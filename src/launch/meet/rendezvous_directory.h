/*
 * rendezvous_directory.h - the directory in which the psd_run of a job meet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RENDEZVOUS_DIRECTORY_H
#define LAUNCH_RENDEZVOUS_DIRECTORY_H

#include <psd/status.h>

/* Makes the directory and those above it, as far as they are not there. */
psd_status rendezvous_make_directory(const char *path, struct psd_error *err);

/* The run's own, below it: whoever can write into it could join the job, or keep it from
 * beginning. One that is open to others is refused. */
psd_status rendezvous_make_run_directory(const char *path, struct psd_error *err);

#endif
