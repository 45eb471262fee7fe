/*
 * observer.c - watches a job from outside, over one connection that is kept up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/api/observer.h"

#include <stdlib.h>

#include "base/fail.h"
#include "client/api/api.h"

struct psi_observer {
    psd_context *context;
    psd_op *subscription; /* guarded by the context's lock, as is the next */
    uint64_t seen;        /* tables that psi_observer_next() knows of */
    uint32_t readers;     /* of the last table that was returned */
};

static psd_status
subscribe_locked(struct psi_observer *observer, uint32_t every_ms, struct psd_error *err)
{
    const psd_status status =
        psi_client_subscribe(observer->context->client, every_ms, &observer->subscription, err);

    if (status == PSD_OK) {
        observer->subscription->marks.internal = true;
    }
    return status;
}

psd_status
psi_observer_create(const char *master_address, uint32_t every_ms, uint32_t answer_ms,
                    const struct psi_watcher *watcher, struct psi_observer **observer_p,
                    struct psd_error *err)
{
    struct psi_observer *observer = calloc(1, sizeof(*observer));
    struct psi_secret_source source;
    psd_status status;

    if (observer == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for an observer");
    }
    status = psi_check_address(master_address, err);
    if (status == PSD_OK) {
        status = psi_secret_source(NULL, &source, err);
    }
    if (status == PSD_OK) {
        status = psi_context_observe(master_address, &source, answer_ms, &observer->context, err);
    }
    if (status == PSD_OK) {
        pthread_mutex_lock(&observer->context->lock);
        psi_client_watch(observer->context->client, watcher);
        status = subscribe_locked(observer, every_ms, err);
        pthread_mutex_unlock(&observer->context->lock);
    }
    if (status != PSD_OK) {
        psi_observer_destroy(observer);
        return status;
    }
    *observer_p = observer;
    return PSD_OK;
}

uint32_t
psi_observer_readers(struct psi_observer *observer)
{
    uint32_t readers;

    pthread_mutex_lock(&observer->context->lock);
    readers = observer->readers;
    pthread_mutex_unlock(&observer->context->lock);
    return readers;
}

bool
psi_observer_is_up(struct psi_observer *observer)
{
    bool up;

    pthread_mutex_lock(&observer->context->lock);
    up = psi_master_link_is_up(&observer->context->client->master);
    pthread_mutex_unlock(&observer->context->lock);
    return up;
}

void
psi_observer_stop(struct psi_observer *observer)
{
    psd_context *context = observer->context;

    pthread_mutex_lock(&context->lock);
    psi_client_over(context->client, PSD_ERR_CLOSED, "the observer was stopped");
    psi_context_settle_locked(context);
    pthread_mutex_unlock(&context->lock);
}

void
psi_observer_destroy(struct psi_observer *observer)
{
    if (observer == NULL) {
        return;
    }
    if (observer->subscription != NULL) {
        psi_observer_stop(observer);
        pthread_mutex_lock(&observer->context->lock);
        psi_context_forget_locked(observer->context, observer->subscription);
        pthread_mutex_unlock(&observer->context->lock);
    }
    if (observer->context != NULL) {
        psi_context_destroy(observer->context);
    }
    free(observer);
}

void
psi_observer_pace(struct psi_observer *observer, uint32_t every_ms)
{
    pthread_mutex_lock(&observer->context->lock);
    psi_subscribe_pace(observer->subscription, every_ms);
    pthread_mutex_unlock(&observer->context->lock);
}

static void
copy_locked(struct psi_observer *observer, const struct psi_nodes *from, struct psd_node *nodes,
            size_t capacity, size_t *count_p)
{
    observer->readers = from->readers;
    for (size_t i = 0; i < from->count && i < capacity; i++) {
        nodes[i] = from->node[i];
    }
    *count_p = from->count;
}

psd_status
psi_observer_next(struct psi_observer *observer, uint32_t timeout_ms, struct psd_node *nodes,
                  size_t capacity, size_t *count_p, struct psd_error *err)
{
    psd_context *context = observer->context;
    const psd_op *op = observer->subscription;
    psd_status status = PSD_OK;

    pthread_mutex_lock(&context->lock);
    psi_context_wait_news_locked(context, op, observer->seen,
                                 psi_context_deadline_ns(context, timeout_ms));
    if (psi_op_value(op) != observer->seen) {
        observer->seen = psi_op_value(op);
        copy_locked(observer, psi_op_nodes(op), nodes, capacity, count_p);
    } else if (psi_op_ended(op)) {
        *err = op->error;
        status = err->status;
    } else {
        status = psi_fail(err, PSD_ERR_TIMEOUT, "watch the job at %s: nothing new in %u ms%s%s",
                          context->client->master_address, timeout_ms,
                          psi_master_link_is_up(&context->client->master) ? "" : ": ",
                          psi_master_link_is_up(&context->client->master)
                              ? ""
                              : context->client->master.peer.reason.text);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psi_observer_ask(struct psi_observer *observer, struct psd_node *nodes, size_t capacity,
                 size_t *count_p, struct psd_error *err)
{
    psd_context *context = observer->context;
    psd_status status;
    psd_op *op;

    pthread_mutex_lock(&context->lock);
    status = psi_client_nodes(context->client, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_ERR_TIMEOUT) {
        const struct psd_error *reason = &context->client->master.peer.reason;

        psi_fail(err, status, "ask the master at %s: no answer in time%s%s",
                 context->client->master_address, reason->status != PSD_OK ? ": " : "",
                 reason->status != PSD_OK ? reason->text : "");
    }
    if (status == PSD_OK) {
        copy_locked(observer, psi_op_nodes(op), nodes, capacity, count_p);
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}
