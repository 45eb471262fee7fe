/*
 * subject.c - the tables of a worker that is measured, their memory, and what they must hold.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "subject.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"

enum { KIND = CREW_SUM | CREW_SCAN | CREW_HALF }; /* flags that make another table */

psd_status
subject_heard(psd_status status, struct psd_error *err)
{
    return status == PSD_OK ? status : psi_fail(err, status, "%s", psd_last_error()->text);
}

psd_status
subject_finish(psd_op *op, struct psd_error *err)
{
    const psd_status status = psd_wait(op, PSD_FOREVER);

    if (status != PSD_OK) {
        *err = *psd_op_error(op);
    }
    psd_op_release(op);
    return status;
}

/* ---- Memory ---- */

void
subject_drop_memory(struct worker *worker, struct memory *memory)
{
    tensor_free(memory->gradient, memory->bytes);
    tensor_free(memory->values, memory->bytes);
    if (memory->shared_gradient != NULL) {
        (void)psd_free(worker->context, memory->shared_gradient);
    }
    *memory = (struct memory){0};
}

psd_status
subject_memory(struct worker *worker, struct memory *memory, size_t bytes, struct psd_error *err)
{
    void *shared;
    psd_status status;

    if (memory->bytes == bytes) {
        return PSD_OK;
    }
    subject_drop_memory(worker, memory);
    memory->bytes = bytes;
    memory->gradient = tensor_alloc(bytes);
    memory->values = tensor_alloc(bytes);
    status = subject_heard(psd_alloc(worker->context, bytes, &shared), err);
    if (status != PSD_OK) {
        return status;
    }
    memory->shared_gradient = shared;
    if (memory->gradient == NULL || memory->values == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a tensor of %zu bytes", bytes);
    }
    return PSD_OK;
}

/* ---- Tables ---- */

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
    status = subject_heard(psd_table_open(worker->context, &args, &subject->table), err);
    if (status == PSD_OK) {
        status = subject_heard(psd_view(subject->table, &view), err);
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

psd_status
subject_use(struct worker *worker, uint64_t bytes, uint64_t flags, struct subject **subject_p,
            struct psd_error *err)
{
    const uint64_t kind = flags & KIND;
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

float *
subject_gradient(const struct memory *memory, uint64_t flags)
{
    return (flags & CREW_IN_PLACE) != 0 ? memory->shared_gradient : memory->gradient;
}

const float *
subject_values(const struct memory *memory, const struct subject *subject, uint64_t flags)
{
    return (flags & CREW_IN_PLACE) != 0 ? subject->view : memory->values;
}

struct psd_transfer
subject_transfer(const struct memory *memory, const struct subject *subject, uint64_t flags)
{
    const bool in_place = (flags & CREW_IN_PLACE) != 0;

    return (struct psd_transfer){
        .struct_size = sizeof(struct psd_transfer),
        .step = subject->step,
        .gradient = subject_gradient(memory, flags),
        .values = in_place ? NULL : memory->values,
        .flags = in_place ? PSD_TRANSFER_VIEW : 0,
    };
}
