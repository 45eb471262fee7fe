/*
 * kernel.c - what a server does with gradients, as fast as memory and caches allow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernel.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tensor.h"
#include "vector.h"

VECTOR_CLONES void
kernel_apply(float *values, float *const *gradients, uint32_t workers, size_t first, size_t count)
{
    const float rate = (float)TENSOR_RATE;
    const size_t end = first + count;
    size_t at = first;

    for (; end - at >= VECTOR_COUNT; at += VECTOR_COUNT) {
        vector_f32 *value = (vector_f32 *)(values + at);
        vector_f32 sum = *(const vector_f32 *)(gradients[0] + at);

        for (uint32_t rank = 1; rank < workers; rank++) {
            sum += *(const vector_f32 *)(gradients[rank] + at);
        }
        *value = *value - sum * rate;
    }
    for (; at < end; at++) {
        float sum = gradients[0][at];

        for (uint32_t rank = 1; rank < workers; rank++) {
            sum += gradients[rank][at];
        }
        values[at] = values[at] - rate * sum;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx"))) static size_t
copy_lines(float *to, const float *from, size_t count)
{
    size_t at = 0;

    for (; count - at >= VECTOR_COUNT; at += VECTOR_COUNT) {
        const __m256 low = _mm256_loadu_ps(from + at);
        const __m256 high = _mm256_loadu_ps(from + at + VECTOR_COUNT / 2);

        _mm256_stream_ps(to + at, low);
        _mm256_stream_ps(to + at + VECTOR_COUNT / 2, high);
    }
    _mm_sfence();
    return at;
}
#endif

void
kernel_copy_past_cache(float *to, const float *from, size_t count)
{
    size_t done = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx")) {
        done = copy_lines(to, from, count);
    }
#endif
    memcpy(to + done, from + done, (count - done) * sizeof(*to));
}
