/*
 * options.c - the command line of psd_run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/options.h"

#include <string.h>

#include "base/fail.h"
#include "cluster/cluster.h"
#include "config/options.h"

enum {
    GPUS_MAX = 64,
    CPUS_MAX = 4096,
    KEEP_MAX = 1000000,
    MEMORY_MIB_MAX = 1 << 30,
    WAIT_S_MAX = 86400
};

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
    "Inside a Slurm allocation no file is needed: its nodes and tasks are the job's, in a batch\n"
    "script, in the shell of salloc, and with one psd_run for each task (srun psd_run ...).\n"
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
    "--personality runs scripts that were written for other systems, unchanged:\n"
    "    tf1        --job_name J --task_index I --ps_hosts a:p,... --worker_hosts b:p,...\n"
    "    tf_config  TF_CONFIG, for TensorFlow 2's strategies; --chief, --evaluator\n"
    "    torch      MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, ... (env://)\n"
    "    dmlc       DMLC_ROLE, DMLC_PS_ROOT_URI, ..., for scheduler, servers and workers\n"
    "    mpi        OMPI_COMM_WORLD_RANK, PMI_RANK, HOROVOD_RANK, ...\n"
    "There are no ps_master and ps_server then (poseidon,torch has them): with tf1, tf_config and\n"
    "dmlc servers run the command, too, and are ended when the workers are done.\n"
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
    "    psd_run --personality tf1 --servers 1 --workers 2 \"python main.py\"\n"
    "    psd_run --personality tf_config --chief --workers 3 \"python train.py\"\n"
    "    psd_run --tf_config worker_0.json \"python train.py\"               a task by hand\n"
    "    psd_run -c cluster.json --personality torch \"python train.py\"\n"
    "    psd_run --emit sbatch --nodes 2 --ps 2 --workers 6 \"python train.py\" >job.sh\n"
    "    srun psd_run --roles 'ps,worker*3' \"python train.py\"              one for each task\n"
    "    psd_run list; psd_run top train; psd_run page train; psd_run stop train\n"
    "    psd_run --rendezvous /shared/meet --job_id 4711 --rank 3 --size 6 \"python train.py\"\n"
    "                                          one of six that a batch system starts; 0 "
    "coordinates\n"
    "    psd_run --emit condor --rendezvous /shared/meet --workers 4 \"python train.py\" >job.sub\n"
    "    psd_run --emit k8s --image registry/train:1 --workers 4 \"python train.py\" >train.yaml\n"
    "\n"
    "exit code: 0; that of the first process that failed (128 + signal); 2 wrong usage; 3 cannot\n"
    "start; 70, 71, 72 a machine with workers, servers, the master was lost; 124 it took too "
    "long;\n"
    "130, 143 interrupted.\n"
    "\n"
    "While a job runs it is watched in a browser, at the address that psd_run prints. Every "
    "process\n"
    "has its log in DIR/poseidon_log_<time>/; report.html there keeps the page, and result.json "
    "tells\n"
    "the story to programs. psd_run's own log is ./poseidon_run.log, where it was started.";

const char *const launch_restart_words[] = {"never", "on-failure", "exit-code", NULL};
const char *const launch_scope_words[] = {"process", "group", NULL};
const char *const launch_logs_words[] = {"launcher", "nodes", "both", NULL};
const char *const launch_placement_words[] = {"pack", "spread", NULL};

/* Where the values of the command line go while it is read: a process has one. */
static struct launch_options parsed;

static const struct psi_option table[] = {
    {"cluster_config", 'c', PSI_OPTION_TEXT, "JSON file that names the hosts",
     &parsed.cluster_config},
    {"out", 'o', PSI_OPTION_TEXT, "directory for the logs [./logs]", &parsed.out},
    {"workers", 0, PSI_OPTION_NUMBER, "workers, without a cluster file [1]", &parsed.workers, 1,
     PSI_CLUSTER_WORKERS_MAX},
    {"servers", 0, PSI_OPTION_NUMBER,
     "servers, without a cluster file; 0 only with --personality tf1 or tf_config [1]",
     &parsed.servers, 0, PSI_CLUSTER_SERVERS_MAX},
    {"ps", 0, PSI_OPTION_NUMBER, "the same as --servers", &parsed.servers, 0,
     PSI_CLUSTER_SERVERS_MAX},
    {"local", 0, PSI_OPTION_FLAG, "this machine alone, also inside a Slurm allocation",
     &parsed.local},
    {"roles", 0, PSI_OPTION_TEXT,
     "of Slurm's tasks, node by node: ps,ps,worker*6 [all workers, a server on each node]",
     &parsed.roles},
    {"placement", 0, PSI_OPTION_WORD,
     "of --servers among Slurm's tasks: pack (the first ones), spread (over the nodes) [pack]",
     &parsed.placement, .words = launch_placement_words},
    {"secret_file", 0, PSI_OPTION_TEXT,
     "use this secret instead of a fresh one (psd_run secret FILE makes it)", &parsed.secret_file},
    {"forward", 'x', PSI_OPTION_LIST,
     "NAME, NAME=value or PREFIX*: variables for workers on other machines", &parsed.forward},
    {"keep_env", 0, PSI_OPTION_FLAG,
     "where you have set PSD_RANK and the like, workers get your values, not the job's",
     &parsed.keep_env},
    {"gpus_per_worker", 0, PSI_OPTION_NUMBER,
     "GPUs of a machine for each of its workers (CUDA_VISIBLE_DEVICES); --emit asks for them",
     &parsed.gpus_per_worker, 0, GPUS_MAX},
    {"cpus_per_worker", 0, PSI_OPTION_NUMBER, "of --emit: cores to ask for",
     &parsed.cpus_per_worker, 0, CPUS_MAX},
    {"memory_per_worker", 0, PSI_OPTION_NUMBER, "of --emit: MiB of memory to ask for",
     &parsed.memory_per_worker, 0, MEMORY_MIB_MAX},
    {"auto", 0, PSI_OPTION_WORD,
     "distribute plain scripts: on, off, warn (and go on), tf1 (old names); "
     "docs/automatic.md [on]",
     &parsed.automatic, .words = plan_automatic_words},
    {"personality", 0, PSI_OPTION_TEXT,
     "of the script: poseidon, tf1, tf_config, torch, dmlc, mpi; \"a,b\" both [poseidon]",
     &parsed.personality},
    {"chief", 0, PSI_OPTION_FLAG,
     "tf_config: the first worker is the chief, and the job is done when it is", &parsed.chief},
    {"evaluator", 0, PSI_OPTION_FLAG, "tf_config: the last worker is the evaluator",
     &parsed.evaluator},
    {"tf_config", 0, PSI_OPTION_LIST,
     "file, or env for the variable: run that task of a cluster laid out by hand",
     &parsed.tf_config},
    {"tf_config_dir", 0, PSI_OPTION_TEXT,
     "tf1, tf_config: write ps.json, worker_0.json and so on there", &parsed.tf_config_dir},
    {"workdir", 0, PSI_OPTION_TEXT, "directory for the workers, on every machine [this one]",
     &parsed.workdir},
    {"interface", 0, PSI_OPTION_TEXT, "ib0, eth1 or 10.0.0.0/8: where machines talk to each other",
     &parsed.interface},
    {"timeout", 0, PSI_OPTION_NUMBER, "seconds until the job is ended with code 124 [any]",
     &parsed.timeout_s},
    {"name", 0, PSI_OPTION_TEXT, "of the job, for show, logs, stop [after the command]",
     &parsed.name},
    {"detach", 'd', PSI_OPTION_FLAG, "return when the job runs, and leave it running",
     &parsed.detach},
    {"check", 0, PSI_OPTION_FLAG, "only look whether all machines are ready", &parsed.check},
    {"dry_run", 'n', PSI_OPTION_FLAG, "only print what would be run, and start nothing",
     &parsed.dry_run},
    {"print_cluster", 0, PSI_OPTION_FLAG,
     "only print where Slurm's tasks are, by role, and which of them this is",
     &parsed.print_cluster},
    {"json", 0, PSI_OPTION_FLAG, "--print_cluster as one JSON object", &parsed.json},
    {"setup", 0, PSI_OPTION_TEXT,
     "of --emit sbatch: a line before the job, such as module load; $1: the script's argument",
     &parsed.setup},
    {"nodes", 0, PSI_OPTION_NUMBER, "of --emit sbatch: how many nodes [as Slurm likes]",
     &parsed.nodes, 1, 65536},
    {"show", 0, PSI_OPTION_TEXT, "workers whose lines are shown: 0, 0,2-5, none [all]",
     &parsed.show},
    {"page", 0, PSI_OPTION_TEXT,
     "off, or the port of the page on which the job is watched; docs/watching.md [any port]",
     &parsed.page},
    {"page_address", 0, PSI_OPTION_TEXT,
     "of this machine, for the page; others reach it there, so it takes --page_cert [127.0.0.1]",
     &parsed.page_address},
    {"page_cert", 0, PSI_OPTION_TEXT, "file with the page's certificate, in PEM: it uses TLS",
     &parsed.page_cert},
    {"page_key", 0, PSI_OPTION_TEXT, "file with its key", &parsed.page_key},
    {"page_token", 0, PSI_OPTION_TEXT,
     "file with the page's token, made if there is none; Prometheus takes the same [drawn anew]",
     &parsed.page_token},
    {"unwatched", 0, PSI_OPTION_FLAG,
     "no page, and nobody is told what the processes count: to see what watching costs",
     &parsed.unwatched},
    {"result_regex", 0, PSI_OPTION_TEXT,
     "the last line that matches, of the lowest rank with one, stands in the closing summary",
     &parsed.result_regex},
    {"tensorboard", 0, PSI_OPTION_TEXT,
     "directory in which TensorBoard finds the curves of the job, one run for each worker",
     &parsed.tensorboard},
    {"log_mode", 0, PSI_OPTION_WORD,
     "where logs are kept: launcher, nodes (each those of its processes), both [launcher]",
     &parsed.log_mode, .words = launch_logs_words},
    {"restart", 0, PSI_OPTION_WORD,
     "of what failed: never, on-failure, exit-code (128 and above) [never]", &parsed.restart,
     .words = launch_restart_words},
    {"restart_scope", 0, PSI_OPTION_WORD,
     "process: the worker alone, keeping its rank; group: the whole job [process]",
     &parsed.restart_scope, .words = launch_scope_words},
    {"cold_dir", 0, PSI_OPTION_TEXT,
     "directory on the servers' disks, for rows that their memory does not hold [TMPDIR, /var/tmp]",
     &parsed.cold_dir},
    {"checkpoint", 0, PSI_OPTION_TEXT,
     "directory that master and servers see: they save all update tables there, while the job runs",
     &parsed.checkpoint},
    {"checkpoint_every", 0, PSI_OPTION_TEXT, "a time (90s, 10m, 2h), 1000steps, or epoch [10m]",
     &parsed.checkpoint_every},
    {"keep", 0, PSI_OPTION_NUMBER, "so many of the newest checkpoints [2]", &parsed.keep, 2,
     KEEP_MAX},
    {"resume", 0, PSI_OPTION_TEXT,
     "go on from the newest intact checkpoint there, with any number of servers", &parsed.resume},
    {"sync", 0, PSI_OPTION_TEXT, "directory to ship to every other machine before the start",
     &parsed.sync},
    {"trust_ssh_options", 0, PSI_OPTION_FLAG,
     "take all ssh_options of the cluster file, also those that run commands on this machine",
     &parsed.trust_ssh_options},
    {"rendezvous", 0, PSI_OPTION_TEXT,
     "directory that all see, where the --size psd_run of a job find each other",
     &parsed.rendezvous},
    {"coordinator", 0, PSI_OPTION_TEXT,
     "HOST:PORT where the psd_run of rank 0 listens, where there are names instead",
     &parsed.coordinator},
    {"rank", 0, PSI_OPTION_NUMBER,
     "of this psd_run: 0 to servers-1 are servers, the rest workers; 0 coordinates", &parsed.rank},
    {"size", 0, PSI_OPTION_NUMBER, "how many psd_run make up the job", &parsed.size},
    {"job_id", 0, PSI_OPTION_TEXT, "of this run, the same for all of its psd_run [job]",
     &parsed.job_id},
    {"min_workers", 0, PSI_OPTION_NUMBER, "so many are enough when --max_wait is over [all]",
     &parsed.min_workers, 1, PSI_CLUSTER_WORKERS_MAX},
    {"max_wait", 0, PSI_OPTION_NUMBER,
     "seconds to wait for the job's other psd_run, also lost ones [3600; Slurm "
     "120]",
     &parsed.max_wait_s, 1, WAIT_S_MAX},
    {"initial_port", 0, PSI_OPTION_NUMBER, "first port that rank 0 may listen on [any]",
     &parsed.first_port, 1, UINT16_MAX},
    {"final_port", 0, PSI_OPTION_NUMBER, "last port that rank 0 may listen on", &parsed.last_port,
     1, UINT16_MAX},
    {"advertise_addr", 0, PSI_OPTION_TEXT,
     "address or name of this machine for the others [found out]", &parsed.advertise_addr},
    {"emit", 0, PSI_OPTION_TEXT,
     "print what another system needs to run the job: sbatch, condor, k8s, ports", &parsed.emit},
    {"universe", 0, PSI_OPTION_TEXT, "of --emit condor: vanilla, docker, parallel [vanilla]",
     &parsed.universe},
    {"image", 0, PSI_OPTION_TEXT, "of --emit: the container with psd_run and the program",
     &parsed.image},
    {"version", 0, PSI_OPTION_FLAG, "print the version and exit", &parsed.version},
    {"pass", 0, PSI_OPTION_TEXT,
     "how workers learn their place: auto, flags, env, both, none [auto]", &parsed.pass},
    {"max_restarts", 0, PSI_OPTION_NUMBER, "of each worker, or of the whole job [3]",
     &parsed.max_restarts},
    {"server_restarts", 0, PSI_OPTION_NUMBER,
     "of a server of sums, if its lives end within a minute each; 0: it is not started again [3]",
     &parsed.server_restarts},
    {"master_restarts", 0, PSI_OPTION_NUMBER, "likewise of the master [3]",
     &parsed.master_restarts},
    {"restart_delay_ms", 0, PSI_OPTION_NUMBER,
     "before what lived less than 10 s is restarted; then it doubles [500]",
     &parsed.restart_delay_ms},
    {"grace_ms", 0, PSI_OPTION_NUMBER,
     "for servers and master to leave when the workers are done [10000; TensorFlow 1000]",
     &parsed.grace_ms},
};
static const struct psi_command command = {
    .name = "psd_run",
    .synopsis =
        "[-c FILE] [-o DIR] [options] \"command\"\n"
        "       psd_run [options] -- program arguments...\n"
        "       psd_run run [options] \"command\"\n"
        "       psd_run show | top | logs | page | trace | scale | restart | stop | list [-h]\n"
        "       psd_run checkpoint list | verify | show | export | prune DIR\n"
        "       psd_run secret FILE\n"
        "       psd_run reader-key [JOB] FILE",
    .about = about_run,
    .program = PSI_PROGRAM_RUN,
    .options = table,
    .option_count = sizeof(table) / sizeof(table[0]),
};

/* What follows the options is the command. */
static psd_status
take_command(int argc, char *const *argv, int first, struct psd_error *err)
{
    if (first < argc && strcmp(argv[first - 1], "--") == 0) {
        parsed.argv = argv + first;
    } else if (first < argc) {
        parsed.command = argv[first];
    }
    if (parsed.command != NULL && first + 1 < argc && strncmp(argv[first + 1], "--", 2) == 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.64s, behind the command: options of psd_run go before it; to give this "
                        "to \"%.64s\", quote all of it, or put -- before it",
                        argv[first + 1], argv[first]);
    }
    if (parsed.command != NULL && first + 1 < argc) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%.64s: more than one argument: quote the command, or put -- before it",
                        argv[first + 1]);
    }
    return PSD_OK;
}

psd_status
options_parse(int argc, char *const *argv, struct launch_options *options_p, struct psd_error *err)
{
    const bool replace = argc > 1 && strcmp(argv[1], "run") == 0;
    struct psi_arguments arguments;
    psd_status status;

    argc -= replace;
    argv += replace;
    parsed = (struct launch_options){.out = "./logs",
                                     .replace = replace,
                                     .servers = LAUNCH_NOT_GIVEN,
                                     .workers = LAUNCH_NOT_GIVEN,
                                     .rank = LAUNCH_NOT_GIVEN,
                                     .size = LAUNCH_NOT_GIVEN,
                                     .min_workers = LAUNCH_NOT_GIVEN,
                                     .max_wait_s = LAUNCH_MAX_WAIT_S,
                                     .max_restarts = LAUNCH_MAX_RESTARTS,
                                     .server_restarts = LAUNCH_MAX_RESTARTS,
                                     .master_restarts = LAUNCH_MAX_RESTARTS,
                                     .restart_delay_ms = LAUNCH_RESTART_DELAY_MS,
                                     .grace_ms = LAUNCH_NOT_GIVEN};
    psi_settings_init(&parsed.settings);
    status = psi_options_parse(&command, argc, argv, &parsed.settings, &arguments, err);
    if (status == PSD_OK) {
        parsed.help = arguments.help;
        if (parsed.last_port == 0 && parsed.first_port != 0) {
            parsed.last_port = UINT16_MAX;
        }
    }
    if (status == PSD_OK && !parsed.help && !parsed.version) {
        status = take_command(argc, argv, arguments.first, err);
        status = status == PSD_OK ? psi_settings_environment(&parsed.settings, PSI_PROGRAM_RUN, err)
                                  : status;
    }
    *options_p = parsed;
    return status;
}

void
options_help(void)
{
    psi_options_help(stdout, &command);
}
