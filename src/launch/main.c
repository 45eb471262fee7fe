/*
 * main.c - psd_run: starts a job, watches it, leaves nothing behind.
 *
 * options.c reads the command line, prepare.c makes a plan.h of it, run.c carries it out through
 * agents (agent.c), one on each machine, by the rules of watch.c. verbs.c asks jobs that run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/agent.h"
#include "launch/begin.h"
#include "launch/options.h"
#include "launch/secret.h"
#include "launch/verbs.h"
#include "launch/watch.h"

static int
complain(const struct psd_error *err)
{
    fprintf(stderr, "psd_run: %s\n", err->text);
    if (err->status != PSD_ERR_INVALID) {
        return WATCH_CODE_CANNOT_START;
    }
    fprintf(stderr, "psd_run -h explains\n");
    return WATCH_CODE_USAGE;
}

static int
make_secret(int argc, char *const *argv)
{
    static const char usage[] = "usage: psd_run secret FILE\n"
                                "Writes a new secret for jobs that are started by hand; the file "
                                "must not exist yet.\n";
    struct psd_error err = {0};

    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fputs(usage, stderr);
        return WATCH_CODE_USAGE;
    }
    return launch_secret_make(argv[1], &err) == PSD_OK ? 0 : complain(&err);
}

static int
hint(int argc, char *const *argv)
{
    (void)argc;
    fprintf(stderr,
            "psd_run: %s is no command of psd_run; psd_run -h explains, psd_run show is "
            "how a job is doing\n(to run a program of that name: psd_run -- %s)\n",
            argv[0], argv[0]);
    return WATCH_CODE_USAGE;
}

static int
help(int argc, char *const *argv)
{
    (void)argc;
    (void)argv;
    options_help();
    return 0;
}

static int
serve(int argc, char *const *argv)
{
    (void)argc;
    (void)argv;
    return agent_serve(environ);
}

/* The words that are no command of a worker. */
static const struct {
    const char *word;
    int (*run)(int argc, char *const *argv);
} verbs[] = {
    {"--agent", serve},  {"secret", make_secret}, {"show", verb_show}, {"logs", verb_logs},
    {"stop", verb_stop}, {"list", verb_list},     {"help", help},      {"status", hint},
};

int
main(int argc, char **argv)
{
    struct psd_error err = {0};
    struct launch_options options;

    for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(argv[1], verbs[i].word) == 0) {
            return verbs[i].run(argc - 1, argv + 1);
        }
    }
    if (options_parse(argc, argv, &options, &err) != PSD_OK) {
        return complain(&err);
    }
    if (options.help) {
        options_help();
        return 0;
    }
    if (options.version) {
        printf("psd_run %s\n", PSD_VERSION);
        return 0;
    }
    return begin_job(&options, argc, argv);
}
