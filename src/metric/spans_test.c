/*
 * spans_test.c - what a process did from when to when.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "metric/spans.h"

#define US UINT64_C(1000)

static void
add_push(struct psi_spans *spans, uint32_t table, uint64_t step)
{
    if (psi_spans_want(spans, step)) {
        psi_spans_add(spans, &(struct psi_span){.kind = PSI_SPAN_PUSH, .what = table, .step = step},
                      step * 100 * US, (step * 100 + 7) * US);
    }
}

/* If this fails, a timeline of a fast job has pushes of one worker and rounds of others, never of one
 * step. */
static void
test_of_many_all_keep_the_same_steps(void **state)
{
    struct psi_spans one = {0};
    struct psi_spans other = {0};
    uint32_t common = 0;

    (void)state;
    for (uint64_t step = 1; step <= 1000; step++) {
        add_push(&one, 1, step);
        for (uint32_t table = 1; table <= 3; table++) {
            add_push(&other, table, step);
        }
    }
    assert_in_range(one.count, PSI_SPANS_MAX / 4, PSI_SPANS_MAX);
    assert_in_range(other.count, PSI_SPANS_MAX / 4, PSI_SPANS_MAX);
    assert_true(other.sparse > one.sparse);
    for (uint32_t i = 0; i < other.count; i++) {
        assert_int_equal(other.span[i].step % (UINT64_C(1) << other.sparse), 0);
        for (uint32_t j = 0; j < one.count; j++) {
            common += one.span[j].step == other.span[i].step;
        }
    }
    assert_int_equal(common, other.count); /* whoever has fewer has those of the others */
    assert_int_equal(one.span[0].begin_us, one.span[0].step * 100);
    assert_int_equal(one.span[0].us, 7);
    assert_true(one.lost > 0);
}

/* If this fails, a job that was fast for a moment is told sparsely for good. */
static void
test_what_was_told_makes_room(void **state)
{
    struct psi_spans spans = {0};
    uint32_t sparse;

    (void)state;
    for (uint64_t step = 1; step <= 1000; step++) {
        add_push(&spans, 1, step);
    }
    sparse = spans.sparse;
    psi_spans_told(&spans);
    assert_int_equal(spans.count, 0);
    assert_int_equal(spans.sparse, sparse); /* there were many */
    for (uint32_t i = 0; i < sparse; i++) {
        psi_spans_told(&spans);
    }
    assert_int_equal(spans.sparse, 0);
    add_push(&spans, 1, 1001);
    assert_int_equal(spans.count, 1);
}

/* If this fails, a table of a thousand chunks is a thousand rounds in a timeline, and nothing else is. */
static void
test_chunks_of_a_table_are_one_round(void **state)
{
    struct psi_spans spans = {0};
    struct psi_span round = {.kind = PSI_SPAN_ROUND, .step = 4, .apply_us = 2};

    (void)state;
    for (uint64_t chunk = 0; chunk < 1000; chunk++) {
        round.what = 1 + (uint32_t)(chunk % 2);
        round.who = (uint32_t)chunk;
        psi_spans_add_round(&spans, &round, (5000 - chunk) * US, (6000 + chunk) * US);
    }
    assert_int_equal(spans.count, 2);
    assert_int_equal(spans.lost, 0);
    assert_int_equal(spans.span[1].begin_us, 4001);
    assert_int_equal(spans.span[1].us, 6999 - 4001);
    assert_int_equal(spans.span[1].apply_us, 1000);
    assert_int_equal(spans.span[1].who, 999); /* of the one that closed last */
    round.step = 5;
    psi_spans_add_round(&spans, &round, 1, 2);
    assert_int_equal(spans.count, 3);
    assert_int_equal(spans.span[2].begin_us, 1); /* 0 would mean: not told */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_many_all_keep_the_same_steps),
        cmocka_unit_test(test_what_was_told_makes_room),
        cmocka_unit_test(test_chunks_of_a_table_are_one_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
