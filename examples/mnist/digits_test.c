/*
 * digits_test.c - the drawn digits: all different, repeatable, worth learning.
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

#include "dataset.h"

static int
compare_images(const void *left, const void *right)
{
    return memcmp(*(const uint8_t *const *)left, *(const uint8_t *const *)right, IMAGE_PIXELS);
}

/* If this fails, the test set contains what was learnt by heart. */
static void
test_drawn_digits_are_all_different(void **state)
{
    struct failure failure;
    struct dataset dataset;
    const uint8_t **all;
    uint32_t count;

    (void)state;
    assert_true(dataset_init(&dataset, NULL, &failure));
    count = dataset.train.count + dataset.test.count;
    all = calloc(count, sizeof(*all));
    assert_non_null(all);
    for (uint32_t i = 0; i < count; i++) {
        const bool train = i < dataset.train.count;
        const uint32_t index = train ? i : i - dataset.train.count;

        all[i] = (train ? &dataset.train : &dataset.test)->pixels + (size_t)index * IMAGE_PIXELS;
    }
    qsort(all, count, sizeof(*all), compare_images);
    for (uint32_t i = 1; i < count; i++) {
        assert_int_not_equal(compare_images(&all[i - 1], &all[i]), 0);
    }
    free(all);
    dataset_fini(&dataset);
}

/* If this fails, no two runs train on the same digits. */
static void
test_drawn_digits_repeat(void **state)
{
    struct failure failure;
    struct dataset one;
    struct dataset two;

    (void)state;
    assert_true(dataset_init(&one, NULL, &failure));
    assert_true(dataset_init(&two, NULL, &failure));
    assert_memory_equal(one.test.pixels, two.test.pixels, (size_t)one.test.count * IMAGE_PIXELS);
    assert_memory_equal(one.test.labels, two.test.labels, one.test.count);
    dataset_fini(&one);
    dataset_fini(&two);
}

static uint32_t
nearest_mean(float means[CLASSES][IMAGE_PIXELS], const float *pixels)
{
    uint32_t best = 0;
    float best_distance = 0.0f;

    for (uint32_t c = 0; c < CLASSES; c++) {
        float distance = 0.0f;

        for (uint32_t i = 0; i < IMAGE_PIXELS; i++) {
            distance += (pixels[i] - means[c][i]) * (pixels[i] - means[c][i]);
        }
        if (c == 0 || distance < best_distance) {
            best = c;
            best_distance = distance;
        }
    }
    return best;
}

/* If this fails, the drawn digits are so alike that learning them proves nothing. */
static void
test_drawn_digits_are_not_trivial(void **state)
{
    static float means[CLASSES][IMAGE_PIXELS]; /* too big for the stack, no more */
    float pixels[IMAGE_PIXELS];
    struct failure failure;
    struct dataset dataset;
    uint32_t right = 0;

    (void)state;
    assert_true(dataset_init(&dataset, NULL, &failure));
    for (uint32_t i = 0; i < dataset.train.count; i++) {
        images_floats(&dataset.train, i, pixels);
        for (uint32_t p = 0; p < IMAGE_PIXELS; p++) {
            means[dataset.train.labels[i]][p] +=
                pixels[p] * (float)CLASSES / (float)dataset.train.count;
        }
    }
    for (uint32_t i = 0; i < dataset.test.count; i++) {
        images_floats(&dataset.test, i, pixels);
        right += nearest_mean(means, pixels) == dataset.test.labels[i];
    }
    print_message("nearest class mean: %.4f\n", (double)right / dataset.test.count);
    assert_in_range(right, dataset.test.count / 2, dataset.test.count * 9 / 10 - 1);
    dataset_fini(&dataset);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_digits_are_all_different),
        cmocka_unit_test(test_drawn_digits_repeat),
        cmocka_unit_test(test_drawn_digits_are_not_trivial),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
