/*
 * dataset.h - labelled images, and where they come from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MNIST_DATASET_H
#define MNIST_DATASET_H

#include <stdint.h>

#include "failure.h"

enum { IMAGE_SIDE = 28, IMAGE_PIXELS = IMAGE_SIDE * IMAGE_SIDE, CLASSES = 10 };

/* Thread: immutable once filled. */
struct images {
    uint32_t count;
    uint8_t *pixels; /* count * IMAGE_PIXELS, 0: paper, 255: ink */
    uint8_t *labels; /* count, 0..9 */
};

struct dataset {
    struct images train;
    struct images test;
};

/* Room for count images, all blank. */
bool images_init(struct images *images, uint32_t count, struct failure *failure);
void images_fini(struct images *images);

/* One image as numbers from 0 to 1. */
void images_floats(const struct images *images, uint32_t index, float *pixels);

/*
 * Reads the four files of MNIST, plain or .gz, from a directory; without one (NULL) draws 12,000
 * training and 2,000 test digits, always the same ones.
 */
bool dataset_init(struct dataset *dataset, const char *directory, struct failure *failure);
void dataset_fini(struct dataset *dataset);

#endif
