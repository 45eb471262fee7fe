/*
 * cast.c - the processes of one row of the plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cast.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "job.h"
#include "peers.h"
#include "progress.h"

static bool
is_cast(const struct plan_row *row, enum entrant entrant)
{
    return (row->entrants & ENTRANT_BIT(entrant)) != 0;
}

static bool
is_peer(enum entrant entrant)
{
    const enum entrant_kind kind = entrant_about(entrant)->kind;

    return kind == KIND_MPI || kind == KIND_GLOO || kind == KIND_RPC;
}

static bool
is_ceiling(enum entrant entrant)
{
    return !is_peer(entrant) && entrant_about(entrant)->kind != KIND_POSEIDON;
}

/* ---- Jobs ---- */

static psd_status
start_job(struct cast *cast, const char *launch, bool blocking, struct troupe **troupe_p,
          struct psd_error *err)
{
    const struct plan_row *row = cast->row;
    const struct job_args args = {.workers = row->workers,
                                  .servers = row->servers,
                                  .tcp = row->transport != TRANSPORT_SHM,
                                  .blocking = blocking,
                                  .sealed = row->transport == TRANSPORT_TLS,
                                  .launch = launch};
    struct troupe *troupe = calloc(1, sizeof(*troupe));
    psd_status status;

    if (troupe == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "start a job: no memory");
    }
    status = job_start(&args, troupe, err);
    if (status != PSD_OK) {
        free(troupe);
        return status;
    }
    *troupe_p = troupe;
    return PSD_OK;
}

/* One job for all uses of Poseidon, and another one that never spins. */
static psd_status
start_jobs(struct cast *cast, const char *launch, struct psd_error *err)
{
    struct troupe *usual = NULL;
    psd_status status = PSD_OK;

    for (enum entrant entrant = 1; entrant < ENTRANTS && status == PSD_OK; entrant++) {
        if (!is_cast(cast->row, entrant) || entrant_about(entrant)->kind != KIND_POSEIDON) {
            continue;
        }
        if (entrant == ENTRANT_BLOCKING) {
            status = start_job(cast, NULL, true, &cast->troupes[entrant], err);
            continue;
        }
        if (usual == NULL) {
            status = start_job(cast, launch, false, &usual, err);
        }
        cast->troupes[entrant] = usual;
    }
    return status;
}

/* ---- Peers ---- */

static psd_status
start_peer(struct cast *cast, enum entrant entrant, struct psd_error *err)
{
    const char *missing = peer_missing(entrant);
    struct troupe *troupe;
    psd_status status;
    char line[128];

    if (missing != NULL) {
        progress_clear();
        fprintf(stderr, "psd_bench: %s: skipped: %s\n", entrant_about(entrant)->title, missing);
        return PSD_OK;
    }
    snprintf(line, sizeof(line), "starting %s", entrant_about(entrant)->title);
    progress_say(line);
    troupe = calloc(1, sizeof(*troupe));
    if (troupe == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "start a peer: no memory");
    }
    status = peer_start(entrant, cast->row->workers, troupe, err);
    if (status != PSD_OK) {
        free(troupe);
        return status;
    }
    cast->troupes[entrant] = troupe;
    return PSD_OK;
}

psd_status
cast_start(const struct plan_row *row, const char *launch, struct cast *cast_p,
           struct psd_error *err)
{
    psd_status status;

    *cast_p = (struct cast){.row = row};
    status = start_jobs(cast_p, launch, err);
    for (enum entrant entrant = 1; entrant < ENTRANTS && status == PSD_OK; entrant++) {
        if (is_cast(row, entrant) && is_peer(entrant)) {
            status = start_peer(cast_p, entrant, err);
        }
    }
    if (status != PSD_OK) {
        cast_abandon(cast_p);
    }
    return status;
}

/* ---- Ceilings ---- */

static psd_status
start_ceiling(const struct plan_row *row, enum entrant entrant, uint64_t bytes,
              struct ceiling *ceiling, struct psd_error *err)
{
    const struct entrant_about *about = entrant_about(entrant);
    const uint32_t servers = entrant == ENTRANT_SOCKETS_ONE_SERVER ? 1 : row->servers;

    switch (about->kind) {
    case KIND_MEMORY:
        return ceiling_memory_start((enum ceiling_memory)about->variant, row->workers, bytes,
                                    ceiling, err);
    case KIND_SOCKETS:
        return ceiling_sockets_start(about->wait, row->workers, servers, bytes, ceiling, err);
    case KIND_TLS:
        return ceiling_tls_start(bytes, ceiling, err);
    default:
        return ceiling_ping_start((enum ceiling_ping)about->variant, about->wait, bytes, ceiling,
                                  err);
    }
}

psd_status
cast_start_ceilings(struct cast *cast, uint64_t bytes, struct psd_error *err)
{
    for (enum entrant entrant = 1; entrant < ENTRANTS; entrant++) {
        struct ceiling *ceiling;
        psd_status status;

        if (!is_cast(cast->row, entrant) || !is_ceiling(entrant) ||
            !entrant_takes(entrant, bytes)) {
            continue;
        }
        ceiling = calloc(1, sizeof(*ceiling));
        status = ceiling == NULL ? psi_fail(err, PSD_ERR_NO_MEMORY, "start a ceiling: no memory")
                                 : start_ceiling(cast->row, entrant, bytes, ceiling, err);
        if (status != PSD_OK) {
            free(ceiling);
            return status;
        }
        cast->ceilings[entrant] = ceiling;
    }
    return PSD_OK;
}

void
cast_stop_ceilings(struct cast *cast)
{
    for (enum entrant entrant = 1; entrant < ENTRANTS; entrant++) {
        if (cast->ceilings[entrant] != NULL) {
            ceiling_stop(cast->ceilings[entrant]);
            free(cast->ceilings[entrant]);
            cast->ceilings[entrant] = NULL;
        }
    }
}

struct crew *
cast_crew(const struct cast *cast, enum entrant entrant)
{
    if (cast->ceilings[entrant] != NULL) {
        return &cast->ceilings[entrant]->crew;
    }
    return cast->troupes[entrant] != NULL ? &cast->troupes[entrant]->crew : NULL;
}

/* ---- The end ---- */

/* Takes a troupe out, wherever it stands; NULL: that was the last. */
static struct troupe *
take_troupe(struct cast *cast)
{
    struct troupe *troupe = NULL;

    for (enum entrant entrant = 1; entrant < ENTRANTS; entrant++) {
        if (troupe == NULL) {
            troupe = cast->troupes[entrant];
        }
        if (cast->troupes[entrant] == troupe) {
            cast->troupes[entrant] = NULL;
        }
    }
    return troupe;
}

psd_status
cast_end(struct cast *cast, struct psd_error *err)
{
    struct troupe *troupe;
    psd_status status = PSD_OK;

    cast_stop_ceilings(cast);
    while ((troupe = take_troupe(cast)) != NULL) {
        const psd_status ended = troupe_end(troupe, status == PSD_OK ? err : NULL);

        status = status == PSD_OK ? ended : status;
        free(troupe);
    }
    return status;
}

void
cast_abandon(struct cast *cast)
{
    struct troupe *troupe;

    cast_stop_ceilings(cast);
    while ((troupe = take_troupe(cast)) != NULL) {
        troupe_abandon(troupe);
        free(troupe);
    }
}
