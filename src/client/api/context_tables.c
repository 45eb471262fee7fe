/*
 * context_tables.c - the tables of a context: transfers that are waited for, and the steps they are at.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "client/api/context.h"
#include "client/core/state.h"

psd_status
psi_context_transfer(psd_context *context, psd_table *table, const struct psi_transfer *transfer,
                     uint64_t *updates_p, struct psd_error *err)
{
    psd_op *op;
    psd_status status;

    psi_context_lock(context);
    status = psi_client_transfer(context->client, table, transfer, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        if (updates_p != NULL) {
            *updates_p = psi_op_updates(op);
        }
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psi_context_start(psd_context *context, psd_table *table, const struct psi_transfer *transfer,
                  psd_op **op_p, struct psd_error *err)
{
    psd_op *op;
    psd_status status;

    psi_context_lock(context);
    status = psi_client_transfer(context->client, table, transfer, &op, err);
    if (status == PSD_OK) {
        psi_context_adopt_locked(context, op);
        *op_p = op;
        psi_context_send_locked(context);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psi_context_table_open(psd_context *context, const struct psi_spec *spec, uint8_t priority,
                       psd_table **table_p, struct psd_error *err)
{
    psd_op *op;
    psd_status status;

    psi_context_lock(context);
    status = psi_client_table_open(context->client, spec, priority, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        *table_p = psi_op_table(op);
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psi_context_check_saved(psd_context *context, struct psd_error *err)
{
    psd_table *table;

    for (size_t i = 0; (table = psi_context_table(context, i)) != NULL; i++) {
        if (psi_spec_is_sparse(&table->spec)) {
            return psi_fail(err, PSD_ERR_STATE,
                            "save or load: table %s is sparse, and its servers alone save it "
                            "(psd_run --checkpoint)",
                            table->spec.name);
        }
    }
    return PSD_OK;
}

/* An empty pull of the first chunk: its answer says at which step the table is. */
static psd_status
refresh_table(psd_context *context, psd_table *table, struct psd_error *err)
{
    const struct psi_transfer transfer = {
        .type = PSI_FRAME_PULL,
        .empty = true,
        .count = table->spec.count < PSD_CHUNK_ELEMENTS ? 0 : PSD_CHUNK_ELEMENTS,
    };
    psd_op *op;
    psd_status status;

    psi_context_lock(context);
    status = psi_client_transfer(context->client, table, &transfer, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
            table->next_step[chunk] = psi_op_value(op);
        }
        psi_group_reached(table, psi_op_value(op));
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

bool
psi_context_loads(psd_context *context, const psd_table *table)
{
    bool loads;

    psi_context_lock(context);
    loads = psi_table_is_loaded(table);
    pthread_mutex_unlock(&context->lock);
    return loads;
}

psd_status
psi_context_refresh_steps(psd_context *context, struct psd_error *err)
{
    psd_status status = PSD_OK;
    psd_table *table;

    for (size_t i = 0; (table = psi_context_table(context, i)) != NULL && status == PSD_OK; i++) {
        if (psi_context_loads(context, table)) {
            status = refresh_table(context, table, err);
        }
    }
    return status;
}

uint64_t
psi_context_first_step(psd_context *context)
{
    uint64_t step = UINT64_MAX;
    psd_table *table;

    psi_context_lock(context);
    for (size_t i = 0; (table = psi_client_table(context->client, i)) != NULL; i++) {
        if (table->spec.use == PSD_USE_UPDATE && psi_table_step(table) < step) {
            step = psi_table_step(table);
        }
    }
    pthread_mutex_unlock(&context->lock);
    return step == UINT64_MAX ? 0 : step;
}

psd_table *
psi_context_table(psd_context *context, size_t index)
{
    psd_table *table;

    psi_context_lock(context);
    table = psi_client_table(context->client, index);
    pthread_mutex_unlock(&context->lock);
    return table;
}
