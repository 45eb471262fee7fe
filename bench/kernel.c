/*
 * kernel.c - passes over memory, as fast as memory and caches allow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernel.h"

#include <string.h>

#include "kernel_lines.h"

static uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

void
kernel_write_lines(float *to, size_t lines, float first, float step)
{
    const struct kernel_lines *fast = kernel_lines();

    if (fast != NULL) {
        fast->write(to, lines, first, step);
        return;
    }
    for (size_t line = 0; line < lines; line++) {
        for (size_t i = 0; i < KERNEL_LINE; i++) {
            to[line * KERNEL_LINE + i] = first + step * (float)line;
        }
    }
}

uint32_t
kernel_read(const float *from, size_t count)
{
    const struct kernel_lines *fast = kernel_lines();
    uint32_t sum = 0;
    size_t at = fast != NULL ? fast->read(from, count, &sum) : 0;

    for (; at < count; at++) {
        sum += bits_of(from[at]);
    }
    return sum;
}

void
kernel_apply(float *values, float *const *gradients, uint32_t workers, float rate, size_t first,
             size_t count)
{
    const struct kernel_lines *fast = kernel_lines();
    const size_t done =
        fast != NULL ? fast->apply(values, gradients, workers, rate, first, count) : 0;

    for (size_t at = first + done; at < first + count; at++) {
        float sum = gradients[0][at];

        for (uint32_t rank = 1; rank < workers; rank++) {
            sum += gradients[rank][at];
        }
        values[at] = values[at] - rate * sum;
    }
}

void
kernel_copy_past_cache(float *to, const float *from, size_t count)
{
    const struct kernel_lines *fast = kernel_lines();
    const size_t done = fast != NULL ? fast->copy_past_cache(to, from, count) : 0;

    memcpy(to + done, from + done, (count - done) * sizeof(*to));
}
