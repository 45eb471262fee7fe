/*
 * verb_args.h - the command lines of show, page, logs, stop, restart, scale, list, top, trace and
 * reader-key.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_VERB_ARGS_H
#define LAUNCH_VERB_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/link/jobs.h"

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
    const char *out;           /* logs: directory of the logs of jobs that have ended */
    uint32_t steps;            /* trace */
    bool servers;              /* restart */
    uint32_t seconds;          /* restart: for each of them; scale: for who leaves */
    const char *scale_workers; /* scale: 3, +1, -1 */
    const char *scale_servers;
    const char *host; /* scale: where new ones go */
    uint32_t at_step; /* scale: from which step on new workers count; 0: as early as they can */
};

enum verb {
    VERB_SHOW,
    VERB_LOGS,
    VERB_STOP,
    VERB_LIST,
    VERB_TOP,
    VERB_TRACE,
    VERB_PAGE,
    VERB_RESTART,
    VERB_SCALE,
    VERB_READER_KEY
};

/* Reads one. False: *code_p is what to exit with. *first_p, *second_p: arguments, or NULL. */
bool verb_parse(int argc, char *const *argv, enum verb verb, struct verb_options *options_p,
                const char **first_p, const char **second_p, int *code_p);

/* The job that is meant: by name or the beginning of it; NULL is the only one. False: it was said
 * what is wrong, and *code_p is what to exit with. */
bool verb_choose_job(const char *wanted, enum verb verb, char name_p[JOBS_NAME_BYTES], int *code_p);

/* What the job's psd_run answers; the caller frees it. NULL: it was said why there is none, and the
 * code to exit with is WATCH_CODE_CANNOT_START. */
char *verb_ask(const char *name, const char *line);

#endif
