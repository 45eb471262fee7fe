/*
 * multi_start_slurm.c - one psd_run for each task of a Slurm step: who they are, and how they meet.
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
#include "launch/run/multi_start.h"
#include "launch/system/reach.h"

enum { SLURM_WAIT_S = 120 };

/* One psd_run for each task of a step: nobody asked for a way to meet, but Slurm has one. */
bool
multi_start_is_task_of_slurm(const struct launch_options *options)
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
find_roles(struct multi_start *multi, struct psd_error *err)
{
    struct launch_options *options = &multi->slurm_options;
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
        status = multi_start_servers(multi, &options->servers, err);
    }
    if (status == PSD_OK) {
        status = allocation_roles(options, &file, &multi->slurm, &multi->roles, err);
    }
    psi_cluster_free(&file);
    return status;
}

/* Loopback would do between tasks of a node, and for nobody else. */
static void
find_own_address(struct multi_start *multi)
{
    const struct slurm *slurm = &multi->slurm;
    const uint32_t other = slurm->node == 0 ? 1 : 0;
    char address[64];

    if (slurm->nodes.count > 1 && multi->options->interface == NULL &&
        multi->advertised[0] == '\0') {
        reach_resolve(slurm->nodes.names[other], address);
        reach_source(address, multi->advertised);
    }
}

/* A reserved port that no task has: each has its own, save ps_servers. 0: none. */
static uint16_t
spare_port(const struct multi_start *multi)
{
    const struct psi_numberlist *ports = &multi->slurm.ports;
    const bool own_server =
        multi->roles.list[0] == LAUNCH_SERVER && !personality_is_foreign(multi->personality);
    const size_t used = own_server ? 0 : multi->slurm.tasks_on.numbers[0];

    return used < ports->count ? (uint16_t)ports->numbers[used] : 0;
}

static psd_status
open_meeting(struct multi_start *multi, struct psd_error *err)
{
    char step[64];
    const struct slurm_meet_config config = {
        .slurm = &multi->slurm, .step = step, .munge = multi->munge, .port = spare_port(multi)};

    if (multi->munge && !munge_is_there()) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the tasks of a step get the job's secret by MUNGE, and libmunge.so.2 is "
                        "not here; give all of them the same --secret_file (psd_run secret FILE "
                        "makes one)");
    }
    snprintf(step, sizeof(step), "%.30s.%.30s", multi->slurm.job_id, multi->slurm.step_id);
    return slurm_meet_open(&config, &multi->meet, err);
}

/* This one's place among the tasks of a step. */
psd_status
multi_start_open_slurm(struct multi_start *multi, struct psd_error *err)
{
    struct launch_options *options = &multi->slurm_options;
    psd_status status;

    *options = *multi->options;
    multi->options = options;
    status = check_slurm_options(options, err);

    if (options->max_wait_s == LAUNCH_MAX_WAIT_S) {
        options->max_wait_s = SLURM_WAIT_S; /* Slurm starts all of them, or none */
    }
    status = status == PSD_OK ? slurm_read(environ, &multi->slurm, err) : status;
    status = status == PSD_OK ? find_roles(multi, err) : status;
    if (status != PSD_OK) {
        return status;
    }
    multi->rank = slurm_task(&multi->slurm, multi->slurm.node, multi->slurm.local);
    multi->size = multi->slurm.tasks;
    multi->servers = multi->roles.servers;
    multi->munge = options->secret_file == NULL && psi_environment("PSD_SECRET_FILE") == NULL;
    if (multi->size > JOIN_SIZE_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "%u tasks: at most %d are possible", multi->size,
                        JOIN_SIZE_MAX);
    }
    status = multi_start_find_advertised(multi, err);
    find_own_address(multi);
    status = status == PSD_OK ? multi_start_list_tasks(multi, err) : status;
    return status == PSD_OK ? open_meeting(multi, err) : status;
}

int
multi_start_secret(struct multi_start *multi, struct psd_error *err)
{
    if (multi->munge && multi->rank != 0) {
        return slurm_meet_secret(multi->meet, multi->options->max_wait_s * 1000, err);
    }
    return launch_secret_offer(multi->secret_file, err);
}
