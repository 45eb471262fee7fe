/*
 * network.h - a small network, layer by layer: softmax regression or a perceptron of two layers.
 *
 * The training loop goes through the layers itself, forward and back, so that it can move one
 * layer's numbers while another computes. One thread, fixed order: the same bits in every run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_NETWORK_H
#define MNIST_NETWORK_H

#include <stddef.h>

#include "dataset.h"

enum { HIDDEN = 128, LAYERS_MAX = 2 };

enum model { MODEL_SOFTMAX, MODEL_MLP };

/* What a layer learns, and the two kinds of it. */
enum { WEIGHTS, BIAS, TENSORS };

struct tensor {
    const char *name;
    uint32_t rows; /* 1: a vector */
    uint32_t columns;
    float init_range; /* starts uniformly in +-this; 0: with zeros */
    float *values;    /* owned; rows * columns */
    float *gradient;  /* owned; likewise */
};

struct layer {
    uint32_t inputs;
    uint32_t outputs;
    bool relu;
    struct tensor tensors[TENSORS];
    float *output; /* owned; batch_max * outputs */
    float *delta;  /* owned; the loss's gradient with respect to output, before relu */
};

/* Thread: owned by the training thread. */
struct network {
    uint32_t layer_count;
    uint32_t batch_max;
    struct layer layers[LAYERS_MAX];
    float *slice; /* owned; images being evaluated, batch_max * IMAGE_PIXELS */
};

/* Zeroed memory on a boundary of 64 bytes, for free(); NULL when there is none. Sums in BLAS may
 * depend on alignment, and runs are to be repeatable. */
float *floats_alloc(size_t count);

bool network_init(struct network *network, enum model model, uint32_t batch_max,
                  struct failure *failure);
void network_fini(struct network *network);

/* Computes one layer's output from that of the layer below, or from the images for the first. */
const float *network_forward(struct network *network, uint32_t layer, const float *input,
                             uint32_t count);

/* Mean loss of the batch after the last layer's forward pass; starts the way back. */
double network_loss(struct network *network, const uint8_t *labels, uint32_t count);

/* One layer's gradients, and what the layer below needs for its own. From then on the layer's
 * values are free to change. Layers in descending order. */
void network_backward(struct network *network, uint32_t layer, const float *images, uint32_t count);

/* The part of the first `count` images that is recognised. */
double network_accuracy(struct network *network, const struct images *images, uint32_t count);

#endif
