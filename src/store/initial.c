/*
 * initial.c - initial values of a table, by element index and seed alone.
 *
 * A counter-based generator: element i is a hash of (seed, i), so that any server can make any part
 * of a table in any order. Only integer arithmetic, one multiplication and one rounding: the same
 * bits everywhere.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/initial.h"

#include <string.h>

#include "base/fail.h"
#include "store/half.h"

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio: an odd, well mixed stride */

/* The finalizer of splitmix64. */
static uint64_t
mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* In [-1, 1), in steps that the type can hold: a finer draw could be rounded up to 1. */
static double
uniform(uint64_t key, uint64_t index, psd_dtype dtype)
{
    const uint64_t draw = mix(key + GOLDEN * index);

    if (dtype == PSD_F64) {
        return (double)(draw >> 11) * 0x1p-52 - 1;
    }
    return (double)(draw >> 40) * 0x1p-23 - 1;
}

/* The sum of 12 uniform numbers has variance 1: close to normal, cut at +-6, and without libm. */
static double
normal(uint64_t key, uint64_t index)
{
    const uint64_t mean = 6 * ((UINT64_C(1) << 32) - 1); /* of 12 numbers of 32 bits */
    uint64_t sum = 0;

    for (uint64_t i = 0; i < 6; i++) {
        const uint64_t draw = mix(key + GOLDEN * (index * 6 + i));

        sum += (draw >> 32) + (draw & UINT32_MAX);
    }
    return (double)((int64_t)sum - (int64_t)mean) * 0x1p-32;
}

/* The k-th element of `to`, which has any alignment. A 16-bit value is the rounded f32 value. */
static void
put(void *to, uint64_t k, psd_dtype dtype, double value)
{
    const float narrow = (float)value;
    const uint16_t half = dtype == PSD_F16 ? f16_from_float(narrow) : bf16_from_float(narrow);

    switch (dtype) {
    case PSD_F32:
        memcpy((char *)to + k * sizeof(narrow), &narrow, sizeof(narrow));
        break;
    case PSD_F64:
        memcpy((char *)to + k * sizeof(value), &value, sizeof(value));
        break;
    case PSD_F16:
    case PSD_BF16:
        memcpy((char *)to + k * sizeof(half), &half, sizeof(half));
        break;
    }
}

void
store_initial(psd_init init, double value, uint64_t seed, psd_dtype dtype, uint64_t first,
              uint64_t count, void *to)
{
    const uint64_t key = mix(seed + GOLDEN);

    if (init == PSD_INIT_ZERO || init == PSD_INIT_RANK0) {
        memset(to, 0, count * psi_dtype_bytes(dtype));
        return;
    }
    for (uint64_t k = 0; k < count; k++) {
        double unit = 1; /* PSD_INIT_CONSTANT */

        if (init == PSD_INIT_UNIFORM) {
            unit = uniform(key, first + k, dtype);
        } else if (init == PSD_INIT_NORMAL) {
            unit = normal(key, first + k);
        }
        put(to, k, dtype, unit * value);
    }
}
