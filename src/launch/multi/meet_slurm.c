/*
 * meet_slurm.c - meeting as the tasks of a Slurm step, one psd_run each: Slurm says who they are,
 * allocation.h which roles they have, slurm_meet.h how they find each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/link/munge.h"
#include "launch/link/secret.h"
#include "launch/meet/join.h"
#include "launch/meet/slurm_meet.h"
#include "launch/multi/multi_start.h"
#include "launch/prepare/allocation.h"
#include "launch/system/reach.h"
#include "launch/text/memory.h"

enum { SLURM_WAIT_S = 120 };

/* multi->way */
struct step {
    struct launch_options options; /* the user's, with Slurm's defaults */
    struct slurm slurm;
    struct slurm_meet *meet; /* NULL: not entered */
    bool munge;              /* the secret comes over it */
};

/* One psd_run for each task of a step: nobody asked for a way to meet, but Slurm has one. */
static bool
detect(const struct launch_options *options)
{
    return multi_start_nothing_asked(options) && slurm_is_one_of_many(environ);
}

static psd_status
check_options(const struct launch_options *options, struct psd_error *err)
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
find_roles(struct multi_start *multi, struct step *step, struct psd_error *err)
{
    struct launch_options *options = &step->options;
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
        status = allocation_roles(options, &file, &step->slurm, &multi->roles, err);
    }
    psi_cluster_free(&file);
    return status;
}

static psd_status
roles(struct multi_start *multi, struct psd_error *err)
{
    struct step *step = memory_need(calloc(1, sizeof(*step)));
    psd_status status;

    multi->way = step;
    step->options = *multi->options;
    step->munge = !multi_start_has_secret(multi);
    multi->options = &step->options;
    if (step->options.max_wait_s == LAUNCH_MAX_WAIT_S) {
        step->options.max_wait_s = SLURM_WAIT_S; /* Slurm starts all of them, or none */
    }
    status = check_options(&step->options, err);
    status = status == PSD_OK ? slurm_read(environ, &step->slurm, err) : status;
    status = status == PSD_OK ? find_roles(multi, step, err) : status;
    if (status != PSD_OK) {
        return status;
    }
    multi->rank = slurm_task(&step->slurm, step->slurm.node, step->slurm.local);
    multi->size = step->slurm.tasks;
    multi->servers = multi->roles.servers;
    multi->requeues = step->slurm.restarts;
    return multi->size <= JOIN_SIZE_MAX
               ? PSD_OK
               : psi_fail(err, PSD_ERR_INVALID, "%u tasks: at most %d are possible", multi->size,
                          JOIN_SIZE_MAX);
}

/* The one that Slurm reserved for the task. */
static uint16_t
port_of(const struct multi_start *multi, uint32_t rank)
{
    const struct step *step = multi->way;
    const struct slurm *slurm = &step->slurm;
    uint32_t local = rank;

    for (size_t node = 0; node < slurm->nodes.count && local >= slurm->tasks_on.numbers[node];
         node++) {
        local -= slurm->tasks_on.numbers[node];
    }
    return local < slurm->ports.count ? (uint16_t)slurm->ports.numbers[local] : 0;
}

/* Loopback would do between tasks of a node, and for nobody else. */
static void
find_own_address(struct multi_start *multi)
{
    const struct step *step = multi->way;
    const uint32_t other = step->slurm.node == 0 ? 1 : 0;
    char address[64];

    if (step->slurm.nodes.count > 1 && multi->options->interface == NULL &&
        multi->advertised[0] == '\0') {
        reach_resolve(step->slurm.nodes.names[other], address);
        reach_source(address, multi->advertised);
    }
}

/* A reserved port that no task has: each has its own, save ps_servers. 0: none. */
static uint16_t
spare_port(const struct multi_start *multi)
{
    const struct step *step = multi->way;
    const struct psi_numberlist *ports = &step->slurm.ports;
    const bool own_server =
        multi->roles.list[0] == LAUNCH_SERVER && !personality_is_foreign(multi->personality);
    const size_t used = own_server ? 0 : step->slurm.tasks_on.numbers[0];

    return used < ports->count ? (uint16_t)ports->numbers[used] : 0;
}

static psd_status
enter(struct multi_start *multi, struct psd_error *err)
{
    struct step *step = multi->way;
    char name[64];
    const struct slurm_meet_config config = {
        .slurm = &step->slurm, .step = name, .munge = step->munge, .port = spare_port(multi)};

    find_own_address(multi);
    if (step->munge && !munge_is_there()) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the tasks of a step get the job's secret by MUNGE, and libmunge.so.2 is "
                        "not here; give all of them the same --secret_file (psd_run secret FILE "
                        "makes one)");
    }
    snprintf(name, sizeof(name), "%.30s.%.30s", step->slurm.job_id, step->slurm.step_id);
    return slurm_meet_open(&config, &step->meet, err);
}

static int
secret(struct multi_start *multi, struct psd_error *err)
{
    const struct step *step = multi->way;

    if (step->munge && multi->rank != 0) {
        return slurm_meet_secret(step->meet, multi->options->max_wait_s * 1000, err);
    }
    return launch_secret_offer(multi->secret_file, err);
}

static psd_status
begin(struct multi_start *multi, int secret_fd, struct psd_error *err)
{
    const struct step *step = multi->way;

    return slurm_meet_answer(step->meet, secret_fd, err);
}

static psd_status
publish(struct multi_start *multi, bool v6, uint16_t port, struct psd_error *err)
{
    const struct step *step = multi->way;

    (void)v6;
    (void)err;
    slurm_meet_tell(step->meet, port);
    return PSD_OK;
}

static psd_status
find(void *context, char address_p[JOINER_ADDRESS_BYTES], int *code_p, struct psd_error *err)
{
    const struct multi_start *multi = context;
    const struct step *step = multi->way;

    (void)code_p;
    return slurm_meet_find(step->meet, address_p, err);
}

static void
leave(struct multi_start *multi)
{
    struct step *step = multi->way;

    if (step != NULL) {
        slurm_meet_close(step->meet);
        slurm_fini(&step->slurm);
    }
    free(step);
}

/* Slurm starts no task of a step again. */
const struct meet_ops meet_slurm = {
    .name = "one psd_run for each task of srun",
    .detect = detect,
    .roles = roles,
    .enter = enter,
    .secret = secret,
    .begin = begin,
    .publish = publish,
    .find = find,
    .port_of = port_of,
    .close = leave,
};
