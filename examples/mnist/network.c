/*
 * network.c - a small network, layer by layer, on top of one matrix product.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

enum { ALIGNMENT = 64 };

float *
floats_alloc(size_t count)
{
    const size_t bytes = (count * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    float *floats = aligned_alloc(ALIGNMENT, bytes);

    if (floats != NULL) {
        memset(floats, 0, bytes);
    }
    return floats;
}

static bool
tensor_init(struct tensor *tensor)
{
    const size_t count = (size_t)tensor->rows * tensor->columns;

    tensor->values = floats_alloc(count);
    tensor->gradient = floats_alloc(count);
    return tensor->values != NULL && tensor->gradient != NULL;
}

static bool
layer_init(struct layer *layer, uint32_t batch_max)
{
    layer->tensors[WEIGHTS].rows = layer->inputs;
    layer->tensors[WEIGHTS].columns = layer->outputs;
    layer->tensors[WEIGHTS].init_range = sqrtf(6.0f / (float)(layer->inputs + layer->outputs));
    layer->tensors[BIAS].rows = 1;
    layer->tensors[BIAS].columns = layer->outputs;
    layer->output = floats_alloc((size_t)batch_max * layer->outputs);
    layer->delta = floats_alloc((size_t)batch_max * layer->outputs);
    return layer->output != NULL && layer->delta != NULL && tensor_init(&layer->tensors[WEIGHTS]) &&
           tensor_init(&layer->tensors[BIAS]);
}

/* The networks as they are before their memory. */
static const struct network networks[] = {
    [MODEL_SOFTMAX] = {.layer_count = 1,
                       .layers = {{.inputs = IMAGE_PIXELS,
                                   .outputs = CLASSES,
                                   .tensors = {{.name = "softmax.weight"},
                                               {.name = "softmax.bias"}}}}},
    [MODEL_MLP] = {.layer_count = 2,
                   .layers = {{.inputs = IMAGE_PIXELS,
                               .outputs = HIDDEN,
                               .relu = true,
                               .tensors = {{.name = "hidden.weight"}, {.name = "hidden.bias"}}},
                              {.inputs = HIDDEN,
                               .outputs = CLASSES,
                               .tensors = {{.name = "output.weight"}, {.name = "output.bias"}}}}},
};

bool
network_init(struct network *network, enum model model, uint32_t batch_max, struct failure *failure)
{
    bool ok;

    openblas_set_num_threads(1);
    *network = networks[model];
    network->batch_max = batch_max;
    network->slice = floats_alloc((size_t)batch_max * IMAGE_PIXELS);
    ok = network->slice != NULL;
    for (uint32_t i = 0; ok && i < network->layer_count; i++) {
        ok = layer_init(&network->layers[i], batch_max);
    }
    if (!ok) {
        network_fini(network);
        return failed(failure, "no memory for a network with batches of %u", batch_max);
    }
    return true;
}

void
network_fini(struct network *network)
{
    for (uint32_t i = 0; i < network->layer_count; i++) {
        struct layer *layer = &network->layers[i];

        for (uint32_t t = 0; t < TENSORS; t++) {
            free(layer->tensors[t].values);
            free(layer->tensors[t].gradient);
        }
        free(layer->output);
        free(layer->delta);
    }
    free(network->slice);
    *network = (struct network){0};
}

const float *
network_forward(struct network *network, uint32_t index, const float *input, uint32_t count)
{
    struct layer *layer = &network->layers[index];
    const uint32_t outputs = layer->outputs;
    const size_t total = (size_t)count * outputs;

    for (uint32_t i = 0; i < count; i++) {
        memcpy(layer->output + (size_t)i * outputs, layer->tensors[BIAS].values,
               outputs * sizeof(float));
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)count, (int)outputs,
                (int)layer->inputs, 1.0f, input, (int)layer->inputs, layer->tensors[WEIGHTS].values,
                (int)outputs, 1.0f, layer->output, (int)outputs);
    for (size_t i = 0; layer->relu && i < total; i++) {
        layer->output[i] = layer->output[i] > 0.0f ? layer->output[i] : 0.0f;
    }
    return layer->output;
}

/* Cross-entropy of one image; delta becomes (softmax - truth) * scale. */
static double
loss_of_one(const float *output, float *delta, uint8_t label, float scale)
{
    float top = output[0];
    float sum = 0.0f;

    for (uint32_t c = 1; c < CLASSES; c++) {
        top = output[c] > top ? output[c] : top;
    }
    for (uint32_t c = 0; c < CLASSES; c++) {
        delta[c] = expf(output[c] - top);
        sum += delta[c];
    }
    for (uint32_t c = 0; c < CLASSES; c++) {
        delta[c] = (delta[c] / sum - (c == label ? 1.0f : 0.0f)) * scale;
    }
    return (double)(logf(sum) + top - output[label]);
}

double
network_loss(struct network *network, const uint8_t *labels, uint32_t count)
{
    struct layer *last = &network->layers[network->layer_count - 1];
    double sum = 0.0;

    for (uint32_t i = 0; i < count; i++) {
        sum += loss_of_one(last->output + (size_t)i * CLASSES, last->delta + (size_t)i * CLASSES,
                           labels[i], 1.0f / (float)count);
    }
    return sum / count;
}

void
network_backward(struct network *network, uint32_t index, const float *images, uint32_t count)
{
    struct layer *layer = &network->layers[index];
    struct layer *below = index > 0 ? &network->layers[index - 1] : NULL;
    const float *input = below != NULL ? below->output : images;
    const int batch = (int)count;
    const int inputs = (int)layer->inputs;
    const int outputs = (int)layer->outputs;
    float *bias = layer->tensors[BIAS].gradient;

    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, inputs, outputs, batch, 1.0f, input,
                inputs, layer->delta, outputs, 0.0f, layer->tensors[WEIGHTS].gradient, outputs);
    memset(bias, 0, layer->outputs * sizeof(float));
    for (size_t i = 0; i < (size_t)count * layer->outputs; i++) {
        bias[i % layer->outputs] += layer->delta[i];
    }
    if (below == NULL) {
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, batch, inputs, outputs, 1.0f, layer->delta,
                outputs, layer->tensors[WEIGHTS].values, outputs, 0.0f, below->delta, inputs);
    for (size_t i = 0; i < (size_t)count * layer->inputs; i++) {
        below->delta[i] = below->output[i] > 0.0f ? below->delta[i] : 0.0f;
    }
}

static uint32_t
best_class(const float *output)
{
    uint32_t best = 0;

    for (uint32_t c = 1; c < CLASSES; c++) {
        best = output[c] > output[best] ? c : best;
    }
    return best;
}

double
network_accuracy(struct network *network, const struct images *images, uint32_t count)
{
    uint32_t right = 0;

    for (uint32_t first = 0; first < count; first += network->batch_max) {
        const uint32_t rest = count - first;
        const uint32_t batch = rest < network->batch_max ? rest : network->batch_max;
        const float *values = network->slice;

        for (uint32_t i = 0; i < batch; i++) {
            images_floats(images, first + i, network->slice + (size_t)i * IMAGE_PIXELS);
        }
        for (uint32_t l = 0; l < network->layer_count; l++) {
            values = network_forward(network, l, values, batch);
        }
        for (uint32_t i = 0; i < batch; i++) {
            right += best_class(values + (size_t)i * CLASSES) == images->labels[first + i];
        }
    }
    return (double)right / count;
}
