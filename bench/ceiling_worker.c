/*
 * ceiling_worker.c - a worker of a ceiling: what it gives and gets, and the rounds that it is told to make.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "ceiling_worker.h"

#include "rounds.h"

bool
ceiling_worker_init(struct ceiling_worker *worker, enum tensor_rule rule, uint32_t workers)
{
    worker->gradient = tensor_alloc(worker->bytes);
    worker->values = tensor_alloc(worker->bytes);
    tensor_model_init(&worker->model, rule, workers, worker->bytes / sizeof(float));
    return worker->gradient != NULL && worker->values != NULL;
}

static psd_status
wake(void *owner, struct psd_error *err)
{
    struct ceiling_worker *worker = owner;
    psd_status status;

    worker->waking = true;
    status = worker->exchange(worker->owner, err);
    worker->waking = false;
    return status;
}

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct ceiling_worker *worker = owner;

    return worker->exchange(worker->owner, err);
}

static psd_status
follow(void *owner, const struct team_order *order, struct team_times *times, struct psd_error *err)
{
    struct ceiling_worker *worker = owner;
    const struct rounds rounds = {
        .rank = worker->rank,
        .gradient = worker->gradient,
        .values = worker->values,
        .model = &worker->model,
        .exchange = exchange,
        .gather = worker->wakes ? wake : NULL,
        .owner = worker,
    };

    tensor_spoil(worker->values, worker->bytes);
    return rounds_run(&rounds, order, times, err);
}

int
ceiling_worker_run(struct ceiling_worker *worker, int control)
{
    struct psd_error err = {0};

    return team_follow(control, follow, worker, &err) == PSD_OK ? 0 : 1;
}
