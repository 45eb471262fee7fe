/*
 * trace.c - `psd_run trace`: the last steps of a job as a timeline, for Perfetto.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/link/jobs.h"
#include "launch/rules/watch.h"

/* All workers are on one clock there: by how much theirs were moved. */
static void
say_clocks(const char *trace)
{
    json_t *document = json_loads(trace, 0, NULL);
    json_t *clocks = json_object_get(json_object_get(document, "otherData"), "clock_offsets_us");
    double most_s = 0;
    const json_t *offset;
    const char *name;

    json_object_foreach(clocks, name, offset)
    {
        const double seconds = fabs((double)json_integer_value(offset)) / 1e6;

        most_s = seconds > most_s ? seconds : most_s;
    }
    if (json_object_size(clocks) > 1) {
        fprintf(stderr,
                "psd_run: %zu workers on one clock; theirs are up to %.6f s apart (otherData has "
                "the offset of each)\n",
                json_object_size(clocks), most_s);
    }
    json_decref(document);
}

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
    say_clocks(answer);
    free(answer);
    fprintf(stderr, "psd_run: open it at https://ui.perfetto.dev or in chrome://tracing\n");
    return 0;
}
