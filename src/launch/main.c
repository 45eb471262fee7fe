/*
 * main.c - psd_run: starts a job, watches it, leaves nothing behind.
 *
 * options.c reads the command line, prepare.c makes a plan.h of it, run.c carries it out through
 * the agent (agent.c), by the rules of watch.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/options.h"
#include "launch/plan.h"
#include "launch/prepare.h"
#include "launch/run.h"
#include "launch/secret.h"
#include "launch/show.h"
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

int
main(int argc, char **argv)
{
    struct psd_error err = {0};
    struct launch_options options;
    struct run_args run = {.runlog = "./poseidon_run.log", .environment = environ};
    struct plan plan;
    int code;

    if (argc == 3 && strcmp(argv[1], "secret") == 0) {
        return launch_secret_make(argv[2], &err) == PSD_OK ? 0 : complain(&err);
    }
    if (options_parse(argc, argv, &options, &err) != PSD_OK) {
        return complain(&err);
    }
    if (options.help) {
        options_help(options.show);
        return 0;
    }
    if (options.show) {
        if (options.secret_file != NULL) {
            setenv("PSD_SECRET_FILE", options.secret_file, 1);
        }
        return show_job(options.master, options.json);
    }
    run.secret_fd = launch_secret_offer(options.secret_file, &err);
    if (run.secret_fd < 0) {
        return complain(&err);
    }
    run.environment = environ;
    if (prepare_job(&options, environ, &plan, &run.watch, &err) != PSD_OK) {
        return complain(&err);
    }
    run.plan = &plan;
    run.out = options.out;
    code = run_job(&run);
    plan_fini(&plan);
    return code;
}
