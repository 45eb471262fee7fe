/*
 * sparse_large_test.c - lookups of more than a frame holds: they come in parts, and are of one step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "sparse_calls.h"

enum {
    WORKERS = 2,
    WIDTH = PSD_WIDTH_MAX, /* 16 KiB: a frame holds 1,023 of them */
    ROWS = 2500,
    PUSHED = 10, /* in all parts of the lookup */
    STEPS = 3,
    MANY = (1 << 20) + 5000,
};

/* Thread: immutable, but for the rows of each worker. */
struct large {
    bool cuts;
    uint64_t ids[ROWS];
    uint64_t pushed[PUSHED];
    float ones[PUSHED * WIDTH];
    float *values[WORKERS];
};

static struct large *
prepare(bool cuts)
{
    struct large *large = calloc(1, sizeof(*large));

    assert_non_null(large);
    large->cuts = cuts;
    for (uint32_t i = 0; i < ROWS; i++) {
        large->ids[i] = 7 * (uint64_t)i;
    }
    for (uint32_t i = 0; i < PUSHED; i++) {
        large->pushed[i] = large->ids[i * (ROWS / PUSHED)];
    }
    for (uint32_t i = 0; i < PUSHED * WIDTH; i++) {
        large->ones[i] = 1;
    }
    for (unsigned rank = 0; rank < WORKERS; rank++) {
        large->values[rank] = malloc(ROWS * WIDTH * sizeof(float));
        assert_non_null(large->values[rank]);
    }
    return large;
}

static void
discard(struct large *large)
{
    for (unsigned rank = 0; rank < WORKERS; rank++) {
        free(large->values[rank]);
    }
    free(large);
}

/* Every row is of that step. */
static void
check_rows(struct worker *worker, const float *values, uint64_t step)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        const bool pushed = i % (ROWS / PUSHED) == 0;
        const float expected = pushed ? (float)(step * WORKERS) : 0;

        CHECK(worker, values[(size_t)i * WIDTH] == expected);
        CHECK(worker, values[(size_t)i * WIDTH + WIDTH - 1] == expected);
    }
}

static void
open_rows(struct worker *worker, psd_table **table_p)
{
    CHECK_OK(worker, psd_sparse_open(worker->context,
                                     SPARSE("e", WIDTH, .rule = RULE(.rule = PSD_RULE_ADD),
                                            .reduce = PSD_REDUCE_SUM),
                                     table_p));
}

/* The push of the step goes out while its rows are still coming: they must not be those behind it. */
static void
look_then_push(struct worker *worker)
{
    const struct large *large = worker->user;
    float *values = large->values[worker->rank];
    psd_table *table = NULL;
    psd_op *lookup = NULL;
    psd_op *push = NULL;

    open_rows(worker, &table);
    for (uint64_t step = 0; step < STEPS && worker->failure[0] == '\0'; step++) {
        CHECK_OK(worker, psd_sparse_lookup(table,
                                           ROWS_OF(step, .lookup_count = ROWS,
                                                   .lookup_ids = large->ids, .values = values),
                                           &lookup));
        CHECK_OK(worker,
                 psd_sparse_push(table,
                                 ROWS_OF(step, .push_count = PUSHED, .push_ids = large->pushed,
                                         .gradients = large->ones),
                                 &push));
        if (large->cuts) {
            bed_cut(worker, 0);
        }
        CHECK_OK(worker, psd_wait(lookup, PSD_FOREVER));
        CHECK_OK(worker, psd_wait(push, PSD_FOREVER));
        psd_op_release(lookup);
        psd_op_release(push);
        check_rows(worker, values, step);
    }
}

/* Both in one message. */
static void
push_and_look(struct worker *worker)
{
    const struct large *large = worker->user;
    float *values = large->values[worker->rank];
    psd_table *table = NULL;

    open_rows(worker, &table);
    for (uint64_t step = 0; step < STEPS && worker->failure[0] == '\0'; step++) {
        CHECK_OK(worker, run_rows(psd_sparse_push_lookup, table,
                                  ROWS_OF(step, .push_count = PUSHED, .push_ids = large->pushed,
                                          .gradients = large->ones, .lookup_count = ROWS,
                                          .lookup_ids = large->ids, .values = values)));
        check_rows(worker, values, step + 1);
    }
}

static void
run_all(worker_fn run, bool cuts)
{
    for (uint32_t servers = 1; servers <= 2; servers++) {
        struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = servers});
        struct large *large = prepare(cuts);

        bed_run(bed, run, large);
        bed_finish(bed);
        discard(large);
    }
}

/* If this fails, a lookup of more than 16 MiB is refused, lacks rows, or shows some of a later step. */
static void
test_large_lookups_are_of_one_step(void **state)
{
    (void)state;
    run_all(look_then_push, false);
}

/* If this fails, the rows that are looked up with a push are bounded, or of several steps. */
static void
test_large_lookups_with_a_push(void **state)
{
    (void)state;
    run_all(push_and_look, false);
}

/* If this fails, a cut in the middle of a large lookup loses rows of it. */
static void
test_large_lookups_go_on_after_a_cut(void **state)
{
    (void)state;
    run_all(look_then_push, true);
}

static void
look_at_many(struct worker *worker)
{
    uint64_t *ids = malloc(MANY * sizeof(*ids));
    float *values = malloc(MANY * sizeof(*values));
    psd_table *table = NULL;
    const float three = 3;

    CHECK(worker, ids != NULL && values != NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        ids[i] = MANY - i;
        values[i] = -1;
    }
    CHECK_OK(worker, psd_sparse_open(worker->context,
                                     SPARSE("e", 1, .rule = RULE(.rule = PSD_RULE_ADD)), &table));
    CHECK_OK(worker, run_rows(psd_sparse_push, table,
                              ROWS_OF(0, .push_count = 1, .push_ids = &ids[MANY - 1],
                                      .gradients = &three)));
    CHECK_OK(worker,
             run_rows(psd_sparse_lookup, table,
                      ROWS_OF(1, .lookup_count = MANY, .lookup_ids = ids, .values = values)));
    for (uint32_t i = 0; i < MANY; i++) {
        CHECK(worker, values[i] == (i == MANY - 1 ? 3 : 0));
    }
    free(ids);
    free(values);
}

/* If this fails, more than 2^20 ids of one lane cannot be looked up at once. */
static void
test_more_ids_than_a_frame_may_have(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1, .servers = 1});

    (void)state;
    bed_run(bed, look_at_many, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests_of_large[] = {
        cmocka_unit_test(test_large_lookups_are_of_one_step),
        cmocka_unit_test(test_large_lookups_with_a_push),
        cmocka_unit_test(test_large_lookups_go_on_after_a_cut),
        cmocka_unit_test(test_more_ids_than_a_frame_may_have),
    };

    bed_begin();
    return cmocka_run_group_tests(tests_of_large, NULL, NULL);
}
