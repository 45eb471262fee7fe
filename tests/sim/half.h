/*
 * half.h - IEEE half precision for the oracle, written apart from the store: whole numbers only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_HALF_H
#define SIM_HALF_H

#include <stdint.h>
#include <string.h>

/* Rounded to nearest, ties to even. For 0 and for 1 .. 65504. */
static inline uint16_t
sim_half(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (bits == 0) {
        return 0;
    }
    bits -= (127u - 15u) << 23;
    return (uint16_t)((bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

static inline float
sim_unhalf(uint16_t half)
{
    const uint32_t bits = half == 0 ? 0 : ((uint32_t)half << 13) + ((127u - 15u) << 23);
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif
