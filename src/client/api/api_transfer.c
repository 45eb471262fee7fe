/*
 * api_transfer.c - push, pull, push_pull, and a view of the values.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdatomic.h>

#include "base/args.h"
#include "base/fail.h"
#include "client/api/api.h"
#include "client/api/finite.h"
#include "client/api/memory.h"
#include "client/core/table_view.h"

/* What every version of the struct has. */
enum { TRANSFER_LEAST = offsetof(struct psd_transfer, first) };

/* So many bytes of transfers at most wait for others that follow. */
enum { MORE_BYTES = 64 << 10 };

static psd_status
check_pointers(const struct psd_table *table, const struct psd_transfer *transfer, uint8_t type,
               struct psd_error *err)
{
    if (psi_spec_is_sparse(&table->spec)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s is sparse: psd_sparse_push and psd_sparse_lookup are for it",
                        table->spec.name);
    }
    if (psi_frame_has_gradient(type) && transfer->gradient == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "push table %s: gradient is NULL", table->spec.name);
    }
    if (psi_frame_wants_value(type) &&
        (transfer->values == NULL) != ((transfer->flags & PSD_TRANSFER_VIEW) != 0)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "pull table %s: give either values or PSD_TRANSFER_VIEW", table->spec.name);
    }
    if ((transfer->flags & ~(PSD_TRANSFER_CHECKED | PSD_TRANSFER_VIEW | PSD_TRANSFER_MORE |
                             PSD_TRANSFER_BEHIND)) != 0) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: unknown flags 0x%x", table->spec.name,
                        transfer->flags);
    }
    if (transfer->priority < 0 || transfer->priority > 255) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: priority %d: give 0..255",
                        table->spec.name, transfer->priority);
    }
    return PSD_OK;
}

/* Does anybody watch, and is it large enough to be worth two looks at the clock? */
static bool
is_timed(const struct psi_client *client, const struct psi_transfer *transfer)
{
    return PSI_COUNTS && transfer->count >= PSI_METRIC_TIMED && client->steps.on;
}

static int64_t
find_not_finite(const struct psd_table *table, const struct psi_transfer *transfer,
                uint64_t *encode_ns)
{
    struct psi_crew *crew = psi_context_of(table->client)->crew;
    const bool timed = is_timed(table->client, transfer);
    const uint64_t begun_ns = timed ? psi_now_ns(table->client->env) : 0;
    const int64_t index =
        psi_find_not_finite_with(crew, table->spec.dtype, transfer->from, transfer->count);

    *encode_ns = timed ? psi_now_ns(table->client->env) - begun_ns : 0;
    return index;
}

/* The policy for NaN and infinity, enforced before the first byte leaves. The range is checked. */
static psd_status
check_finite(const struct psd_table *table, struct psi_transfer *transfer, uint64_t *encode_ns,
             struct psd_error *err)
{
    int64_t index;

    if (table->spec.nan_policy == PSD_NAN_ALLOW) {
        return PSD_OK;
    }
    index = find_not_finite(table, transfer, encode_ns);
    if (index < 0) {
        return PSD_OK;
    }
    if (table->spec.nan_policy == PSD_NAN_SKIP) {
        transfer->empty = true;
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_NOT_FINITE,
                    "push table %s step %llu: worker %u's gradient is not finite at index %llu",
                    table->spec.name, (unsigned long long)transfer->step, table->client->job.rank,
                    (unsigned long long)(transfer->first + (uint64_t)index));
}

static psd_status
aim_at_view_locked(psd_table *table, struct psi_transfer *transfer, struct psd_error *err)
{
    const struct table_view *view = psi_table_view(table);

    if (view == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for its view",
                        table->spec.name);
    }
    transfer->to = view->base + transfer->first * table->element_bytes;
    transfer->to_view = true;
    return PSD_OK;
}

/* Out of the way of the small ones, of which there are many. */
__attribute__((noinline)) static void
timed_send_locked(psd_context *context, const psd_op *op, uint64_t encode_ns)
{
    struct step_clock *steps = &context->client->steps;
    const uint64_t begun_ns = op->started_ns; /* it may have ended, and be gone, after that */

    psi_step_clock_large(steps);
    steps->parts.encode_ns += encode_ns;
    psi_context_send_locked(context);
    steps->parts.send_ns += psi_now_ns(context->client->env) - begun_ns;
}

static void
send_locked(psd_context *context, const psd_op *op, uint64_t encode_ns)
{
    if (is_timed(context->client, &op->transfer)) {
        timed_send_locked(context, op, encode_ns);
    } else {
        psi_context_send_locked(context);
    }
}

/* It is queued. Who sends it: this thread, with others that follow, or the context's own. */
static void
let_go_locked(psd_context *context, const psd_op *op, uint32_t flags, uint64_t encode_ns)
{
    const uint64_t bytes = op->transfer.count * (uint64_t)op->table->element_bytes;

    if ((flags & PSD_TRANSFER_BEHIND) != 0) {
        psi_context_leave_to_thread_locked(context, bytes);
    } else if ((flags & PSD_TRANSFER_MORE) != 0 && context->held_bytes + bytes <= MORE_BYTES) {
        context->held_bytes += bytes;
    } else {
        send_locked(context, op, encode_ns);
    }
}

static psd_status
submit(psd_table *table, const struct psd_transfer *given, uint8_t type, psd_op **op_p)
{
    struct psd_error *err = psi_error();
    struct psd_transfer args;
    struct psi_transfer transfer;
    uint64_t encode_ns = 0;
    psd_context *context;
    psd_op *op;
    psd_status status;

    if (table == NULL || op_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "table or op_p is NULL");
    }
    context = psi_context_of(table->client);
    status = psi_context_check(context, err);
    if (status == PSD_OK) {
        status = psi_args_copy(&args, sizeof(args), given, TRANSFER_LEAST, "psd_transfer", err);
    }
    if (status == PSD_OK) {
        status = check_pointers(table, &args, type, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    transfer = (struct psi_transfer){
        .type = type,
        .step = args.step,
        .first = args.first,
        .count = args.count,
        .from = psi_frame_has_gradient(type) ? args.gradient : NULL,
        .to = psi_frame_wants_value(type) ? args.values : NULL,
        .priority = (uint8_t)args.priority,
        .timeout_ms = args.timeout_ms,
        .done = args.done,
        .user = args.user,
    };
    status = psi_transfer_check_range(table, &transfer, err);
    if (status == PSD_OK && psi_frame_has_gradient(type) &&
        (args.flags & PSD_TRANSFER_CHECKED) == 0) {
        status = check_finite(table, &transfer, &encode_ns, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    if (psi_frame_wants_value(type) && (args.flags & PSD_TRANSFER_VIEW) != 0) {
        status = aim_at_view_locked(table, &transfer, err);
    }
    transfer.lent = psi_region_has_locked(context, transfer.from,
                                          transfer.count * (uint64_t)table->element_bytes);
    if (status == PSD_OK) {
        status = psi_client_transfer(context->client, table, &transfer, &op, err);
    }
    if (status == PSD_OK) {
        psi_context_adopt_locked(context, op);
        *op_p = op;
        let_go_locked(context, op, args.flags, encode_ns);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_push(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p)
{
    return submit(table, transfer, PSI_FRAME_PUSH, op_p);
}

psd_status
psd_pull(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p)
{
    return submit(table, transfer, PSI_FRAME_PULL, op_p);
}

psd_status
psd_push_pull(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p)
{
    return submit(table, transfer, PSI_FRAME_PUSH_PULL, op_p);
}

psd_status
psd_view(psd_table *table, const void **values_p)
{
    struct psd_error *err = psi_error();
    const struct table_view *view;
    psd_context *context;
    psd_status status;

    if (table == NULL || values_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "table or values_p is NULL");
    }
    context = psi_context_of(table->client);
    status = psi_context_check(context, err);
    if (status == PSD_OK && psi_spec_is_sparse(&table->spec)) {
        status =
            psi_fail(err, PSD_ERR_INVALID, "table %s is sparse: it has no view", table->spec.name);
    }
    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    view = psi_table_view(table);
    pthread_mutex_unlock(&context->lock);
    if (view == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for its view",
                        table->spec.name);
    }
    *values_p = view->base;
    return PSD_OK;
}

uint64_t
psd_view_changes(const psd_table *table)
{
    return table == NULL ? 0 : atomic_load(&table->view_changes);
}
