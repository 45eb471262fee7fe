/*
 * scale.c - `psd_run scale JOB --workers N`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/rules/watch.h"

enum { GRACE_S = 30, DIGITS_MAX = 4, HOST_MAX = 255 };

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
    if (options->scale_servers != NULL) {
        fprintf(stderr,
                "psd_run: scale: --servers %.64s: a running job keeps its servers; only "
                "its workers can be more or fewer (--workers)\n",
                options->scale_servers);
        return false;
    }
    if (options->scale_workers == NULL || !read_number(options->scale_workers, sign_p, number_p)) {
        fprintf(stderr,
                "psd_run: scale: %.64s: how many workers? psd_run scale JOB --workers 3, or +1, "
                "-1\n",
                options->scale_workers == NULL ? "no --workers" : options->scale_workers);
        return false;
    }
    if (options->host != NULL && (options->host[0] == '\0' || strlen(options->host) > HOST_MAX ||
                                  strpbrk(options->host, " \t\n") != NULL)) {
        fprintf(stderr, "psd_run: scale: --host %.64s: no name of a machine\n", options->host);
        return false;
    }
    return true;
}

int
verb_scale(int argc, char *const *argv)
{
    struct verb_options options = {.seconds = GRACE_S};
    char name[JOBS_NAME_BYTES];
    const char *rest = NULL;
    const char *told;
    char *answer;
    char line[HOST_MAX + 64];
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
    snprintf(line, sizeof(line), "scale workers %c %u %u %s\n", sign, number, options.seconds,
             options.host != NULL ? options.host : "-");
    answer = verb_ask(name, line);
    if (answer == NULL) {
        return WATCH_CODE_CANNOT_START;
    }
    told = strchr(answer, '\n');
    if (strncmp(answer, "done\n", 5) == 0) {
        fputs(told[1] != '\0' ? told + 1 : "there are so many already\n", stdout);
        code = 0;
    } else {
        fprintf(stderr, "psd_run: job %s: its workers stay as they are: %s", name,
                told != NULL ? told + 1 : "its psd_run is of another version\n");
        code = WATCH_CODE_CANNOT_START;
    }
    free(answer);
    return code;
}
