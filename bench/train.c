/*
 * train.c - a worker that gives the gradients of a whole model, tensor by tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "models.h"
#include "timer.h"

/* Thread: the worker's. */
struct train {
    size_t count;
    struct model_part parts[MODELS_PARTS_MAX];
    psd_table *tables[MODELS_PARTS_MAX];
    psd_op *ops[MODELS_PARTS_MAX]; /* of the step */
};

psd_status
train_create(struct worker *worker, struct measured *measured, struct psd_error *err)
{
    struct train *train = calloc(1, sizeof(*train));
    psd_status status = PSD_OK;

    if (train == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the tensors of a model");
    }
    measured->train = train;
    train->count = model_tensors(measured->bytes, train->parts);
    for (size_t i = 0; i < train->count && status == PSD_OK; i++) {
        struct psd_table_args args;
        char name[64];

        snprintf(name, sizeof(name), "%s %zu, kind %llu", model_name(measured->bytes), i,
                 (unsigned long long)measured->kind);
        args = measured_table_args(measured, name, train->parts[i].count);
        args.priority = (int32_t)(1 + i); /* the first layers, which come last, overtake */
        status = measured_heard(psd_table_open(worker->context, &args, &train->tables[i]), err);
    }
    return status;
}

psd_status
train_exchange(void *owner, struct psd_error *err)
{
    const struct worker *worker = owner;
    struct measured *measured = worker->measured;
    struct train *train = measured->train;
    const bool at_once = (worker->flags & TEAM_BACKWARD) == 0;
    const uint64_t began_ns = timer_now_ns();
    psd_status status = PSD_OK;
    size_t pushed = 0;

    while (pushed < train->count && status == PSD_OK) {
        const struct model_part *part = &train->parts[pushed];
        const struct psd_transfer transfer = {
            .struct_size = sizeof(transfer),
            .step = measured->step,
            .gradient = worker->memory.gradient + part->first,
            .values = worker->memory.values + part->first,
            .flags = at_once && pushed + 1 < train->count ? PSD_TRANSFER_MORE : 0,
        };

        if (!at_once) {
            model_await(began_ns, part->ready);
        }
        status = measured_heard(
            psd_push_pull(train->tables[pushed], &transfer, &train->ops[pushed]), err);
        pushed += status == PSD_OK;
    }
    for (size_t i = 0; i < pushed; i++) {
        struct psd_error late;
        const psd_status ended = measured_finish(train->ops[i], status == PSD_OK ? err : &late);

        status = status == PSD_OK ? ended : status;
    }
    measured->step++;
    return status;
}
