/*
 * options.c - ps_master's command line, environment and cluster.json.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/options.h"

#include <stdio.h>

#include "base/fail.h"
#include "config/cluster.h"
#include "config/options.h"
#include "config/settings.h"
#include "secure/daemon.h"
#include "transport/address.h"

enum { DEFAULT_PORT = 5555, PORT_MAX = 65535, READY_FD_MAX = 1 << 20 };

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
    "71 a server was lost; 124 the job did not gather in time; 130, 143 stopped by a signal.";

/* What the command line says beside settings. */
struct given {
    uint32_t workers;
    uint32_t servers;
    uint32_t port;
    uint32_t ready_fd;
    const char *bind;
    const char *secret_file;
    bool insecure;
    const char *cluster_config;
};

static psd_status
parse(int argc, char *const *argv, struct given *given, struct psi_settings *settings, bool *help_p,
      struct psd_error *err)
{
    const struct psi_option options[] = {
        {"workers", 0, PSI_OPTION_NUMBER, "how many workers the job has", &given->workers},
        {"servers", 0, PSI_OPTION_NUMBER, "how many servers the job has", &given->servers},
        {"cluster_config", 'c', PSI_OPTION_TEXT, "cluster.json: both numbers, and settings",
         &given->cluster_config},
        {"bind", 0, PSI_OPTION_TEXT, "address to listen on (127.0.0.1)", &given->bind},
        {"secret_file", 0, PSI_OPTION_TEXT,
         "file with the job\'s secret, mode 0600 (PSD_SECRET_FILE)", &given->secret_file},
        {"insecure", 0, PSI_OPTION_FLAG,
         "no secret: anybody on this machine may join; loopback only", &given->insecure},
        {"port", 0, PSI_OPTION_NUMBER, "port to listen on (5555); 0: any free one", &given->port},
        {"ready_fd", 0, PSI_OPTION_NUMBER, "write \"tcp://HOST:PORT\" there once listening",
         &given->ready_fd},
    };
    const struct psi_command command = {
        .name = "ps_master",
        .synopsis = "--workers W --servers S [options]",
        .about = about,
        .program = PSI_PROGRAM_MASTER,
        .options = options,
        .option_count = sizeof(options) / sizeof(options[0]),
    };
    struct psi_arguments arguments = {0};
    const psd_status status = psi_options_parse(&command, argc, argv, settings, &arguments, err);

    if (status != PSD_OK) {
        return status;
    }
    *help_p = arguments.help;
    if (arguments.help) {
        psi_options_help(stdout, &command);
    } else if (arguments.first < argc) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: not an option", argv[arguments.first]);
    }
    return PSD_OK;
}

/* The command line goes before the file. */
static psd_status
read_cluster(struct given *given, struct psi_settings *settings, struct psd_error *err)
{
    struct psi_cluster cluster;
    psd_status status;

    if (given->cluster_config == NULL) {
        return PSD_OK;
    }
    status = psi_cluster_load(given->cluster_config, &cluster, err);
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
    psi_settings_merge(settings, &cluster.settings);
    psi_cluster_free(&cluster);
    return PSD_OK;
}

static psd_status
make_address(const struct given *given, struct master_options *options_p, struct psd_error *err)
{
    const struct psi_secret_source source = {
        .fd = psi_environment("PSD_SECRET_FD"),
        .file =
            given->secret_file != NULL ? given->secret_file : psi_environment("PSD_SECRET_FILE"),
    };
    const uint32_t port = given->port == not_given ? DEFAULT_PORT : given->port;
    struct psi_address address = {.scheme = PSI_SCHEME_TCP, .port = (uint16_t)port};
    psd_status status;

    if (port > PORT_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--port %u: at most %d", port, PORT_MAX);
    }
    snprintf(address.host, sizeof(address.host), "%s", given->bind);
    status = psi_secure_listen(&source, given->insecure, &address, &options_p->secret, err);
    if (status != PSD_OK) {
        return status;
    }
    return psi_address_format(&address, options_p->listen_address, err);
}

psd_status
master_options_read(int argc, char *const *argv, struct master_options *options_p,
                    struct psi_log *log, struct psd_error *err)
{
    struct given given = {.workers = not_given,
                          .servers = not_given,
                          .port = not_given,
                          .ready_fd = not_given,
                          .bind = "127.0.0.1"};
    struct psi_settings settings;
    psd_status status;

    *options_p = (struct master_options){.ready_fd = -1};
    psi_settings_init(&settings);
    status = parse(argc, argv, &given, &settings, &options_p->help, err);
    if (status != PSD_OK || options_p->help) {
        return status;
    }
    status = psi_settings_environment(&settings, PSI_PROGRAM_MASTER, err);
    if (status == PSD_OK) {
        status = read_cluster(&given, &settings, err);
    }
    if (status == PSD_OK) {
        status = make_address(&given, options_p, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (given.workers == not_given || given.servers == not_given) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "how large is the job? give --workers and --servers, or --cluster_config");
    }
    if (given.ready_fd != not_given) {
        if (given.ready_fd > READY_FD_MAX) {
            return psi_fail(err, PSD_ERR_INVALID, "--ready_fd %u: no descriptor", given.ready_fd);
        }
        options_p->ready_fd = (int)given.ready_fd;
    }
    options_p->workers = given.workers;
    options_p->servers = given.servers;
    options_p->heartbeat_ms = settings.heartbeat_ms;
    options_p->dead_heartbeats = settings.dead_heartbeats;
    options_p->lost_grace_ms = settings.lost_grace_ms;
    options_p->start_timeout_ms = settings.start_timeout_ms;
    options_p->replacement_timeout_ms = settings.replacement_timeout_ms;
    options_p->policy = settings.on_worker_death;
    options_p->harden = settings.harden != 0;
    psi_log_to_stderr(log, "master", (enum psi_log_level)settings.log_level);
    psi_settings_log(&settings, PSI_PROGRAM_MASTER, log);
    return PSD_OK;
}
