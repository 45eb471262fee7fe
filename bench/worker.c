/*
 * worker.c - a worker of the Poseidon job that is measured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "worker.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "group.h"
#include "mapping.h"
#include "measured.h"
#include "process.h"
#include "rounds.h"
#include "train.h"
#include "urgent.h"

/* Chunks on their way at a time. With few of them a worker and the lane on its core take turns at each;
 * these, with the values they lead to, are 12 MiB of two workers, which last-level caches hold. */
enum { STREAM_WINDOW = 16 };

/* ---- What happens in a round ---- */

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;
    const struct psd_transfer transfer =
        measured_transfer(&worker->memory, worker->measured, worker->flags);
    psd_op *op;
    const psd_status status =
        measured_heard(psd_push_pull(worker->measured->table, &transfer, &op), err);

    worker->measured->step++;
    return status == PSD_OK ? measured_finish(op, err) : status;
}

/* Writes one chunk of the gradient and starts it; *op_p: end it with read_chunk(). */
static psd_status
push_chunk(struct worker *worker, size_t first, uint32_t phase, psd_op **op_p,
           struct psd_error *err)
{
    const size_t rest = worker->measured->model.count - first;
    const size_t here = rest < PSD_CHUNK_ELEMENTS ? rest : PSD_CHUNK_ELEMENTS;
    struct psd_transfer transfer =
        measured_transfer(&worker->memory, worker->measured, worker->flags);
    float *gradient = measured_gradient(&worker->memory, worker->flags);

    tensor_write(gradient + first, first, here, psd_rank(worker->context), phase);
    transfer.first = first;
    transfer.count = here;
    transfer.gradient = gradient + first;
    transfer.values = transfer.values != NULL ? worker->memory.values + first : NULL;
    return measured_heard(psd_push_pull(worker->measured->table, &transfer, op_p), err);
}

static psd_status
read_chunk(struct worker *worker, size_t first, psd_op *op, uint32_t *read_p, struct psd_error *err)
{
    const size_t rest = worker->measured->model.count - first;
    const float *values = measured_values(&worker->memory, worker->measured, worker->flags);
    const psd_status status = measured_finish(op, err);

    if (status == PSD_OK) {
        *read_p +=
            tensor_read(values + first, rest < PSD_CHUNK_ELEMENTS ? rest : PSD_CHUNK_ELEMENTS);
    }
    return status;
}

static psd_status
stream(void *owner, uint32_t phase, uint32_t *read_p, struct psd_error *err)
{
    struct worker *worker = owner;
    const size_t count = worker->measured->model.count;
    psd_op *ops[STREAM_WINDOW];
    size_t sent = 0;
    size_t read = 0;
    psd_status status = PSD_OK;

    while (read < count && status == PSD_OK) {
        if (sent < count && sent - read < STREAM_WINDOW * PSD_CHUNK_ELEMENTS) {
            psd_op **op = &ops[sent / PSD_CHUNK_ELEMENTS % STREAM_WINDOW];

            status = push_chunk(worker, sent, phase, op, err);
            sent += PSD_CHUNK_ELEMENTS;
        } else {
            psd_op *op = ops[read / PSD_CHUNK_ELEMENTS % STREAM_WINDOW];

            status = read_chunk(worker, read, op, read_p, err);
            read += PSD_CHUNK_ELEMENTS;
        }
    }
    worker->measured->step++;
    return status;
}

static psd_status
gather(void *owner, struct psd_error *err)
{
    const struct worker *worker = owner;

    return measured_heard(psd_barrier(worker->context, PSD_FOREVER), err);
}

/* ---- Orders ---- */

static psd_status
run(struct worker *worker, const struct team_order *order, struct team_times *times,
    struct psd_error *err)
{
    const struct rounds rounds = {
        .rank = psd_rank(worker->context),
        .gradient = measured_gradient(&worker->memory, order->flags),
        .values = measured_values(&worker->memory, worker->measured, order->flags),
        .model = &worker->measured->model,
        .half = (order->flags & TEAM_HALF) != 0,
        .exchange = (order->flags & TEAM_TENSORS) != 0 ? train_exchange : exchange,
        .stream = (order->flags & TEAM_STREAM) != 0 ? stream : NULL,
        .gather = gather,
        .owner = worker,
    };
    psd_status status;

    tensor_spoil(worker->memory.values, worker->memory.bytes);
    status = rounds_run(&rounds, order, times, err);
    times->shared = mapping_of_a_neighbour();
    return status;
}

static psd_status
follow(void *owner, const struct team_order *order, struct team_times *times, struct psd_error *err)
{
    struct worker *worker = owner;
    psd_status status;

    if (order->verb == TEAM_MEET) {
        return gather(worker, err);
    }
    if (order->verb == TEAM_ROWS) {
        return rows_worker_follow(&worker->rows, order, times, err);
    }
    status = measured_memory(worker, &worker->memory, order->bytes, err);
    worker->flags = order->flags;
    if (status == PSD_OK) {
        status = measured_use(worker, order->bytes, order->flags, &worker->measured, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    return order->verb == TEAM_URGENT ? urgent_run(worker, order, times, err)
                                      : run(worker, order, times, err);
}

psd_status
worker_run(const char *control, struct psd_error *err)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    psd_status status;
    int fd = -1;

    if (worker == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "worker: no memory");
    }
    status = measured_heard(psd_open(NULL, &worker->context), err);
    if (status != PSD_OK) {
        free(worker);
        return status;
    }
    if (psd_size(worker->context) > 1) {
        process_bind(psd_rank(worker->context)); /* as the ceilings are, and OpenMPI's ranks */
    }
    worker->rows.context = worker->context;
    status = group_call(control, &fd, err);
    if (status == PSD_OK) {
        status = team_follow(fd, follow, worker, err);
        close(fd);
    }
    measured_drop_memory(worker, &worker->memory);
    measured_drop_memory(worker, &worker->urgent_memory);
    rows_worker_fini(&worker->rows);
    if (status == PSD_OK) {
        status = measured_heard(psd_close(worker->context), err);
    } else {
        psd_abandon(worker->context);
    }
    for (size_t i = 0; i < worker->measured_count; i++) {
        free(worker->all_measured[i]->train);
        free(worker->all_measured[i]);
    }
    free(worker);
    return status;
}
