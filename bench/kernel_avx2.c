/*
 * kernel_avx2.c - kernels for whole cache lines by AVX2, where the CPU has it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernel_lines.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernel.h"

enum { HALF = KERNEL_LINE / 2 };

#define AVX2 __attribute__((target("avx2")))

typedef float f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t u32x8 __attribute__((vector_size(32), aligned(4), may_alias));

/* Four lines at a time, because a sum waits for the one before. */
AVX2 static void
write_lines(float *to, size_t lines, float first, float step)
{
    const f32x8 zero = {0};
    const f32x8 leap = zero + 4 * step;
    f32x8 *at = (f32x8 *)(void *)to;
    f32x8 *const end = at + 2 * lines;
    f32x8 a = zero + first;
    f32x8 b = a + step;
    f32x8 c = b + step;
    f32x8 d = c + step;

    for (; end - at >= 8; at += 8) {
        at[0] = a;
        at[1] = a;
        at[2] = b;
        at[3] = b;
        at[4] = c;
        at[5] = c;
        at[6] = d;
        at[7] = d;
        a += leap;
        b += leap;
        c += leap;
        d += leap;
    }
    for (; at < end; at += 2) {
        at[0] = a;
        at[1] = a;
        a += step;
    }
}

AVX2 static size_t
read_all(const float *from, size_t count, uint32_t *sum_p)
{
    u32x8 sums[4] = {{0}, {0}, {0}, {0}};
    size_t at = 0;

    for (; count - at >= 2 * KERNEL_LINE; at += 2 * KERNEL_LINE) {
        const u32x8 *four = (const u32x8 *)(const void *)(from + at);

        sums[0] += four[0];
        sums[1] += four[1];
        sums[2] += four[2];
        sums[3] += four[3];
    }
    sums[0] += sums[1] + sums[2] + sums[3];
    for (size_t i = 0; i < HALF; i++) {
        *sum_p += sums[0][i];
    }
    return at;
}

AVX2 static size_t
apply(float *values, float *const *gradients, uint32_t workers, float rate, size_t first,
      size_t count)
{
    const size_t end = first + count;
    size_t at = first;

    for (; end - at >= KERNEL_LINE; at += KERNEL_LINE) {
        f32x8 *value = (f32x8 *)(void *)(values + at);
        f32x8 low = *(const f32x8 *)(const void *)(gradients[0] + at);
        f32x8 high = *(const f32x8 *)(const void *)(gradients[0] + at + HALF);

        for (uint32_t rank = 1; rank < workers; rank++) {
            low += *(const f32x8 *)(const void *)(gradients[rank] + at);
            high += *(const f32x8 *)(const void *)(gradients[rank] + at + HALF);
        }
        value[0] = value[0] - low * rate;
        value[1] = value[1] - high * rate;
    }
    return at - first;
}

AVX2 static size_t
copy_past_cache(float *to, const float *from, size_t count)
{
    size_t at = 0;

    for (; count - at >= KERNEL_LINE; at += KERNEL_LINE) {
        const __m256 low = _mm256_loadu_ps(from + at);
        const __m256 high = _mm256_loadu_ps(from + at + HALF);

        _mm256_stream_ps(to + at, low);
        _mm256_stream_ps(to + at + HALF, high);
    }
    _mm_sfence();
    return at;
}

const struct kernel_lines *
kernel_lines(void)
{
    static const struct kernel_lines lines = {
        .write = write_lines,
        .read = read_all,
        .apply = apply,
        .copy_past_cache = copy_past_cache,
    };

    return __builtin_cpu_supports("avx2") ? &lines : NULL;
}

#else

const struct kernel_lines *
kernel_lines(void)
{
    return NULL;
}

#endif
