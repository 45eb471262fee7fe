/*
 * dataset.c - labelled images, and where they come from: files (idx.c) or a pen (digits.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "dataset.h"

#include <stdlib.h>

#include "digits.h"
#include "idx.h"

enum { DRAWN_TRAIN = 12000, DRAWN_TEST = 2000 };

/* The drawn digits do not follow --seed: results of different seeds stay comparable. */
enum { DRAWN_SEED = 28, DRAWN_TRAIN_STREAM = 1, DRAWN_TEST_STREAM = 2 };

bool
images_init(struct images *images, uint32_t count, struct failure *failure)
{
    uint8_t *pixels = calloc(count, IMAGE_PIXELS);
    uint8_t *labels = calloc(count, 1);

    if (pixels == NULL || labels == NULL) {
        free(pixels);
        free(labels);
        return failed(failure, "no memory for %u images", count);
    }
    *images = (struct images){.count = count, .pixels = pixels, .labels = labels};
    return true;
}

void
images_fini(struct images *images)
{
    free(images->pixels);
    free(images->labels);
    *images = (struct images){0};
}

void
images_floats(const struct images *images, uint32_t index, float *pixels)
{
    const uint8_t *bytes = images->pixels + (size_t)index * IMAGE_PIXELS;

    for (uint32_t i = 0; i < IMAGE_PIXELS; i++) {
        pixels[i] = (float)bytes[i] * (1.0f / 255.0f);
    }
}

static bool
draw(struct images *images, uint32_t count, uint64_t stream, struct failure *failure)
{
    if (!images_init(images, count, failure)) {
        return false;
    }
    digits_draw(images, DRAWN_SEED, stream);
    return true;
}

bool
dataset_init(struct dataset *dataset, const char *directory, struct failure *failure)
{
    bool ok;

    *dataset = (struct dataset){0};
    if (directory != NULL) {
        ok = idx_read(&dataset->train, directory, "train", failure) &&
             idx_read(&dataset->test, directory, "t10k", failure);
    } else {
        ok = draw(&dataset->train, DRAWN_TRAIN, DRAWN_TRAIN_STREAM, failure) &&
             draw(&dataset->test, DRAWN_TEST, DRAWN_TEST_STREAM, failure);
    }
    if (!ok) {
        dataset_fini(dataset);
    }
    return ok;
}

void
dataset_fini(struct dataset *dataset)
{
    images_fini(&dataset->train);
    images_fini(&dataset->test);
}
