/*
 * half.h - 16-bit floats as plain integer arithmetic: the same bits from any compiler at any SIMD
 * level, without branches, so that the loops that use it can be vectorised.
 *
 * f16 is IEEE binary16 (1 + 5 + 10 bits), bf16 the upper half of an f32. Rounding is to nearest,
 * ties to even; what is too large becomes infinity; every NaN becomes the canonical quiet one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_HALF_H
#define STORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float
float_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t
float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float
float_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7fffu;
    const float denormal = (float)(int32_t)magnitude * 0x1p-24f;
    /* The exponent's bias grows from 15 to 127; all ones stay all ones. */
    const uint32_t bias = magnitude >= 0x7c00u ? 224u : 112u;
    const uint32_t normal = (magnitude << 13) + (bias << 23);

    return float_from_bits(sign | (magnitude < 0x400u ? float_bits(denormal) : normal));
}

static inline uint16_t
f16_from_float(float value)
{
    const uint32_t bits = float_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    /* Below 2^-14 the result counts units of 2^-24: the last place of a number near 0.5, so that
     * this addition rounds just there. */
    const uint32_t denormal = float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t even = magnitude >> 13 & 1u;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + even) >> 13;
    const uint32_t finite = magnitude < 0x38800000u ? denormal : normal;
    const uint32_t rounded = magnitude >= 0x47800000u ? 0x7c00u : finite; /* from 65,536 on */

    return (uint16_t)(magnitude > 0x7f800000u ? 0x7e00u : (sign | rounded));
}

static inline float
float_from_bf16(uint16_t half)
{
    return float_from_bits((uint32_t)half << 16);
}

static inline uint16_t
bf16_from_float(float value)
{
    const uint32_t bits = float_bits(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

#endif
