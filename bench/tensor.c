/*
 * tensor.c - gradients that everybody knows, and the values they must lead to, bit for bit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tensor.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fail.h"
#include "kernel.h"
#include "store/half.h"
#include "table/rule.h"

static_assert((int)TENSOR_LINE == (int)KERNEL_LINE, "a line is written at once");

#define UNIT (1.0f / 64.0f)

void *
tensor_alloc(size_t bytes)
{
    void *tensor = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return tensor == MAP_FAILED ? NULL : tensor;
}

void
tensor_free(void *tensor, size_t bytes)
{
    if (tensor != NULL) {
        munmap(tensor, bytes);
    }
}

void
tensor_spoil(void *values, size_t bytes)
{
    memset(values, 0xff, bytes);
}

/* ---- Gradients ---- */

/* Never 0, so that a lost or a repeated push shows in every element. */
static float
element(size_t line, uint32_t rank, uint32_t phase)
{
    return (float)(line % TENSOR_LINES + 1 + rank + phase) * UNIT;
}

void
tensor_write(float *gradient, size_t first, size_t count, uint32_t rank, uint32_t phase)
{
    size_t line = first / TENSOR_LINE;
    size_t lines = count / TENSOR_LINE;
    float *at = gradient;

    psi_assert(first % TENSOR_LINE == 0);
    while (lines > 0) {
        const size_t whole = TENSOR_LINES - line % TENSOR_LINES;
        const size_t here = lines < whole ? lines : whole;

        kernel_write_lines(at, here, element(line, rank, phase), UNIT);
        at += here * TENSOR_LINE;
        line += here;
        lines -= here;
    }
    for (; at < gradient + count; at++) {
        *at = element(line, rank, phase);
    }
}

void
tensor_write_half(uint16_t *gradient, size_t count, uint32_t rank, uint32_t phase)
{
    for (size_t i = 0; i < count; i++) {
        gradient[i] = f16_from_float(element(i / TENSOR_LINE, rank, phase));
    }
}

uint32_t
tensor_read(const float *values, size_t count)
{
    return kernel_read(values, count);
}

/* ---- Values ---- */

void
tensor_model_init(struct tensor_model *model, enum tensor_rule rule, uint32_t workers, size_t count)
{
    const size_t lines = (count + TENSOR_LINE - 1) / TENSOR_LINE;

    memset(model, 0, sizeof(*model));
    model->rule = rule;
    model->workers = workers;
    model->count = count;
    model->lines = lines < TENSOR_LINES ? lines : TENSOR_LINES;
}

static void
momentum_step(struct tensor_model *model, uint32_t line, float sum)
{
    model->mean[line] = (float)TENSOR_MEMORY * model->mean[line] + sum;
    model->value[line] -= (float)TENSOR_RATE * model->mean[line];
}

static void
adam_step(struct tensor_model *model, uint32_t line, float sum)
{
    const float first = (float)(1 - psi_rule_power(TENSOR_MEMORY, model->rounds + 1));
    const float second = (float)(1 - psi_rule_power(TENSOR_MEMORY_2, model->rounds + 1));
    float *mean = &model->mean[line];
    float *variance = &model->variance[line];

    *mean = (float)TENSOR_MEMORY * *mean + (float)(1 - TENSOR_MEMORY) * sum;
    *variance = (float)TENSOR_MEMORY_2 * *variance + (float)(1 - TENSOR_MEMORY_2) * sum * sum;
    model->value[line] -= (float)TENSOR_RATE * (*mean / first) /
                          (__builtin_sqrtf(*variance / second) + (float)TENSOR_EPSILON);
}

static void
descend(struct tensor_model *model, uint32_t line, float sum)
{
    switch (model->rule) {
    case TENSOR_DESCENT:
        model->value[line] -= (float)TENSOR_RATE * sum;
        break;
    case TENSOR_SUM:
        model->value[line] = sum;
        break;
    case TENSOR_MOMENTUM:
        momentum_step(model, line, sum);
        break;
    case TENSOR_ADAM:
        adam_step(model, line, sum);
        break;
    }
}

void
tensor_model_round(struct tensor_model *model, uint32_t phase)
{
    const uint32_t workers = model->workers;
    const uint32_t ranks = workers * (workers - 1) / 2; /* added up */

    for (uint32_t line = 0; line < model->lines; line++) {
        const float sum = (float)(workers * (line + 1 + phase) + ranks) * UNIT;

        descend(model, line, sum);
    }
    model->rounds++;
}

uint32_t
tensor_model_read(const struct tensor_model *model)
{
    const size_t lines = model->count / TENSOR_LINE;
    const size_t rest = model->count % TENSOR_LINE;
    uint32_t sum = 0;

    for (size_t line = 0; line < model->lines; line++) {
        const size_t times = lines / TENSOR_LINES + (line < lines % TENSOR_LINES);

        sum += (uint32_t)(times * TENSOR_LINE) * float_bits(model->value[line]);
    }
    if (rest > 0) {
        sum += (uint32_t)rest * float_bits(model->value[lines % TENSOR_LINES]);
    }
    return sum;
}

static psd_status
wrong_element(const struct tensor_model *model, size_t index, float value, float right,
              struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_CORRUPT,
                    "element %zu of %zu after %llu rounds: %.9g, expected %.9g", index,
                    model->count, (unsigned long long)model->rounds, (double)value, (double)right);
}

psd_status
tensor_check(const struct tensor_model *model, const float *values, struct psd_error *err)
{
    for (size_t first = 0; first < model->count; first += TENSOR_LINE) {
        const float right = model->value[first / TENSOR_LINE % TENSOR_LINES];
        const size_t rest = model->count - first;
        const size_t here = rest < TENSOR_LINE ? rest : TENSOR_LINE;

        for (size_t i = first; i < first + here; i++) {
            if (float_bits(values[i]) != float_bits(right)) {
                return wrong_element(model, i, values[i], right, err);
            }
        }
    }
    return PSD_OK;
}

psd_status
tensor_check_half(const struct tensor_model *model, const uint16_t *values, struct psd_error *err)
{
    for (size_t i = 0; i < model->count; i++) {
        const uint16_t right = f16_from_float(model->value[i / TENSOR_LINE % TENSOR_LINES]);

        if (values[i] != right) {
            return wrong_element(model, i, float_from_f16(values[i]), float_from_f16(right), err);
        }
    }
    return PSD_OK;
}
