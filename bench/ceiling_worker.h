/*
 * ceiling_worker.h - a worker of a ceiling: what it gives and gets, and the rounds that it is told to make.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_CEILING_WORKER_H
#define BENCH_CEILING_WORKER_H

#include <stdbool.h>

#include "ceiling.h"
#include "tensor.h"

/* Thread: owned by the worker's process; gradient and values by its threads, each for its part. */
struct ceiling_worker {
    uint32_t rank;
    uint64_t bytes;

    /* Moves the gradient out and the result in. */
    psd_status (*exchange)(void *owner, struct psd_error *err);
    void *owner;

    /* The others spin while a run lasts, and sleep between two: one exchange wakes them, outside of the time. */
    bool wakes;

    bool waking; /* this is that exchange */
    float *gradient;
    float *values;
    struct tensor_model model;
};

/* Its memory, and what must come out of it; false: no memory. The end of the process gives it back. */
bool ceiling_worker_init(struct ceiling_worker *worker, enum tensor_rule rule, uint32_t workers);

/* Follows orders until the runner has gone; the code that the process ends with. */
int ceiling_worker_run(struct ceiling_worker *worker, int control);

#endif
