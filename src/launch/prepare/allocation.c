/*
 * allocation.c - the nodes and tasks of a Slurm allocation as machines and processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/allocation.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/endpoint.h"
#include "launch/plan/personality.h"
#include "launch/text/memory.h"

/* -------------------------------------------------------------------------------- roles --- */

static bool
is_given(uint32_t number)
{
    return number != LAUNCH_NOT_GIVEN;
}

static psd_status
check_count(const struct launch_options *options, const struct roles *roles,
            const struct slurm *slurm, struct psd_error *err)
{
    unsigned set = 0;
    const psd_status status = personality_parse(options->personality, &set, err);

    if (status != PSD_OK) {
        return status;
    }
    if (roles->count != slurm->tasks) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the list of roles has %u entries, but there are %u tasks (SLURM_NTASKS): "
                        "give one role for each task",
                        roles->count, slurm->tasks);
    }
    if (roles->servers > 0 && !personality_has_servers(set)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the list of roles has %u ps, but --personality=%.64s has no servers: make "
                        "them workers",
                        roles->servers, options->personality);
    }
    if (roles->workers == 0 ||
        (roles->servers == 0 && personality_has_servers(set) && !personality_is_tensorflow(set))) {
        return psi_fail(err, PSD_ERR_INVALID, "the list of roles has no %s: it needs at least one",
                        roles->workers == 0 ? "worker" : "ps");
    }
    return PSD_OK;
}

static psd_status
place_servers(const struct launch_options *options, const struct slurm *slurm,
              struct roles *roles_p, struct psd_error *err)
{
    const uint32_t servers = is_given(options->servers) ? options->servers : 0;

    if (is_given(options->workers) && options->workers + servers != slurm->tasks) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%u workers and %u servers are %u processes, but there are %u tasks "
                        "(SLURM_NTASKS); --local leaves Slurm alone and runs them all here",
                        options->workers, servers, options->workers + servers, slurm->tasks);
    }
    return roles_place(servers, options->placement, slurm->tasks_on.numbers,
                       (uint32_t)slurm->nodes.count, roles_p, err);
}

psd_status
allocation_roles(const struct launch_options *options, const struct psi_cluster *cluster,
                 const struct slurm *slurm, struct roles *roles_p, struct psd_error *err)
{
    const bool counted = is_given(options->servers) || is_given(options->workers);
    const bool listed = cluster->tasks != NULL;
    struct roles roles = {0};
    psd_status status;

    if ((options->roles != NULL) + listed + counted > 1) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--roles, \"tasks\" in the cluster file, and --servers with --workers all "
                        "say what the tasks are: give only one of them");
    }
    if (options->placement != ROLES_NOT_SAID && !is_given(options->servers)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--placement=%s says where the servers go: give --servers as well",
                        options_word(launch_placement_words, options->placement));
    }
    if (options->roles == NULL && !listed) {
        return place_servers(options, slurm, roles_p, err);
    }
    status = listed ? roles_take(cluster->tasks, cluster->task_count, &roles, err)
                    : roles_parse(options->roles, &roles, err);
    if (status == PSD_OK) {
        status = check_count(options, &roles, slurm, err);
    }
    if (status != PSD_OK) {
        roles_fini(&roles);
        return status;
    }
    *roles_p = roles;
    return PSD_OK;
}

/* -------------------------------------------------------------------------------- nodes --- */

static psd_status
name_node(const char *name, struct psi_cluster_node *node, struct psd_error *err)
{
    struct psi_endpoint endpoint;
    const char *wrong = psi_endpoint_parse(name, &endpoint);

    if (wrong != NULL || endpoint.user[0] != '\0' || endpoint.port != 0) {
        return psi_fail(err, PSD_ERR_INVALID, "the node \"%.64s\" of the allocation %s", name,
                        wrong != NULL ? wrong : "is no plain name");
    }
    *node = (struct psi_cluster_node){.slots = 1};
    memcpy(node->host, endpoint.host, sizeof(node->host));
    return PSD_OK;
}

static psd_status
allocate(const struct roles *roles, uint32_t servers, struct psi_cluster *cluster,
         struct psd_error *err)
{
    if (roles->workers > PSI_CLUSTER_WORKERS_MAX || servers > PSI_CLUSTER_SERVERS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%u workers and %u servers: at most %d and %d are possible", roles->workers,
                        servers, PSI_CLUSTER_WORKERS_MAX, PSI_CLUSTER_SERVERS_MAX);
    }
    free(cluster->workers);
    free(cluster->servers);
    cluster->workers = memory_need(calloc(roles->workers, sizeof(cluster->workers[0])));
    cluster->servers = memory_need(calloc(servers, sizeof(cluster->servers[0])));
    return PSD_OK;
}

static psd_status
fill_node(const struct slurm *slurm, const struct roles *roles, uint32_t index,
          struct psi_cluster *cluster, struct psd_error *err)
{
    const uint32_t first = slurm_task(slurm, index, 0);
    struct psi_cluster_node node = {.slots = 0};
    psd_status status = name_node(slurm->nodes.names[index], &node, err);

    if (status != PSD_OK) {
        return status;
    }
    for (uint32_t task = first; task < first + slurm->tasks_on.numbers[index]; task++) {
        if (roles->list[task] == LAUNCH_SERVER) {
            cluster->servers[cluster->server_count++] = node;
        } else {
            cluster->workers[cluster->worker_count++] = node;
        }
    }
    if (roles->servers == 0) {
        cluster->servers[cluster->server_count++] = node;
    }
    if (cluster->master.host[0] == '\0') {
        cluster->master = node;
    }
    return PSD_OK;
}

psd_status
allocation_fill(const struct slurm *slurm, const struct roles *roles, struct psi_cluster *cluster,
                struct psd_error *err)
{
    const uint32_t nodes = (uint32_t)slurm->nodes.count;
    psd_status status = allocate(roles, roles->servers > 0 ? roles->servers : nodes, cluster, err);

    for (uint32_t i = 0; i < nodes && status == PSD_OK; i++) {
        status = fill_node(slurm, roles, i, cluster, err);
    }
    return status;
}
