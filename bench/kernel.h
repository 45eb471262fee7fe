/*
 * kernel.h - passes over memory, as fast as memory and caches allow.
 *
 * Everybody that is compared writes, adds and reads by these, so that differences come from what
 * lies between. Each has a version for AVX2 and a plain one for other machines.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_KERNEL_H
#define BENCH_KERNEL_H

#include <stddef.h>
#include <stdint.h>

enum { KERNEL_LINE = 16 }; /* f32 elements of a cache line */

/* Writes whole lines: all elements of the first are `first`, of the next `first + step`, ... The
 * values must be exact, so that nobody minds in which order they are computed. */
void kernel_write_lines(float *to, size_t lines, float first, float step);

/* The sum of all elements' bits modulo 2^32. */
uint32_t kernel_read(const float *from, size_t count);

/* values -= rate * (sum of the gradients), for elements first..first + count, in one pass. */
void kernel_apply(float *values, float *const *gradients, uint32_t workers, float rate,
                  size_t first, size_t count);

/* Copies around the caches where the CPU can; to must lie on a cache line. */
void kernel_copy_past_cache(float *to, const float *from, size_t count);

#endif
