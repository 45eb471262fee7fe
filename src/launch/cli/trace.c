/*
 * trace.c - `psd_run trace`: the last steps of a job as a timeline, for Perfetto.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/link/jobs.h"
#include "launch/rules/watch.h"

/* By how much the clocks of processes were moved, to stand on one; or that they do not. */
static void
say_clocks(const char *trace)
{
    json_t *document = json_loads(trace, 0, NULL);
    json_t *other = json_object_get(document, "otherData");
    json_t *clocks = json_object_get(other, "clock_offsets_us");
    json_int_t least_us = 0; /* the clock that counts is among them */
    json_int_t most_us = 0;
    json_int_t doubt_us = 0;
    size_t known = 0;
    const json_t *offset;
    const char *name;

    json_object_foreach(clocks, name, offset)
    {
        const json_int_t us = json_integer_value(offset);

        known += json_is_integer(offset);
        least_us = us < least_us ? us : least_us;
        most_us = us > most_us ? us : most_us;
    }
    json_object_foreach(json_object_get(other, "clock_doubts_us"), name, offset)
    {
        doubt_us = json_integer_value(offset) > doubt_us ? json_integer_value(offset) : doubt_us;
    }
    if (known < json_object_size(clocks)) {
        fprintf(stderr,
                "psd_run: the clocks of %zu of %zu processes are not known, as workers do not end "
                "their steps together: each of these machines begins at 0\n",
                json_object_size(clocks) - known, json_object_size(clocks));
    } else if (known > 1) {
        fprintf(stderr,
                "psd_run: %zu processes on one clock; theirs are up to %.6f s apart, those of "
                "servers on machines of their own to within %.6f s (otherData has the offset of "
                "each)\n",
                known, (double)(most_us - least_us) / 1e6, (double)doubt_us / 1e6);
    }
    json_decref(document);
}

int
verb_trace(int argc, char *const *argv)
{
    struct verb_options options = {.steps = 20};
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
    answer = verb_ask(name, line);
    if (answer == NULL) {
        return WATCH_CODE_CANNOT_START;
    }
    if (strcmp(answer, "null") == 0) {
        fprintf(stderr, "psd_run: nothing is told of job %s: it was started with --unwatched\n",
                name);
        free(answer);
        return WATCH_CODE_CANNOT_START;
    }
    puts(answer);
    say_clocks(answer);
    free(answer);
    fprintf(stderr, "psd_run: open it at https://ui.perfetto.dev or in chrome://tracing\n");
    return 0;
}
