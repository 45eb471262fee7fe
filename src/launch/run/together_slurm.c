/*
 * together_slurm.c - one psd_run for each task of a Slurm step: who they are, and how they meet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/link/munge.h"
#include "launch/link/secret.h"
#include "launch/prepare/allocation.h"
#include "launch/run/together.h"
#include "launch/system/reach.h"

enum { SLURM_WAIT_S = 120 };

/* One psd_run for each task of a step: nobody asked for a way to meet, but Slurm has one. */
bool
together_is_task_of_slurm(const struct launch_options *options)
{
    return options->rendezvous == NULL && options->coordinator == NULL && !options->local &&
           options->tf_config.count == 0 && !options->print_cluster && options->emit == NULL &&
           slurm_is_one_of_many(environ);
}

static psd_status
check_slurm_options(const struct launch_options *options, struct psd_error *err)
{
    if (options->detach || options->check || options->dry_run) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "--%s does not go with one psd_run for each task of srun; use it in the batch script",
            options->detach  ? "detach"
            : options->check ? "check"
                             : "dry_run");
    }
    if (options->rank != LAUNCH_NOT_GIVEN || options->size != LAUNCH_NOT_GIVEN) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--rank and --size: in a task of srun, Slurm says both");
    }
    return PSD_OK;
}

/* What every task is. Without a word about it, the first one serves, if such scripts have servers.
 */
static psd_status
find_roles(struct together *together, struct psd_error *err)
{
    struct launch_options *options = &together->slurm_options;
    struct psi_cluster file = {0};
    psd_status status = PSD_OK;

    if (options->cluster_config != NULL) {
        status = prepare_load_file(options->cluster_config, &file, err);
    }
    if (status == PSD_OK && file.worker_count > 0) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "%s names nodes, but there is one psd_run for each task of srun: give "
                          "\"tasks\" instead, or start psd_run once",
                          options->cluster_config);
    }
    if (status == PSD_OK && options->servers == LAUNCH_NOT_GIVEN && options->roles == NULL &&
        file.tasks == NULL) {
        status = together_servers(together, &options->servers, err);
    }
    if (status == PSD_OK) {
        status = allocation_roles(options, &file, &together->slurm, &together->roles, err);
    }
    psi_cluster_free(&file);
    return status;
}

/* Loopback would do between tasks of a node, and for nobody else. */
static void
find_own_address(struct together *together)
{
    const struct slurm *slurm = &together->slurm;
    const uint32_t other = slurm->node == 0 ? 1 : 0;
    char address[64];

    if (slurm->nodes.count > 1 && together->options->interface == NULL &&
        together->advertised[0] == '\0') {
        reach_resolve(slurm->nodes.names[other], address);
        reach_source(address, together->advertised);
    }
}

/* A reserved port that no task has: each has its own, save ps_servers. 0: none. */
static uint16_t
spare_port(const struct together *together)
{
    const struct psi_numberlist *ports = &together->slurm.ports;
    const bool own_server =
        together->roles.list[0] == LAUNCH_SERVER && !personality_is_foreign(together->personality);
    const size_t used = own_server ? 0 : together->slurm.tasks_on.numbers[0];

    return used < ports->count ? (uint16_t)ports->numbers[used] : 0;
}

static psd_status
open_meeting(struct together *together, struct psd_error *err)
{
    char step[64];
    const struct slurm_meet_config config = {.slurm = &together->slurm,
                                             .step = step,
                                             .munge = together->munge,
                                             .port = spare_port(together)};

    if (together->munge && !munge_is_there()) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the tasks of a step get the job's secret by MUNGE, and libmunge.so.2 is "
                        "not here; give all of them the same --secret_file (psd_run secret FILE "
                        "makes one)");
    }
    snprintf(step, sizeof(step), "%.30s.%.30s", together->slurm.job_id, together->slurm.step_id);
    return slurm_meet_open(&config, &together->meet, err);
}

/* This one's place among the tasks of a step. */
psd_status
together_open_slurm(struct together *together, struct psd_error *err)
{
    struct launch_options *options = &together->slurm_options;
    psd_status status;

    *options = *together->options;
    together->options = options;
    status = check_slurm_options(options, err);

    if (options->max_wait_s == LAUNCH_MAX_WAIT_S) {
        options->max_wait_s = SLURM_WAIT_S; /* Slurm starts all of them, or none */
    }
    status = status == PSD_OK ? slurm_read(environ, &together->slurm, err) : status;
    status = status == PSD_OK ? find_roles(together, err) : status;
    if (status != PSD_OK) {
        return status;
    }
    together->rank = slurm_task(&together->slurm, together->slurm.node, together->slurm.local);
    together->size = together->slurm.tasks;
    together->servers = together->roles.servers;
    together->munge = options->secret_file == NULL && psi_environment("PSD_SECRET_FILE") == NULL;
    if (together->size > JOIN_SIZE_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "%u tasks: at most %d are possible", together->size,
                        JOIN_SIZE_MAX);
    }
    status = together_find_advertised(together, err);
    find_own_address(together);
    status = status == PSD_OK ? together_list_tasks(together, err) : status;
    return status == PSD_OK ? open_meeting(together, err) : status;
}

int
together_secret(struct together *together, struct psd_error *err)
{
    if (together->munge && together->rank != 0) {
        return slurm_meet_secret(together->meet, together->options->max_wait_s * 1000, err);
    }
    return launch_secret_offer(together->secret_file, err);
}
