/*
 * worker.c - a worker of the Poseidon job that is measured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "worker.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <psd/psd.h>

#include "base/fail.h"
#include "crew.h"
#include "tensor.h"
#include "timer.h"

/* One table and what it must hold. */
struct subject {
    psd_table *table;
    uint64_t step;
    struct tensor_model model;
};

/* Thread: owned by the main thread. */
struct worker {
    psd_context *context;
    uint64_t bytes;
    float *gradient;
    float *values;
    struct subject subjects[2]; /* [unchecked]: with and without a look for NaNs */
};

/* A libpsd call's status, with its message. */
static psd_status
heard(psd_status status, struct psd_error *err)
{
    return status == PSD_OK ? status : psi_fail(err, status, "%s", psd_last_error()->text);
}

static void
free_tensors(struct worker *worker)
{
    tensor_free(worker->gradient, worker->bytes);
    tensor_free(worker->values, worker->bytes);
    worker->gradient = NULL;
    worker->values = NULL;
}

static psd_status
open_subject(struct worker *worker, struct subject *subject, psd_nan_policy policy,
             struct psd_error *err)
{
    char name[64];
    struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = name,
        .dtype = PSD_F32,
        .dims = 1,
        .shape = {worker->bytes / sizeof(float)},
        .reduce = PSD_REDUCE_SUM,
        .rule = {.rule = PSD_RULE_SGD, .learning_rate = TENSOR_RATE},
        .nan_policy = policy,
    };

    snprintf(name, sizeof(name), "%llu bytes, policy %d", (unsigned long long)worker->bytes,
             (int)policy);
    tensor_model_init(&subject->model, psd_size(worker->context));
    subject->step = 0;
    return heard(psd_table_open(worker->context, &args, &subject->table), err);
}

static psd_status
prepare(struct worker *worker, uint64_t bytes, struct psd_error *err)
{
    psd_status status;

    free_tensors(worker);
    worker->bytes = bytes;
    worker->gradient = tensor_alloc(bytes);
    worker->values = tensor_alloc(bytes);
    if (worker->gradient == NULL || worker->values == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a tensor of %llu bytes",
                        (unsigned long long)bytes);
    }
    tensor_gradient(psd_rank(worker->context), worker->gradient, bytes / sizeof(float));
    status = open_subject(worker, &worker->subjects[0], PSD_NAN_REJECT, err);
    if (status == PSD_OK) {
        status = open_subject(worker, &worker->subjects[1], PSD_NAN_ALLOW, err);
    }
    return status;
}

static psd_status
push_pull(struct worker *worker, struct subject *subject, struct psd_error *err)
{
    const struct psd_transfer transfer = {
        .struct_size = sizeof(transfer),
        .step = subject->step++,
        .gradient = worker->gradient,
        .values = worker->values,
    };
    psd_op *op;
    psd_status status = heard(psd_push_pull(subject->table, &transfer, &op), err);

    if (status != PSD_OK) {
        return status;
    }
    status = psd_wait(op, PSD_FOREVER);
    if (status != PSD_OK) {
        *err = *psd_op_error(op);
    }
    psd_op_release(op);
    return status;
}

static psd_status
run(struct worker *worker, struct subject *subject, uint64_t rounds, uint64_t *elapsed_ns_p,
    struct psd_error *err)
{
    psd_status status;
    uint64_t start_ns;

    tensor_spoil(worker->values, worker->bytes);
    status = heard(psd_barrier(worker->context, PSD_FOREVER), err);
    start_ns = timer_now_ns();

    for (uint64_t round = 0; round < rounds && status == PSD_OK; round++) {
        status = push_pull(worker, subject, err);
    }
    *elapsed_ns_p = timer_now_ns() - start_ns;
    if (status != PSD_OK) {
        return status;
    }
    tensor_model_advance(&subject->model, rounds);
    return tensor_check(&subject->model, worker->values, worker->bytes / sizeof(float), err);
}

static psd_status
follow(void *owner, const struct crew_order *order, uint64_t *elapsed_ns_p, struct psd_error *err)
{
    struct worker *worker = owner;

    if (order->verb == CREW_PREPARE) {
        return prepare(worker, order->bytes, err);
    }
    return run(worker, &worker->subjects[order->unchecked], order->rounds, elapsed_ns_p, err);
}

static psd_status
call_runner(const char *control, int *fd_p, struct psd_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(control) >= sizeof(address.sun_path)) {
        return psi_fail(err, PSD_ERR_INVALID, "call %s: no socket, or too long a path", control);
    }
    memcpy(address.sun_path, control, strlen(control));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return psi_fail_errno(err, PSD_ERR_PEER_LOST, "call %s", control);
    }
    *fd_p = fd;
    return PSD_OK;
}

psd_status
worker_run(const char *control, struct psd_error *err)
{
    struct worker worker = {0};
    psd_status status;
    int fd = -1;

    status = heard(psd_open(NULL, &worker.context), err);
    if (status != PSD_OK) {
        return status;
    }
    status = call_runner(control, &fd, err);
    if (status == PSD_OK) {
        status = crew_follow(fd, follow, &worker, err);
        close(fd);
    }
    free_tensors(&worker);
    if (status != PSD_OK) {
        psd_abandon(worker.context);
        return status;
    }
    return heard(psd_close(worker.context), err);
}
