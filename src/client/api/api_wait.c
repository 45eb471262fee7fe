/*
 * api_wait.c - how an operation ends: waiting for it, its outcome, its release.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <sys/eventfd.h>

#include "base/fail.h"
#include "client/api/api.h"

psd_status
psd_wait(psd_op *op, uint32_t timeout_ms)
{
    struct psd_error *err = psi_error();
    psd_context *context;
    psd_status status;

    if (op == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "op is NULL");
    }
    context = psi_context_of(op->client);
    status = psi_context_check(context, err);
    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    status = op->ended ? op->error.status
                       : psi_context_wait_locked(context, op,
                                                 psi_context_deadline_ns(context, timeout_ms));
    if (op->ended) {
        op->marks.waited = true;
        psi_context_any_remove_locked(context, op);
    }
    if (op->ended && status != PSD_OK) {
        *err = op->error;
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_test(psd_op *op)
{
    return psd_wait(op, 0);
}

psd_status
psd_wait_any(psd_context *context, uint32_t timeout_ms, psd_op **op_p)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && op_p == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_wait_any: op_p is NULL");
    }
    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    status = psi_context_wait_any_locked(context, psi_context_deadline_ns(context, timeout_ms));
    if (status == PSD_OK) {
        *op_p = context->any;
        psi_context_any_remove_locked(context, context->any);
    } else if (psi_client_state(context->client) == PSI_CLIENT_OVER) {
        *err = *psi_client_error(context->client);
        status = err->status;
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_outcome
psd_op_outcome(const psd_op *op)
{
    psd_context *context = psi_context_of(op->client);
    psd_outcome outcome;

    if (!psi_process_is_this(&context->process)) {
        return PSD_OUTCOME_UNKNOWN;
    }
    psi_context_lock(context);
    outcome = op->outcome;
    pthread_mutex_unlock(&context->lock);
    return outcome;
}

const struct psd_error *
psd_op_error(const psd_op *op)
{
    return &op->error;
}

void *
psd_op_user(const psd_op *op)
{
    return op->user;
}

void
psd_op_release(psd_op *op)
{
    psd_context *context;

    if (op == NULL) {
        return;
    }
    context = psi_context_of(op->client);
    if (!psi_process_is_this(&context->process)) {
        return;
    }
    psi_context_lock(context);
    if (op->ended && op->taken && !op->marks.calling) {
        psi_context_forget_locked(context, op);
    } else {
        op->marks.released = true;
    }
    pthread_mutex_unlock(&context->lock);
}

int
psd_fd(psd_context *context)
{
    struct psd_error *err = psi_error();

    if (psi_context_check(context, err) != PSD_OK) {
        return -1;
    }
    psi_context_lock(context);
    if (context->fd < 0) {
        context->fd = eventfd(context->any != NULL ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (context->fd < 0) {
            psi_fail_errno(err, PSD_ERR_NO_MEMORY, "psd_fd: eventfd");
        }
    }
    pthread_mutex_unlock(&context->lock);
    return context->fd;
}
