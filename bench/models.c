/*
 * models.c - the tensors of models that people train, in the order in which backward makes their
 * gradients.
 *
 * How long backward takes for each goes by its work: multiplications for one sample.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "models.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"

enum { BACKWARD_MS_DEFAULT = 100 };

/* Tensors in the order of forward. Thread: owned by the call that makes it. */
struct model {
    size_t count;
    size_t elements[MODELS_PARTS_MAX];
    double work[MODELS_PARTS_MAX];
};

static void
add(struct model *model, size_t elements, double work)
{
    psi_assert(model->count < MODELS_PARTS_MAX);
    model->elements[model->count] = elements;
    model->work[model->count++] = work;
}

/* ---- ResNet-50 ------------------------------------------------------------------------------ */

/* A convolution whose output has side * side pixels, and its normalization. */
static void
add_convolution(struct model *model, size_t from, size_t to, size_t kernel, size_t side)
{
    const size_t weights = from * to * kernel * kernel;

    add(model, weights, (double)weights * (double)(side * side));
    add(model, to, (double)(to * side * side));
    add(model, to, (double)(to * side * side));
}

/* The first block changes the width, and has one convolution more for that. */
static void
add_stage(struct model *model, size_t from, size_t narrow, size_t blocks, size_t side)
{
    const size_t wide = 4 * narrow;

    for (size_t block = 0; block < blocks; block++) {
        add_convolution(model, block == 0 ? from : wide, narrow, 1, side);
        add_convolution(model, narrow, narrow, 3, side);
        add_convolution(model, narrow, wide, 1, side);
        if (block == 0) {
            add_convolution(model, from, wide, 1, side);
        }
    }
}

static void
make_resnet50(struct model *model)
{
    add_convolution(model, 3, 64, 7, 112);
    add_stage(model, 64, 64, 3, 56);
    add_stage(model, 256, 128, 4, 28);
    add_stage(model, 512, 256, 6, 14);
    add_stage(model, 1024, 512, 3, 7);
    add(model, (size_t)2048 * 1000, 2048.0 * 1000);
    add(model, 1000, 1000);
}

/* ---- GPT-2, 124 million --------------------------------------------------------------------- */

static void
add_linear(struct model *model, size_t from, size_t to)
{
    add(model, from * to, (double)(from * to));
    add(model, to, (double)to);
}

static void
make_gpt2(struct model *model)
{
    const size_t width = 768;

    add(model, 50257 * width, 50257.0 * (double)width); /* also the last layer's */
    add(model, 1024 * width, (double)width);
    for (size_t layer = 0; layer < 12; layer++) {
        add(model, width, (double)width);
        add(model, width, (double)width);
        add_linear(model, width, 3 * width);
        add_linear(model, width, width);
        add(model, width, (double)width);
        add(model, width, (double)width);
        add_linear(model, width, 4 * width);
        add_linear(model, 4 * width, width);
    }
    add(model, width, (double)width);
    add(model, width, (double)width);
}

/* ---- a small one ---------------------------------------------------------------------------- */

static void
make_tiny(struct model *model)
{
    for (size_t layer = 0; layer < 6; layer++) {
        add_linear(model, 116, 116);
    }
    add_linear(model, 4000, 1);
    model->elements[model->count - 1] = 844; /* more than one chunk in all */
}

/* Many tensors and few bytes: 161 of 4 KiB. */
static void
make_narrow(struct model *model)
{
    for (size_t i = 0; i < 161; i++) {
        add(model, 1024, 1024);
    }
}

/* ---- any ------------------------------------------------------------------------------------ */

static const struct kind {
    const char *name;
    uint64_t bytes;
    void (*make)(struct model *model);
} kinds[] = {
    {"resnet50", MODELS_RESNET50_BYTES, make_resnet50},
    {"gpt2", MODELS_GPT2_BYTES, make_gpt2},
    {"narrow", MODELS_NARROW_BYTES, make_narrow},
    {"tiny", MODELS_TINY_BYTES, make_tiny},
};

static const struct kind *
find(uint64_t bytes)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].bytes == bytes) {
            return &kinds[i];
        }
    }
    return NULL;
}

const char *
model_name(uint64_t bytes)
{
    const struct kind *kind = find(bytes);

    return kind == NULL ? NULL : kind->name;
}

size_t
model_tensors(uint64_t bytes, struct model_part parts_p[MODELS_PARTS_MAX])
{
    const struct kind *kind = find(bytes);
    struct model model = {0};
    double all = 0;
    double done = 0;
    size_t first = 0;

    if (kind == NULL) {
        return 0;
    }
    kind->make(&model);
    for (size_t i = 0; i < model.count; i++) {
        all += model.work[i];
    }
    for (size_t i = 0; i < model.count; i++) {
        const size_t from = model.count - 1 - i; /* backward */

        done += model.work[from];
        parts_p[i] = (struct model_part){first, model.elements[from], done / all};
        first += model.elements[from];
    }
    psi_assert(first * sizeof(float) == bytes);
    return model.count;
}

size_t
model_buckets(uint64_t bytes, struct model_part parts_p[MODELS_PARTS_MAX])
{
    struct model_part tensors[MODELS_PARTS_MAX];
    const size_t count = model_tensors(bytes, tensors);
    size_t buckets = 0;
    bool is_full = true;

    for (size_t i = 0; i < count; i++) {
        struct model_part *last;

        if (is_full) {
            parts_p[buckets++] = (struct model_part){.first = tensors[i].first};
        }
        last = &parts_p[buckets - 1];
        last->count += tensors[i].count;
        last->ready = tensors[i].ready;
        is_full = last->count * sizeof(float) >=
                  (buckets == 1 ? MODELS_FIRST_BUCKET_BYTES : MODELS_BUCKET_BYTES);
    }
    return buckets;
}

uint64_t
model_backward_ns(void)
{
    const char *text = getenv("PSD_BENCH_BACKWARD_MS");
    const uint64_t ms = text != NULL ? strtoull(text, NULL, 10) : BACKWARD_MS_DEFAULT;

    return ms * UINT64_C(1000000);
}

void
model_await(uint64_t began_ns, double ready)
{
    const uint64_t until_ns = began_ns + (uint64_t)(ready * (double)model_backward_ns());
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}
