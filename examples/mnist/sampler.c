/*
 * sampler.c - which images a worker sees at which step. See sampler.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sampler.h"

#include <stdlib.h>

#include "network.h"
#include "rng.h"

static const uint64_t no_epoch = UINT64_MAX;

bool
sampler_init(struct sampler *sampler, const struct sampler_args *args, struct failure *failure)
{
    const uint64_t images_per_step = (uint64_t)args->batch * args->size;

    if (images_per_step > args->images->count) {
        return failed(failure, "%u training images are too few for %u workers with batches of %u",
                      args->images->count, args->size, args->batch);
    }
    *sampler = (struct sampler){
        .images = args->images,
        .seed = args->seed,
        .batch = args->batch,
        .rank = args->rank,
        .size = args->size,
        .steps_per_epoch = args->images->count / images_per_step,
        .epoch = no_epoch,
        .order = calloc(args->images->count, sizeof(*sampler->order)),
        .pixels = floats_alloc((size_t)args->batch * IMAGE_PIXELS),
        .labels = calloc(args->batch, 1),
    };
    if (sampler->order == NULL || sampler->pixels == NULL || sampler->labels == NULL) {
        sampler_fini(sampler);
        return failed(failure, "no memory for batches of %u", args->batch);
    }
    return true;
}

void
sampler_fini(struct sampler *sampler)
{
    free(sampler->order);
    free(sampler->pixels);
    free(sampler->labels);
    *sampler = (struct sampler){0};
}

/* Fisher and Yates, always from the same start:
 * an epoch's order does not depend on earlier ones. */
static void
shuffle(struct sampler *sampler, uint64_t epoch)
{
    struct rng rng = rng_stream(sampler->seed, epoch);
    uint32_t *order = sampler->order;

    for (uint32_t i = 0; i < sampler->images->count; i++) {
        const uint32_t j = rng_below(&rng, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    sampler->epoch = epoch;
}

void
sampler_fill(struct sampler *sampler, uint64_t step)
{
    const uint64_t epoch = step / sampler->steps_per_epoch;
    const uint64_t first = step % sampler->steps_per_epoch * sampler->batch;

    if (epoch != sampler->epoch) {
        shuffle(sampler, epoch);
    }
    for (uint32_t i = 0; i < sampler->batch; i++) {
        const uint32_t chosen = sampler->order[(first + i) * sampler->size + sampler->rank];

        images_floats(sampler->images, chosen, sampler->pixels + (size_t)i * IMAGE_PIXELS);
        sampler->labels[i] = sampler->images->labels[chosen];
    }
}
