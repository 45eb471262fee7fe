/*
 * rounds.h - the timed rounds of one worker: write the gradient, exchange it, read the result.
 *
 * Every worker written in C runs this loop, whatever it exchanges gradients through; so all sides
 * write, read, time and check alike. With TEAM_TOUCH the result of every round is checked by its
 * sum, and in any case the last one bit by bit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_ROUNDS_H
#define BENCH_ROUNDS_H

#include "team.h"
#include "tensor.h"

/* Thread: owned by the worker's thread. */
struct rounds {
    uint32_t rank;
    float *gradient;
    const float *values;        /* where the result appears */
    struct tensor_model *model; /* of this order's bytes; goes on from run to run */
    bool half;                  /* gradient and values are f16 */

    /* Moves the gradient out and the result in. */
    psd_status (*exchange)(void *owner, struct psd_error *err);

    /* (optional) Instead of write, exchange and read: writes gradients of this phase, moves them,
     * reads the result, and adds up what tensor_read() gives. */
    psd_status (*stream)(void *owner, uint32_t phase, uint32_t *read_p, struct psd_error *err);

    /* (optional) Waits for the other workers before the clock starts. */
    psd_status (*gather)(void *owner, struct psd_error *err);
    void *owner;
};

psd_status rounds_run(const struct rounds *rounds, const struct team_order *order,
                      struct team_times *times, struct psd_error *err);

/* Percentiles of the times of single rounds, which it sorts. */
void rounds_summarise(uint64_t *times_ns, uint64_t count, struct team_times *times);

#endif
