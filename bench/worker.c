/*
 * worker.c - a worker of the Poseidon job that is measured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <psd/psd.h>

#include "base/fail.h"
#include "crew.h"
#include "mapping.h"
#include "rounds.h"
#include "tensor.h"
#include "timer.h"
#include "troupe.h"

enum {
    SUBJECTS_MAX = 256,
    KIND = CREW_SUM | CREW_SCAN | CREW_HALF, /* flags that make another table */
    STREAM_WINDOW = 4,                       /* chunks on their way at a time */
    URGENT_BYTES = 4096,
    UNDER_WAY_MS = 2, /* the large tensor's start before the urgent one */
    PRIORITY_LOW = 1,
    PRIORITY_HIGH = 255,
};

/* One table and what it must hold. */
struct subject {
    uint64_t bytes; /* as the order counts them */
    uint64_t kind;
    psd_table *table;
    uint64_t step;
    const float *view;
    struct tensor_model model;
};

/* Gradient and values of one size. */
struct memory {
    size_t bytes;
    float *gradient; /* ordinary */
    float *values;
    float *shared_gradient; /* from psd_alloc */
};

/* Thread: owned by the main thread. */
struct worker {
    psd_context *context;
    struct memory memory;
    struct memory urgent_memory;
    struct subject *subjects[SUBJECTS_MAX];
    size_t subject_count;

    struct subject *subject; /* of this order */
    uint64_t flags;
};

/* A libpsd call's status, with its message. */
static psd_status
heard(psd_status status, struct psd_error *err)
{
    return status == PSD_OK ? status : psi_fail(err, status, "%s", psd_last_error()->text);
}

static psd_status
finish(psd_op *op, struct psd_error *err)
{
    const psd_status status = psd_wait(op, PSD_FOREVER);

    if (status != PSD_OK) {
        *err = *psd_op_error(op);
    }
    psd_op_release(op);
    return status;
}

/* ---- Memory and tables ---- */

static void
drop_memory(struct worker *worker, struct memory *memory)
{
    tensor_free(memory->gradient, memory->bytes);
    tensor_free(memory->values, memory->bytes);
    if (memory->shared_gradient != NULL) {
        (void)psd_free(worker->context, memory->shared_gradient);
    }
    *memory = (struct memory){0};
}

static psd_status
make_memory(struct worker *worker, struct memory *memory, size_t bytes, struct psd_error *err)
{
    void *shared;
    psd_status status;

    if (memory->bytes == bytes) {
        return PSD_OK;
    }
    drop_memory(worker, memory);
    memory->bytes = bytes;
    memory->gradient = tensor_alloc(bytes);
    memory->values = tensor_alloc(bytes);
    status = heard(psd_alloc(worker->context, bytes, &shared), err);
    if (status != PSD_OK) {
        return status;
    }
    memory->shared_gradient = shared;
    if (memory->gradient == NULL || memory->values == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a tensor of %zu bytes", bytes);
    }
    return PSD_OK;
}

static psd_status
open_table(struct worker *worker, struct subject *subject, struct psd_error *err)
{
    char name[64];
    const void *view;
    struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = name,
        .dtype = (subject->kind & CREW_HALF) != 0 ? PSD_F16 : PSD_F32,
        .dims = 1,
        .shape = {subject->bytes / sizeof(float)},
        .use = (subject->kind & CREW_SUM) != 0 ? PSD_USE_SUM : PSD_USE_UPDATE,
        .reduce = PSD_REDUCE_SUM,
        .nan_policy = (subject->kind & CREW_SCAN) != 0 ? PSD_NAN_REJECT : PSD_NAN_ALLOW,
    };
    psd_status status;

    if (args.use == PSD_USE_UPDATE) {
        args.rule = (struct psd_rule_args){.rule = PSD_RULE_SGD, .learning_rate = TENSOR_RATE};
    }
    snprintf(name, sizeof(name), "%llu bytes, kind %llu", (unsigned long long)subject->bytes,
             (unsigned long long)subject->kind);
    status = heard(psd_table_open(worker->context, &args, &subject->table), err);
    if (status == PSD_OK) {
        status = heard(psd_view(subject->table, &view), err);
    }
    if (status == PSD_OK) {
        subject->view = view;
    }
    return status;
}

static struct subject *
find_subject(const struct worker *worker, uint64_t bytes, uint64_t kind)
{
    for (size_t i = 0; i < worker->subject_count; i++) {
        if (worker->subjects[i]->bytes == bytes && worker->subjects[i]->kind == kind) {
            return worker->subjects[i];
        }
    }
    return NULL;
}

/* Every worker gets the same orders, so all open the same tables. */
static psd_status
use_subject(struct worker *worker, uint64_t bytes, uint64_t kind, struct subject **subject_p,
            struct psd_error *err)
{
    const enum tensor_rule rule = (kind & CREW_SUM) != 0 ? TENSOR_SUM : TENSOR_DESCENT;
    struct subject *subject = find_subject(worker, bytes, kind);
    psd_status status;

    if (subject != NULL) {
        *subject_p = subject;
        return PSD_OK;
    }
    subject = calloc(1, sizeof(*subject));
    if (subject == NULL || worker->subject_count == SUBJECTS_MAX) {
        free(subject);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no room for one more table");
    }
    subject->bytes = bytes;
    subject->kind = kind;
    tensor_model_init(&subject->model, rule, psd_size(worker->context), bytes / sizeof(float));
    status = open_table(worker, subject, err);
    if (status != PSD_OK) {
        free(subject);
        return status;
    }
    worker->subjects[worker->subject_count++] = subject;
    *subject_p = subject;
    return PSD_OK;
}

/* ---- Transfers ---- */

/* All of a table, at its next step. */
static struct psd_transfer
whole_transfer(const struct memory *memory, const struct subject *subject, uint64_t flags)
{
    const bool in_place = (flags & CREW_IN_PLACE) != 0;

    return (struct psd_transfer){
        .struct_size = sizeof(struct psd_transfer),
        .step = subject->step,
        .gradient = in_place ? memory->shared_gradient : memory->gradient,
        .values = in_place ? NULL : memory->values,
        .flags = in_place ? PSD_TRANSFER_VIEW : 0,
    };
}

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;
    const struct psd_transfer transfer =
        whole_transfer(&worker->memory, worker->subject, worker->flags);
    psd_op *op;
    const psd_status status = heard(psd_push_pull(worker->subject->table, &transfer, &op), err);

    worker->subject->step++;
    return status == PSD_OK ? finish(op, err) : status;
}

/* Writes one chunk of the gradient and starts it; *op_p: end it with read_chunk(). */
static psd_status
push_chunk(struct worker *worker, size_t first, uint32_t phase, psd_op **op_p,
           struct psd_error *err)
{
    const size_t rest = worker->subject->model.count - first;
    const size_t here = rest < PSD_CHUNK_ELEMENTS ? rest : PSD_CHUNK_ELEMENTS;
    struct psd_transfer transfer = whole_transfer(&worker->memory, worker->subject, worker->flags);
    float *gradient = (worker->flags & CREW_IN_PLACE) != 0 ? worker->memory.shared_gradient
                                                           : worker->memory.gradient;

    tensor_write(gradient + first, first, here, psd_rank(worker->context), phase);
    transfer.first = first;
    transfer.count = here;
    transfer.gradient = gradient + first;
    transfer.values = transfer.values != NULL ? worker->memory.values + first : NULL;
    return heard(psd_push_pull(worker->subject->table, &transfer, op_p), err);
}

static psd_status
read_chunk(struct worker *worker, size_t first, psd_op *op, uint32_t *read_p, struct psd_error *err)
{
    const size_t rest = worker->subject->model.count - first;
    const float *values =
        (worker->flags & CREW_IN_PLACE) != 0 ? worker->subject->view : worker->memory.values;
    const psd_status status = finish(op, err);

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
    const size_t count = worker->subject->model.count;
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
    worker->subject->step++;
    return status;
}

static psd_status
gather(void *owner, struct psd_error *err)
{
    const struct worker *worker = owner;

    return heard(psd_barrier(worker->context, PSD_FOREVER), err);
}

/* ---- Orders ---- */

static psd_status
run(struct worker *worker, const struct crew_order *order, struct crew_times *times,
    struct psd_error *err)
{
    const bool in_place = (order->flags & CREW_IN_PLACE) != 0;
    const struct rounds rounds = {
        .rank = psd_rank(worker->context),
        .gradient = in_place ? worker->memory.shared_gradient : worker->memory.gradient,
        .values = in_place ? worker->subject->view : worker->memory.values,
        .model = &worker->subject->model,
        .half = (order->flags & CREW_HALF) != 0,
        .exchange = exchange,
        .stream = (order->flags & CREW_STREAM) != 0 ? stream : NULL,
        .gather = gather,
        .owner = worker,
    };
    psd_status status;

    tensor_spoil(worker->memory.values, worker->memory.bytes);
    status = rounds_run(&rounds, order, times, err);
    times->shared = mapping_is_shared(worker->subject->view);
    return status;
}

/* Starts the large one, lets it get under way, and times the small one. */
static psd_status
overtake(struct worker *worker, struct subject *urgent, const struct crew_order *order,
         struct crew_times *times, struct psd_error *err)
{
    const bool priority = (order->flags & CREW_PRIORITY) != 0;
    struct psd_transfer large = whole_transfer(&worker->memory, worker->subject, order->flags);
    struct psd_transfer small = whole_transfer(&worker->urgent_memory, urgent, order->flags);
    psd_op *large_op;
    psd_op *small_op;
    uint64_t start_ns;
    psd_status status;

    large.priority = PRIORITY_LOW;
    small.priority = priority ? PRIORITY_HIGH : PRIORITY_LOW;
    status = heard(psd_push_pull(worker->subject->table, &large, &large_op), err);
    if (status != PSD_OK) {
        return status;
    }
    if (psd_wait(large_op, UNDER_WAY_MS) != PSD_PENDING) {
        return psi_fail(err, PSD_ERR_STATE,
                        "%llu bytes were through before the urgent tensor started",
                        (unsigned long long)order->bytes);
    }
    start_ns = timer_now_ns();
    status = heard(psd_push_pull(urgent->table, &small, &small_op), err);
    if (status == PSD_OK) {
        status = finish(small_op, err);
    }
    times->elapsed_ns = timer_now_ns() - start_ns;
    return status == PSD_OK ? finish(large_op, err) : status;
}

static psd_status
check_urgent(struct worker *worker, struct subject *urgent, const struct crew_order *order,
             struct psd_error *err)
{
    const bool in_place = (order->flags & CREW_IN_PLACE) != 0;
    struct subject *const subjects[] = {worker->subject, urgent};
    const float *const values[] = {in_place ? worker->subject->view : worker->memory.values,
                                   in_place ? urgent->view : worker->urgent_memory.values};
    psd_status status = PSD_OK;

    for (size_t i = 0; i < 2 && status == PSD_OK; i++) {
        subjects[i]->step++;
        tensor_model_round(&subjects[i]->model, 0);
        status = tensor_check(&subjects[i]->model, values[i], err);
    }
    return status;
}

static psd_status
run_urgent(struct worker *worker, const struct crew_order *order, struct crew_times *times,
           struct psd_error *err)
{
    const uint32_t rank = psd_rank(worker->context);
    struct memory *const memories[] = {&worker->memory, &worker->urgent_memory};
    struct subject *urgent;
    psd_status status = use_subject(worker, URGENT_BYTES, 0, &urgent, err);

    if (status == PSD_OK) {
        status = make_memory(worker, &worker->urgent_memory, URGENT_BYTES, err);
    }
    for (size_t i = 0; i < 2 && status == PSD_OK; i++) {
        const size_t count = memories[i]->bytes / sizeof(float);

        tensor_write(memories[i]->gradient, 0, count, rank, 0);
        tensor_write(memories[i]->shared_gradient, 0, count, rank, 0);
        tensor_spoil(memories[i]->values, memories[i]->bytes);
    }
    if (status == PSD_OK) {
        status = gather(worker, err);
    }
    if (status == PSD_OK) {
        status = overtake(worker, urgent, order, times, err);
    }
    times->median_ns = times->p90_ns = times->p99_ns = times->worst_ns = times->elapsed_ns;
    times->shared = mapping_is_shared(worker->subject->view);
    return status == PSD_OK ? check_urgent(worker, urgent, order, err) : status;
}

static psd_status
follow(void *owner, const struct crew_order *order, struct crew_times *times, struct psd_error *err)
{
    struct worker *worker = owner;
    psd_status status = make_memory(worker, &worker->memory, order->bytes, err);

    worker->flags = order->flags;
    if (status == PSD_OK) {
        status = use_subject(worker, order->bytes, order->flags & KIND, &worker->subject, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    return order->verb == CREW_URGENT ? run_urgent(worker, order, times, err)
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
    status = heard(psd_open(NULL, &worker->context), err);
    if (status != PSD_OK) {
        free(worker);
        return status;
    }
    status = troupe_call(control, &fd, err);
    if (status == PSD_OK) {
        status = crew_follow(fd, follow, worker, err);
        close(fd);
    }
    drop_memory(worker, &worker->memory);
    drop_memory(worker, &worker->urgent_memory);
    if (status == PSD_OK) {
        status = heard(psd_close(worker->context), err);
    } else {
        psd_abandon(worker->context);
    }
    for (size_t i = 0; i < worker->subject_count; i++) {
        free(worker->subjects[i]);
    }
    free(worker);
    return status;
}
