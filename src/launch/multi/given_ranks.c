/*
 * given_ranks.c - who is who where --rank and --size say it, or a batch system does by a number.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/multi/given_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/meet/join.h"

/* A number out of the environment; false: not there. */
static bool
read_variable(const char *name, uint32_t *number_p)
{
    const char *text = psi_environment(name);
    char *end;
    unsigned long number;

    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    number = strtoul(text, &end, 10);
    *number_p = (uint32_t)number;
    return *end == '\0' && number < UINT32_MAX;
}

/* The ordinal behind the last '-' of a pod's name. */
static bool
read_ordinal(uint32_t *number_p)
{
    char name[256] = "";
    const char *dash;
    char *end;

    gethostname(name, sizeof(name) - 1);
    name[strcspn(name, ".")] = '\0';
    dash = strrchr(name, '-');
    if (dash == NULL || dash[1] < '0' || dash[1] > '9') {
        return false;
    }
    *number_p = (uint32_t)strtoul(dash + 1, &end, 10);
    return *end == '\0';
}

/* --rank, or what the batch system says. */
static psd_status
find_rank(struct multi_start *multi, struct psd_error *err)
{
    static const char *const variables[] = {"JOB_COMPLETION_INDEX", "_CONDOR_PROCNO"};

    if (multi->options->rank != LAUNCH_NOT_GIVEN) {
        multi->rank = multi->options->rank;
        return PSD_OK;
    }
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (read_variable(variables[i], &multi->rank)) {
            return PSD_OK;
        }
    }
    if (psi_environment("KUBERNETES_SERVICE_HOST") != NULL && read_ordinal(&multi->rank)) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_INVALID,
                    "--rank is needed: which of the --size processes this one is, from 0; neither "
                    "JOB_COMPLETION_INDEX nor _CONDOR_PROCNO is set, and this is no pod");
}

static psd_status
find_size(struct multi_start *multi, struct psd_error *err)
{
    const struct launch_options *options = multi->options;
    const psd_status status = multi_start_servers(multi, &multi->servers, err);

    if (status != PSD_OK) {
        return status;
    }
    multi->size = options->size;
    if (options->size == LAUNCH_NOT_GIVEN && !read_variable("_CONDOR_NPROCS", &multi->size)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--size is needed: how many psd_run make up the job, servers and workers "
                        "together");
    }
    if (multi->size < 2 || multi->size > JOIN_SIZE_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--size %u: must be 2 to %d", multi->size,
                        JOIN_SIZE_MAX);
    }
    if (multi->rank >= multi->size) {
        return psi_fail(err, PSD_ERR_INVALID, "--rank %u of --size %u: ranks are 0 to %u",
                        multi->rank, multi->size, multi->size - 1);
    }
    if (multi->servers >= multi->size) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--servers %u of --size %u leaves no worker: ranks from %u on are workers",
                        multi->servers, multi->size, multi->servers);
    }
    if (options->min_workers != LAUNCH_NOT_GIVEN &&
        options->min_workers > multi->size - multi->servers) {
        return psi_fail(err, PSD_ERR_INVALID, "--min_workers %u: there are %u (--size %u less %u)",
                        options->min_workers, multi->size - multi->servers, multi->size,
                        multi->servers);
    }
    return PSD_OK;
}

static psd_status
check_options(const struct multi_start *multi, struct psd_error *err)
{
    const struct launch_options *options = multi->options;
    const char *way = multi->ops->name;

    if (options->rendezvous != NULL && options->coordinator != NULL) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "--rendezvous and --coordinator are two ways to find each other: give only one");
    }
    if (options->cluster_config != NULL || options->workers != LAUNCH_NOT_GIVEN) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s does not go with %s: there the job is --size processes, of which "
                        "--servers are servers",
                        options->cluster_config != NULL ? "--cluster_config" : "--workers", way);
    }
    if (options->detach || options->check || options->dry_run || options->print_cluster) {
        return psi_fail(err, PSD_ERR_INVALID, "--%s does not go with %s",
                        options->detach    ? "detach"
                        : options->check   ? "check"
                        : options->dry_run ? "dry_run"
                                           : "print_cluster",
                        way);
    }
    if (options->tf_config.count > 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--tf_config does not go with %s: its files already say who is where", way);
    }
    if (options->roles != NULL || options->placement != ROLES_NOT_SAID) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--%s is about the tasks of Slurm: with %s, the first --servers ranks are "
                        "servers",
                        options->roles != NULL ? "roles" : "placement", way);
    }
    if (options->sync != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--sync does not go with %s: several processes may share a disk", way);
    }
    if (options->first_port > options->last_port) {
        return psi_fail(err, PSD_ERR_INVALID, "--initial_port %u is greater than --final_port %u",
                        options->first_port, options->last_port);
    }
    return PSD_OK;
}

psd_status
given_ranks_find(struct multi_start *multi, struct psd_error *err)
{
    psd_status status = check_options(multi, err);

    status = status == PSD_OK ? find_rank(multi, err) : status;
    return status == PSD_OK ? find_size(multi, err) : status;
}
