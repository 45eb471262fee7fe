/*
 * restart.c - `psd_run restart JOB --servers`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/rules/watch.h"

enum { SECONDS = 60, LOOK_MS = 100 };

/* Prints the lines behind the first one, and counts them. */
static unsigned
print_lines(const char *answer)
{
    const char *line = strchr(answer, '\n');
    unsigned count = 0;

    while (line != NULL && line[1] != '\0') {
        const char *end = strchr(line + 1, '\n');

        printf("%.*s\n", (int)(end != NULL ? end - line - 1 : (long)strlen(line + 1)), line + 1);
        count++;
        line = end;
    }
    fflush(stdout);
    return count;
}

/* Every server has a deadline of its own in the job. */
static int
follow(const char *name)
{
    struct psd_error err = {0};
    unsigned seen = 0;
    int code = -1;

    while (code < 0) {
        char *answer = NULL;
        char line[64];

        snprintf(line, sizeof(line), "restart from %u\n", seen);
        if (jobs_ask(name, line, &answer, &err) != PSD_OK) {
            fprintf(stderr, "psd_run: restart %s: the job is over, or does not answer: %s\n", name,
                    err.text);
            return 1;
        }
        seen += print_lines(answer);
        code = strncmp(answer, "done\n", 5) == 0 ? 0 : strncmp(answer, "going\n", 6) == 0 ? -1 : 1;
        free(answer);
        if (code < 0) {
            poll(NULL, 0, LOOK_MS);
        }
    }
    return code;
}

int
verb_restart(int argc, char *const *argv)
{
    struct verb_options options = {.seconds = SECONDS};
    char name[JOBS_NAME_BYTES];
    const char *rest = NULL;
    char *answer = NULL;
    char line[64];
    int code;

    if (!verb_parse(argc, argv, VERB_RESTART, &options, &rest, NULL, &code)) {
        return code;
    }
    if (!options.servers) {
        fprintf(stderr, "psd_run: restart: what? Only servers can be restarted: psd_run restart "
                        "JOB --servers\n");
        return WATCH_CODE_USAGE;
    }
    if (!verb_choose_job(rest, VERB_RESTART, name, &code)) {
        return code;
    }
    snprintf(line, sizeof(line), "restart servers %u\n", options.seconds);
    answer = verb_ask(name, line);
    if (answer == NULL) {
        return WATCH_CODE_CANNOT_START;
    }
    if (strncmp(answer, "going\n", 6) != 0) {
        const char *why = strchr(answer, '\n');

        fprintf(stderr, "psd_run: job %s: its servers cannot be restarted: %s", name,
                why != NULL ? why + 1 : "its psd_run is of another version\n");
        code = WATCH_CODE_CANNOT_START;
    } else {
        code = follow(name);
    }
    free(answer);
    return code;
}
