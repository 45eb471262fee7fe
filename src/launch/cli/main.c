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

#include "base/std_fds.h"
#include "config/nearest.h"
#include "launch/agent/agent.h"
#include "launch/cli/begin.h"
#include "launch/cli/emit.h"
#include "launch/cli/refuse.h"
#include "launch/cli/verbs.h"
#include "launch/link/secret.h"
#include "launch/prepare/options.h"
#include "launch/rules/watch.h"
#include "launch/text/command.h"
#include "launch/text/variables.h"

static const char *const words_meant[] = {"run",     "show",  "page",       "logs",      "stop",
                                          "list",    "top",   "trace",      "secret",    "help",
                                          "restart", "scale", "checkpoint", "reader-key"};

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
    return launch_secret_make(argv[1], &err) == PSD_OK ? 0 : refuse(&err);
}

static int
hint(int argc, char *const *argv)
{
    (void)argc;
    fprintf(stderr,
            "psd_run: %s is not a command of psd_run; see psd_run -h (psd_run show tells how a job "
            "is doing)\n(to run a program of that name: psd_run -- %s)\n",
            argv[0], argv[0]);
    return WATCH_CODE_USAGE;
}

/* A word that is no program, but nearly a command of psd_run. */
static bool
is_misspelt(const char *word)
{
    struct psi_nearest nearest = {.word = word};
    char *path = command_find(word, variables_get(environ, "PATH"));

    free(path);
    if (path != NULL || word[0] == '-' || strchr(word, '/') != NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof(words_meant) / sizeof(words_meant[0]); i++) {
        psi_nearest_try(&nearest, words_meant[i]);
    }
    if (nearest.name == NULL || nearest.distance == 0) {
        return false;
    }
    fprintf(stderr, "psd_run: %s is neither a program nor a command of psd_run; did you mean %s?\n",
            word, nearest.name);
    return true;
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
    {"--agent", serve},
    {"secret", make_secret},
    {"show", verb_show},
    {"logs", verb_logs},
    {"stop", verb_stop},
    {"list", verb_list},
    {"help", help},
    {"status", hint},
    {"top", verb_top},
    {"trace", verb_trace},
    {"page", verb_page},
    {"restart", verb_restart},
    {"scale", verb_scale},
    {"checkpoint", verb_checkpoint},
    {"reader-key", verb_reader_key},
};

int
main(int argc, char **argv)
{
    struct psd_error err = {0};
    struct launch_options options;

    if (psi_std_fds_fill() != 0) { /* agents come this way, too */
        return WATCH_CODE_CANNOT_START;
    }
    for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(argv[1], verbs[i].word) == 0) {
            return verbs[i].run(argc - 1, argv + 1);
        }
    }
    if (argc > 1 && is_misspelt(argv[1])) {
        return WATCH_CODE_USAGE;
    }
    if (options_parse(argc, argv, &options, &err) != PSD_OK) {
        return refuse(&err);
    }
    if (options.help) {
        options_help();
        return 0;
    }
    if (options.version) {
        printf("psd_run %s\n", PSD_VERSION);
        return 0;
    }
    if (options.emit != NULL) {
        return emit_job(&options, argv, stdout, &err) == PSD_OK ? 0 : refuse(&err);
    }
    return begin_job(&options, argv);
}
