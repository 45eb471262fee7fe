/*
 * lending_test.c - which segment has which bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/lending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* Segments are told apart by where they are: no memory is needed for that. */
static uint8_t ground[1 << 20];

static struct psi_segment
segment_at(size_t offset, size_t bytes)
{
    return (struct psi_segment){.base = ground + offset, .bytes = bytes, .fd = -1};
}

/* If this fails, a payload is lent although a part of it lies outside, or copied although it need
 * not be. */
static void
test_find_wants_all_of_it(void **state)
{
    struct psi_lending lending = {0};
    const struct psi_segment segments[] = {segment_at(4096, 4096), segment_at(8192, 100),
                                           segment_at(65536, 1)};
    static const struct {
        size_t offset;
        size_t bytes;
        int segment; /* -1: none */
    } cases[] = {
        {4096, 4096, 0},  {4096, 1, 0},         {8191, 1, 0},
        {5000, 3192, 0},  {4095, 1, -1},        {4095, 2, -1},
        {4096, 4097, -1}, {8191, 2, -1},        {8192, 100, 1},
        {8291, 1, 1},     {8192, 101, -1},      {8292, 1, -1},
        {65536, 1, 2},    {65536, 2, -1},       {65537, 1, -1},
        {0, 1, -1},       {4096, SIZE_MAX, -1}, {5000, SIZE_MAX - 4999, -1},
    };

    (void)state;
    assert_null(psi_lending_find(&lending, ground, 1));
    for (unsigned i = 0; i < 3; i++) {
        psi_lending_add(&lending, &segments[i]);
    }
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct psi_lent *lent =
            psi_lending_find(&lending, ground + cases[i].offset, cases[i].bytes);

        if (cases[i].segment < 0) {
            assert_null(lent);
        } else {
            assert_non_null(lent);
            assert_ptr_equal(lent->segment, &segments[cases[i].segment]);
        }
    }
    psi_lending_fini(&lending);
    assert_null(psi_lending_find(&lending, ground + 4096, 1));
}

/* If this fails, two segments have one number, or numbers grow for ever. */
static void
test_ids_are_used_again_when_free(void **state)
{
    const struct psi_segment first = segment_at(0, 100);
    const struct psi_segment second = segment_at(4096, 100);
    struct psi_lending lending = {0};
    uint32_t id;

    (void)state;
    psi_lending_add(&lending, &first);
    id = psi_lending_find(&lending, first.base, 100)->id;
    psi_lending_add(&lending, &second);
    assert_int_not_equal(psi_lending_find(&lending, second.base, 100)->id, id);
    assert_int_equal(psi_lending_remove(&lending, &first), id);
    assert_int_equal(psi_lending_remove(&lending, &first), UINT32_MAX);
    assert_null(psi_lending_find(&lending, first.base, 1));
    for (unsigned i = 0; i < 1000; i++) {
        psi_lending_add(&lending, &first);
        assert_int_not_equal(psi_lending_find(&lending, first.base, 100)->id,
                             psi_lending_find(&lending, second.base, 100)->id);
        id = psi_lending_remove(&lending, i % 2 == 0 ? &second : &first);
        assert_true(id < lending.capacity);
        if (i % 2 == 0) {
            psi_lending_add(&lending, &second);
            assert_true(psi_lending_remove(&lending, &first) < lending.capacity);
        }
    }
    assert_true(lending.capacity <= 16);
    psi_lending_fini(&lending);
}

static void
assert_ids_differ(const struct psi_lending *lending)
{
    bool seen[512] = {false};

    for (uint32_t i = 0; i < lending->count; i++) {
        assert_true(lending->items[i].id < 512 && !seen[lending->items[i].id]);
        seen[lending->items[i].id] = true;
    }
}

/* If this fails, some order of adding and removing loses a segment, keeps one, or gives two the
 * same number. */
static void
test_random_against_a_model(void **state)
{
    enum { SEGMENTS = 200, TURNS = 20000, STRIDE = sizeof(ground) / SEGMENTS };
    struct psi_segment segments[SEGMENTS];
    bool there[SEGMENTS] = {false};
    struct psi_lending lending = {0};
    const unsigned seed = (unsigned)time(NULL);
    unsigned count = 0;

    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    for (unsigned i = 0; i < SEGMENTS; i++) {
        segments[i] = segment_at(i * STRIDE, i % 2 == 0 ? STRIDE : 1 + (size_t)rand() % STRIDE);
    }
    for (unsigned turn = 0; turn < TURNS; turn++) {
        const unsigned i = (unsigned)rand() % SEGMENTS;
        const struct psi_lent *lent;

        if (!there[i]) {
            psi_lending_add(&lending, &segments[i]);
        } else {
            assert_int_not_equal(psi_lending_remove(&lending, &segments[i]), UINT32_MAX);
        }
        there[i] = !there[i];
        count = there[i] ? count + 1 : count - 1;
        assert_int_equal(lending.count, count);
        for (unsigned j = i > 0 ? i - 1 : i; j < SEGMENTS && j <= i + 1; j++) {
            lent = psi_lending_find(&lending, segments[j].base, segments[j].bytes);
            assert_int_equal(lent != NULL && lent->segment == &segments[j], there[j]);
        }
        assert_ids_differ(&lending);
    }
    psi_lending_fini(&lending);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_wants_all_of_it),
        cmocka_unit_test(test_ids_are_used_again_when_free),
        cmocka_unit_test(test_random_against_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
