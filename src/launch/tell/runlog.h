/*
 * runlog.h - psd_run's own log (./poseidon_run.log) and the directory of a run's logs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RUNLOG_H
#define LAUNCH_RUNLOG_H

#include <psd/status.h>

/*
 * Lines are appended, each in one write, so that several jobs can share the file.
 *
 * Thread: owned by the main thread of psd_run.
 */
struct runlog {
    int fd; /* -1: not writable, lines are dropped */
};

psd_status runlog_open(struct runlog *runlog, const char *path, struct psd_error *err);
void runlog_close(struct runlog *runlog);

void runlog_line(const struct runlog *runlog, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Makes <out>/poseidon_log_<YYYYMMDD-HHMMSS>, with -1, -2 ... behind it when other runs of the same
 * second have the name. *directory_p is owned by the caller.
 */
psd_status runlog_make_directory(const char *out, char **directory_p, struct psd_error *err);

#endif
