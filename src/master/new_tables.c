/*
 * new_tables.c - may a table be created in this job? What it asks for may not go with how the job was
 * started, or with other tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "checkpoint/read.h"
#include "master/state.h"

/* In a job that goes on from a checkpoint: is the table in it, as it is here? A sum has nothing to go on
 * from but the step. */
static psd_status
check_resumed(const struct master *master, const struct psi_spec *spec, struct psd_error *err)
{
    if (spec->use == PSD_USE_UPDATE && master->config.checkpoint_epochs) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "--checkpoint_every epoch: table %s lies on servers, which know steps and not "
            "epochs; give 1000steps, or 10m",
            spec->name);
    }
    if (master->config.resumed == NULL || spec->use == PSD_USE_SUM) {
        return PSD_OK;
    }
    return psi_checkpoint_fits(master->config.resumed, spec, err);
}

/* What sparse tables cannot do yet. */
static psd_status
check_sparse(const struct master *master, const struct psi_spec *spec, struct psd_error *err)
{
    const char *lacks = NULL;

    if (psi_spec_is_sparse_sum(spec) && master_is_elastic(master)) {
        lacks = "workers may join this job (max_workers), and cannot join sums of rows yet";
    }
    return lacks == NULL ? PSD_OK
                         : psi_fail(err, PSD_ERR_INVALID, "sparse table %s: %s", spec->name, lacks);
}

static psd_status
check_room(const struct master *master, const struct psi_spec *spec, struct psd_error *err)
{
    if (!psi_spec_is_sparse(spec) && psi_chunk_count(spec->count) > PSI_CHUNKS_MAX) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "table %s: %llu chunks, at most %d", spec->name,
                        (unsigned long long)psi_chunk_count(spec->count), PSI_CHUNKS_MAX);
    }
    if (master->tables == PSI_TABLES_MAX) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "table %s: a job has room for %d tables", spec->name,
                        PSI_TABLES_MAX);
    }
    return PSD_OK;
}

static psd_status
check_backup(const struct master *master, const struct psi_spec *spec, struct psd_error *err)
{
    const struct table *rival = master_quorum_rival(master, spec);

    if (spec->backup_workers > 0 && master_is_elastic(master)) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "table %.60s: backup_workers is %u: in a job that workers may join (max_workers %u, "
            "begun with %u) nobody is left out of a step",
            spec->name, spec->backup_workers, master->config.workers, master->config.start_workers);
    }
    if (rival != NULL) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "table %.60s: backup_workers is %u, and %u in table %.60s: in a job that goes on "
            "without the dead (on_worker_death continue) give all such tables the same number",
            spec->name, spec->backup_workers, rival->spec.backup_workers, rival->spec.name);
    }
    return PSD_OK;
}

psd_status
master_may_open(const struct master *master, const struct psi_spec *spec, struct psd_error *err)
{
    psd_status status = check_room(master, spec, err);

    if (status == PSD_OK) {
        status = check_sparse(master, spec, err);
    }
    if (status == PSD_OK) {
        status = check_resumed(master, spec, err);
    }
    return status == PSD_OK ? check_backup(master, spec, err) : status;
}
