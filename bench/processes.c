/*
 * processes.c - the processes of one row of the plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "processes.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cores.h"
#include "base/fail.h"
#include "config/settings.h"
#include "job.h"
#include "peers.h"
#include "progress.h"

static bool
takes_part(const struct plan_row *row, enum subject subject)
{
    return (row->subjects & SUBJECT_BIT(subject)) != 0;
}

static bool
is_peer(enum subject subject)
{
    const enum subject_kind kind = subject_about(subject)->kind;

    return kind == KIND_MPI || kind == KIND_GLOO || kind == KIND_RPC;
}

static bool
is_ceiling(enum subject subject)
{
    return !is_peer(subject) && subject_about(subject)->kind != KIND_POSEIDON;
}

/* ---- Jobs ---- */

static psd_status
start_job(struct processes *processes, const char *launch, enum subject_job job,
          struct group **group_p, struct psd_error *err)
{
    const struct plan_row *row = processes->row;
    const struct job_args args = {.workers = row->workers,
                                  .servers = row->servers,
                                  .tcp = row->transport != TRANSPORT_SHM,
                                  .job = job,
                                  .sealed = row->transport == TRANSPORT_TLS,
                                  .launch = launch};
    struct group *group = calloc(1, sizeof(*group));
    psd_status status;

    if (group == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "start a job: no memory");
    }
    status = job_start(&args, group, err);
    if (status != PSD_OK) {
        free(group);
        return status;
    }
    *group_p = group;
    return PSD_OK;
}

/* One job for most uses of Poseidon, and others for those that need another kind. */
static psd_status
start_jobs(struct processes *processes, const char *launch, struct psd_error *err)
{
    struct group *jobs[JOBS] = {NULL};
    psd_status status = PSD_OK;

    for (enum subject subject = 1; subject < SUBJECTS && status == PSD_OK; subject++) {
        const enum subject_job job = subject_about(subject)->job;

        if (!takes_part(processes->row, subject) || subject_about(subject)->kind != KIND_POSEIDON) {
            continue;
        }
        if (jobs[job] == NULL) {
            status = start_job(processes, job == JOB_USUAL ? launch : NULL, job, &jobs[job], err);
        }
        processes->groups[subject] = jobs[job];
    }
    return status;
}

/* ---- Peers ---- */

static psd_status
start_peer(struct processes *processes, enum subject subject, struct psd_error *err)
{
    const char *missing = peer_missing(subject);
    struct group *group;
    psd_status status;
    char line[128];

    if (missing != NULL) {
        progress_clear();
        fprintf(stderr, "psd_bench: %s: skipped: %s\n", subject_about(subject)->title, missing);
        return PSD_OK;
    }
    snprintf(line, sizeof(line), "starting %s", subject_about(subject)->title);
    progress_say(line);
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "start a peer: no memory");
    }
    status = peer_start(subject, processes->row->workers, group, err);
    if (status != PSD_OK) {
        free(group);
        return status;
    }
    processes->groups[subject] = group;
    return PSD_OK;
}

psd_status
processes_start(const struct plan_row *row, const char *launch, struct processes *processes_p,
                struct psd_error *err)
{
    psd_status status;

    *processes_p = (struct processes){.row = row};
    status = start_jobs(processes_p, launch, err);
    for (enum subject subject = 1; subject < SUBJECTS && status == PSD_OK; subject++) {
        if (takes_part(row, subject) && is_peer(subject)) {
            status = start_peer(processes_p, subject, err);
        }
    }
    if (status != PSD_OK) {
        processes_abandon(processes_p);
    }
    return status;
}

/* ---- Ceilings ---- */

/* A setting of the jobs; 0: they choose. */
static uint32_t
chosen(const char *name)
{
    const char *text = psi_environment(name);

    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static uint32_t
at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

/* Of the threads that a worker, and all servers together, have in jobs here: as these choose. */
static struct ceiling_shape
shape_of_job(const struct plan_row *row)
{
    const uint32_t copying = chosen("PSD_COPY_THREADS");
    const uint32_t lanes = chosen("PSD_LANES");
    const uint32_t share = psi_usable_cores() / row->servers;
    const uint32_t all = (lanes != 0 ? lanes : share > 0 ? share : 1) * row->servers;

    return (struct ceiling_shape){
        .workers = row->workers,
        .servers = at_most(all, CEILING_SERVERS_MAX),
        .threads =
            at_most(copying != 0 ? copying : psi_spare_threads(row->workers), CEILING_SERVERS_MAX),
    };
}

static struct ceiling_shape
shape_of(const struct plan_row *row, enum subject subject, uint64_t bytes)
{
    struct ceiling_shape shape = {
        .workers = row->workers,
        .servers = subject == SUBJECT_SOCKETS_ONE_SERVER ? 1 : row->servers,
        .threads = 1,
    };

    if (subject_about(subject)->threads) {
        shape = shape_of_job(row);
    }
    shape.wait = subject_about(subject)->wait;
    shape.bytes = bytes;
    return shape;
}

static psd_status
start_ceiling(const struct plan_row *row, enum subject subject, uint64_t bytes,
              struct ceiling *ceiling, struct psd_error *err)
{
    const struct subject_about *about = subject_about(subject);
    const struct ceiling_shape shape = shape_of(row, subject, bytes);

    switch (about->kind) {
    case KIND_MEMORY:
        return ceiling_memory_start((enum ceiling_memory)about->variant, row->workers, bytes,
                                    ceiling, err);
    case KIND_SOCKETS:
        return ceiling_sockets_start(&shape, ceiling, err);
    case KIND_TLS:
        return ceiling_tls_start(&shape, ceiling, err);
    case KIND_RELAY:
        return ceiling_relay_start(row->workers, bytes, ceiling, err);
    default:
        return ceiling_ping_start((enum ceiling_ping)about->variant, about->wait, bytes, ceiling,
                                  err);
    }
}

psd_status
processes_start_ceilings(struct processes *processes, uint64_t bytes, struct psd_error *err)
{
    for (enum subject subject = 1; subject < SUBJECTS; subject++) {
        struct ceiling *ceiling;
        psd_status status;

        if (!takes_part(processes->row, subject) || !is_ceiling(subject) ||
            !subject_takes(subject, bytes)) {
            continue;
        }
        ceiling = calloc(1, sizeof(*ceiling));
        status = ceiling == NULL ? psi_fail(err, PSD_ERR_NO_MEMORY, "start a ceiling: no memory")
                                 : start_ceiling(processes->row, subject, bytes, ceiling, err);
        if (status != PSD_OK) {
            free(ceiling);
            return status;
        }
        processes->ceilings[subject] = ceiling;
    }
    return PSD_OK;
}

void
processes_stop_ceilings(struct processes *processes)
{
    for (enum subject subject = 1; subject < SUBJECTS; subject++) {
        if (processes->ceilings[subject] != NULL) {
            ceiling_stop(processes->ceilings[subject]);
            free(processes->ceilings[subject]);
            processes->ceilings[subject] = NULL;
        }
    }
}

struct team *
processes_team(const struct processes *processes, enum subject subject)
{
    if (processes->ceilings[subject] != NULL) {
        return &processes->ceilings[subject]->team;
    }
    return processes->groups[subject] != NULL ? &processes->groups[subject]->team : NULL;
}

/* ---- The end ---- */

/* Takes a group out, wherever it stands; NULL: that was the last. */
static struct group *
take_group(struct processes *processes)
{
    struct group *group = NULL;

    for (enum subject subject = 1; subject < SUBJECTS; subject++) {
        if (group == NULL) {
            group = processes->groups[subject];
        }
        if (processes->groups[subject] == group) {
            processes->groups[subject] = NULL;
        }
    }
    return group;
}

psd_status
processes_end(struct processes *processes, struct psd_error *err)
{
    struct group *group;
    psd_status status = PSD_OK;

    processes_stop_ceilings(processes);
    while ((group = take_group(processes)) != NULL) {
        const psd_status ended = group_end(group, status == PSD_OK ? err : NULL);

        status = status == PSD_OK ? ended : status;
        free(group);
    }
    return status;
}

void
processes_abandon(struct processes *processes)
{
    struct group *group;

    processes_stop_ceilings(processes);
    while ((group = take_group(processes)) != NULL) {
        group_abandon(group);
        free(group);
    }
}
