/*
 * finite_test.c - the look at a gradient before it leaves: finds exactly what is not finite.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crew.h"
#include "client/api/finite.h"

enum { COUNT_MAX = 4100, MISALIGNED_MAX = 8 };

/* Bit patterns of one type, as wide as the type. */
struct patterns {
    psd_dtype dtype;
    size_t bytes;
    uint64_t bad[4];
    uint64_t good[6];
};

static const struct patterns all[] = {
    {PSD_F32,
     4,
     {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001},
     {0, 0x80000000, 1, 0x7f7fffff, 0xff7fffff, 0x3f800000}},
    {PSD_F64,
     8,
     {0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfff0000000000001},
     {0, 0x8000000000000000, 1, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7f8000007f800000}},
    {PSD_F16, 2, {0x7c00, 0xfc00, 0x7e00, 0xfc01}, {0, 0x8000, 1, 0x7bff, 0xfbff, 0x3c00}},
    {PSD_BF16, 2, {0x7f80, 0xff80, 0x7fc0, 0xff81}, {0, 0x8000, 1, 0x7f7f, 0xff7f, 0x7c00}},
};

enum { TYPES = sizeof(all) / sizeof(all[0]) };

static void
put(uint8_t *data, const struct patterns *type, uint64_t index, uint64_t bits)
{
    memcpy(data + index * type->bytes, &bits, type->bytes); /* little-endian, as all we run on */
}

static void
fill_good(uint8_t *data, const struct patterns *type, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        put(data, type, i, type->good[i % 6]);
    }
}

/* If this fails, gradients with large, tiny or negative numbers are refused. */
static void
test_finite_numbers_pass(void **state)
{
    static const uint64_t counts[] = {0, 1, 2, 7, 1023, 1024, 1025, COUNT_MAX};
    uint8_t *data = malloc(COUNT_MAX * 8 + MISALIGNED_MAX);

    (void)state;
    assert_non_null(data);
    for (size_t t = 0; t < TYPES; t++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            for (size_t shift = 0; shift < MISALIGNED_MAX; shift++) {
                fill_good(data + shift, &all[t], counts[c]);
                assert_int_equal(psi_find_not_finite(all[t].dtype, data + shift, counts[c]), -1);
            }
        }
    }
    free(data);
}

/* If this fails, a NaN or an infinity at some place of some type slips through. */
static void
test_not_finite_is_found_where_it_is(void **state)
{
    static const uint64_t counts[] = {1, 9, 1024, 1025, 2048, COUNT_MAX};
    uint8_t *data = malloc(COUNT_MAX * 8 + MISALIGNED_MAX);

    (void)state;
    assert_non_null(data);
    for (size_t t = 0; t < TYPES; t++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            uint8_t *from = data + (t + c) % MISALIGNED_MAX;

            fill_good(from, &all[t], counts[c]);
            for (uint64_t at = 0; at < counts[c]; at += at % 1024 < 40 ? 1 : 61) {
                put(from, &all[t], at, all[t].bad[at % 4]);
                assert_int_equal(psi_find_not_finite(all[t].dtype, from, counts[c]), (int64_t)at);
                put(from, &all[t], at, all[t].good[at % 6]);
            }
        }
    }
    free(data);
}

/* If this fails, the index in the message is not that of the first bad number. */
static void
test_the_first_one_is_named(void **state)
{
    uint8_t *data = malloc(COUNT_MAX * 8);

    (void)state;
    assert_non_null(data);
    for (size_t t = 0; t < TYPES; t++) {
        fill_good(data, &all[t], COUNT_MAX);
        put(data, &all[t], COUNT_MAX - 1, all[t].bad[0]);
        put(data, &all[t], 2000, all[t].bad[1]);
        put(data, &all[t], 1999, all[t].bad[2]);
        assert_int_equal(psi_find_not_finite(all[t].dtype, data, COUNT_MAX), 1999);
        assert_int_equal(psi_find_not_finite(all[t].dtype, data, 1999), -1);
    }
    free(data);
}

/* If this fails, several threads that look through a large gradient miss a bad number, or name another
 * than the first, or look behind the end. */
static void
test_a_crew_finds_the_same(void **state)
{
    static const uint64_t counts[] = {1, 524287, 524288, 524289, 1000003, 9 << 20};
    enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };
    struct psi_crew *crew = psi_crew_create(4, 20);

    (void)state;
    assert_non_null(crew);
    for (size_t t = 0; t < TYPES; t++) {
        for (size_t c = 0; c < COUNTS; c++) {
            const uint64_t count = counts[c];
            const uint64_t places[] = {count - 1, count / 2, count / 3, 0};
            uint8_t *data = malloc(count * all[t].bytes);

            assert_non_null(data);
            memset(data, 0, count * all[t].bytes);
            assert_int_equal(psi_find_not_finite_with(crew, all[t].dtype, data, count), -1);
            for (size_t i = 0; i < 4; i++) { /* each before those that are there */
                put(data, &all[t], places[i], all[t].bad[0]);
                assert_int_equal(psi_find_not_finite_with(crew, all[t].dtype, data, count),
                                 (int64_t)places[i]);
                assert_int_equal(psi_find_not_finite_with(NULL, all[t].dtype, data, count),
                                 (int64_t)places[i]);
            }
            free(data);
        }
    }
    assert_int_equal(psi_crew_started(crew), 3);
    psi_crew_destroy(crew);
}

/* If this fails, the scan reads behind the gradient (address sanitizer), or sees what is there. */
static void
test_nothing_behind_the_end_is_read(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        for (uint64_t count = 1; count < 70; count++) {
            uint8_t *data = malloc(count * all[t].bytes);

            assert_non_null(data);
            fill_good(data, &all[t], count);
            assert_int_equal(psi_find_not_finite(all[t].dtype, data, count), -1);
            put(data, &all[t], count - 1, all[t].bad[0]);
            assert_int_equal(psi_find_not_finite(all[t].dtype, data, count - 1), -1);
            free(data);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_numbers_pass),
        cmocka_unit_test(test_not_finite_is_found_where_it_is),
        cmocka_unit_test(test_the_first_one_is_named),
        cmocka_unit_test(test_a_crew_finds_the_same),
        cmocka_unit_test(test_nothing_behind_the_end_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
