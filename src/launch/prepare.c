/*
 * prepare.c - from the command line and the cluster file to a plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare.h"

#include <assert.h>
#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/cluster.h"
#include "launch/here.h"

enum { LANES_MAX = 64, PATH_BYTES = 4096 };

static_assert((int)WATCH_FAIL == PSI_DEATH_FAIL && (int)WATCH_CONTINUE == PSI_DEATH_CONTINUE &&
                  (int)WATCH_WAIT == PSI_DEATH_WAIT,
              "watch.h and settings.h name the same policies");

/* What the plan borrows while it is made. */
struct material {
    struct psi_settings settings;
    struct words master_settings;
    struct words server_settings;
    struct psi_cluster cluster; /* zero: no file was given */
    struct words worker_commands;
    struct words set;         /* environment of the workers */
    struct words *worker_set; /* ... and of each */
    uint32_t worker_set_count;
    char program_directory[PATH_BYTES];
};

static void
material_fini(struct material *material)
{
    words_fini(&material->master_settings);
    words_fini(&material->server_settings);
    words_fini(&material->set);
    words_fini(&material->worker_commands);
    for (uint32_t i = 0; i < material->worker_set_count; i++) {
        words_fini(&material->worker_set[i]);
    }
    free(material->worker_set);
    if (material->cluster.document != NULL) {
        psi_cluster_free(&material->cluster);
    }
}

static psd_status
parse_pass(const char *text, enum psi_pass *pass_p, struct psd_error *err)
{
    static const char *const words[] = {"auto", "flags", "env", "both", "none"};

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i]) == 0) {
            *pass_p = (enum psi_pass)i;
            return PSD_OK;
        }
    }
    return psi_fail(err, PSD_ERR_INVALID, "pass=%.64s: must be auto, flags, env, both or none",
                    text);
}

/* Cores that psd_run may use, shared by the servers of this machine. */
static uint32_t
lanes_per_server(uint32_t servers)
{
    cpu_set_t set;
    uint32_t lanes = 1;

    if (servers > 0 && sched_getaffinity(0, sizeof(set), &set) == 0) { /* plan.c refuses 0 */
        lanes = (uint32_t)CPU_COUNT(&set) / servers;
    }
    return lanes < 1 ? 1 : lanes > LANES_MAX ? LANES_MAX : lanes;
}

/* PSD_<NAME>=value */
static psd_status
add_variable(struct words *set, const char *name, const char *value, struct psd_error *err)
{
    char upper[64];
    size_t used = 0;

    for (; name[used] != '\0' && used < sizeof(upper) - 1; used++) {
        upper[used] = (char)toupper((unsigned char)name[used]);
    }
    upper[used] = '\0';
    return words_add_format(set, err, "PSD_%s=%s", upper, value);
}

/* What is not the default goes on to the programs that know it: options to daemons, environment
 * to workers. */
static psd_status
hand_on_settings(struct material *material, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < PSI_KNOBS && status == PSD_OK; i++) {
        const struct psi_knob *knob = &psi_knobs()[i];
        char value[64];

        if (material->settings.source[i] == PSI_SOURCE_DEFAULT) {
            continue;
        }
        psi_settings_text(&material->settings, knob, value, sizeof(value));
        if ((knob->programs & PSI_PROGRAM_MASTER) != 0) {
            status =
                words_add_format(&material->master_settings, err, "--%s=%s", knob->name, value);
        }
        if (status == PSD_OK && (knob->programs & PSI_PROGRAM_SERVER) != 0) {
            status =
                words_add_format(&material->server_settings, err, "--%s=%s", knob->name, value);
        }
        if (status == PSD_OK && (knob->programs & PSI_PROGRAM_WORKER) != 0) {
            status = add_variable(&material->set, knob->name, value, err);
        }
    }
    return status;
}

static psd_status
find_own_directory(char directory_p[PATH_BYTES], struct psd_error *err)
{
    const ssize_t bytes = readlink("/proc/self/exe", directory_p, PATH_BYTES - 1);
    char *slash;

    if (bytes < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "read /proc/self/exe");
    }
    directory_p[bytes] = '\0';
    slash = strrchr(directory_p, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return PSD_OK;
}

static psd_status
check_here(const char *list, const struct psi_cluster_node *nodes, uint32_t count,
           struct psd_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!here_is(nodes[i].host)) {
            return psi_fail(err, PSD_ERR_REFUSED,
                            "%s[%u] %s is not this machine: starting over ssh is not built yet",
                            list, i, nodes[i].host);
        }
    }
    return PSD_OK;
}

static psd_status
check_hosts(const struct psi_cluster *cluster, struct psd_error *err)
{
    psd_status status = check_here("worker_nodes", cluster->workers, cluster->worker_count, err);

    if (status == PSD_OK) {
        status = check_here("server_nodes", cluster->servers, cluster->server_count, err);
    }
    if (status == PSD_OK && cluster->master.host[0] != '\0' && !here_is(cluster->master.host)) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "master_node %s is not this machine: starting over ssh is not built yet",
                        cluster->master.host);
    }
    return status;
}

static psd_status
add_variables(struct words *set, const struct psi_cluster_variable *variables, uint32_t count,
              struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < count && status == PSD_OK; i++) {
        status = words_add_format(set, err, "%s=%s", variables[i].name, variables[i].value);
    }
    return status;
}

/* The environment of the cluster, and those of single nodes. */
static psd_status
read_environments(const struct psi_cluster *cluster, struct material *material,
                  struct psd_error *err)
{
    psd_status status = add_variables(&material->set, cluster->env, cluster->env_count, err);

    material->worker_set = calloc(cluster->worker_count, sizeof(*material->worker_set));
    if (material->worker_set == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u workers", cluster->worker_count);
    }
    for (uint32_t i = 0; i < cluster->worker_count && status == PSD_OK; i++) {
        const struct psi_cluster_node *node = &cluster->workers[i];

        material->worker_set_count++;
        status = add_variables(&material->worker_set[i], node->env, node->env_count, err);
    }
    return status;
}

/* Loads the file into the material and points the input at it. */
static psd_status
read_cluster(const struct launch_options *options, struct material *material,
             struct plan_input *input, struct psd_error *err)
{
    struct psi_cluster *cluster = &material->cluster;
    psd_status status;

    if (options->workers != LAUNCH_NOT_GIVEN || options->servers != LAUNCH_NOT_GIVEN) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--workers and --servers count processes of this machine: with a cluster "
                        "file, it counts them");
    }
    status = psi_cluster_load(options->cluster_config, cluster, err);
    if (status != PSD_OK) {
        err->status = PSD_ERR_INVALID; /* a file that is not there is a usage error, too */
        return PSD_ERR_INVALID;
    }
    psi_settings_merge(&material->settings, &cluster->settings);
    status = check_hosts(cluster, err);
    for (uint32_t i = 0; cluster->worker_commands != NULL && i < cluster->worker_count; i++) {
        status = status == PSD_OK
                     ? words_add(&material->worker_commands, cluster->worker_commands[i], err)
                     : status;
    }
    if (status == PSD_OK) {
        status = read_environments(cluster, material, err);
    }
    input->workers = cluster->worker_count;
    input->servers = cluster->server_count;
    input->master_port = cluster->master_port;
    input->virtualenv = cluster->virtualenv;
    input->pass = cluster->pass;
    input->worker_set = material->worker_set;
    return status;
}

/* One of the three ways to say what the workers run. */
static psd_status
choose_command(const struct launch_options *options, struct material *material,
               struct plan_input *input, struct psd_error *err)
{
    const bool given = options->command != NULL || options->argv != NULL;
    const bool listed = material->worker_commands.count > 0;

    if (given && listed) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the cluster file has worker_commands: give no command beside it");
    }
    if (!given && !listed) {
        return psi_fail(err, PSD_ERR_INVALID, "nothing to run: give the workers' command");
    }
    input->command = options->command;
    input->argv = options->argv;
    input->worker_commands = listed ? &material->worker_commands : NULL;
    return PSD_OK;
}

/* Fills what is left of the input. */
static psd_status
complete(const struct launch_options *options, struct material *material, struct plan_input *input,
         struct psd_error *err)
{
    psd_status status = choose_command(options, material, input, err);

    if (status == PSD_OK && options->pass != NULL) {
        status = parse_pass(options->pass, &input->pass, err);
    }
    if (status == PSD_OK) {
        status = find_own_directory(material->program_directory, err);
    }
    if (status == PSD_OK) {
        status = hand_on_settings(material, err);
    }
    if (status == PSD_OK && material->settings.lanes == 0) {
        status = words_add_format(&material->server_settings, err, "--lanes=%u",
                                  lanes_per_server(input->servers));
    }
    input->set = &material->set;
    input->master_settings = &material->master_settings;
    input->server_settings = &material->server_settings;
    input->program_directory = material->program_directory;
    return status;
}

static uint32_t
given_or_1(uint32_t number)
{
    return number != LAUNCH_NOT_GIVEN ? number : 1;
}

psd_status
prepare_job(const struct launch_options *options, char *const *environment, struct plan *plan_p,
            struct watch_config *watch_p, struct psd_error *err)
{
    struct material material = {.settings = options->settings};
    struct plan_input input = {.servers = given_or_1(options->servers),
                               .workers = given_or_1(options->workers),
                               .environment = environment};
    psd_status status = PSD_OK;

    if (options->cluster_config != NULL) {
        status = read_cluster(options, &material, &input, err);
    }
    if (status == PSD_OK) {
        status = complete(options, &material, &input, err);
    }
    if (status == PSD_OK) {
        status = plan_build(&input, plan_p, err);
    }
    if (status == PSD_OK) {
        *watch_p = (struct watch_config){.servers = input.servers,
                                         .workers = input.workers,
                                         .on_worker_death =
                                             (enum watch_policy)material.settings.on_worker_death,
                                         .max_restarts = options->max_restarts,
                                         .start_timeout_ms = material.settings.start_timeout_ms,
                                         .leave_ms = options->grace_ms};
    }
    material_fini(&material);
    return status;
}
