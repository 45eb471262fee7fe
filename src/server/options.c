/*
 * options.c - ps_server's command line, environment and cluster.json.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <psd/psd.h>

#include "base/cores.h"
#include "base/fail.h"
#include "cluster/cluster.h"
#include "config/environment.h"
#include "config/replicas.h"
#include "shard/shard.h"
#include "transport/address.h"

enum { DEFAULT_MASTER_PORT = 5555 };

static const uint32_t not_given = UINT32_MAX;

static const char about[] =
    "A server of a job: holds part of the parameters, adds up the workers' gradients and applies\n"
    "the update rule. psd_run starts it; by hand, in any order with the others:\n"
    "\n"
    "    psd_run secret job.secret && export PSD_SECRET_FILE=job.secret\n"
    "    ps_master --workers 1 --servers 1 &\n"
    "    ps_server --index 0 --master_address tcp://127.0.0.1:5555 &\n"
    "    PSD_MASTER_ADDRESS=tcp://127.0.0.1:5555 ./worker\n"
    "\n"
    "Exit codes: 0 all workers done; 2 wrong options; 3 cannot start; 70 a worker was lost;\n"
    "71 another server was lost; 72 the master was lost; 73 refused by the master; 74 a sum of\n"
    "finite gradients is not finite; 75 it was silent and its place is given away; 77 the secret\n"
    "is not that of the master's job; 124 nobody answered in time; 130, 143 stopped by a signal.";

/* What the command line says besides settings. */
struct given {
    struct daemon_given common;
    uint32_t index;
    uint32_t servers;
    const char *master_address;
    const char *checkpoint;
    const char *resume;
    uint32_t generation;
    const char *cold;
};

static psd_status
parse(int argc, char *const *argv, struct given *given, struct psi_settings *settings,
      bool *answered_p, struct psd_error *err)
{
    const struct psi_option options[] = {
        {"index", 0, PSI_OPTION_NUMBER, "which server of the job this is", &given->index, 0,
         PSI_SERVERS_MAX - 1},
        {"master_address", 0, PSI_OPTION_TEXT, "where the master listens: tcp://HOST:PORT",
         &given->master_address},
        DAEMON_OPTION_ROWS(&given->common, "cluster.json: the master's address, and settings"),
        {"servers", 0, PSI_OPTION_NUMBER, "servers that share this machine (1)", &given->servers, 1,
         PSI_SERVERS_MAX},
        {"checkpoint", 0, PSI_OPTION_TEXT,
         "directory that the master was given, for this server's part of checkpoints",
         &given->checkpoint},
        {"resume", 0, PSI_OPTION_TEXT, "directory of the checkpoint that the job goes on from",
         &given->resume},
        {"generation", 0, PSI_OPTION_NUMBER, "of --resume: which one (the newest intact one)",
         &given->generation, 1, UINT32_MAX},
        {"cold_dir", 0, PSI_OPTION_TEXT,
         "directory on a disk, for rows that memory does not hold (TMPDIR, or /var/tmp)",
         &given->cold},
    };
    const struct psi_command command = {
        .name = "ps_server",
        .synopsis = "--index K --master_address tcp://HOST:PORT [options]",
        .about = about,
        .version = psd_version(),
        .program = PSI_PROGRAM_SERVER,
        .options = options,
        .option_count = sizeof(options) / sizeof(options[0]),
    };

    return daemon_options_parse(&command, argc, argv, settings, answered_p, err);
}

/* The command line overrides the file. */
static psd_status
read_cluster(struct given *given, struct psi_settings *settings, char *master, size_t size,
             struct psd_error *err)
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
    if (given->master_address == NULL) {
        const char *host = cluster.master.host[0] != '\0' ? cluster.master.host : "127.0.0.1";
        const unsigned port = cluster.master_port != 0 ? cluster.master_port : DEFAULT_MASTER_PORT;

        snprintf(master, size, strchr(host, ':') != NULL ? "tcp://[%s]:%u" : "tcp://%s:%u",
                 strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port);
        given->master_address = master;
    }
    if (given->index != not_given && given->index >= cluster.server_count) {
        status = psi_fail(err, PSD_ERR_INVALID, "--index %u: %s lists %u server%s", given->index,
                          given->common.cluster_config, cluster.server_count,
                          psi_plural(cluster.server_count));
    }
    if (given->servers == not_given) {
        given->servers = cluster.server_count;
    }
    psi_settings_merge(settings, &cluster.settings);
    psi_replicas_settle(settings, cluster.server_count, psi_cluster_spreads_servers(&cluster));
    psi_cluster_free(&cluster);
    return status;
}

static psd_status
check_master_address(const char *text, struct psd_error *err)
{
    struct psi_address address;

    if (text == NULL) {
        psi_fail(err, PSD_ERR_INVALID,
                 "where is the master? give --master_address, --cluster_config or "
                 "PSD_MASTER_ADDRESS");
        psi_environment_hint("PSD_MASTER_ADDRESS", err);
        return PSD_ERR_INVALID;
    }
    return psi_address_parse(text, &address, err);
}

static psd_status
choose_kernel(uint32_t wanted, enum kernel_level *level_p, struct psd_error *err)
{
    if (wanted == PSI_KERNEL_AUTO) {
        *level_p = psi_kernel_level_best();
        return PSD_OK;
    }
    *level_p = (enum kernel_level)(wanted - PSI_KERNEL_SCALAR + KERNEL_SCALAR);
    if (!psi_kernel_level_supported(*level_p)) {
        return psi_fail(err, PSD_ERR_INVALID, "kernel %s: this CPU does not have it",
                        psi_kernel_level_name(*level_p));
    }
    return PSD_OK;
}

/* 80 % of the memory that is available now, divided by the number of servers on this machine. */
static uint64_t
default_memory(uint32_t servers)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes = (uint64_t)pages * (uint64_t)page_bytes;
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long long kib;

        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
            bytes = (uint64_t)kib << 10;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return bytes / 10 * 8 / servers;
}

/* Not /tmp, which may be memory. */
static const char *
choose_cold(const char *given)
{
    const char *usual = given != NULL ? given : psi_environment("TMPDIR");

    return usual != NULL ? usual : "/var/tmp";
}

static void
size_process(const struct given *given, const struct psi_settings *settings,
             struct server_options *options)
{
    const uint32_t servers = given->servers == not_given ? 1 : given->servers;
    const uint32_t share = psi_usable_cores() / servers;

    options->lanes = settings->lanes != 0 ? settings->lanes : share;
    if (options->lanes == 0) {
        options->lanes = 1;
    }
    if (options->lanes > PSI_LANES_MAX) {
        options->lanes = PSI_LANES_MAX;
    }
    options->moves = settings->max_servers > 0;
    options->standby_lanes = settings->standby_lanes != 0
                                 ? settings->standby_lanes
                                 : (settings->replicas > 0 ? 2 : 1) * options->lanes;
    options->memory_max = settings->memory_max_mib != 0 ? (uint64_t)settings->memory_max_mib << 20
                                                        : default_memory(servers);
    options->pool_bytes = (uint64_t)settings->slot_pool_mib << 20;
    options->start_timeout_ms = settings->start_timeout_ms;
    options->checksum = settings->payload_checksum != 0;
    options->lends = settings->transport == PSI_TRANSPORT_AUTO;
    options->spin_us = settings->spin_us;
    options->harden = settings->harden != 0;
    options->replicas = settings->replicas;
}

psd_status
server_options_read(int argc, char *const *argv, struct server_options *options_p,
                    struct psi_log *log, struct psd_error *err)
{
    struct given given = {
        .common = {.bind = "127.0.0.1"}, .index = not_given, .servers = not_given};
    struct psi_settings settings;
    char master[PSI_CLUSTER_HOST_BYTES_MAX + 32];
    psd_status status;

    *options_p = (struct server_options){0};
    given.master_address = psi_environment("PSD_MASTER_ADDRESS");
    psi_settings_init(&settings);
    status = parse(argc, argv, &given, &settings, &options_p->answered, err);
    if (status != PSD_OK || options_p->answered) {
        return status;
    }
    status = read_cluster(&given, &settings, master, sizeof(master), err);
    psi_replicas_settle(&settings, 1, false); /* without a file nobody knows where the others are */
    if (status == PSD_OK && given.index == not_given) {
        status = psi_fail(err, PSD_ERR_INVALID, "which server is this? give --index 0..%d",
                          PSI_SERVERS_MAX - 1);
    }
    if (status == PSD_OK) {
        status = check_master_address(given.master_address, err);
    }
    if (status == PSD_OK) {
        status = choose_kernel(settings.kernel, &options_p->kernel, err);
    }
    if (status == PSD_OK) {
        status =
            daemon_security_init(&options_p->security, &given.common, 0, given.master_address, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    options_p->index = given.index;
    options_p->checkpoint = given.checkpoint;
    options_p->cold = choose_cold(given.cold);
    options_p->resume = given.resume;
    options_p->generation = given.generation;
    options_p->master_file = psi_environment("PSD_MASTER_FILE");
    snprintf(options_p->master_address, sizeof(options_p->master_address), "%s",
             given.master_address);
    size_process(&given, &settings, options_p);
    snprintf(options_p->name, sizeof(options_p->name), "server%u", given.index);
    daemon_log_start(log, options_p->name, &settings, PSI_PROGRAM_SERVER,
                     options_p->security.secret == NULL);
    return PSD_OK;
}
