/*
 * snapshot_test.c - rows as they were at one moment, while they change, come and go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "store/sparse/snapshot.h"
#include "store/sparse/sparse_bed.h"

enum { BITS = 4, WIDTH = 3, LIST = 200, IDS = 900 };

/* What was handed over. */
struct taken {
    const struct sparse *store;
    struct bed_rows all;
};

static void *
grow(void *array, size_t bytes)
{
    array = realloc(array, bytes);
    assert_non_null(array);
    return array;
}

static void
take(void *self, const struct sparse_rows *rows)
{
    struct taken *taken = self;
    struct sparse_rows *all = &taken->all.rows;
    const size_t states = sparse_state_numbers(taken->store);
    const size_t count = all->count + rows->count;

    all->ids = grow(all->ids, count * sizeof(uint64_t));
    all->values = grow(all->values, count * WIDTH * sizeof(float));
    all->state = grow(all->state, (count * states + 1) * sizeof(float));
    all->steps = grow(all->steps, count * sizeof(uint32_t));
    all->counts = grow(all->counts, count * sizeof(uint32_t));
    memcpy(all->ids + all->count, rows->ids, rows->count * sizeof(uint64_t));
    memcpy(all->values + all->count * WIDTH, rows->values, rows->count * WIDTH * sizeof(float));
    memcpy(all->state + all->count * states, rows->state, rows->count * states * sizeof(float));
    memcpy(all->steps + all->count, rows->steps, rows->count * sizeof(uint32_t));
    memcpy(all->counts + all->count, rows->counts, rows->count * sizeof(uint32_t));
    all->count = count;
}

static void
train(struct sparse *store, uint64_t *random, uint64_t step)
{
    static float gradients[LIST * WIDTH];
    uint64_t ids[LIST];

    for (size_t i = 0; i < LIST; i++) {
        ids[i] = bed_below(random, IDS);
    }
    for (size_t i = 0; i < LIST * WIDTH; i++) {
        gradients[i] = bed_number(random);
    }
    bed_apply(store, ids, gradients, bed_sort(ids, LIST), step);
    sparse_close_step(store, step);
}

/* The same rows, whatever their order. */
static void
assert_same(const struct sparse_rows *expected, const struct sparse_rows *got, size_t states)
{
    assert_int_equal(got->count, expected->count);
    for (size_t i = 0; i < expected->count; i++) {
        size_t at = 0;

        while (at < got->count && got->ids[at] != expected->ids[i]) {
            at++;
        }
        assert_true(at < got->count);
        assert_memory_equal(got->values + at * WIDTH, expected->values + i * WIDTH,
                            WIDTH * sizeof(float));
        assert_memory_equal(got->state + at * states, expected->state + i * states,
                            states * sizeof(float));
        assert_int_equal(got->steps[at], expected->steps[i]);
        assert_int_equal(got->counts[at], expected->counts[i]);
    }
}

/* If this fails, a checkpoint has rows as they were before or after its step, has some twice, or lacks
 * rows that were changed or went while it was written. */
static void
test_rows_are_as_they_were_at_the_step(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_ADAM, WIDTH);

    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct psi_row_policy policy = {
            .capacity_rows = seed % 2 == 0 ? 0 : 600,
            .full = seed % 2 == 0 ? PSI_FULL_REFUSE : PSI_FULL_OLDEST,
            .idle_steps = seed % 3 == 0 ? 4 : 0,
            .sweep_every = seed % 3 == 0 ? 2 : 0,
        };
        struct sparse *store = bed_create(&spec, &policy, BITS);
        struct taken taken = {.store = store};
        uint64_t random = seed;
        uint64_t step = 0;
        struct bed_rows expected;

        for (; step < 8; step++) {
            train(store, &random, step);
        }
        expected = bed_save(store, BITS, 0, 64, &spec);
        assert_int_equal(
            sparse_snapshot_begin(store,
                                  &(struct sparse_snapshot_args){
                                      .until = (uint32_t)step, .take = take, .self = &taken},
                                  NULL),
            PSD_OK);
        do {
            train(store, &random, step++);
        } while (sparse_snapshot_go_on(store, 1 + bed_below(&random, 4000)));
        assert_true(step > 9);
        sparse_snapshot_end(store);
        assert_same(&expected.rows, &taken.all.rows, sparse_state_numbers(store));
        bed_free(&expected);
        bed_free(&taken.all);
        sparse_destroy(store);
    }
}

static void
save_since(struct sparse *store, uint32_t since, uint32_t until, struct sparse *copy,
           struct taken *taken)
{
    *taken = (struct taken){.store = store};
    assert_int_equal(
        sparse_snapshot_begin(store,
                              &(struct sparse_snapshot_args){
                                  .since = since, .until = until, .take = take, .self = taken},
                              NULL),
        PSD_OK);
    for (uint32_t bucket = 0; bucket < 1u << BITS; bucket++) {
        if (sparse_snapshot_clears(store, bucket)) {
            sparse_clear(copy, bucket);
        }
    }
    while (sparse_snapshot_go_on(store, 1000)) {
    }
    sparse_snapshot_end(store);
    assert_true(sparse_load(copy, &taken->all.rows));
}

/* If this fails, a checkpoint that has only what changed leaves rows out, or brings back rows that had
 * gone. */
static void
test_changes_make_the_same_rows(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_ADAGRAD, WIDTH);
    struct psi_row_policy policy = {.idle_steps = 6, .sweep_every = 3};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    struct sparse *copy = bed_create(&spec, &policy, BITS);
    uint64_t random = 5;
    uint32_t saved = 0;
    size_t fewer = 0;

    (void)state;
    for (uint32_t step = 0; step < 60;) {
        struct taken taken;
        struct bed_rows all;
        struct bed_rows there;

        train(store, &random, step++);
        if (step % 2 != 0) {
            continue;
        }
        save_since(store, saved, step, copy, &taken);
        saved = step;
        all = bed_save(store, BITS, 0, 64, &spec);
        there = bed_save(copy, BITS, 0, 64, &spec);
        assert_same(&all.rows, &there.rows, sparse_state_numbers(store));
        fewer += taken.all.rows.count < all.rows.count;
        bed_free(&all);
        bed_free(&there);
        bed_free(&taken.all);
    }
    assert_true(fewer > 0);
    sparse_destroy(store);
    sparse_destroy(copy);
}

/* If this fails, rows that went in steps that nobody gave anything to, which are made up for later, are still
 * there when a job goes on from what was saved in between and what changed since. */
static void
test_rows_that_went_late_are_gone_since_then(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.idle_steps = 2, .sweep_every = 8};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    struct taken taken = {.store = store};
    const float gradient[2 * WIDTH] = {1};
    uint64_t ids[2] = {9, 10};
    struct psd_error err;

    (void)state;
    bed_apply(store, ids, gradient, bed_sort(ids, 2), 0);
    assert_int_equal(sparse_close_step(store, 0), 0);
    /* A generation is saved at step 15: both rows are in it. Then comes the first gradient for long. */
    assert_int_equal(sparse_close_step(store, 20), 2);
    assert_int_equal(
        sparse_snapshot_begin(
            store,
            &(struct sparse_snapshot_args){.since = 15, .until = 21, .take = take, .self = &taken},
            &err),
        PSD_OK);
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t bucket = psi_bucket_of(ids[i], BITS);

        assert_int_equal(sparse_bucket_info(store, bucket).removed, 21);
        assert_true(sparse_snapshot_clears(store, bucket));
    }
    sparse_snapshot_end(store);
    sparse_destroy(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_as_they_were_at_the_step),
        cmocka_unit_test(test_rows_that_went_late_are_gone_since_then),
        cmocka_unit_test(test_changes_make_the_same_rows),
    };

    return cmocka_run_group_tests_name("store_sparse_snapshot", tests, NULL, NULL);
}
