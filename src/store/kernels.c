/*
 * kernels.c - the loops over elements. Compiled once per SIMD level, with KERNELS the name of the
 * table to export and the compiler's flags for the level; the scalar level defines KERNELS_SCALAR.
 *
 * There are no intrinsics: these loops are simple enough for the compiler, and one text for all
 * levels is what makes them agree. Neither contraction nor any other value-changing option is on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/kernels.h"

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

static void
f32_from_f16(void *to, const void *from, size_t count)
{
    any_float *out = to;
    const any_half *in = from;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
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
    for (size_t i = 0; i < count; i++) {
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
