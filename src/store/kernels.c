/*
 * kernels.c - the loops over elements. Compiled once per SIMD level, with KERNELS the name of the
 * table to export and the compiler's flags for the level; the scalar level defines KERNELS_SCALAR.
 *
 * These loops are simple enough for the compiler, and one text for all levels is what makes them
 * agree; the exception are conversions of f16, for which the CPU has instructions that do what
 * half.h says, but for NaNs (tests compare them all). Neither contraction nor any other
 * value-changing option is on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/kernels.h"

#if defined(__FAST_MATH__)
#error "-ffast-math: sums would have other bits on every machine"
#endif

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "store/half.h"

/*
 * Before a loop whose rounds do not depend on each other, though an output may be an input: without
 * this the compiler would test for overlap and take the slow way whenever a chunk is updated in
 * place.
 */
#if defined(KERNELS_SCALAR)
#define INDEPENDENT
#elif defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* under sanitizers loops stay scalar */
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

typedef float any_float __attribute__((aligned(1)));
typedef double any_double __attribute__((aligned(1)));
typedef uint16_t any_half __attribute__((aligned(1)));

/* The rule itself, and a function for each number of leaves it may get its gradient from. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define RULE(rule)                                                                                 \
    static ALWAYS_INLINE void NAME(rule)(const struct kernel_numbers *numbers,                     \
                                         const struct kernel_block *block,                         \
                                         enum kernel_leaves leaves);                               \
    RULE_OF(rule, 1, KERNEL_ONE_LEAF)                                                              \
    RULE_OF(rule, 2, KERNEL_TWO_LEAVES)                                                            \
    RULE_OF(rule, 4, KERNEL_FOUR_LEAVES)                                                           \
    RULE_OF(rule, 1_kept, KERNEL_ONE_KEPT)                                                         \
    RULE_OF(rule, 2_kept, KERNEL_TWO_KEPT)                                                         \
    RULE_OF(rule, 4_kept, KERNEL_FOUR_KEPT)                                                        \
    static ALWAYS_INLINE void NAME(rule)(const struct kernel_numbers *numbers,                     \
                                         const struct kernel_block *block,                         \
                                         enum kernel_leaves leaves)
#define RULE_OF(rule, count, leaves)                                                               \
    static void NAME(rule##count)(const struct kernel_numbers *numbers,                            \
                                  const struct kernel_block *block)                                \
    {                                                                                              \
        NAME(rule)(numbers, block, leaves);                                                        \
    }
#define BY_LEAVES(rule)                                                                            \
    {                                                                                              \
        [KERNEL_ONE_LEAF] = NAME(rule##1), [KERNEL_TWO_LEAVES] = NAME(rule##2),                    \
        [KERNEL_FOUR_LEAVES] = NAME(rule##4), [KERNEL_ONE_KEPT] = NAME(rule##1_kept),              \
        [KERNEL_TWO_KEPT] = NAME(rule##2_kept), [KERNEL_FOUR_KEPT] = NAME(rule##4_kept)            \
    }

#define REAL       float
#define ANY        any_float
#define MASK       uint32_t
#define SQRT(x)    __builtin_sqrtf(x)
#define QUIET_NAN  __builtin_nanf("")
#define NAME(name) f32_##name
#include "store/kernels_real.h"

#define REAL       double
#define ANY        any_double
#define MASK       uint64_t
#define SQRT(x)    __builtin_sqrt(x)
#define QUIET_NAN  __builtin_nan("")
#define NAME(name) f64_##name
#include "store/kernels_real.h"

#if defined(__F16C__)

enum { AT_ONCE = 8 };

/* Whole groups; returns how many elements that were. A signalling NaN becomes quiet, as it does in
 * any addition. */
static size_t
f32_from_f16_groups(any_float *out, const any_half *in, size_t count)
{
    size_t i = 0;

    for (; i + AT_ONCE <= count; i += AT_ONCE) {
        const __m128i half = _mm_loadu_si128((const void *)(in + i));

        _mm256_storeu_ps((void *)(out + i), _mm256_cvtph_ps(half));
    }
    return i;
}

static size_t
f16_from_f32_groups(any_half *out, const any_float *in, size_t count)
{
    const __m128i canonical = _mm_set1_epi16(0x7e00);
    size_t i = 0;

    for (; i + AT_ONCE <= count; i += AT_ONCE) {
        const __m256 value = _mm256_loadu_ps((const void *)(in + i));
        const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
        const __m128i mask =
            _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));

        _mm_storeu_si128((void *)(out + i), _mm_blendv_epi8(half, canonical, mask));
    }
    return i;
}

#else

static size_t
f32_from_f16_groups(any_float *out, const any_half *in, size_t count)
{
    (void)out;
    (void)in;
    (void)count;
    return 0;
}

static size_t
f16_from_f32_groups(any_half *out, const any_float *in, size_t count)
{
    (void)out;
    (void)in;
    (void)count;
    return 0;
}

#endif

static void
f32_from_f16(void *to, const void *from, size_t count)
{
    any_float *out = to;
    const any_half *in = from;

    INDEPENDENT
    for (size_t i = f32_from_f16_groups(out, in, count); i < count; i++) {
        out[i] = float_from_f16(in[i]);
    }
}

static void
f32_from_bf16(void *to, const void *from, size_t count)
{
    any_float *out = to;
    const any_half *in = from;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = float_from_bf16(in[i]);
    }
}

static void
f16_from_f32(void *to, const void *from, size_t count)
{
    any_half *out = to;
    const any_float *in = from;

    INDEPENDENT
    for (size_t i = f16_from_f32_groups(out, in, count); i < count; i++) {
        out[i] = f16_from_float(in[i]);
    }
}

static void
bf16_from_f32(void *to, const void *from, size_t count)
{
    any_half *out = to;
    const any_float *in = from;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = bf16_from_float(in[i]);
    }
}

const struct kernels KERNELS = {
    .f32 = &f32_kernels,
    .f64 = &f64_kernels,
    .f32_from_f16 = f32_from_f16,
    .f32_from_bf16 = f32_from_bf16,
    .f16_from_f32 = f16_from_f32,
    .bf16_from_f32 = bf16_from_f32,
};
