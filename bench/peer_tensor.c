/*
 * peer_tensor.c - tensor.h for peers in Python: they write, read and check as everybody does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "tensor.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void peer_write(float *gradient, size_t count, uint32_t rank, uint32_t phase);
EXPORT uint32_t peer_read(const float *values, size_t count);
EXPORT struct tensor_model *peer_model_create(int rule, uint32_t workers, size_t count);
EXPORT void peer_model_destroy(struct tensor_model *model);
EXPORT void peer_model_round(struct tensor_model *model, uint32_t phase, float factor);
EXPORT uint32_t peer_model_read(const struct tensor_model *model);
EXPORT size_t peer_buckets(uint64_t bytes, struct model_part parts[MODELS_PARTS_MAX]);
EXPORT void peer_await(uint64_t began_ns, double ready);
EXPORT uint64_t peer_backward_ns(void);
EXPORT int peer_check(const struct tensor_model *model, const float *values, char text[508]);

void
peer_write(float *gradient, size_t count, uint32_t rank, uint32_t phase)
{
    tensor_write(gradient, 0, count, rank, phase);
}

uint32_t
peer_read(const float *values, size_t count)
{
    return tensor_read(values, count);
}

struct tensor_model *
peer_model_create(int rule, uint32_t workers, size_t count)
{
    struct tensor_model *model = malloc(sizeof(*model));

    if (model != NULL) {
        tensor_model_init(model, rule == 0 ? TENSOR_DESCENT : TENSOR_SUM, workers, count);
    }
    return model;
}

void
peer_model_destroy(struct tensor_model *model)
{
    free(model);
}

/* factor: sums that were added again have grown by it; a power of two, so it is exact. */
void
peer_model_round(struct tensor_model *model, uint32_t phase, float factor)
{
    tensor_model_round(model, phase);
    for (size_t line = 0; line < model->lines; line++) {
        model->value[line] *= factor;
    }
}

uint32_t
peer_model_read(const struct tensor_model *model)
{
    return tensor_model_read(model);
}

size_t
peer_buckets(uint64_t bytes, struct model_part parts[MODELS_PARTS_MAX])
{
    return model_buckets(bytes, parts);
}

void
peer_await(uint64_t began_ns, double ready)
{
    model_await(began_ns, ready);
}

uint64_t
peer_backward_ns(void)
{
    return model_backward_ns();
}

int
peer_check(const struct tensor_model *model, const float *values, char text[508])
{
    struct psd_error err = {0};
    const psd_status status = tensor_check(model, values, &err);

    memcpy(text, err.text, sizeof(err.text));
    return status;
}
