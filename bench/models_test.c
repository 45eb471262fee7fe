/*
 * models_test.c - the tensors that stand for models are theirs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "models.h"

/* Parts follow each other without a gap, and so do the times at which they are there. */
static void
check_parts(const struct model_part *parts, size_t count, uint64_t bytes)
{
    size_t first = 0;
    double ready = 0;

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(parts[i].first, first);
        assert_true(parts[i].count > 0 && parts[i].ready >= ready);
        first += parts[i].count;
        ready = parts[i].ready;
    }
    assert_int_equal(first * sizeof(float), bytes);
    assert_true(ready > 0.999999 && ready < 1.000001);
}

static void
check_model(uint64_t bytes, size_t tensors, size_t largest)
{
    struct model_part parts[MODELS_PARTS_MAX];
    size_t count = model_tensors(bytes, parts);
    size_t most = 0;

    assert_int_equal(count, tensors);
    check_parts(parts, count, bytes);
    for (size_t i = 0; i < count; i++) {
        most = parts[i].count > most ? parts[i].count : most;
    }
    assert_int_equal(most, largest);
    count = model_buckets(bytes, parts);
    assert_in_range(count, 1, tensors - 1);
    check_parts(parts, count, bytes);
}

/* If this fails, what psd_bench train calls ResNet-50 or GPT-2 has other tensors than these. */
static void
test_models_have_their_tensors(void **state)
{
    (void)state;
    check_model(MODELS_RESNET50_BYTES, 161, (size_t)512 * 512 * 9);
    check_model(MODELS_GPT2_BYTES, 148, (size_t)50257 * 768);
    check_model(MODELS_NARROW_BYTES, 161, 1024);
    check_model(MODELS_TINY_BYTES, 14, (size_t)116 * 116);
}

/* If this fails, tensors of any size take part as if they were a model. */
static void
test_no_other_tensor_is_a_model(void **state)
{
    struct model_part parts[MODELS_PARTS_MAX];

    (void)state;
    assert_null(model_name(4096));
    assert_int_equal(model_tensors(4096, parts), 0);
    assert_int_equal(model_buckets(4096, parts), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_have_their_tensors),
        cmocka_unit_test(test_no_other_tensor_is_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
