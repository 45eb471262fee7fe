/*
 * measured.c - the tables of a worker that is measured, their memory, and what they must hold.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "measured.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "train.h"

enum {
    KIND = TEAM_SUM | TEAM_SCAN | TEAM_HALF | TEAM_MOMENTUM | TEAM_ADAM | TEAM_TENSORS
}; /* flags that make another table */

psd_status
measured_heard(psd_status status, struct psd_error *err)
{
    return status == PSD_OK ? status : psi_fail(err, status, "%s", psd_last_error()->text);
}

psd_status
measured_finish(psd_op *op, struct psd_error *err)
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
measured_drop_memory(struct worker *worker, struct memory *memory)
{
    tensor_free(memory->gradient, memory->bytes);
    tensor_free(memory->values, memory->bytes);
    if (memory->shared_gradient != NULL) {
        (void)psd_free(worker->context, memory->shared_gradient);
    }
    *memory = (struct memory){0};
}

psd_status
measured_memory(struct worker *worker, struct memory *memory, size_t bytes, struct psd_error *err)
{
    void *shared;
    psd_status status;

    if (memory->bytes == bytes) {
        return PSD_OK;
    }
    measured_drop_memory(worker, memory);
    memory->bytes = bytes;
    memory->gradient = tensor_alloc(bytes);
    memory->values = tensor_alloc(bytes);
    status = measured_heard(psd_alloc(worker->context, bytes, &shared), err);
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

static enum tensor_rule
rule_of(uint64_t kind)
{
    return (kind & TEAM_SUM) != 0        ? TENSOR_SUM
           : (kind & TEAM_MOMENTUM) != 0 ? TENSOR_MOMENTUM
           : (kind & TEAM_ADAM) != 0     ? TENSOR_ADAM
                                         : TENSOR_DESCENT;
}

static struct psd_rule_args
rule_args(uint64_t kind)
{
    struct psd_rule_args rule = {
        .struct_size = sizeof(rule), .rule = PSD_RULE_SGD, .learning_rate = TENSOR_RATE};

    if (rule_of(kind) == TENSOR_MOMENTUM) {
        rule.rule = PSD_RULE_MOMENTUM;
        rule.momentum = TENSOR_MEMORY;
    } else if (rule_of(kind) == TENSOR_ADAM) {
        rule.rule = PSD_RULE_ADAM;
        rule.beta1 = TENSOR_MEMORY;
        rule.beta2 = TENSOR_MEMORY_2;
        rule.epsilon = TENSOR_EPSILON;
    }
    return rule;
}

struct psd_table_args
measured_table_args(const struct measured *measured, const char *name, uint64_t elements)
{
    return (struct psd_table_args){
        .struct_size = sizeof(struct psd_table_args),
        .name = name,
        .dtype = (measured->kind & TEAM_HALF) != 0 ? PSD_F16 : PSD_F32,
        .dims = 1,
        .shape = {elements},
        .use = (measured->kind & TEAM_SUM) != 0 ? PSD_USE_SUM : PSD_USE_UPDATE,
        .reduce = PSD_REDUCE_SUM,
        .nan_policy = (measured->kind & TEAM_SCAN) != 0 ? PSD_NAN_REJECT : PSD_NAN_ALLOW,
    };
}

static psd_status
open_table(struct worker *worker, struct measured *measured, struct psd_error *err)
{
    char name[64];
    const void *view;
    const struct psd_rule_args rule = rule_args(measured->kind);
    struct psd_table_args args;
    psd_status status;

    if ((measured->kind & TEAM_TENSORS) != 0) {
        return train_create(worker, measured, err);
    }
    snprintf(name, sizeof(name), "%llu bytes, kind %llu", (unsigned long long)measured->bytes,
             (unsigned long long)measured->kind);
    args = measured_table_args(measured, name, measured->bytes / sizeof(float));
    if (args.use == PSD_USE_UPDATE) {
        args.rule = &rule;
    }
    status = measured_heard(psd_table_open(worker->context, &args, &measured->table), err);
    if (status == PSD_OK) {
        status = measured_heard(psd_view(measured->table, &view), err);
    }
    if (status == PSD_OK) {
        measured->view = view;
    }
    return status;
}

static struct measured *
find_subject(const struct worker *worker, uint64_t bytes, uint64_t kind)
{
    for (size_t i = 0; i < worker->measured_count; i++) {
        if (worker->all_measured[i]->bytes == bytes && worker->all_measured[i]->kind == kind) {
            return worker->all_measured[i];
        }
    }
    return NULL;
}

psd_status
measured_use(struct worker *worker, uint64_t bytes, uint64_t flags, struct measured **measured_p,
             struct psd_error *err)
{
    const uint64_t kind = flags & KIND;
    struct measured *measured = find_subject(worker, bytes, kind);
    psd_status status;

    if (measured != NULL) {
        *measured_p = measured;
        return PSD_OK;
    }
    measured = calloc(1, sizeof(*measured));
    if (measured == NULL || worker->measured_count == MEASURED_MAX) {
        free(measured);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no room for one more table");
    }
    measured->bytes = bytes;
    measured->kind = kind;
    tensor_model_init(&measured->model, rule_of(kind), psd_size(worker->context),
                      bytes / sizeof(float));
    status = open_table(worker, measured, err);
    if (status != PSD_OK) {
        free(measured);
        return status;
    }
    worker->all_measured[worker->measured_count++] = measured;
    *measured_p = measured;
    return PSD_OK;
}

/* ---- Transfers ---- */

float *
measured_gradient(const struct memory *memory, uint64_t flags)
{
    return (flags & TEAM_IN_PLACE) != 0 ? memory->shared_gradient : memory->gradient;
}

const float *
measured_values(const struct memory *memory, const struct measured *measured, uint64_t flags)
{
    return (flags & TEAM_IN_PLACE) != 0 ? measured->view : memory->values;
}

struct psd_transfer
measured_transfer(const struct memory *memory, const struct measured *measured, uint64_t flags)
{
    const bool in_place = (flags & TEAM_IN_PLACE) != 0;

    return (struct psd_transfer){
        .struct_size = sizeof(struct psd_transfer),
        .step = measured->step,
        .gradient = measured_gradient(memory, flags),
        .values = in_place ? NULL : memory->values,
        .flags = in_place ? PSD_TRANSFER_VIEW : 0,
    };
}
