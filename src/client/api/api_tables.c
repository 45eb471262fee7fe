/*
 * api_tables.c - opening tables, and what is known of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/args.h"
#include "base/fail.h"
#include "client/api/api.h"

static psd_status
send_initial(psd_context *context, psd_table *table, const void *values, struct psd_error *err)
{
    const struct psi_transfer transfer = {.type = PSI_FRAME_INIT, .from = values};

    return psi_context_transfer(context, table, &transfer, NULL, err);
}

/* Rank 0's values are there when an empty pull is answered. */
static psd_status
await_initial(psd_context *context, psd_table *table, struct psd_error *err)
{
    const struct psi_transfer transfer = {.type = PSI_FRAME_PULL, .empty = true};

    return psi_context_transfer(context, table, &transfer, NULL, err);
}

static psd_status
check_table_args(const psd_context *context, const struct psd_table_args *args,
                 struct psi_spec *spec, struct psd_error *err)
{
    const bool gives = args->init == PSD_INIT_RANK0 && psd_rank(context) == 0;

    if (gives && args->values == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: init is PSD_INIT_RANK0, but rank 0 gives no values",
                        args->name != NULL ? args->name : "(no name)");
    }
    return psi_spec_init(spec, args, psd_size(context), err);
}

psd_status
psd_table_open(psd_context *context, const struct psd_table_args *given, psd_table **table_p)
{
    struct psd_error *err = psi_error();
    struct psd_table_args args;
    struct psi_spec spec;
    psd_table *table = NULL;
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && table_p == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_table_open: table_p is NULL");
    }
    if (status == PSD_OK) {
        status =
            psi_args_copy(&args, sizeof(args), given, PSI_TABLE_ARGS_LEAST, "psd_table_args", err);
    }
    if (status == PSD_OK) {
        status = check_table_args(context, &args, &spec, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    status = psi_context_table_open(context, &spec, (uint8_t)args.priority, &table, err);
    if (status == PSD_OK && args.init == PSD_INIT_RANK0) {
        status = psd_rank(context) == 0 ? send_initial(context, table, args.values, err)
                                        : await_initial(context, table, err);
    }
    if (status == PSD_OK) {
        *table_p = table;
    }
    return status;
}

uint64_t
psd_table_count(const psd_table *table)
{
    return table->spec.count;
}

size_t
psd_table_element_bytes(const psd_table *table)
{
    return table->element_bytes;
}

uint64_t
psd_table_step(const psd_table *table)
{
    psd_context *context = psi_context_of(table->client);
    uint64_t step = 0;

    if (!psi_process_is_this(&context->process)) {
        return 0; /* the lock may be held by a thread that this process does not have */
    }
    psi_context_lock(context);
    step = psi_table_step(table);
    pthread_mutex_unlock(&context->lock);
    return step;
}
