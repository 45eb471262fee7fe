/*
 * initial_test.c - initial values: by index and seed alone, in their bounds, spread as promised.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/half.h"
#include "store/initial.h"

enum { COUNT = 200000 };

static const psd_dtype dtypes[] = {PSD_F32, PSD_F64, PSD_F16, PSD_BF16};

/* If this fails, the values of a table depend on how it was cut among servers. */
static void
test_initial_does_not_depend_on_cuts(void **state)
{
    static const psd_init inits[] = {PSD_INIT_CONSTANT, PSD_INIT_UNIFORM, PSD_INIT_NORMAL};

    (void)state;
    for (size_t d = 0; d < 4; d++) {
        const size_t bytes = psi_dtype_bytes(dtypes[d]);

        for (size_t i = 0; i < 3; i++) {
            char whole[1000 * 8];
            char cut[1000 * 8 + 1];
            char *parts = cut + 1; /* and not aligned */

            store_initial(inits[i], 0.3, 7, dtypes[d], 500, 1000, whole);
            store_initial(inits[i], 0.3, 7, dtypes[d], 500, 333, parts);
            store_initial(inits[i], 0.3, 7, dtypes[d], 833, 667, parts + 333 * bytes);
            assert_memory_equal(whole, parts, 1000 * bytes);
        }
    }
}

/* Mean and standard deviation of COUNT values. */
static void
spread(const double *values, double *mean_p, double *deviation_p)
{
    double sum = 0;
    double squares = 0;

    for (int i = 0; i < COUNT; i++) {
        sum += values[i];
        squares += values[i] * values[i];
    }
    *mean_p = sum / COUNT;
    *deviation_p = sqrt(squares / COUNT - *mean_p * *mean_p);
}

/* If this fails, uniform values leave [-v, v) or do not fill it evenly. */
static void
test_initial_uniform(void **state)
{
    double *wide = malloc(COUNT * sizeof(*wide));
    float *values = malloc(COUNT * sizeof(*values));
    int bins[16] = {0};
    double mean;
    double deviation;

    (void)state;
    store_initial(PSD_INIT_UNIFORM, 0.1, 3, PSD_F32, 0, COUNT, values);
    for (int i = 0; i < COUNT; i++) {
        assert_true(values[i] >= -0.1f && values[i] < 0.1f);
        bins[(int)((values[i] / 0.1f + 1) * 8)]++;
    }
    for (int i = 0; i < 16; i++) {
        assert_in_range(bins[i], COUNT / 16 * 97 / 100, COUNT / 16 * 103 / 100);
    }
    store_initial(PSD_INIT_UNIFORM, 2, 3, PSD_F64, 0, COUNT, wide);
    spread(wide, &mean, &deviation);
    assert_true(fabs(mean) < 0.01);
    assert_true(fabs(deviation - 2 / sqrt(3)) < 0.01);
    free(values);
    free(wide);
}

/* If this fails, normal values have another spread, or only one sign, or a wrong tail. */
static void
test_initial_normal(void **state)
{
    double *values = malloc(COUNT * sizeof(*values));
    double mean;
    double deviation;
    int beyond_two = 0;

    (void)state;
    store_initial(PSD_INIT_NORMAL, 0.5, 11, PSD_F64, 1, COUNT, values);
    spread(values, &mean, &deviation);
    assert_true(fabs(mean) < 0.005);
    assert_true(fabs(deviation - 0.5) < 0.005);
    for (int i = 0; i < COUNT; i++) {
        beyond_two += fabs(values[i]) > 1;
    }
    assert_in_range(beyond_two, COUNT * 43 / 1000, COUNT * 48 / 1000); /* normal: 4.55 % */
    free(values);
}

/* If this fails, two tables with different seeds, or two elements, begin alike. */
static void
test_initial_depends_on_seed_and_index(void **state)
{
    double a[64];
    double b[64];

    (void)state;
    store_initial(PSD_INIT_UNIFORM, 1, 0, PSD_F64, 0, 64, a);
    store_initial(PSD_INIT_UNIFORM, 1, 1, PSD_F64, 0, 64, b);
    for (int i = 0; i < 64; i++) {
        for (int k = 0; k < 64; k++) {
            assert_true(a[i] != b[k]);
            assert_true(i == k || a[i] != a[k]);
        }
    }
}

/* If this fails, a job that starts again from the same seed
 * with a later version begins elsewhere. */
static void
test_initial_known_values(void **state)
{
    float uniform[2];
    double normal[2];

    (void)state;
    store_initial(PSD_INIT_UNIFORM, 1, 42, PSD_F32, 1000000, 2, uniform);
    store_initial(PSD_INIT_NORMAL, 1, 42, PSD_F64, 1000000, 2, normal);
    assert_true(uniform[0] == 0x1.ae1d74p-1f && uniform[1] == 0x1.41768p-5f);
    assert_true(normal[0] == -0x1.97185744p-2 && normal[1] == -0x1.b54bc578p+0);
}

/* If this fails, a constant, zero or 16-bit table begins with other numbers than asked for. */
static void
test_initial_constant_zero_and_halves(void **state)
{
    float values[3] = {7, 7, 7};
    uint16_t halves[64];
    float floats[64];

    (void)state;
    store_initial(PSD_INIT_CONSTANT, -1.5, 9, PSD_F32, 5, 2, values);
    assert_true(values[0] == -1.5f && values[1] == -1.5f && values[2] == 7);
    store_initial(PSD_INIT_ZERO, 0, 9, PSD_F32, 5, 1, values);
    store_initial(PSD_INIT_RANK0, 0, 9, PSD_F32, 5, 1, values + 1);
    assert_true(values[0] == 0 && values[1] == 0 && values[2] == 7);
    store_initial(PSD_INIT_NORMAL, 1, 9, PSD_F32, 0, 64, floats);
    store_initial(PSD_INIT_NORMAL, 1, 9, PSD_F16, 0, 64, halves);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(halves[i], f16_from_float(floats[i]));
    }
    store_initial(PSD_INIT_NORMAL, 1, 9, PSD_BF16, 0, 64, halves);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(halves[i], bf16_from_float(floats[i]));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_initial_does_not_depend_on_cuts),
        cmocka_unit_test(test_initial_uniform),
        cmocka_unit_test(test_initial_normal),
        cmocka_unit_test(test_initial_depends_on_seed_and_index),
        cmocka_unit_test(test_initial_known_values),
        cmocka_unit_test(test_initial_constant_zero_and_halves),
    };

    return cmocka_run_group_tests_name("store_initial", tests, NULL, NULL);
}
