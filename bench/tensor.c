/*
 * tensor.c - a gradient that everybody knows, and the values it must lead to, bit for bit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tensor.h"

#include <string.h>
#include <sys/mman.h>

#include "base/fail.h"

float *
tensor_alloc(size_t bytes)
{
    void *tensor = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return tensor == MAP_FAILED ? NULL : tensor;
}

void
tensor_free(float *tensor, size_t bytes)
{
    if (tensor != NULL) {
        munmap(tensor, bytes);
    }
}

/* Never 0, so that a lost or a repeated push shows in every element. */
static float
element(uint32_t rank, size_t index)
{
    return (float)(index % TENSOR_PERIOD + 1 + rank) / 64.0f;
}

void
tensor_gradient(uint32_t rank, float *gradient, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        gradient[i] = element(rank, i);
    }
}

void
tensor_spoil(float *values, size_t bytes)
{
    memset(values, 0xff, bytes);
}

void
tensor_model_init(struct tensor_model *model, uint32_t workers)
{
    memset(model, 0, sizeof(*model));
    for (size_t i = 0; i < TENSOR_PERIOD; i++) {
        for (uint32_t rank = 0; rank < workers; rank++) {
            model->sum[i] += element(rank, i);
        }
    }
}

void
tensor_model_advance(struct tensor_model *model, uint64_t rounds)
{
    const float rate = (float)TENSOR_RATE;

    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < TENSOR_PERIOD; i++) {
            model->value[i] = model->value[i] - rate * model->sum[i];
        }
    }
    model->rounds += rounds;
}

psd_status
tensor_check(const struct tensor_model *model, const float *values, size_t count,
             struct psd_error *err)
{
    for (size_t first = 0; first < count; first += TENSOR_PERIOD) {
        const size_t rest = count - first;
        const size_t here = rest < TENSOR_PERIOD ? rest : TENSOR_PERIOD;

        if (memcmp(values + first, model->value, here * sizeof(*values)) == 0) {
            continue;
        }
        for (size_t i = 0; i < here; i++) {
            if (memcmp(&values[first + i], &model->value[i], sizeof(*values)) != 0) {
                return psi_fail(err, PSD_ERR_CORRUPT,
                                "element %zu of %zu after %llu rounds: %.9g, expected %.9g",
                                first + i, count, (unsigned long long)model->rounds,
                                (double)values[first + i], (double)model->value[i]);
            }
        }
    }
    return PSD_OK;
}
