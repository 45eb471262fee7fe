/*
 * sampler_test.c - who sees which image when.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sampler.h"

enum { DEALT = 100, DEALT_BATCH = 4, DEALT_SIZE = 3, DEALT_STEPS = 8 };

/* The first pixel of image i is i. */
static void
make_numbered(struct images *images)
{
    struct failure failure;

    assert_true(images_init(images, DEALT, &failure));
    for (uint32_t i = 0; i < DEALT; i++) {
        images->pixels[(size_t)i * IMAGE_PIXELS] = (uint8_t)i;
        images->labels[i] = (uint8_t)(i % CLASSES);
    }
}

static void
deal(const struct images *images, uint32_t rank, uint64_t step, uint32_t *chosen)
{
    struct failure failure;
    struct sampler sampler;

    assert_true(sampler_init(
        &sampler,
        &(struct sampler_args){
            .images = images, .seed = 5, .batch = DEALT_BATCH, .rank = rank, .size = DEALT_SIZE},
        &failure));
    assert_int_equal(sampler.steps_per_epoch, DEALT_STEPS);
    sampler_fill(&sampler, step);
    for (uint32_t i = 0; i < DEALT_BATCH; i++) {
        chosen[i] = (uint32_t)(sampler.pixels[(size_t)i * IMAGE_PIXELS] * 255.0f + 0.5f);
        assert_int_equal(sampler.labels[i], chosen[i] % CLASSES);
    }
    sampler_fini(&sampler);
}

/* If this fails, workers train on each other's images, or on some twice in an epoch. */
static void
test_sampler_deals_every_image_once(void **state)
{
    bool seen[DEALT] = {false};
    struct images images;

    (void)state;
    make_numbered(&images);
    for (uint64_t step = DEALT_STEPS; step < 2 * DEALT_STEPS; step++) {
        for (uint32_t rank = 0; rank < DEALT_SIZE; rank++) {
            uint32_t chosen[DEALT_BATCH];

            deal(&images, rank, step, chosen);
            for (uint32_t i = 0; i < DEALT_BATCH; i++) {
                assert_false(seen[chosen[i]]);
                seen[chosen[i]] = true;
            }
        }
    }
    images_fini(&images);
}

/* If this fails, a replacement worker goes on with other images than the dead one had. */
static void
test_sampler_depends_on_step_alone(void **state)
{
    uint32_t fresh[DEALT_BATCH];
    uint32_t other[DEALT_BATCH];
    struct failure failure;
    struct sampler sampler;
    struct images images;

    (void)state;
    make_numbered(&images);
    deal(&images, 1, 13, fresh);
    assert_true(sampler_init(
        &sampler, &(struct sampler_args){&images, 5, DEALT_BATCH, 1, DEALT_SIZE}, &failure));
    for (uint64_t step = 0; step <= 13; step++) {
        sampler_fill(&sampler, step);
    }
    for (uint32_t i = 0; i < DEALT_BATCH; i++) {
        assert_true(sampler.pixels[(size_t)i * IMAGE_PIXELS] == (float)fresh[i] * (1.0f / 255.0f));
    }
    deal(&images, 1, 13 - DEALT_STEPS, other);
    assert_memory_not_equal(fresh, other, sizeof(fresh)); /* epochs differ */
    sampler_fini(&sampler);
    images_fini(&images);
}

/* If this fails, a batch larger than the set divides by zero. */
static void
test_sampler_refuses_too_few_images(void **state)
{
    struct failure failure = {""};
    struct sampler sampler;
    struct images images;

    (void)state;
    make_numbered(&images);
    assert_false(sampler_init(&sampler, &(struct sampler_args){&images, 5, 34, 0, 3}, &failure));
    assert_string_equal(failure.text,
                        "100 training images are too few for 3 workers with batches of 34");
    images_fini(&images);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampler_deals_every_image_once),
        cmocka_unit_test(test_sampler_depends_on_step_alone),
        cmocka_unit_test(test_sampler_refuses_too_few_images),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
