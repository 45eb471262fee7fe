/*
 * kernel_lines.h - kernels for whole cache lines, by instructions that not every CPU has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_KERNEL_LINES_H
#define BENCH_KERNEL_LINES_H

#include <stddef.h>
#include <stdint.h>

/* As in kernel.h, but each takes whole lines and says how many elements that were. */
struct kernel_lines {
    void (*write)(float *to, size_t lines, float first, float step);
    size_t (*read)(const float *from, size_t count, uint32_t *sum_p);
    size_t (*apply)(float *values, float *const *gradients, uint32_t workers, float rate,
                    size_t first, size_t count);
    size_t (*copy_past_cache)(float *to, const float *from, size_t count);
};

/* NULL: this CPU has none. */
const struct kernel_lines *kernel_lines(void);

#endif
