/*
 * measured.h - the tables of a worker that is measured, their memory, and what they must hold.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_MEASURED_H
#define BENCH_MEASURED_H

#include <psd/psd.h>

#include "rows_worker.h"
#include "team.h"
#include "tensor.h"

enum { MEASURED_MAX = 256 };

struct train;

/* One table and what it must hold. */
struct measured {
    uint64_t bytes; /* as the order counts them */
    uint64_t kind;  /* those of the order's flags that make another table */
    psd_table *table;
    struct train *train; /* owned; TEAM_TENSORS: the tables, in place of one */
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
    struct measured *all_measured[MEASURED_MAX];
    size_t measured_count;

    struct measured *measured; /* of this order */
    uint64_t flags;

    struct rows_worker rows;
};

/* The arguments of a table that holds what this one holds. The rule is not among them. */
struct psd_table_args measured_table_args(const struct measured *measured, const char *name,
                                          uint64_t elements);

/* A libpsd call's status, with its message. */
psd_status measured_heard(psd_status status, struct psd_error *err);

/* Memory of this size, unless it is there already. */
psd_status measured_memory(struct worker *worker, struct memory *memory, size_t bytes,
                           struct psd_error *err);
void measured_drop_memory(struct worker *worker, struct memory *memory);

/* The table for tensors of this size and an order's flags; opens it the first time. All workers get
 * the same orders, so all open the same tables. */
psd_status measured_use(struct worker *worker, uint64_t bytes, uint64_t flags,
                        struct measured **measured_p, struct psd_error *err);

/* Where gradients and values of an order with these flags lie. */
float *measured_gradient(const struct memory *memory, uint64_t flags);
const float *measured_values(const struct memory *memory, const struct measured *measured,
                             uint64_t flags);

/* All of a table, at its next step. */
struct psd_transfer measured_transfer(const struct memory *memory, const struct measured *measured,
                                      uint64_t flags);

/* Waits for an operation and releases it. */
psd_status measured_finish(psd_op *op, struct psd_error *err);

#endif
