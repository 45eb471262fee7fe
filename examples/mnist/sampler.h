/*
 * sampler.h - which images a worker sees at which step.
 *
 * The training set is shuffled anew for every epoch, in the same way on all workers; of each run of
 * `batch * size` images worker `rank` takes every size-th. What is chosen depends on seed, step and
 * rank alone, so that a worker started in place of a dead one goes on with the same images.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_SAMPLER_H
#define MNIST_SAMPLER_H

#include "dataset.h"

/* Thread: owned by the training thread. */
struct sampler {
    const struct images *images; /* borrowed until sampler_fini() */
    uint64_t seed;
    uint32_t batch; /* images per step and worker */
    uint32_t rank;
    uint32_t size;
    uint64_t steps_per_epoch; /* what does not fill a whole step is left out */
    uint64_t epoch;           /* the one that `order` belongs to */
    uint32_t *order;          /* owned; images->count indices */
    float *pixels;            /* owned; the batch, batch * IMAGE_PIXELS, 0..1 */
    uint8_t *labels;          /* owned; the batch */
};

struct sampler_args {
    const struct images *images;
    uint64_t seed;
    uint32_t batch;
    uint32_t rank;
    uint32_t size;
};

bool sampler_init(struct sampler *sampler, const struct sampler_args *args,
                  struct failure *failure);
void sampler_fini(struct sampler *sampler);

/* Fills pixels and labels with this worker's batch of the step. */
void sampler_fill(struct sampler *sampler, uint64_t step);

#endif
