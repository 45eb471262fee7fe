/*
 * options.c - ps_master's command line, environment and cluster.json.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/options.h"

#include <psd/psd.h>

#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/generations.h"
#include "clock/clock.h"
#include "cluster/cluster.h"
#include "config/replicas.h"
#include "shard/shard.h"
#include "view/view.h"

enum { DEFAULT_PORT = 5555, PORT_MAX = 65535, READY_FD_MAX = 1 << 20, KEEP_MAX = 1000000 };

static const uint32_t not_given = UINT32_MAX;

static const char about[] =
    "The master of a job: knows who is in it, numbers every change of membership, and ends the\n"
    "job when all workers are done. psd_run starts it; by hand:\n"
    "\n"
    "    psd_run secret job.secret && export PSD_SECRET_FILE=job.secret\n"
    "    ps_master --workers 2 --servers 1 &\n"
    "    ps_server --index 0 --master_address tcp://127.0.0.1:5555 &\n"
    "    PSD_MASTER_ADDRESS=tcp://127.0.0.1:5555 PSD_RANK=0 ./worker &\n"
    "    PSD_MASTER_ADDRESS=tcp://127.0.0.1:5555 PSD_RANK=1 ./worker\n"
    "\n"
    "Exit codes: 0 all workers done; 2 wrong options; 3 cannot start; 70 a worker was lost;\n"
    "71 a server was lost; 72 the master was lost, and cannot go on; 75 another life of the "
    "master\n"
    "has taken over; 124 the job did not gather in time; 130, 143 stopped by a signal.";

/* What the command line says besides settings. */
struct given {
    struct daemon_given common;
    uint32_t workers;
    uint32_t servers;
    uint32_t port;
    uint32_t ready_fd;
    uint32_t term;
    const char *journal;
    bool tell_joins;
    bool heed_stdin;
    bool late_workers;
    bool spread; /* the servers are on two hosts or more */
    const char *checkpoint;
    const char *checkpoint_every;
    uint32_t keep;
    const char *resume;
    uint32_t generation;
};

static psd_status
parse(int argc, char *const *argv, struct given *given, struct psi_settings *settings,
      bool *answered_p, struct psd_error *err)
{
    const struct psi_option options[] = {
        {"workers", 0, PSI_OPTION_NUMBER, "how many workers the job has", &given->workers, 1,
         PSI_RANKS_MAX},
        {"servers", 0, PSI_OPTION_NUMBER, "how many servers the job has", &given->servers, 1,
         PSI_SERVERS_MAX},
        DAEMON_OPTION_ROWS(&given->common, "cluster.json: both numbers, and settings"),
        {"port", 0, PSI_OPTION_NUMBER, "port to listen on (5555); 0: any free one", &given->port, 0,
         PORT_MAX},
        {"ready_fd", 0, PSI_OPTION_NUMBER, "write \"tcp://HOST:PORT\" there once listening",
         &given->ready_fd, 0, READY_FD_MAX},
        {"tell_joins", 0, PSI_OPTION_FLAG,
         "keep ready_fd open, and write there who has joined, is done or was lost",
         &given->tell_joins},
        {"heed_stdin", 0, PSI_OPTION_FLAG,
         "read on stdin which servers have ended, from who started them and sees that",
         &given->heed_stdin},
        {"term", 0, PSI_OPTION_NUMBER,
         "which life of the job's master this is (1): for who counts them, and sees them end",
         &given->term, 1, PSI_TERM_MAX},
        {"journal", 0, PSI_OPTION_TEXT,
         "count the lives of the master there: started again with it, the job goes on",
         &given->journal},
        {"late_workers", 0, PSI_OPTION_FLAG,
         "workers may join at any time, unless start_timeout_ms is given: that is for servers",
         &given->late_workers},
        {"checkpoint", 0, PSI_OPTION_TEXT,
         "directory that all servers see: tables are saved there while the job runs",
         &given->checkpoint},
        {"checkpoint_every", 0, PSI_OPTION_TEXT, "a time (90s, 10m, 2h), 1000steps, or epoch (10m)",
         &given->checkpoint_every},
        {"keep", 0, PSI_OPTION_NUMBER, "checkpoints that are kept (2)", &given->keep,
         PSI_GENERATIONS_KEPT, KEEP_MAX},
        {"resume", 0, PSI_OPTION_TEXT, "directory of the checkpoint that the job goes on from",
         &given->resume},
        {"generation", 0, PSI_OPTION_NUMBER, "of --resume: which one (the newest intact one)",
         &given->generation, 1, UINT32_MAX},
    };
    const struct psi_command command = {
        .name = "ps_master",
        .synopsis = "--workers W --servers S [options]",
        .about = about,
        .version = psd_version(),
        .program = PSI_PROGRAM_MASTER,
        .options = options,
        .option_count = sizeof(options) / sizeof(options[0]),
    };

    return daemon_options_parse(&command, argc, argv, settings, answered_p, err);
}

/* The command line overrides the file. */
static psd_status
read_cluster(struct given *given, struct psi_settings *settings, struct psd_error *err)
{
    struct psi_cluster cluster;
    psd_status status;

    if (given->common.cluster_config == NULL) {
        return PSD_OK;
    }
    status = psi_cluster_load(given->common.cluster_config, &cluster, err);
    if (status != PSD_OK) {
        return status;
    }
    if (given->workers == not_given) {
        given->workers = cluster.worker_count;
    }
    if (given->servers == not_given) {
        given->servers = cluster.server_count;
    }
    if (given->port == not_given && cluster.master_port != 0) {
        given->port = cluster.master_port;
    }
    given->spread = psi_cluster_spreads_servers(&cluster);
    psi_settings_merge(settings, &cluster.settings);
    psi_cluster_free(&cluster);
    return PSD_OK;
}

/* A copy is in another server, and a server's death must not be the end for another reason. */
static psd_status
settle_replicas(struct psi_settings *settings, const struct given *given, struct psd_error *err)
{
    const char *obstacle = psi_replicas_obstacle(settings, given->servers);

    psi_replicas_settle(settings, given->servers, given->spread);
    if (settings->replicas == PSI_REPLICAS_0 || obstacle == NULL) {
        return PSD_OK;
    }
    if (given->servers == 1) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "replicas 1: the job has 1 server, and a copy is in another one");
    }
    return psi_fail(err, PSD_ERR_INVALID, "replicas 1: not with %s", obstacle);
}

/* May workers join, and how many does it take? */
static psd_status
check_workers(const struct given *given, const struct psi_settings *settings, struct psd_error *err)
{
    if (settings->max_workers != 0 && settings->max_workers < given->workers) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "max_workers %u: the job has %u workers from the start; give at least that "
                        "many, or leave it out",
                        settings->max_workers, given->workers);
    }
    if (settings->min_workers > given->workers) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "min_workers %u: the job has %u worker%s, so it would never begin; give at "
                        "most that many",
                        settings->min_workers, given->workers, psi_plural(given->workers));
    }
    return PSD_OK;
}

/* May servers come and go? What moves a place is what brings back a lost one. */
static psd_status
check_servers(const struct given *given, const struct psi_settings *settings, struct psd_error *err)
{
    if (settings->max_servers == 0) {
        return PSD_OK;
    }
    if (settings->max_servers < given->servers) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "max_servers %u: the job has %u servers from the start; give at least that "
                        "many, or leave it out",
                        settings->max_servers, given->servers);
    }
    if (settings->sum_failover == PSI_FAILOVER_OFF) {
        return psi_fail(err, PSD_ERR_INVALID, "max_servers %u: not with sum_failover=off",
                        settings->max_servers);
    }
    if (settings->on_worker_death == PSI_DEATH_WAIT && settings->replicas == PSI_REPLICAS_0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "max_servers %u: with on_worker_death=wait only with replicas=1",
                        settings->max_servers);
    }
    return PSD_OK;
}

/* Is it said how large the job is, and who counts the lives of its master? */
static psd_status
check_given(const struct given *given, struct psd_error *err)
{
    if (given->workers == not_given || given->servers == not_given) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "how large is the job? give --workers and --servers, or --cluster_config");
    }
    if (given->term > 1 && !given->tell_joins) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--term %u: only who watches the master may count its lives, and then it "
                        "gives --ready_fd and --tell_joins, too",
                        given->term);
    }
    if (given->journal != NULL && (given->tell_joins || given->term > 1)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--journal %s: who watches the master (--tell_joins, --term) counts its "
                        "lives; give one or the other",
                        given->journal);
    }
    return PSD_OK;
}

/* What the command line, the file and the environment say together. */
static void
take(struct master_options *options, const struct given *given, const struct psi_settings *settings)
{
    if (given->ready_fd != not_given) {
        options->ready_fd = (int)given->ready_fd;
    }
    options->tell_joins = given->tell_joins;
    options->heed_stdin = given->heed_stdin;
    options->workers = given->workers;
    options->max_workers = settings->max_workers == 0 ? given->workers : settings->max_workers;
    options->min_workers = settings->min_workers;
    options->servers = given->servers;
    options->heartbeat_ms = settings->heartbeat_ms;
    options->dead_heartbeats = settings->dead_heartbeats;
    options->lost_grace_ms = settings->lost_grace_ms;
    options->server_grace_ms = settings->server_grace_ms;
    options->server_silence_ms = settings->server_silence_ms;
    options->server_wait_ms =
        settings->sum_failover == PSI_FAILOVER_OFF ? 0 : settings->server_wait_ms;
    options->server_return_ms = settings->server_return_ms;
    options->term = given->term;
    options->journal = given->journal;
    options->any_port = given->port == 0;
    /* Nobody starts the next life of a master whose lives nobody counts. */
    options->master_grace_ms = given->tell_joins || given->journal != NULL ||
                                       psi_settings_told(settings, "master_grace_ms")
                                   ? settings->master_grace_ms
                                   : 0;
    options->start_timeout_ms = settings->start_timeout_ms;
    options->late_workers = given->late_workers && !psi_settings_told(settings, "start_timeout_ms");
    options->replacement_timeout_ms = settings->replacement_timeout_ms;
    options->policy = settings->on_worker_death;
    options->replicas = settings->replicas;
    options->max_servers = settings->max_servers;
    options->move_bytes_per_s = (uint64_t)settings->move_mib_per_s << 20;
    options->checkpoint = given->checkpoint;
    options->kept = given->keep;
    options->resume = given->resume;
    options->generation = given->generation;
    options->harden = settings->harden != 0;
}

psd_status
master_options_read(int argc, char *const *argv, struct master_options *options_p,
                    struct psi_log *log, struct psd_error *err)
{
    struct given given = {.common = {.bind = "127.0.0.1"},
                          .workers = not_given,
                          .servers = not_given,
                          .port = not_given,
                          .ready_fd = not_given,
                          .checkpoint_every = "10m",
                          .keep = PSI_GENERATIONS_KEPT,
                          .term = 1};
    struct psi_settings settings;
    psd_status status;

    *options_p = (struct master_options){.ready_fd = -1};
    psi_settings_init(&settings);
    status = parse(argc, argv, &given, &settings, &options_p->answered, err);
    if (status != PSD_OK || options_p->answered) {
        return status;
    }
    status = read_cluster(&given, &settings, err);
    if (status == PSD_OK) {
        status = check_given(&given, err);
    }
    if (status == PSD_OK) {
        status = check_workers(&given, &settings, err);
    }
    if (status == PSD_OK) {
        status = settle_replicas(&settings, &given, err);
    }
    if (status == PSD_OK) {
        status = check_servers(&given, &settings, err);
    }
    if (status == PSD_OK) {
        status =
            psi_every_parse("--checkpoint_every", given.checkpoint_every, &options_p->every, err);
    }
    if (status == PSD_OK) {
        const uint32_t port = given.port == not_given ? DEFAULT_PORT : given.port;

        status =
            daemon_security_init(&options_p->security, &given.common, (uint16_t)port, NULL, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    take(options_p, &given, &settings);
    daemon_log_start(log, "master", &settings, PSI_PROGRAM_MASTER,
                     options_p->security.secret == NULL);
    return PSD_OK;
}
