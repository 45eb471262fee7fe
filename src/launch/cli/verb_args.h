/*
 * verb_args.h - the command lines of show, logs, stop and list.
 */
#ifndef LAUNCH_VERB_ARGS_H
#define LAUNCH_VERB_ARGS_H

#include <stdbool.h>

#include "launch/cli/verbs.h"
#include "launch/link/jobs.h"

enum verb { VERB_SHOW, VERB_LOGS, VERB_STOP, VERB_LIST };

/* Reads one. False: *code_p is what to exit with. *first_p, *second_p: arguments, or NULL. */
bool verb_parse(int argc, char *const *argv, enum verb verb, struct verb_options *options_p,
                const char **first_p, const char **second_p, int *code_p);

/* The job that is meant: by name or the beginning of it; NULL is the only one. False: it was said
 * what is wrong, and *code_p is what to exit with. */
bool verb_choose_job(const char *wanted, enum verb verb, char name_p[JOBS_NAME_BYTES], int *code_p);

#endif
