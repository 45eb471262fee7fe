/*
 * options.c - the command line of psd_run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/options.h"

#include <string.h>

#include "base/fail.h"
#include "config/cluster.h"
#include "config/options.h"

enum { GPUS_MAX = 64 };

static const char about_run[] =
    "Starts ps_master, the ps_servers and the workers of one job, watches them, and leaves\n"
    "nothing behind, on this machine or on many. \"command\" is what every worker runs; no shell\n"
    "is involved (for pipes and variables use sh -c '...'). Leading NAME=value words set the\n"
    "environment. \"A, B\" gives the first worker command A and the second B.\n"
    "\n"
    "The cluster file (-c) names the machines:\n"
    "\n"
    "    {\n"
    "        \"master_node\": \"10.0.0.1\",\n"
    "        \"worker_nodes\": [\"10.0.0.1\", \"10.0.0.2\"],\n"
    "        \"server_nodes\": [\"10.0.0.1\", \"10.0.0.2\"],\n"
    "        \"pem_file\": \"/home/ubuntu/cloud.pem\",\n"
    "        \"username\": \"ubuntu\",\n"
    "        \"virtualenv\": \"/home/ubuntu/venv\"\n"
    "    }\n"
    "\n"
    "worker_nodes and server_nodes are needed, the rest is not; any number of each, and a machine\n"
    "may be named as often as it shall run one. Other machines are reached with the system's ssh,\n"
    "by key alone; ~/.ssh/config holds. man psd-cluster.json has all keys.\n"
    "\n"
    "A worker finds its place in PSD_MASTER_ADDRESS, PSD_RANK and PSD_WORLD_SIZE, a port of its\n"
    "own in PSD_PORT and those of all in PSD_PEERS; man psd_run has the rest. A script that\n"
    "knows the word master_address also gets --distributed --master_address tcp://IP:PORT\n"
    "--client_id K. {rank} {world} {role} {master} {port} in the command are filled in instead.\n"
    "Every job has a secret of its own, drawn afresh: no process without it gets in.\n"
    "\n"
    "A Python script that trains with torch or TensorFlow and knows nothing of Poseidon is\n"
    "distributed as it is:\n"
    "weights from worker 0, gradients averaged, training data dealt out. One line says what was\n"
    "done; --auto off leaves the script alone. A script that imports poseidon or begins\n"
    "torch.distributed itself is left alone, too.\n"
    "\n"
    "examples\n"
    "    psd_run --workers 2 --servers 1 \"python train.py --batch 64\"      this machine\n"
    "    psd_run -c cluster.json -o logs \"python train.py\"                 those of the file\n"
    "    psd_run -c cluster.json --check \"python train.py\"                 is everything there?\n"
    "    psd_run -c cluster.json --dry_run \"python train.py\"               what would be run\n"
    "    psd_run --workers 2 \"python a.py, python b.py\"                    a command for each\n"
    "    psd_run -c cluster.json -x DATA_DIR --workdir /data/run -- ./train --steps 1000\n"
    "    psd_run -c cluster.json --detach \"python train.py\"; psd_run logs -f worker0\n"
    "    psd_run run \"python train.py --rate 0.1\"       replaces the job train that still runs\n"
    "    psd_run --on_worker_death=wait --max_restarts 5 \"python train.py\"\n"
    "    psd_run --workers 4 --gpus_per_worker 2 \"python train.py\"\n"
    "    psd_run -c cluster.json --log_mode nodes \"python train.py\"        logs stay where they "
    "are\n"
    "    psd_run --result_regex '^MNIST accuracy' --workers 4 bin/mnist\n"
    "    psd_run list; psd_run show train --watch; psd_run stop train\n"
    "\n"
    "exit code: 0; that of the first process that failed (128 + signal); 2 wrong usage; 3 cannot\n"
    "start; 70, 71, 72 a machine with workers, servers, the master was lost; 124 it took too "
    "long;\n"
    "130, 143 interrupted.\n"
    "\n"
    "Every process has its log in DIR/poseidon_log_<time>/, and result.json there tells the story\n"
    "to programs; psd_run's own log is ./poseidon_run.log, where it was started.";

/* The command line, with where its values go. */
static psd_status
parse_run(int argc, char *const *argv, struct launch_options *options, bool help_only,
          struct psd_error *err)
{
    const struct psi_option table[] = {
        {"cluster_config", 'c', PSI_OPTION_TEXT, "JSON file that names the hosts",
         &options->cluster_config},
        {"out", 'o', PSI_OPTION_TEXT, "directory for the logs [./logs]", &options->out},
        {"workers", 0, PSI_OPTION_NUMBER, "workers, without a cluster file [1]", &options->workers,
         1, PSI_CLUSTER_WORKERS_MAX},
        {"servers", 0, PSI_OPTION_NUMBER, "servers, without a cluster file [1]", &options->servers,
         1, PSI_CLUSTER_SERVERS_MAX},
        {"secret_file", 0, PSI_OPTION_TEXT,
         "use this secret instead of a fresh one (psd_run secret FILE makes it)",
         &options->secret_file},
        {"forward", 'x', PSI_OPTION_LIST,
         "NAME, NAME=value or PREFIX*: variables for workers on other machines", &options->forward},
        {"keep_env", 0, PSI_OPTION_FLAG,
         "where you have set PSD_RANK and the like, workers get your values, not the job's",
         &options->keep_env},
        {"gpus_per_worker", 0, PSI_OPTION_NUMBER,
         "deal the GPUs of a machine out to its workers (CUDA_VISIBLE_DEVICES)",
         &options->gpus_per_worker, 0, GPUS_MAX},
        {"auto", 0, PSI_OPTION_TEXT,
         "distribute plain PyTorch and TensorFlow scripts: on, off, or tf1: tensorflow is its "
         "version 1; docs/automatic.md [on]",
         &options->automatic},
        {"workdir", 0, PSI_OPTION_TEXT, "directory for the workers, on every machine [this one]",
         &options->workdir},
        {"interface", 0, PSI_OPTION_TEXT,
         "ib0, eth1 or 10.0.0.0/8: where machines talk to each other", &options->interface},
        {"timeout", 0, PSI_OPTION_NUMBER, "seconds until the job is ended with code 124 [any]",
         &options->timeout_s},
        {"name", 0, PSI_OPTION_TEXT, "of the job, for show, logs, stop [after the command]",
         &options->name},
        {"detach", 'd', PSI_OPTION_FLAG, "return when the job runs, and leave it running",
         &options->detach},
        {"check", 0, PSI_OPTION_FLAG, "only look whether all machines are ready", &options->check},
        {"dry_run", 'n', PSI_OPTION_FLAG, "only print what would be run, and start nothing",
         &options->dry_run},
        {"show", 0, PSI_OPTION_TEXT, "workers whose lines are shown: 0, 0,2-5, none [all]",
         &options->show},
        {"result_regex", 0, PSI_OPTION_TEXT,
         "the last line that matches, of the lowest rank with one, stands in the closing summary",
         &options->result_regex},
        {"log_mode", 0, PSI_OPTION_TEXT,
         "where logs are kept: launcher, nodes (each those of its processes), both [launcher]",
         &options->log_mode},
        {"restart", 0, PSI_OPTION_TEXT,
         "of what failed: never, on-failure, exit-code (128 and above) [never]", &options->restart},
        {"restart_scope", 0, PSI_OPTION_TEXT,
         "process: the worker alone, keeping its rank; group: the whole job [process]",
         &options->restart_scope},
        {"sync", 0, PSI_OPTION_TEXT, "directory to ship to every other machine before the start",
         &options->sync},
        {"version", 0, PSI_OPTION_FLAG, "print the version and exit", &options->version},
        {"pass", 0, PSI_OPTION_TEXT,
         "how workers learn their place: auto, flags, env, both, none [auto]", &options->pass},
        {"max_restarts", 0, PSI_OPTION_NUMBER, "of each worker, or of the whole job [3]",
         &options->max_restarts},
        {"grace_ms", 0, PSI_OPTION_NUMBER,
         "for servers and master to leave when the workers are done [10000]", &options->grace_ms},
    };
    const struct psi_command command = {
        .name = "psd_run",
        .synopsis = "[-c FILE] [-o DIR] [options] \"command\"\n"
                    "       psd_run [options] -- program arguments...\n"
                    "       psd_run run [options] \"command\"\n"
                    "       psd_run show | logs | stop | list [-h]\n"
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
    if (options->help || options->version) {
        return PSD_OK;
    }
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

psd_status
options_parse(int argc, char *const *argv, struct launch_options *options_p, struct psd_error *err)
{
    *options_p = (struct launch_options){.out = "./logs",
                                         .servers = LAUNCH_NOT_GIVEN,
                                         .workers = LAUNCH_NOT_GIVEN,
                                         .max_restarts = 3,
                                         .grace_ms = 10000};
    psi_settings_init(&options_p->settings);
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        options_p->replace = true;
        argc--;
        argv++;
    }
    return parse_run(argc, argv, options_p, false, err);
}

void
options_help(void)
{
    struct launch_options unused = {0};

    parse_run(0, NULL, &unused, true, NULL);
}
