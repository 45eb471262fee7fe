/*
 * api_sparse.c - sparse tables: open, look rows up, push gradients of rows.
 *
 * Ids are sorted and gradients copied in the calling thread, before the lock is taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/args.h"
#include "base/fail.h"
#include "client/api/api.h"
#include "client/api/finite.h"
#include "client/core/sparse_rows.h"
#include "client/core/sparse_sums.h"
#include "client/core/state.h"
#include "wire/bytes.h"

/* What every version of the struct has. */
enum { ROWS_LEAST = offsetof(struct psd_rows, priority) };

psd_status
psd_sparse_open(psd_context *context, const struct psd_sparse_args *args, psd_table **table_p)
{
    struct psd_error *err = psi_error();
    struct psd_sparse_args given;
    struct psi_spec spec;
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && table_p == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_sparse_open: table_p is NULL");
    }
    if (status == PSD_OK) {
        status = psi_spec_init_sparse(&spec, args, psd_size(context), err);
    }
    if (status == PSD_OK) {
        status = psi_args_copy(&given, sizeof(given), args, PSI_SPARSE_ARGS_LEAST,
                               "psd_sparse_args", err);
    }
    return status == PSD_OK
               ? psi_context_table_open(context, &spec, (uint8_t)given.priority, table_p, err)
               : status;
}

uint32_t
psd_sparse_width(const psd_table *table)
{
    return table == NULL ? 0 : table->spec.width;
}

static psd_status
check_rows(const psd_table *table, const struct psd_rows *rows, uint8_t type, struct psd_error *err)
{
    const char *name = table->spec.name;

    if (!psi_spec_is_sparse(&table->spec)) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s is not sparse: it has no rows by id", name);
    }
    if (psi_spec_is_sparse_sum(&table->spec) && type != PSI_FRAME_SPARSE_PUSH) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s is a sum, which keeps no rows to look up: psd_sparse_push "
                        "brings them, and psd_sparse_sum_read reads them",
                        name);
    }
    if (psi_frame_has_gradient(type) && rows->push_count > 0 &&
        (rows->push_ids == NULL || rows->gradients == NULL)) {
        return psi_fail(err, PSD_ERR_INVALID, "push sparse table %s: %s is NULL", name,
                        rows->push_ids == NULL ? "push_ids" : "gradients");
    }
    if (psi_frame_wants_value(type) && rows->lookup_count > 0 &&
        (rows->lookup_ids == NULL || rows->values == NULL)) {
        return psi_fail(err, PSD_ERR_INVALID, "lookup sparse table %s: %s is NULL", name,
                        rows->lookup_ids == NULL ? "lookup_ids" : "values");
    }
    if (rows->priority < 0 || rows->priority > 255) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: priority %d: give 0..255", name,
                        rows->priority);
    }
    return PSD_OK;
}

static bool
find_in_part(psd_table *table, const struct sparse_gradients *gradients, uint64_t *id_p)
{
    const int64_t index =
        psi_find_not_finite_with(psi_context_of(table->client)->crew, table->spec.dtype,
                                 gradients->numbers, gradients->count);

    if (index >= 0) {
        *id_p =
            psi_load_u64(gradients->ids + (uint64_t)index / table->spec.width * sizeof(uint64_t));
    }
    return index >= 0;
}

/* The first gradient that is not finite, of what would leave: repeated ids are added by now. */
static bool
find_not_finite(psd_table *table, const struct sparse_rows *rows, uint64_t *id_p)
{
    for (uint64_t place = 0; place < table->chunk_count; place++) {
        for (uint32_t part = 0; part < psi_sparse_rows_parts(rows, place); part++) {
            const struct sparse_gradients gradients = psi_sparse_rows_gradients(rows, place, part);

            if (find_in_part(table, &gradients, id_p)) {
                return true;
            }
        }
    }
    return false;
}

/* The policy for NaN and infinity, enforced before the first byte leaves. */
static psd_status
make_rows(psd_table *table, const struct psd_rows *given, uint8_t type, struct sparse_rows **rows_p,
          struct psd_error *err)
{
    struct sparse_given all = {
        .push_count = given->push_count,
        .push_ids = given->push_ids,
        .gradients = given->gradients,
        .lookup_count = given->lookup_count,
        .lookup_ids = given->lookup_ids,
        .values = given->values,
    };
    const uint32_t places = (uint32_t)table->chunk_count;
    psd_status status = psi_sparse_rows_create(&table->spec, places, type, &all, rows_p, err);
    uint64_t id = 0;

    if (status != PSD_OK || !psi_frame_has_gradient(type) ||
        table->spec.nan_policy == PSD_NAN_ALLOW || !find_not_finite(table, *rows_p, &id)) {
        return status;
    }
    psi_sparse_rows_free(*rows_p);
    *rows_p = NULL;
    if (table->spec.nan_policy == PSD_NAN_SKIP) {
        all.adds_nothing = true;
        return psi_sparse_rows_create(&table->spec, places, type, &all, rows_p, err);
    }
    return psi_fail(err, PSD_ERR_NOT_FINITE,
                    "push sparse table %s step %llu: worker %u's gradient of id %llu is not finite",
                    table->spec.name, (unsigned long long)given->step, table->client->job.rank,
                    (unsigned long long)id);
}

static psd_status
start(psd_table *table, const struct psd_rows *given, uint8_t type, psd_op **op_p)
{
    struct psd_error *err = psi_error();
    struct psd_rows args;
    struct psi_transfer transfer;
    psd_context *context;
    psd_status status;

    if (table == NULL || op_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "table or op_p is NULL");
    }
    context = psi_context_of(table->client);
    status = psi_context_check(context, err);
    if (status == PSD_OK) {
        status = psi_args_copy(&args, sizeof(args), given, ROWS_LEAST, "psd_rows", err);
    }
    if (status == PSD_OK) {
        status = check_rows(table, &args, type, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (psi_spec_is_sparse_sum(&table->spec)) {
        type = PSI_FRAME_SPARSE_PUSH_PULL; /* the sum answers it */
        args.lookup_count = 0;
    }
    transfer = (struct psi_transfer){
        .type = type,
        .step = args.step,
        .priority = (uint8_t)args.priority,
        .timeout_ms = args.timeout_ms,
        .done = args.done,
        .user = args.user,
    };
    status = make_rows(table, &args, type, &transfer.rows, err);
    if (status == PSD_OK) {
        status = psi_context_start(context, table, &transfer, op_p, err);
    }
    if (status != PSD_OK) {
        psi_sparse_rows_free(transfer.rows);
    }
    return status;
}

psd_status
psd_sparse_lookup(psd_table *table, const struct psd_rows *rows, psd_op **op_p)
{
    return start(table, rows, PSI_FRAME_SPARSE_PULL, op_p);
}

psd_status
psd_sparse_push(psd_table *table, const struct psd_rows *rows, psd_op **op_p)
{
    return start(table, rows, PSI_FRAME_SPARSE_PUSH, op_p);
}

psd_status
psd_sparse_push_lookup(psd_table *table, const struct psd_rows *rows, psd_op **op_p)
{
    return start(table, rows, PSI_FRAME_SPARSE_PUSH_PULL, op_p);
}

/* ---- sums ---------------------------------------------------------------------------------- */

/* What answered a push that has ended well; NULL: there is nothing to read. */
static const struct sparse_sums *
sums_of(const psd_op *op)
{
    return psd_op_outcome(op) == PSD_OUTCOME_DONE && op->transfer.rows != NULL
               ? psi_sparse_rows_sums(op->transfer.rows)
               : NULL;
}

uint64_t
psd_sparse_sum_count(const psd_op *op)
{
    const struct sparse_sums *sums = op == NULL ? NULL : sums_of(op);

    return sums == NULL ? 0 : psi_sparse_sums_count(sums);
}

psd_status
psd_sparse_sum_read(const psd_op *op, uint64_t *ids, void *rows)
{
    struct psd_error *err = psi_error();
    const struct sparse_sums *sums = op == NULL ? NULL : sums_of(op);

    if (sums == NULL) {
        return psi_fail(err, PSD_ERR_STATE,
                        "psd_sparse_sum_read: this is no push to a sparse sum that has ended well");
    }
    if (psi_sparse_sums_count(sums) > 0 && (ids == NULL || rows == NULL)) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_sparse_sum_read: %s is NULL",
                        ids == NULL ? "ids" : "rows");
    }
    return psi_sparse_sums_read(sums, ids, rows)
               ? PSD_OK
               : psi_fail(err, PSD_ERR_NO_MEMORY, "psd_sparse_sum_read: no memory for %llu rows",
                          (unsigned long long)psi_sparse_sums_count(sums));
}
