/*
 * load.c - psd_load: the files of a save back into the tables of the servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/read.h"
#include "client/api/saved_tables.h"
#include "wire/frame.h"

static psd_status
check_tables(const struct psi_checkpoint *checkpoint, const struct saved_tables *tables,
             struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < tables->count && status == PSD_OK; i++) {
        status = psi_checkpoint_fits(checkpoint, psi_table_spec(tables->list[i]), err);
    }
    return status;
}

/* Thread: owned by the psd_load() call it serves. */
struct load {
    psd_context *context;
    struct saved_tables tables;
    struct psi_checkpoint *checkpoint;
};

/* One range of one part, out of its file and to the servers. */
static psd_status
load_range(struct load *load, psd_table *table, const struct psi_saved_part *part,
           struct psi_transfer *transfer, struct psd_error *err)
{
    const size_t element_bytes = psi_dtype_bytes(part->dtype);
    const struct psi_tensor *tensor =
        psi_tensors_find(&load->checkpoint->tensors[part->kind], part->name);
    const psd_status status =
        psi_checkpoint_read(load->checkpoint, part->kind, tensor, transfer->first * element_bytes,
                            transfer->count * element_bytes, load->tables.buffer, err);

    if (status != PSD_OK) {
        return status;
    }
    transfer->part = part->number;
    transfer->from = load->tables.buffer;
    return psi_context_transfer(load->context, table, transfer, NULL, err);
}

static psd_status
load_table(struct load *load, psd_table *table, struct psd_error *err)
{
    const struct psi_spec *spec = psi_table_spec(table);
    const struct psi_manifest_table *record =
        psi_manifest_table(&load->checkpoint->manifest, spec->name);
    struct psi_saved_part parts[PSI_PARTS_MAX];
    const unsigned count = psi_saved_parts(spec, parts);

    for (uint64_t first = 0; first < spec->count; first += RANGE_ELEMENTS) {
        struct psi_transfer transfer = {
            .type = PSI_FRAME_STATE_PUSH,
            .step = record->step,
            .updates = record->updates,
            .first = first,
            .count = psi_saved_range(spec, first),
        };

        for (unsigned part = 0; part < count; part++) {
            const psd_status status = load_range(load, table, &parts[part], &transfer, err);

            if (status != PSD_OK) {
                return status;
            }
        }
    }
    return PSD_OK;
}

/* Sum tables have nothing in the files. They go on from the saved step, as those do that are pushed
 * together with them; one that was pushed before the load keeps its own step. */
static psd_status
load_steps(psd_context *context, uint64_t step, struct psd_error *err)
{
    const struct psi_transfer transfer = {
        .type = PSI_FRAME_STATE_PUSH, .empty = true, .step = step, .updates = step};
    psd_status status = PSD_OK;
    psd_table *table;

    for (size_t i = 0; (table = psi_context_table(context, i)) != NULL && status == PSD_OK; i++) {
        if (psi_table_spec(table)->use == PSD_USE_SUM && psi_context_loads(context, table)) {
            status = psi_context_transfer(context, table, &transfer, NULL, err);
        }
    }
    return status;
}

/* Rank 0's part. Nothing is sent before the files are known to be intact and to match. */
static psd_status
load_files(psd_context *context, const char *directory, struct psd_error *err)
{
    struct load load = {.context = context};
    psd_status status = psi_saved_tables_init(&load.tables, context, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_checkpoint_open(&psi_disk_system, directory, &load.checkpoint, err);
    if (status == PSD_OK) {
        status = check_tables(load.checkpoint, &load.tables, err);
    }
    for (size_t i = 0; i < load.tables.count && status == PSD_OK; i++) {
        status = load_table(&load, load.tables.list[i], err);
    }
    if (status == PSD_OK) {
        status = load_steps(context, load.checkpoint->manifest.step, err);
    }
    psi_checkpoint_destroy(load.checkpoint);
    psi_saved_tables_fini(&load.tables);
    return status;
}

/* Waits until every worker has come to the same place of the same psd_load(). */
static psd_status
meet(psd_context *context)
{
    struct psd_error *err = psi_error();
    psd_op *op;
    psd_status status;

    psi_context_lock(context);
    status = psi_client_load_barrier(context->client, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, NULL, err);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

/*
 * A replacement that comes to a job which has loaded loads nothing: the servers are ahead of the
 * files, and each table was opened with the step to go on from. One that comes while the others
 * still wait for the load takes its predecessor's part in it.
 */
static bool
load_is_over(psd_context *context)
{
    bool over;

    psi_context_lock(context);
    over = psi_client_load_is_over(context->client);
    pthread_mutex_unlock(&context->lock);
    return over;
}

/*
 * Loaded, everybody asks the servers for the step, and only when all have it may anybody push:
 * hence two barriers, which no psd_barrier() is taken for. Whatever happens to rank 0, it comes to
 * both: the others must not wait for ever. They then return the step they see, which is 0 when
 * nothing was loaded, while rank 0 returns its error.
 */
psd_status
psd_load(psd_context *context, const char *directory, uint64_t *step_p)
{
    struct psd_error failure = {0};
    psd_status status = psi_context_check(context, psi_error());
    psd_status met;
    bool over;

    if (status == PSD_OK) {
        status = psi_context_check_saved(context, psi_error());
    }
    if (status != PSD_OK) {
        return status;
    }
    over = load_is_over(context);
    if (directory == NULL || directory[0] == '\0' || step_p == NULL) {
        status = psi_fail(&failure, PSD_ERR_INVALID, "load: no %s given",
                          step_p == NULL ? "place for the step" : "directory");
    } else if (psd_rank(context) == 0 && !over) {
        status = load_files(context, directory, &failure);
    }
    met = meet(context);
    if (met == PSD_OK && !over) {
        met = psi_context_refresh_steps(context, psi_error());
    }
    if (met == PSD_OK) {
        met = meet(context);
    }
    if (status != PSD_OK) {
        *psi_error() = failure;
        return status;
    }
    if (met == PSD_OK) {
        *step_p = psi_context_first_step(context);
    }
    return met;
}
