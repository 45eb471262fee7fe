/*
 * tensor_test.c - what every timed run is checked by.
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

#include "kernel.h"
#include "store/half.h"
#include "tensor.h"

enum { COUNT = 3 * TENSOR_LINES * TENSOR_LINE + 5, WORKERS_MAX = 3 };

/* The phase of a round, for a worker that touches its memory. */
static uint32_t
phase_of(unsigned round)
{
    return round % TENSOR_PHASES;
}

/* The values that workers' gradients lead to, computed the long way. */
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
            tensor_write(gradient, 0, count, rank, phase_of(round));
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

static void
follow(struct tensor_model *model, enum tensor_rule rule, uint32_t workers, size_t count,
       unsigned rounds)
{
    tensor_model_init(model, rule, workers, count);
    for (unsigned round = 0; round < rounds; round++) {
        tensor_model_round(model, phase_of(round));
    }
}

/* If this fails, right servers are called wrong, because the model is not gradient descent. */
static void
test_tensor_check_accepts_the_right_values(void **state)
{
    static const size_t counts[] = {1, 15, 16, 17, 1000, COUNT};
    float *values = malloc(COUNT * sizeof(*values));

    (void)state;
    assert_non_null(values);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint32_t workers = 1; workers <= WORKERS_MAX; workers++) {
            struct tensor_model model;
            struct psd_error err;

            follow(&model, TENSOR_DESCENT, workers, counts[i], 11);
            descend(values, counts[i], workers, 11);
            assert_int_equal(tensor_check(&model, values, &err), PSD_OK);
            assert_int_equal(tensor_read(values, counts[i]), tensor_model_read(&model));
        }
    }
    free(values);
}

/* If this fails, a wrong bit, a lost round, another round's gradient or a shifted chunk goes
 * unseen. */
static void
test_tensor_check_sees_every_mistake(void **state)
{
    struct tensor_model model;
    struct psd_error err;
    float *values = malloc(COUNT * sizeof(*values));
    uint32_t bits;

    (void)state;
    assert_non_null(values);
    follow(&model, TENSOR_DESCENT, 2, COUNT, 7);
    descend(values, COUNT, 2, 7);
    memcpy(&bits, &values[COUNT - 1], sizeof(bits));
    bits ^= 1;
    memcpy(&values[COUNT - 1], &bits, sizeof(bits));
    assert_int_equal(tensor_check(&model, values, &err), PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "after 7 rounds"));
    assert_int_not_equal(tensor_read(values, COUNT), tensor_model_read(&model));

    descend(values, COUNT, 2, 6);
    assert_int_equal(tensor_check(&model, values, &err), PSD_ERR_CORRUPT);
    assert_int_not_equal(tensor_read(values, COUNT), tensor_model_read(&model));
    descend(values, COUNT, 1, 7);
    assert_int_equal(tensor_check(&model, values, &err), PSD_ERR_CORRUPT);
    descend(values, COUNT, 2, 7);
    memmove(values, values + 1, (COUNT - 1) * sizeof(*values));
    assert_int_equal(tensor_check(&model, values, &err), PSD_ERR_CORRUPT);

    follow(&model, TENSOR_DESCENT, 2, COUNT, 6);
    tensor_model_round(&model, phase_of(5)); /* the gradient of the round before */
    descend(values, COUNT, 2, 7);
    assert_int_equal(tensor_check(&model, values, &err), PSD_ERR_CORRUPT);
    free(values);
}

/* If this fails, a gradient written chunk by chunk is another one than written at once. */
static void
test_tensor_write_in_pieces(void **state)
{
    float *whole = malloc(COUNT * sizeof(*whole));
    float *pieces = malloc(COUNT * sizeof(*pieces));

    (void)state;
    assert_non_null(whole);
    assert_non_null(pieces);
    tensor_write(whole, 0, COUNT, 1, 3);
    for (size_t first = 0; first < COUNT; first += 48) {
        tensor_write(pieces + first, first, COUNT - first < 48 ? COUNT - first : 48, 1, 3);
    }
    assert_memory_equal(whole, pieces, COUNT * sizeof(*whole));
    assert_true(whole[0] == 5.0f / 64.0f);
    assert_true(whole[16] == 6.0f / 64.0f);
    assert_true(whole[TENSOR_LINES * TENSOR_LINE] == whole[0]);
    free(whole);
    free(pieces);
}

/* If this fails, chunks of 64 Ki elements that changed places look alike. */
static void
test_neighbouring_chunks_differ(void **state)
{
    const size_t lines_of_chunk = 65536 / TENSOR_LINE;

    (void)state;
    for (size_t distance = 1; distance <= 128; distance++) {
        assert_int_not_equal(distance * lines_of_chunk % TENSOR_LINES, 0);
    }
}

/* If this fails, a sum is checked as something else. */
static void
test_tensor_sum(void **state)
{
    struct tensor_model model;
    struct psd_error err;
    float values[100];

    (void)state;
    follow(&model, TENSOR_SUM, 3, 100, 4);
    for (size_t i = 0; i < 100; i++) {
        values[i] = (float)(3 * (i / 16 + 1 + 3) + 0 + 1 + 2) / 64.0f;
    }
    assert_int_equal(tensor_check(&model, values, &err), PSD_OK);
}

/* If this fails, half precision is checked against other numbers than those it was made of. */
static void
test_tensor_half(void **state)
{
    struct tensor_model model;
    struct psd_error err;
    uint16_t gradient[100];
    float whole[100];

    (void)state;
    tensor_write_half(gradient, 100, 2, 1);
    tensor_write(whole, 0, 100, 2, 1);
    for (size_t i = 0; i < 100; i++) {
        assert_true(float_from_f16(gradient[i]) == whole[i]);
    }
    tensor_model_init(&model, TENSOR_SUM, 1, 100);
    tensor_model_round(&model, 3);
    assert_int_equal(tensor_check_half(&model, gradient, &err), PSD_OK); /* 2 + 1 is 0 + 3 */
    gradient[99] ^= 1;
    assert_int_equal(tensor_check_half(&model, gradient, &err), PSD_ERR_CORRUPT);
}

/* If this fails, a ceiling's kernels do other work than a server. */
static void
test_kernels(void **state)
{
    enum { ODD = 1000 + 7 };
    struct tensor_model model;
    struct psd_error err;
    float *gradients[WORKERS_MAX];
    float *values = tensor_alloc(ODD * sizeof(*values));
    float *copy = tensor_alloc(ODD * sizeof(*copy));

    (void)state;
    assert_non_null(values);
    assert_non_null(copy);
    for (uint32_t rank = 0; rank < WORKERS_MAX; rank++) {
        gradients[rank] = tensor_alloc(ODD * sizeof(float));
        assert_non_null(gradients[rank]);
        tensor_write(gradients[rank], 0, ODD, rank, 0);
    }
    kernel_apply(values, gradients, WORKERS_MAX, (float)TENSOR_RATE, 0, 160);
    kernel_apply(values, gradients, WORKERS_MAX, (float)TENSOR_RATE, 160, ODD - 160);
    follow(&model, TENSOR_DESCENT, WORKERS_MAX, ODD, 1);
    assert_int_equal(tensor_check(&model, values, &err), PSD_OK);
    kernel_copy_past_cache(copy, values, ODD);
    assert_memory_equal(copy, values, ODD * sizeof(*copy));
    for (uint32_t rank = 0; rank < WORKERS_MAX; rank++) {
        tensor_free(gradients[rank], ODD * sizeof(float));
    }
    tensor_free(values, ODD * sizeof(*values));
    tensor_free(copy, ODD * sizeof(*copy));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_check_accepts_the_right_values),
        cmocka_unit_test(test_tensor_check_sees_every_mistake),
        cmocka_unit_test(test_tensor_write_in_pieces),
        cmocka_unit_test(test_neighbouring_chunks_differ),
        cmocka_unit_test(test_tensor_sum),
        cmocka_unit_test(test_tensor_half),
        cmocka_unit_test(test_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
