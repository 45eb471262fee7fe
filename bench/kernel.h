/*
 * kernel.h - what a server does with gradients, as fast as memory and caches allow.
 */
#ifndef BENCH_KERNEL_H
#define BENCH_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* One pass: values -= TENSOR_RATE * (sum of the gradients), for elements first..first + count. */
void kernel_apply(float *values, float *const *gradients, uint32_t workers, size_t first,
                  size_t count);

/* Copies around the caches where the CPU can; to must lie on a cache line. */
void kernel_copy_past_cache(float *to, const float *from, size_t count);

#endif
