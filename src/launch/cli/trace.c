/*
 * trace.c - `psd_run trace`: the last steps of a job as a timeline, for Perfetto.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/link/jobs.h"
#include "launch/rules/watch.h"

int
verb_trace(int argc, char *const *argv)
{
    struct verb_options options = {.steps = 20};
    struct psd_error err = {0};
    char name[JOBS_NAME_BYTES];
    const char *rest = NULL;
    char *answer = NULL;
    char line[64];
    int code;

    if (!verb_parse(argc, argv, VERB_TRACE, &options, &rest, NULL, &code) ||
        !verb_choose_job(rest, VERB_TRACE, name, &code)) {
        return code;
    }
    snprintf(line, sizeof(line), "trace %u\n", options.steps);
    if (jobs_ask(name, line, &answer, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        return WATCH_CODE_CANNOT_START;
    }
    puts(answer);
    free(answer);
    fprintf(stderr, "psd_run: open it at https://ui.perfetto.dev or in chrome://tracing; steps of "
                    "all workers end together there, whatever their clocks say\n");
    return 0;
}
