/*
 * scale.c - `psd_run scale JOB --workers N`, and --servers N.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/rules/watch.h"

enum { GRACE_S = 30, DIGITS_MAX = 4, HOST_MAX = 255, LINE_BYTES = HOST_MAX + 64 };

/* 3, +1, -2 */
static bool
read_number(const char *text, char *sign_p, unsigned *number_p)
{
    const char *digits = text[0] == '+' || text[0] == '-' ? text + 1 : text;
    const size_t count = strspn(digits, "0123456789");

    *sign_p = digits == text ? '=' : text[0];
    *number_p = (unsigned)strtoul(digits, NULL, 10);
    return count > 0 && count <= DIGITS_MAX && digits[count] == '\0';
}

/* False: it was said what is wrong. */
static bool
check(const struct verb_options *options, char *sign_p, unsigned *number_p)
{
    const bool servers = options->scale_servers != NULL;
    const char *text = servers ? options->scale_servers : options->scale_workers;

    if (servers && options->scale_workers != NULL) {
        fprintf(stderr, "psd_run: scale: --workers and --servers: one at a time\n");
        return false;
    }
    if (text == NULL || !read_number(text, sign_p, number_p)) {
        fprintf(stderr, "psd_run: scale: %.64s: how many %s? psd_run scale JOB --%s 3, or +1, -1\n",
                text == NULL ? "no --workers, no --servers" : text, servers ? "servers" : "workers",
                servers ? "servers" : "workers");
        return false;
    }
    if (options->at_step != 0 && (servers || *sign_p == '-')) {
        fprintf(stderr, "psd_run: scale: --at_step %u is for workers that come: %s\n",
                options->at_step,
                servers ? "servers come and go between steps, and no bit changes"
                        : "who leaves ends the step that it is in");
        return false;
    }
    if (options->host != NULL && (options->host[0] == '\0' || strlen(options->host) > HOST_MAX ||
                                  strpbrk(options->host, " \t\n") != NULL)) {
        fprintf(stderr, "psd_run: scale: --host %.64s: no name of a machine\n", options->host);
        return false;
    }
    return true;
}

/* What the job's psd_run is asked. */
static void
write_line(const struct verb_options *options, char sign, unsigned number, char line_p[LINE_BYTES])
{
    const char *host = options->host != NULL ? options->host : "-";

    if (options->scale_servers != NULL) {
        snprintf(line_p, LINE_BYTES, "scale servers %c %u %s\n", sign, number, host);
    } else {
        snprintf(line_p, LINE_BYTES, "scale workers %c %u %u %u %s\n", sign, number,
                 options->seconds, options->at_step, host);
    }
}

int
verb_scale(int argc, char *const *argv)
{
    struct verb_options options = {.seconds = GRACE_S};
    char name[JOBS_NAME_BYTES];
    const char *rest = NULL;
    const char *told;
    char *answer;
    char line[LINE_BYTES];
    unsigned number;
    char sign;
    int code;

    if (!verb_parse(argc, argv, VERB_SCALE, &options, &rest, NULL, &code)) {
        return code;
    }
    if (!check(&options, &sign, &number)) {
        return WATCH_CODE_USAGE;
    }
    if (!verb_choose_job(rest, VERB_SCALE, name, &code)) {
        return code;
    }
    write_line(&options, sign, number, line);
    answer = verb_ask(name, line);
    if (answer == NULL) {
        return WATCH_CODE_CANNOT_START;
    }
    told = strchr(answer, '\n');
    if (strncmp(answer, "done\n", 5) == 0) {
        fputs(told[1] != '\0' ? told + 1 : "there are so many already\n", stdout);
        code = 0;
    } else {
        fprintf(stderr, "psd_run: job %s: its %s stay as they are: %s", name,
                options.scale_servers != NULL ? "servers" : "workers",
                told != NULL ? told + 1 : "its psd_run is of another version\n");
        code = WATCH_CODE_CANNOT_START;
    }
    free(answer);
    return code;
}
