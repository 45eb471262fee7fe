/*
 * options.c - the command line of psd_run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/options.h"

#include <string.h>

#include "base/fail.h"
#include "config/options.h"

static const char about_run[] =
    "Starts ps_master, the ps_servers and the workers of one job, watches them, and leaves\n"
    "nothing behind. \"command\" is what every worker runs; no shell is involved (for pipes and\n"
    "variables use sh -c '...'). Leading NAME=value words set the environment. \"A, B\" gives the\n"
    "first worker command A and the second B.\n"
    "\n"
    "Every job has a secret of its own, drawn afresh: no process without it gets in. Jobs that\n"
    "are started by hand share one by file: psd_run secret FILE makes it, --secret_file names it.\n"
    "\n"
    "A worker finds its place in PSD_MASTER_ADDRESS, PSD_RANK and PSD_WORLD. A script that knows\n"
    "the word master_address also gets --distributed --master_address tcp://IP:PORT\n"
    "--client_id K. {rank} {world} {role} {master} {port} in the command are filled in instead.\n"
    "\n"
    "The cluster file (-c) is JSON; a host may be named more than once:\n"
    "\n"
    "    {\n"
    "        \"master_node\": \"localhost\",\n"
    "        \"worker_nodes\": [\"localhost\", \"localhost\"],\n"
    "        \"server_nodes\": [\"localhost\"]\n"
    "    }\n"
    "\n"
    "examples\n"
    "    psd_run --workers 2 --servers 1 \"python train.py --batch 64\"\n"
    "    psd_run -c cluster.json -o logs --on_worker_death=wait -- ./train --steps 1000\n"
    "    psd_run show --master tcp://127.0.0.1:5555\n"
    "\n"
    "exit code: 0; that of the first process that failed (128 + signal); 2 wrong usage; 3 cannot\n"
    "start; 124 the start took too long; 130, 143 interrupted.\n"
    "\n"
    "Every process has its log in DIR/poseidon_log_<time>/; psd_run's own is poseidon_run.log.";

static const char about_show[] = "Prints the master's table of a running job.";

/* The two command lines, with where their values go. */
static psd_status
parse_run(int argc, char *const *argv, struct launch_options *options, bool help_only,
          struct psd_error *err)
{
    const struct psi_option table[] = {
        {"cluster_config", 'c', PSI_OPTION_TEXT, "JSON file that names the hosts",
         &options->cluster_config},
        {"out", 'o', PSI_OPTION_TEXT, "directory for the logs [./logs]", &options->out},
        {"workers", 0, PSI_OPTION_NUMBER, "workers, without a cluster file [1]", &options->workers},
        {"servers", 0, PSI_OPTION_NUMBER, "servers, without a cluster file [1]", &options->servers},
        {"secret_file", 0, PSI_OPTION_TEXT,
         "use this secret instead of a fresh one (psd_run secret FILE makes it)",
         &options->secret_file},
        {"forward", 'x', PSI_OPTION_LIST,
         "NAME, NAME=value or PREFIX*: variables for workers on other machines", &options->forward},
        {"workdir", 0, PSI_OPTION_TEXT, "directory for the workers, on every machine [this one]",
         &options->workdir},
        {"interface", 0, PSI_OPTION_TEXT,
         "ib0, eth1 or 10.0.0.0/8: where machines talk to each other", &options->interface},
        {"timeout", 0, PSI_OPTION_NUMBER, "seconds until the job is ended with code 124 [any]",
         &options->timeout_s},
        {"pass", 0, PSI_OPTION_TEXT,
         "how workers learn their place: auto, flags, env, both, none [auto]", &options->pass},
        {"max_restarts", 0, PSI_OPTION_NUMBER, "of each worker, with on_worker_death=wait [3]",
         &options->max_restarts},
        {"grace_ms", 0, PSI_OPTION_NUMBER,
         "for servers and master to leave when the workers are done [10000]", &options->grace_ms},
    };
    const struct psi_command command = {
        .name = "psd_run",
        .synopsis = "[-c FILE] [-o DIR] [options] \"command\"\n"
                    "       psd_run [options] -- program arguments...\n"
                    "       psd_run show --master ADDRESS [--secret_file FILE] [--json]\n"
                    "       psd_run secret FILE",
        .about = about_run,
        .program = PSI_PROGRAM_RUN,
        .options = table,
        .option_count = sizeof(table) / sizeof(table[0]),
    };
    struct psi_arguments arguments;
    psd_status status;

    if (help_only) {
        psi_options_help(stdout, &command);
        return PSD_OK;
    }
    status = psi_options_parse(&command, argc, argv, &options->settings, &arguments, err);
    if (status != PSD_OK) {
        return status;
    }
    options->help = arguments.help;
    if (arguments.first < argc && strcmp(argv[arguments.first - 1], "--") == 0) {
        options->argv = argv + arguments.first;
    } else if (arguments.first < argc) {
        options->command = argv[arguments.first];
    }
    if (options->command != NULL && arguments.first + 1 < argc) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.64s: more than one argument: quote the command, or put -- before it",
                        argv[arguments.first + 1]);
    }
    return psi_settings_environment(&options->settings, PSI_PROGRAM_RUN, err);
}

static psd_status
parse_show(int argc, char *const *argv, struct launch_options *options, bool help_only,
           struct psd_error *err)
{
    const struct psi_option table[] = {
        {"master", 0, PSI_OPTION_TEXT, "address of the job's master, tcp://IP:PORT",
         &options->master},
        {"secret_file", 0, PSI_OPTION_TEXT, "the job's secret (PSD_SECRET_FILE)",
         &options->secret_file},
        {"json", 0, PSI_OPTION_FLAG, "for programs", &options->json},
    };
    const struct psi_command command = {
        .name = "psd_run show",
        .synopsis = "--master ADDRESS [--secret_file FILE] [--json]",
        .about = about_show,
        .options = table,
        .option_count = sizeof(table) / sizeof(table[0]),
    };
    struct psi_arguments arguments;
    psd_status status;

    if (help_only) {
        psi_options_help(stdout, &command);
        return PSD_OK;
    }
    options->show = true;
    status = psi_options_parse(&command, argc - 1, argv + 1, &options->settings, &arguments, err);
    if (status != PSD_OK) {
        return status;
    }
    options->help = arguments.help;
    if (!options->help && arguments.first < argc - 1) {
        return psi_fail(err, PSD_ERR_INVALID, "show: %.64s is no option",
                        argv[1 + arguments.first]);
    }
    options->master =
        options->master != NULL ? options->master : psi_environment("PSD_MASTER_ADDRESS");
    if (!options->help && options->master == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "show: which job? --master tcp://IP:PORT");
    }
    return PSD_OK;
}

psd_status
options_parse(int argc, char *const *argv, struct launch_options *options_p, struct psd_error *err)
{
    *options_p = (struct launch_options){.out = "./logs",
                                         .servers = LAUNCH_NOT_GIVEN,
                                         .workers = LAUNCH_NOT_GIVEN,
                                         .max_restarts = 3,
                                         .grace_ms = 10000};
    psi_settings_init(&options_p->settings);
    if (argc > 1 && strcmp(argv[1], "show") == 0) {
        return parse_show(argc, argv, options_p, false, err);
    }
    return parse_run(argc, argv, options_p, false, err);
}

void
options_help(bool show)
{
    struct launch_options unused = {0};

    if (show) {
        parse_show(0, NULL, &unused, true, NULL);
    } else {
        parse_run(0, NULL, &unused, true, NULL);
    }
}
