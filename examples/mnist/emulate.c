/*
 * emulate.c - trains in one process what W workers and a server would: for tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "emulate.h"

#include <stdlib.h>
#include <string.h>

#include "network.h"
#include "rng.h"
#include "sampler.h"

enum { WORKERS_MAX = 8 };

struct emulation {
    const struct options *options;
    uint32_t workers;
    struct network network;
    struct sampler samplers[WORKERS_MAX];
    float *sums[LAYERS_MAX][TENSORS]; /* owned; the gradients of the workers so far */
};

static size_t
tensor_count(const struct tensor *tensor)
{
    return (size_t)tensor->rows * tensor->columns;
}

static bool
init_tensors(struct emulation *emulation)
{
    for (uint32_t l = 0; l < emulation->network.layer_count; l++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            struct tensor *tensor = &emulation->network.layers[l].tensors[t];
            struct rng rng = rng_stream(emulation->options->seed, l);

            for (size_t i = 0; i < tensor_count(tensor); i++) {
                tensor->values[i] = rng_between(&rng, -tensor->init_range, tensor->init_range);
            }
            emulation->sums[l][t] = floats_alloc(tensor_count(tensor));
            if (emulation->sums[l][t] == NULL) {
                return false;
            }
        }
    }
    return true;
}

static bool
init(struct emulation *emulation, const struct dataset *dataset, struct failure *failure)
{
    const struct options *options = emulation->options;

    for (uint32_t w = 0; w < emulation->workers; w++) {
        if (!sampler_init(&emulation->samplers[w],
                          &(struct sampler_args){.images = &dataset->train,
                                                 .seed = options->seed,
                                                 .batch = options->batch,
                                                 .rank = w,
                                                 .size = emulation->workers},
                          failure)) {
            return false;
        }
    }
    if (!network_init(&emulation->network, options->model, options->batch, failure)) {
        return false;
    }
    return init_tensors(emulation) || failed(failure, "no memory for gradients");
}

static void
fini(struct emulation *emulation)
{
    for (uint32_t w = 0; w < emulation->workers; w++) {
        sampler_fini(&emulation->samplers[w]);
    }
    for (uint32_t l = 0; l < LAYERS_MAX; l++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            free(emulation->sums[l][t]);
        }
    }
    network_fini(&emulation->network);
}

static void
work(struct emulation *emulation, struct sampler *sampler, uint64_t step)
{
    struct network *network = &emulation->network;
    const float *input = sampler->pixels;

    sampler_fill(sampler, step);
    for (uint32_t l = 0; l < network->layer_count; l++) {
        input = network_forward(network, l, input, sampler->batch);
    }
    network_loss(network, sampler->labels, sampler->batch);
    for (uint32_t l = network->layer_count; l-- > 0;) {
        network_backward(network, l, sampler->pixels, sampler->batch);
        for (uint32_t t = 0; t < TENSORS; t++) {
            const struct tensor *tensor = &network->layers[l].tensors[t];

            for (size_t i = 0; i < tensor_count(tensor); i++) {
                emulation->sums[l][t][i] += tensor->gradient[i];
            }
        }
    }
}

static void
serve(struct emulation *emulation)
{
    const float rate = (float)emulation->options->rate / (float)emulation->workers;

    for (uint32_t l = 0; l < emulation->network.layer_count; l++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            struct tensor *tensor = &emulation->network.layers[l].tensors[t];
            float *sums = emulation->sums[l][t];

            for (size_t i = 0; i < tensor_count(tensor); i++) {
                tensor->values[i] -= rate * sums[i];
            }
            memset(sums, 0, tensor_count(tensor) * sizeof(*sums));
        }
    }
}

double
emulate(const struct options *options, const struct dataset *dataset, uint32_t workers,
        struct failure *failure)
{
    struct emulation emulation = {.options = options, .workers = workers};
    double accuracy = -1.0;

    if (workers == 0 || workers > WORKERS_MAX) {
        failed(failure, "%u workers: expected 1 to %d", workers, WORKERS_MAX);
        return accuracy;
    }
    if (init(&emulation, dataset, failure)) {
        const uint64_t steps = options->epochs * emulation.samplers[0].steps_per_epoch;

        for (uint64_t step = 0; step < steps; step++) {
            for (uint32_t w = 0; w < workers; w++) {
                work(&emulation, &emulation.samplers[w], step);
            }
            serve(&emulation);
        }
        accuracy = network_accuracy(&emulation.network, &dataset->test, dataset->test.count);
    }
    fini(&emulation);
    return accuracy;
}
