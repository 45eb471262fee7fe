/*
 * reader_key.c - `psd_run reader-key [JOB] FILE`: the key of those who read a job.
 *
 * The job's psd_run writes the file itself: no key goes over its socket.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/cli/refuse.h"
#include "launch/cli/verb_args.h"
#include "launch/cli/verbs.h"
#include "launch/link/control_socket.h"
#include "launch/link/secret.h"
#include "launch/rules/watch.h"

/* The file as seen from the directory of the job's psd_run. False: it was said what is wrong. */
static bool
write_line(const char *file, char line_p[CONTROL_LINE_BYTES])
{
    char here[CONTROL_LINE_BYTES] = "";
    int bytes;

    if (file[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
        fprintf(stderr, "psd_run: reader-key: the name of this directory is too long; give a FILE "
                        "that begins with /\n");
        return false;
    }
    bytes = snprintf(line_p, CONTROL_LINE_BYTES, "reader key %s%s%s\n", here,
                     file[0] != '/' ? "/" : "", file);
    if (bytes >= CONTROL_LINE_BYTES || strchr(file, '\n') != NULL) {
        fprintf(stderr,
                "psd_run: reader-key: the name of the file is too long, or has a newline\n");
        return false;
    }
    return true;
}

static void
say_how(const char *file, const char *address)
{
    printf("PSD_READER_KEY_FILE=%s%s%.100s\n", file,
           address[0] != '\0' ? " PSD_MASTER_ADDRESS=" : "", address);
}

/* Asks the job's psd_run to write it. */
static int
ask(const char *job, const char *file)
{
    char name[JOBS_NAME_BYTES];
    char line[CONTROL_LINE_BYTES];
    char *answer;
    int code;

    if (!write_line(file, line)) {
        return WATCH_CODE_USAGE;
    }
    if (!verb_choose_job(job, VERB_READER_KEY, name, &code)) {
        return code;
    }
    answer = verb_ask(name, line);
    if (answer == NULL) {
        return WATCH_CODE_CANNOT_START;
    }
    answer[strcspn(answer, "\n")] = '\0';
    if (strncmp(answer, "written ", 8) == 0) {
        say_how(file, answer + 8);
        code = 0;
    } else {
        fprintf(stderr, "psd_run: reader-key: job %s: %s\n", name,
                answer[0] != '\0' ? answer : "its psd_run is of another version");
        code = WATCH_CODE_CANNOT_START;
    }
    free(answer);
    return code;
}

int
verb_reader_key(int argc, char *const *argv)
{
    struct verb_options options = {0};
    struct psd_error err = {0};
    const char *first = NULL;
    const char *second = NULL;
    int code;

    if (!verb_parse(argc, argv, VERB_READER_KEY, &options, &first, &second, &code)) {
        return code;
    }
    if (first == NULL || (options.secret_file != NULL && second != NULL)) {
        fprintf(stderr, "psd_run: reader-key: %s\nsee psd_run reader-key -h\n",
                first == NULL ? "which FILE is to be written?"
                              : "a JOB or a --secret_file, not both");
        return WATCH_CODE_USAGE;
    }
    if (options.secret_file != NULL) {
        if (launch_secret_make_reader_key(options.secret_file, first, &err) != PSD_OK) {
            return refuse(&err);
        }
        say_how(first, "");
        return 0;
    }
    return ask(second != NULL ? first : NULL, second != NULL ? second : first);
}
