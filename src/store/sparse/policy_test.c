/*
 * policy_test.c - which rows come to be and which go: by steps and ids alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "store/sparse/sparse_bed.h"

enum { BITS = 4, BUCKETS = 1 << BITS, WIDTH = 2, LIST = 300 };

static const float gradients[LIST * WIDTH] = {0};

static uint64_t
rows_of(const struct sparse *store)
{
    struct sparse_memory memory;

    sparse_memory(store, &memory);
    return memory.rows;
}

/* ---- Admission ---- */

/* If this fails, ids that come once and never again fill the memory, or rows come too late. */
static void
test_a_row_comes_after_some_steps(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.admit_after = 3, .admit_window = 10};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    const uint64_t often = 42;
    const uint64_t seldom = 43;
    const uint64_t third = 44;
    const float gradient[WIDTH] = {1, 1};
    float before[WIDTH];
    float after[WIDTH];

    (void)state;
    sparse_lookup(store, &often, 1, before);
    assert_int_equal(bed_apply(store, &often, gradient, 1, 0).waiting, 1);
    assert_int_equal(bed_apply(store, &often, gradient, 1, 1).waiting, 1);
    sparse_lookup(store, &often, 1, after);
    assert_memory_equal(before, after, sizeof(before));
    assert_int_equal(bed_apply(store, &often, gradient, 1, 2).created, 1);
    sparse_lookup(store, &often, 1, after);
    assert_memory_not_equal(before, after, sizeof(before));
    /* What was counted long ago is forgotten by halves: 2, 1, 0. */
    bed_apply(store, &seldom, gradient, 1, 3);
    bed_apply(store, &seldom, gradient, 1, 4);
    assert_int_equal(bed_apply(store, &seldom, gradient, 1, 25).waiting, 1);
    assert_int_equal(bed_apply(store, &seldom, gradient, 1, 26).waiting, 1);
    assert_int_equal(bed_apply(store, &seldom, gradient, 1, 27).created, 1);
    assert_int_equal(rows_of(store), 2);
    /* One window halves: 2 and 1 more are 2. */
    bed_apply(store, &third, gradient, 1, 28);
    bed_apply(store, &third, gradient, 1, 29);
    assert_int_equal(bed_apply(store, &third, gradient, 1, 30).waiting, 1);
    assert_int_equal(bed_apply(store, &third, gradient, 1, 31).created, 1);
    sparse_destroy(store);
}

/* If this fails, a copy or a repetition of the run admits other rows. */
static void
test_a_share_is_drawn_by_id_and_step(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.admit_share = 0.25};
    struct sparse *stores[2];
    uint64_t created = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        stores[i] = bed_create(&spec, &policy, BITS);
    }
    for (uint64_t first = 0; first < 20 * LIST; first += LIST) {
        uint64_t ids[LIST];

        for (uint64_t i = 0; i < LIST; i++) {
            ids[i] = first + i;
        }
        bed_sort(ids, LIST);
        created += bed_apply(stores[0], ids, gradients, LIST, 7).created;
        for (uint64_t i = 0; i < LIST; i++) { /* one by one, it is the same */
            bed_apply(stores[1], &ids[i], gradients, 1, 7);
        }
    }
    assert_in_range(created, 20 * LIST / 4 - 200, 20 * LIST / 4 + 200);
    assert_int_equal(rows_of(stores[0]), created);
    assert_int_equal(rows_of(stores[1]), created);
    /* In another step others are drawn. */
    {
        const struct bed_rows rows = bed_save(stores[0], BITS, 0, 100, &spec);
        struct sparse *other = bed_create(&spec, &policy, BITS);
        const uint64_t again = bed_apply(other, rows.rows.ids, gradients, LIST, 8).created;
        struct bed_rows gone = rows;

        assert_in_range(again, LIST / 8, LIST / 2);
        bed_free(&gone);
        sparse_destroy(other);
    }
    sparse_destroy(stores[0]);
    sparse_destroy(stores[1]);
}

/* ---- A full bucket ---- */

enum { FULL = 32, IDS = 2000 };

/* The ids that have a row, and when they were touched last: one bucket after the other. */
struct model {
    bool exists[IDS];
    uint32_t step[IDS];
};

static uint64_t
rows_in(const struct model *model, uint32_t bucket)
{
    uint64_t rows = 0;

    for (uint64_t id = 0; id < IDS; id++) {
        rows += model->exists[id] && psi_bucket_of(id, BITS) == bucket;
    }
    return rows;
}

/* The row of the bucket that was not touched for longest, but before `step`; IDS: none. */
static uint64_t
oldest(const struct model *model, uint32_t bucket, uint32_t step)
{
    uint64_t found = IDS;

    for (uint64_t id = 0; id < IDS; id++) {
        const bool fits =
            model->exists[id] && psi_bucket_of(id, BITS) == bucket && model->step[id] < step;

        if (fits && (found == IDS || model->step[id] < model->step[found] ||
                     (model->step[id] == model->step[found] && psi_bucket_before(id, found)))) {
            found = id;
        }
    }
    return found;
}

static uint64_t
rows_of_all(const struct model *model)
{
    uint64_t rows = 0;

    for (uint64_t id = 0; id < IDS; id++) {
        rows += model->exists[id];
    }
    return rows;
}

/* To a sixteenth below its share, as far as there are rows that may go. */
static void
shrink(struct model *model, uint32_t bucket, uint32_t step)
{
    while (rows_in(model, bucket) > FULL - FULL / 16) {
        const uint64_t victim = oldest(model, bucket, step);

        if (victim == IDS) {
            return;
        }
        model->exists[victim] = false;
    }
}

static uint64_t
model_push(struct model *model, const uint64_t *ids, size_t count, uint32_t step)
{
    uint64_t refused = 0;

    for (size_t i = 0; i < count; i++) { /* what is pushed stays */
        model->step[ids[i]] = step;
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t bucket = psi_bucket_of(ids[i], BITS);

        if (model->exists[ids[i]]) {
            continue;
        }
        if (rows_in(model, bucket) >= FULL) {
            shrink(model, bucket, step);
        }
        if (rows_of_all(model) >= FULL * BUCKETS) {
            refused++;
        } else {
            model->exists[ids[i]] = true;
        }
    }
    return refused;
}

static void
compare(const struct model *model, const struct sparse *store, const struct psi_spec *spec)
{
    struct bed_rows all = bed_save(store, BITS, 0, 50, spec);
    size_t expected = 0;

    for (uint64_t id = 0; id < IDS; id++) {
        expected += model->exists[id];
    }
    assert_int_equal(all.rows.count, expected);
    for (size_t i = 0; i < all.rows.count; i++) {
        assert_true(model->exists[all.rows.ids[i]]);
        assert_int_equal(all.rows.steps[i], model->step[all.rows.ids[i]]);
    }
    bed_free(&all);
}

static void
run_full(uint64_t seed)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.capacity_rows = FULL * BUCKETS, .full = PSI_FULL_OLDEST};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    struct model model = {0};
    uint64_t random = seed;
    uint64_t evicted = 0;

    for (uint32_t step = 0; step < 40; step++) {
        const size_t drawn = bed_below(&random, LIST);
        struct sparse_outcome outcome;
        uint64_t ids[LIST];
        size_t count;

        for (size_t i = 0; i < drawn; i++) {
            ids[i] = bed_below(&random, IDS);
        }
        count = bed_sort(ids, drawn);
        outcome = bed_apply(store, ids, gradients, count, step);
        assert_int_equal(outcome.refused, model_push(&model, ids, count, step));
        evicted += outcome.evicted;
        compare(&model, store, &spec);
    }
    assert_true(evicted > 0);
    sparse_destroy(store);
}

/* If this fails, a full table throws away rows that are in use, or the wrong ones, or grows. */
static void
test_the_oldest_make_room(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        run_full(seed);
    }
}

/* If this fails, a table at its bound grows on, forgets rows, or does not say which setting it is. */
static void
test_a_full_table_refuses(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.capacity_rows = 4 * BUCKETS};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    struct sparse_outcome outcome;
    struct psd_error err = {0};
    uint64_t ids[LIST];

    (void)state;
    for (uint64_t i = 0; i < LIST; i++) {
        ids[i] = i;
    }
    bed_sort(ids, LIST);
    outcome = bed_apply(store, ids, gradients, LIST, 0);
    assert_int_equal(outcome.created, 4 * BUCKETS);
    assert_int_equal(outcome.created + outcome.refused, LIST);
    outcome = bed_apply(store, ids, gradients, LIST, 1);
    assert_int_equal(outcome.created, 0);
    assert_int_equal(outcome.refused, LIST - 4 * BUCKETS);
    assert_int_equal(sparse_refusal(store, &err), PSD_ERR_TOO_BIG);
    assert_non_null(strstr(err.text, "embedding"));
    assert_non_null(strstr(err.text, "capacity_rows (64)"));
    sparse_destroy(store);
}

/* ---- Idle and small rows ---- */

/* If this fails, rows that nobody uses stay for ever, or rows in use go. */
static void
test_idle_rows_go(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.idle_steps = 5, .sweep_every = BUCKETS};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    const uint64_t id = 9;
    const uint32_t bucket = psi_bucket_of(id, BITS);
    uint64_t gone = 0;
    uint32_t step;

    (void)state;
    bed_apply(store, &id, gradients, 1, 0);
    assert_int_equal(sparse_bucket_info(store, bucket).changed, 1);
    for (step = 0; gone == 0 && step < 100; step++) {
        gone = sparse_close_step(store, step);
        assert_int_equal(sparse_close_step(store, step), 0); /* only once */
    }
    step--;
    assert_int_equal(rows_of(store), 0);
    assert_int_equal(step % BUCKETS, bucket); /* at its turn, the first one that is late enough */
    assert_in_range(step, 6, 5 + BUCKETS);
    assert_int_equal(sparse_bucket_info(store, bucket).removed, step + 1);
    assert_int_equal(sparse_bucket_info(store, bucket).rows, 0);
    /* Steps that were left out are made up for. */
    bed_apply(store, &id, gradients, 1, 100);
    assert_int_equal(sparse_close_step(store, 1000), 1);
    sparse_destroy(store);
}

/* If this fails, rows that a rule has driven to zero keep their memory, or others lose theirs. */
static void
test_small_rows_go(void **state)
{
    struct psi_spec spec = bed_spec(PSD_RULE_ADD, WIDTH);
    struct psi_row_policy policy = {.norm_min = 0.5, .sweep_every = 1};
    const float values[4][WIDTH] = {{0.4f, 0.4f}, {0.2f, 0.2f}, {-1, 0}, {0, 0}};
    struct sparse *store;
    float row[WIDTH];

    (void)state;
    spec.init = PSD_INIT_ZERO;
    spec.init_value = 0;
    store = bed_create(&spec, &policy, BITS);
    for (uint64_t id = 0; id < 4; id++) {
        bed_apply(store, &id, values[id], 1, 0);
    }
    assert_int_equal(sparse_close_step(store, 0), 2);
    for (uint64_t id = 0; id < 4; id++) {
        sparse_lookup(store, &id, 1, row);
        assert_true(row[0] == (id % 2 == 0 ? values[id][0] : 0));
    }
    sparse_destroy(store);
}

/* ---- Lanes ---- */

static void
split_ids(const uint64_t *ids, size_t count, uint32_t lanes, size_t *ends)
{
    size_t at = 0;

    for (uint32_t lane = 0; lane < lanes; lane++) {
        while (at < count && psi_bucket_place(psi_bucket_of(ids[at], BITS), BITS, lanes) == lane) {
            at++;
        }
        ends[lane] = at;
    }
    assert_int_equal(at, count);
}

static void
push_to_lanes(struct sparse **stores, uint32_t lanes, const uint64_t *ids, const float *rows,
              size_t count, uint64_t step)
{
    size_t ends[3];
    size_t first = 0;

    split_ids(ids, count, lanes, ends);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        bed_apply(stores[lane], ids + first, rows + first * WIDTH, ends[lane] - first, step);
        sparse_close_step(stores[lane], step);
        first = ends[lane];
    }
}

static struct bed_rows
rows_of_lanes(struct sparse **stores, uint32_t lanes, const struct psi_spec *spec)
{
    struct psi_row_policy policy = {0};
    struct sparse *together = bed_create(spec, &policy, BITS);
    struct bed_rows all;

    for (uint32_t lane = 0; lane < lanes; lane++) {
        struct bed_rows some = bed_save(stores[lane], BITS, 0, 33, spec);

        assert_true(sparse_load(together, &some.rows));
        bed_free(&some);
    }
    all = bed_save(together, BITS, 0, 100, spec);
    sparse_destroy(together);
    return all;
}

/* If this fails, a model depends on how many lanes or servers there are. */
static void
test_lanes_do_not_matter(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_ADAGRAD, WIDTH);
    const struct psi_row_policy wanted = {.admit_after = 2,
                                          .admit_window = 8,
                                          .capacity_rows = 40 * BUCKETS,
                                          .full = PSI_FULL_OLDEST,
                                          .idle_steps = 20,
                                          .norm_min = 0.02,
                                          .sweep_every = 7};
    struct bed_rows rows[4];
    struct sparse *stores[4][3];

    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        uint64_t random = 5;

        for (uint32_t lane = 0; lane < lanes; lane++) {
            struct psi_row_policy policy = wanted;

            stores[lanes][lane] = bed_create(&spec, &policy, BITS);
        }
        for (uint64_t step = 0; step < 80; step++) {
            uint64_t ids[LIST];
            float numbers[LIST * WIDTH];
            size_t count;

            for (size_t i = 0; i < LIST; i++) {
                ids[i] = bed_below(&random, 1500);
            }
            for (size_t i = 0; i < (size_t)LIST * WIDTH; i++) {
                numbers[i] = bed_number(&random);
            }
            count = bed_sort(ids, LIST);
            push_to_lanes(stores[lanes], lanes, ids, numbers, count, step);
        }
        rows[lanes] = rows_of_lanes(stores[lanes], lanes, &spec);
    }
    assert_in_range(rows[1].rows.count, 200, 40 * BUCKETS);
    for (uint32_t lanes = 2; lanes <= 3; lanes++) {
        const size_t count = rows[1].rows.count;

        assert_int_equal(rows[lanes].rows.count, count);
        assert_memory_equal(rows[lanes].rows.ids, rows[1].rows.ids, count * sizeof(uint64_t));
        assert_memory_equal(rows[lanes].rows.values, rows[1].rows.values,
                            count * WIDTH * sizeof(float));
        assert_memory_equal(rows[lanes].rows.steps, rows[1].rows.steps, count * sizeof(uint32_t));
    }
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        bed_free(&rows[lanes]);
        for (uint32_t lane = 0; lane < lanes; lane++) {
            sparse_destroy(stores[lanes][lane]);
        }
    }
}

/* If this fails, a table that is loaded or moved has forgotten which ids it has seen. */
static void
test_counters_are_saved(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.admit_after = 2};
    struct sparse *first = bed_create(&spec, &policy, BITS);
    struct sparse *second = bed_create(&spec, &policy, BITS);
    const uint64_t id = 1234;
    const uint32_t bucket = psi_bucket_of(id, BITS);
    const uint8_t *counters;
    uint32_t epoch;
    size_t bytes;

    (void)state;
    assert_null(sparse_counters(first, bucket, &bytes, &epoch));
    assert_int_equal(bytes, 0);
    bed_apply(first, &id, gradients, 1, 2000);
    counters = sparse_counters(first, bucket, &bytes, &epoch);
    assert_non_null(counters);
    assert_int_equal(epoch, 2000 / policy.admit_window);
    assert_false(sparse_load_counters(second, bucket, counters, bytes - 1, epoch));
    assert_true(sparse_load_counters(second, bucket, counters, bytes, epoch));
    assert_int_equal(bed_apply(second, &id, gradients, 1, 2001).created, 1);
    sparse_clear(second, bucket);
    assert_int_equal(bed_apply(second, &id, gradients, 1, 2002).waiting, 1);
    sparse_destroy(first);
    sparse_destroy(second);
}

/* If this fails, contradictions in what a user asks for are found in the middle of the training. */
static void
test_policies_are_checked(void **state)
{
    static const struct {
        psd_rule rule;
        struct psi_row_policy policy;
        const char *word;
    } wrong[] = {
        {PSD_RULE_SGD, {.row_wise = true}, "row_wise"},
        {PSD_RULE_SGD, {.group_lasso = 1}, "group_lasso"},
        {PSD_RULE_FTRL, {.group_lasso = -1}, "group_lasso"},
        {PSD_RULE_SGD, {.admit_after = 256}, "admit_after"},
        {PSD_RULE_SGD, {.admit_after = 2, .admit_share = 0.5}, "only one"},
        {PSD_RULE_SGD, {.admit_share = 1}, "admit_share"},
        {PSD_RULE_SGD, {.admit_after = 2, .admit_counters = 3000}, "admit_counters"},
        {PSD_RULE_SGD, {.admit_window = 3}, "admit_window"},
        {PSD_RULE_SGD, {.full = PSI_FULL_OLDEST}, "capacity_rows"},
        {PSD_RULE_SGD, {.norm_min = -1}, "norm_min"},
        {PSD_RULE_SGD, {.sweep_every = 3}, "sweep_every"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const struct psi_spec spec = bed_spec(wrong[i].rule, WIDTH);
        struct psi_row_policy policy = wrong[i].policy;
        struct psd_error err = {0};

        psi_row_policy_fill(&policy, BITS);
        assert_int_equal(psi_spec_check_rows(&spec, &policy, &err), PSD_ERR_INVALID);
        if (strstr(err.text, wrong[i].word) == NULL) {
            fail_msg("%s: expected %s", err.text, wrong[i].word);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_comes_after_some_steps),
        cmocka_unit_test(test_a_share_is_drawn_by_id_and_step),
        cmocka_unit_test(test_the_oldest_make_room),
        cmocka_unit_test(test_a_full_table_refuses),
        cmocka_unit_test(test_idle_rows_go),
        cmocka_unit_test(test_small_rows_go),
        cmocka_unit_test(test_lanes_do_not_matter),
        cmocka_unit_test(test_counters_are_saved),
        cmocka_unit_test(test_policies_are_checked),
    };

    return cmocka_run_group_tests_name("store_sparse_policy", tests, NULL, NULL);
}
