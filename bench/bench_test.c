/*
 * bench_test.c - the benchmark's own parts: what it checks, counts and reads.
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

#include "ceiling.h"
#include "options.h"
#include "tensor.h"
#include "timer.h"

enum { COUNT = 1000 };

/* The values two workers' gradients lead to, computed the long way. */
static void
descend(float *values, size_t count, uint32_t workers, unsigned rounds)
{
    float *gradient = malloc(count * sizeof(*gradient));

    assert_non_null(gradient);
    memset(values, 0, count * sizeof(*values));
    for (unsigned round = 0; round < rounds; round++) {
        float *sum = calloc(count, sizeof(*sum));

        assert_non_null(sum);
        for (uint32_t rank = 0; rank < workers; rank++) {
            tensor_gradient(rank, gradient, count);
            for (size_t i = 0; i < count; i++) {
                sum[i] += gradient[i];
            }
        }
        for (size_t i = 0; i < count; i++) {
            values[i] -= (float)TENSOR_RATE * sum[i];
        }
        free(sum);
    }
    free(gradient);
}

/* The model is not gradient descent: right servers would be called wrong. */
static void
test_tensor_check_accepts_the_right_values(void **state)
{
    struct tensor_model model;
    struct psd_error err;
    float values[COUNT];

    (void)state;
    tensor_model_init(&model, 2);
    tensor_model_advance(&model, 4);
    tensor_model_advance(&model, 3);
    descend(values, COUNT, 2, 7);
    assert_int_equal(tensor_check(&model, values, COUNT, &err), PSD_OK);
}

/* A wrong bit, a lost round or a shifted chunk would go unseen. */
static void
test_tensor_check_sees_every_mistake(void **state)
{
    struct tensor_model model;
    struct psd_error err;
    float values[COUNT];
    uint32_t bits;

    (void)state;
    tensor_model_init(&model, 2);
    tensor_model_advance(&model, 7);
    descend(values, COUNT, 2, 7);
    memcpy(&bits, &values[COUNT - 1], sizeof(bits));
    bits ^= 1;
    memcpy(&values[COUNT - 1], &bits, sizeof(bits));
    assert_int_equal(tensor_check(&model, values, COUNT, &err), PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "element 999 of 1000 after 7 rounds"));

    descend(values, COUNT, 2, 6);
    assert_int_equal(tensor_check(&model, values, COUNT, &err), PSD_ERR_CORRUPT);
    descend(values, COUNT, 1, 7);
    assert_int_equal(tensor_check(&model, values, COUNT, &err), PSD_ERR_CORRUPT);
    descend(values, COUNT, 2, 7);
    memmove(values, values + 1, (COUNT - 1) * sizeof(*values));
    assert_int_equal(tensor_check(&model, values, COUNT - 1, &err), PSD_ERR_CORRUPT);
}

/* The ceiling does not do the work it is compared by, for some shape or size. */
static void
test_ceiling_sums_and_applies(void **state)
{
    static const uint64_t sizes[] = {4, 64, 262144, 262148, 1 << 20, 5 * 262144 + 40};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t shape = 0; shape < 6; shape++) {
            const struct crew_order order = {
                .verb = CREW_RUN, .bytes = sizes[i], .rounds = 3 + shape};
            struct ceiling ceiling;
            struct psd_error err = {0};
            struct crew_times times = {0};

            assert_int_equal(ceiling_start(shape / 2 + 1, shape % 2 + 1, sizes[i], &ceiling, &err),
                             PSD_OK);
            assert_int_equal(crew_command(&ceiling.crew, &order, &times, &err), PSD_OK);
            assert_int_equal(crew_command(&ceiling.crew, &order, &times, &err), PSD_OK);
            assert_true(times.elapsed_ns > 0);
            ceiling_stop(&ceiling);
        }
    }
}

/* A median that is none would let one disturbed run decide. */
static void
test_timer_median(void **state)
{
    double odd[] = {5, 1, 3};
    double even[] = {4, 1, 3, 2};
    double one[] = {7};

    (void)state;
    assert_true(timer_median(odd, 3) == 3);
    assert_true(timer_median(even, 4) == 2);
    assert_true(timer_median(one, 1) == 7);
}

/* Runs would be much longer or shorter than asked for. */
static void
test_timer_rounds(void **state)
{
    (void)state;
    assert_int_equal(timer_rounds(1000000, 10, 100000), 99);
    assert_int_equal(timer_rounds(1000000, 1, 900000), 3);
    assert_int_equal(timer_rounds(1000000, 1, 0), 1000000);
}

/* Another size than the one asked for would be measured. */
static void
test_sizes(void **state)
{
    static const char *const wrong[] = {"",    "64,", ",64", "x",     "6",
                                        "64x", "-4",  "0",   "8192M", "4kk"};
    struct bench_options options = {0};
    struct psd_error err;

    (void)state;
    assert_int_equal(bench_sizes_parse("64,4k,2M", &options, &err), PSD_OK);
    assert_int_equal(options.size_count, 3);
    assert_int_equal(options.sizes[0], 64);
    assert_int_equal(options.sizes[1], 4096);
    assert_int_equal(options.sizes[2], 2 << 20);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(bench_sizes_parse(wrong[i], &options, &err), PSD_ERR_INVALID);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_check_accepts_the_right_values),
        cmocka_unit_test(test_tensor_check_sees_every_mistake),
        cmocka_unit_test(test_ceiling_sums_and_applies),
        cmocka_unit_test(test_timer_median),
        cmocka_unit_test(test_timer_rounds),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
