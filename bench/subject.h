/*
 * subject.h - the tables of a worker that is measured, their memory, and what they must hold.
 */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include <psd/psd.h>

#include "crew.h"
#include "tensor.h"

enum { SUBJECTS_MAX = 256 };

/* One table and what it must hold. */
struct subject {
    uint64_t bytes; /* as the order counts them */
    uint64_t kind;  /* those of the order's flags that make another table */
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
psd_status subject_heard(psd_status status, struct psd_error *err);

/* Memory of this size, unless it is there already. */
psd_status subject_memory(struct worker *worker, struct memory *memory, size_t bytes,
                          struct psd_error *err);
void subject_drop_memory(struct worker *worker, struct memory *memory);

/* The table for tensors of this size and an order's flags; opens it the first time. All workers get
 * the same orders, so all open the same tables. */
psd_status subject_use(struct worker *worker, uint64_t bytes, uint64_t flags,
                       struct subject **subject_p, struct psd_error *err);

/* Where gradients and values of an order with these flags lie. */
float *subject_gradient(const struct memory *memory, uint64_t flags);
const float *subject_values(const struct memory *memory, const struct subject *subject,
                            uint64_t flags);

/* All of a table, at its next step. */
struct psd_transfer subject_transfer(const struct memory *memory, const struct subject *subject,
                                     uint64_t flags);

/* Waits for an operation and releases it. */
psd_status subject_finish(psd_op *op, struct psd_error *err);

#endif
