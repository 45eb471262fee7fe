/*
 * half_test.c - 16-bit floats against a decoder and a rounding written the slow way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/half.h"
#include "store/kernels.h"
#include "store/level.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { SEED = 20240229, RANDOM_FLOATS = 300000 };

/* A 16-bit format: how many bits of the magnitude are the fraction. */
struct format {
    const char *name;
    int fraction_bits;
    int bias;
    uint16_t infinity;
    uint16_t quiet_nan;
    float (*decode)(uint16_t half);
    uint16_t (*encode)(float value);
};

static const struct format formats[] = {
    {"f16", 10, 15, 0x7c00, 0x7e00, float_from_f16, f16_from_float},
    {"bf16", 7, 127, 0x7f80, 0x7fc0, float_from_bf16, bf16_from_float},
};

/* The magnitude of a pattern without its sign; the one for infinity stands for the next power of
 * two. */
static double
slow_decode(const struct format *format, unsigned magnitude)
{
    const int exponent = (int)(magnitude >> format->fraction_bits);
    const int fraction = (int)(magnitude & ((1u << format->fraction_bits) - 1));

    if (exponent == 0) {
        return ldexp(fraction, 1 - format->bias - format->fraction_bits);
    }
    return ldexp(fraction + (1 << format->fraction_bits),
                 exponent - format->bias - format->fraction_bits);
}

/* By bisection among all patterns, then the nearer of two neighbours, the even one on a tie. */
static uint16_t
slow_encode(const struct format *format, float value)
{
    const double magnitude = fabs((double)value);
    unsigned low = 0;
    unsigned high = format->infinity;

    if (isnan(value)) {
        return format->quiet_nan;
    }
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;

        *(slow_decode(format, middle) <= magnitude ? &low : &high) = middle;
    }
    {
        const double below = magnitude - slow_decode(format, low);
        const double above = slow_decode(format, high) - magnitude;
        const unsigned even = low & 1 ? high : low;
        const unsigned nearest = below < above ? low : below > above ? high : even;

        return (uint16_t)(nearest | (signbit(value) ? 0x8000u : 0));
    }
}

static void
check_encode(const struct format *format, float value)
{
    const uint16_t got = format->encode(value);
    const uint16_t expected = slow_encode(format, value);

    if (got != expected) {
        fail_msg("seed %d: %s of %a (0x%08x): 0x%04x, expected 0x%04x", SEED, format->name,
                 (double)value, float_bits(value), got, expected);
    }
}

/* If this fails, 16-bit gradients are read as other numbers. */
static void
test_decode_all(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const struct format *format = &formats[f];

        for (unsigned half = 0; half <= 0xffff; half++) {
            const float got = format->decode((uint16_t)half);
            const unsigned magnitude = half & 0x7fff;

            assert_int_equal(float_bits(got) >> 31, half >> 15);
            if (magnitude > format->infinity) {
                assert_true(isnan(got));
            } else if (magnitude == format->infinity) {
                assert_true(isinf(got));
            } else {
                assert_true(fabs((double)got) == slow_decode(format, magnitude));
            }
        }
    }
}

/* If this fails, published 16-bit values are not the nearest ones. */
static void
test_encode_rounds_to_nearest_even(void **state)
{
    uint32_t bits = SEED;

    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const struct format *format = &formats[f];

        for (unsigned half = 0; half <= 0xffff; half++) {
            /* The number itself, the middle between it and the next,
             * and the middle's neighbours. */
            const uint32_t exact = float_bits(format->decode((uint16_t)half));
            const uint32_t next = float_bits(format->decode((uint16_t)(half + 1)));
            const uint32_t middle = exact + (next - exact) / 2;

            check_encode(format, float_from_bits(exact));
            check_encode(format, float_from_bits(middle - 1));
            check_encode(format, float_from_bits(middle));
            check_encode(format, float_from_bits(middle + 1));
        }
        for (int i = 0; i < RANDOM_FLOATS; i++) {
            bits = bits * 1664525u + 1013904223u;
            check_encode(format, float_from_bits(bits));
        }
    }
}

/* If this fails, large, infinite or undefined numbers change their nature. */
static void
test_encode_extremes(void **state)
{
    (void)state;
    assert_int_equal(f16_from_float(65519.996f), 0x7bff);
    assert_int_equal(f16_from_float(65520.0f), 0x7c00);
    assert_int_equal(f16_from_float(-3e38f), 0xfc00);
    assert_int_equal(f16_from_float(-INFINITY), 0xfc00);
    assert_int_equal(f16_from_float(float_from_bits(0xffffffffu)), 0x7e00);
    assert_int_equal(f16_from_float(0x1p-25f), 0);
    assert_int_equal(f16_from_float(0x1.000002p-25f), 1);
    assert_int_equal(bf16_from_float(3.4028234e38f), 0x7f80);
    assert_int_equal(bf16_from_float(float_from_bits(0xff800001u)), 0x7fc0);
    assert_int_equal(bf16_from_float(-0.0f), 0x8000);
}

/* If this fails, servers with other processors publish other values of the same training. */
static void
test_levels_agree(void **state)
{
    enum { COUNT = 0x10000 };
    static uint16_t halves[COUNT];
    static uint16_t encoded[COUNT];
    static float floats[COUNT];
    uint32_t bits = SEED;

    (void)state;
    for (unsigned i = 0; i < COUNT; i++) {
        halves[i] = (uint16_t)i;
    }
    for (unsigned level = 0; level < KERNEL_LEVELS; level++) {
        const struct kernels *kernels;

        if (!psi_kernel_level_supported((enum kernel_level)level)) {
            continue;
        }
        kernels = psi_kernel_level_kernels((enum kernel_level)level);
        kernels->f32_from_f16(floats, halves, COUNT - 3); /* and some that are no whole group */
        for (unsigned i = 0; i < COUNT - 3; i++) {
            const uint32_t quiet = isnan(floats[i]) ? 0x400000u : 0; /* as any addition makes it */

            assert_int_equal(float_bits(floats[i]) | quiet,
                             float_bits(float_from_f16(halves[i])) | quiet);
        }
        for (unsigned round = 0; round < 64; round++) {
            for (unsigned i = 0; i < COUNT; i++) {
                bits = bits * 1664525u + 1013904223u;
                /* Every second one near the border between two halves. */
                floats[i] = i % 2 == 0 ? float_from_bits(bits)
                                       : float_from_bits((float_bits(float_from_f16((uint16_t)i)) +
                                                          0x1000u + (bits >> 30)) -
                                                         2u);
            }
            kernels->f16_from_f32(encoded, floats, COUNT - 3);
            for (unsigned i = 0; i < COUNT - 3; i++) {
                assert_int_equal(encoded[i], f16_from_float(floats[i]));
            }
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_all),
        cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_encode_rounds_to_nearest_even),
        cmocka_unit_test(test_encode_extremes),
    };

    return cmocka_run_group_tests_name("store_half", tests, NULL, NULL);
}
