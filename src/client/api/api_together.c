/*
 * api_together.c - all workers together: barrier, global step, reports, the table of nodes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/args.h"
#include "base/fail.h"
#include "client/api/api.h"
#include "config/settings.h"

psd_status
psd_barrier(psd_context *context, uint32_t timeout_ms)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);
    psd_op *op;

    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    status = psi_client_barrier(context->client, timeout_ms, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, NULL, err);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_global_step(psd_context *context, uint64_t add, uint64_t *step_p)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);
    psd_op *op;

    if (status == PSD_OK && step_p == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_global_step: step_p is NULL");
    }
    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    status = psi_client_step_add(context->client, add, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        *step_p = psi_op_value(op);
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_report(psd_context *context, uint64_t step, const char *name, double value)
{
    psd_status status = psi_context_check(context, psi_error());

    if (status == PSD_OK) {
        psi_context_lock(context);
        status = psi_client_report(context->client, step, name, value, psi_error());
        pthread_mutex_unlock(&context->lock);
    }
    return status;
}

psd_status
psd_mark(psd_context *context, uint64_t step, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    psd_status status = psi_context_check(context, psi_error());

    if (status == PSD_OK) {
        psi_context_lock(context);
        status = psi_client_mark(context->client, step, name, begin_ns, end_ns, psi_error());
        pthread_mutex_unlock(&context->lock);
    }
    return status;
}

/* What every version of struct psd_node has. */
enum { NODE_LEAST = offsetof(struct psd_node, step) };

/* Where the caller wants the nodes: `capacity` of them, `node_bytes` each. */
struct node_array {
    struct psd_node *nodes;
    size_t node_bytes;
    size_t capacity;
    size_t *count_p;
};

static psd_status
check_array(const struct node_array *array, const char *call, struct psd_error *err)
{
    if (array->count_p == NULL || (array->nodes == NULL && array->capacity > 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: nodes or count_p is NULL", call);
    }
    return psi_args_check_size(array->node_bytes, NODE_LEAST, sizeof(*array->nodes), "psd_node",
                               err);
}

static void
fill_array(const struct node_array *array, const struct psi_nodes *found)
{
    for (size_t i = 0; i < found->count && i < array->capacity; i++) {
        psi_args_fill((uint8_t *)array->nodes + i * array->node_bytes, array->node_bytes,
                      &found->node[i], sizeof(found->node[i]));
    }
    *array->count_p = found->count;
}

static psd_status
nodes_locked(psd_context *context, const struct node_array *array, struct psd_error *err)
{
    psd_op *op;
    psd_status status = psi_client_nodes(context->client, &op, err);

    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        fill_array(array, psi_op_nodes(op));
        psi_context_forget_locked(context, op);
    }
    return status;
}

psd_status
psd_nodes(psd_context *context, struct psd_node *nodes, size_t node_bytes, size_t capacity,
          size_t *count_p)
{
    const struct node_array array = {nodes, node_bytes, capacity, count_p};
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK) {
        status = check_array(&array, "psd_nodes", err);
    }
    if (status == PSD_OK) {
        psi_context_lock(context);
        status = nodes_locked(context, &array, err);
        pthread_mutex_unlock(&context->lock);
    }
    return status;
}

psd_status
psd_nodes_at(const char *master_address, uint32_t timeout_ms, struct psd_node *nodes,
             size_t node_bytes, size_t capacity, size_t *count_p)
{
    const struct node_array array = {nodes, node_bytes, capacity, count_p};
    struct psi_secret_source source;
    struct psd_error *err = psi_error();
    psd_context *context;
    psd_status status = check_array(&array, "psd_nodes_at", err);

    if (status == PSD_OK && master_address == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_nodes_at: master_address is NULL");
    }
    if (status == PSD_OK) {
        status = psi_check_address(master_address, err);
    }
    if (status == PSD_OK) {
        status = psi_secret_source(NULL, &source, err);
    }
    if (status == PSD_OK) {
        status = psi_context_observe(master_address, &source, timeout_ms, &context, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    status = nodes_locked(context, &array, err);
    if (status == PSD_ERR_TIMEOUT) {
        psi_fail(err, status, "ask the master at %s: no answer in %u ms%s%s", master_address,
                 timeout_ms, context->client->master.peer.reason.status != PSD_OK ? ": " : "",
                 context->client->master.peer.reason.text);
    }
    pthread_mutex_unlock(&context->lock);
    psi_context_destroy(context);
    return status;
}
