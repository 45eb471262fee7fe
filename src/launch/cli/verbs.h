/*
 * verbs.h - show, logs, stop and list: what one can do to jobs that run.
 */
#ifndef LAUNCH_VERBS_H
#define LAUNCH_VERBS_H

#include <stdbool.h>

struct verb_options {
    bool help;
    bool json;
    bool watch;    /* show: again and again */
    bool no_trunc; /* show, list: whole commands */
    bool follow;   /* logs */
    bool times;    /* logs */
    bool now;      /* stop: without grace */
    const char *since;
    const char *master; /* show: ask this master instead */
    const char *secret_file;
    const char *out; /* logs: directory of the logs of jobs that have ended */
};

/* argv[0] is the verb. Return the exit code: 0, 2 wrong usage, 3 no such job. */
int verb_show(int argc, char *const *argv);
int verb_logs(int argc, char *const *argv);
int verb_stop(int argc, char *const *argv);
int verb_list(int argc, char *const *argv);

/* Ends a job and waits until it is gone. by: who does, for its log; NULL: psd_run stop. Returns
 * false when it stays. */
bool verb_end_job(const char *name, bool now, const char *by);

#endif
