/*
 * verbs.h - show, page, logs, stop, list, top and trace: what one can do to jobs that run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_VERBS_H
#define LAUNCH_VERBS_H

#include <stdbool.h>

/* argv[0] is the verb. Return the exit code: 0, 2 wrong usage, 3 no such job. */
int verb_show(int argc, char *const *argv);
int verb_page(int argc, char *const *argv);
int verb_restart(int argc, char *const *argv);
int verb_reader_key(int argc, char *const *argv);
int verb_scale(int argc, char *const *argv);
int verb_logs(int argc, char *const *argv);
int verb_stop(int argc, char *const *argv);
int verb_list(int argc, char *const *argv);
int verb_top(int argc, char *const *argv);
int verb_trace(int argc, char *const *argv);

/* ... and to their checkpoints. */
int verb_checkpoint(int argc, char *const *argv);

/* Ends a job and waits until it is gone. by: who does, for its log; NULL: psd_run stop. Returns
 * false when it stays. */
bool verb_end_job(const char *name, bool now, const char *by);

#endif
