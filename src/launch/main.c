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

#include "launch/agent.h"
#include "launch/options.h"
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

static int
run(const struct launch_options *options)
{
    struct psd_error err = {0};
    struct prepared prepared;
    struct run_args args = {.runlog = "./poseidon_run.log", .out = options->out, .job = "job"};
    int code;

    args.secret_fd = launch_secret_offer(options->secret_file, &err);
    if (args.secret_fd < 0 || prepare_job(options, environ, &prepared, &err) != PSD_OK) {
        return complain(&err);
    }
    args.environment = environ;
    args.plan = &prepared.plan;
    args.layout = &prepared.layout;
    args.watch = prepared.watch;
    args.program = prepared.program;
    args.pem_file = prepared.pem_file;
    args.username = prepared.username;
    args.ssh_options = &prepared.ssh_options;
    args.interface = options->interface;
    code = run_job(&args);
    prepare_fini(&prepared);
    return code;
}

int
main(int argc, char **argv)
{
    struct psd_error err = {0};
    struct launch_options options;

    if (argc == 2 && strcmp(argv[1], "--agent") == 0) {
        return agent_serve(environ);
    }
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
    return run(&options);
}
