/*
 * sparse_test.c - rows by id against a model that keeps them in a plain array; bounds and input that
 * is wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/sparse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/initial.h"
#include "store/sparse/kind.h"
#include "store/sparse/row_index.h"
#include "store/sparse/sparse_bed.h"
#include "store/sum.h"

enum { BITS = 4, WIDTH = 5, IDS = 3000, LIST = 500, STEPS = 60 };

/* ---- A model: sgd, every id has its row at hand ---- */

struct model_row {
    bool exists;
    float values[WIDTH];
    uint32_t step;
    uint32_t count;
};

struct model {
    struct model_row rows[IDS];
    uint64_t created;
};

/* Ids far apart, and 0 and the largest among them. */
static uint64_t
id_of(size_t number)
{
    return number == 0 ? 0 : number == 1 ? UINT64_MAX : number * UINT64_C(0x9e3779b97f4a7c15);
}

static size_t
number_of(uint64_t id)
{
    return id == 0 ? 0 : id == UINT64_MAX ? 1 : id * UINT64_C(0xf1de83e19937733d);
}

static void
initial(const struct psi_spec *spec, uint64_t id, float *values)
{
    store_initial(spec->init, spec->init_value, spec->seed, PSD_F32, id * WIDTH, WIDTH, values);
}

static void
model_apply(struct model *model, const struct psi_spec *spec, uint64_t id, const float *gradient,
            uint32_t step)
{
    struct model_row *row = &model->rows[number_of(id)];
    const float rate = (float)spec->rule.learning_rate;

    if (!row->exists) {
        *row = (struct model_row){.exists = true};
        initial(spec, id, row->values);
        model->created++;
    }
    for (int i = 0; i < WIDTH; i++) {
        row->values[i] = row->values[i] - rate * gradient[i];
    }
    row->step = step;
    row->count++;
}

static void
compare_lookup(struct sparse *store, const struct model *model, const struct psi_spec *spec)
{
    static uint64_t ids[IDS];
    static float got[IDS][WIDTH];

    for (size_t i = 0; i < IDS; i++) {
        ids[i] = id_of(i);
    }
    assert_int_equal(bed_sort(ids, IDS), IDS);
    sparse_lookup(store, ids, IDS, got);
    for (size_t i = 0; i < IDS; i++) {
        const struct model_row *row = &model->rows[number_of(ids[i])];
        float expected[WIDTH];

        if (row->exists) {
            memcpy(expected, row->values, sizeof(expected));
        } else {
            initial(spec, ids[i], expected);
        }
        assert_memory_equal(got[i], expected, sizeof(expected));
    }
}

static void
compare_saved(const struct sparse *store, const struct model *model, const struct psi_spec *spec,
              size_t batch, uint32_t since)
{
    struct bed_rows all = bed_save(store, BITS, since, batch, spec);
    size_t expected = 0;

    for (size_t i = 0; i < IDS; i++) {
        expected += model->rows[i].exists && model->rows[i].step >= since;
    }
    assert_int_equal(all.rows.count, expected);
    for (size_t i = 0; i < all.rows.count; i++) {
        const struct model_row *row = &model->rows[number_of(all.rows.ids[i])];

        assert_true(i == 0 || psi_bucket_before(all.rows.ids[i - 1], all.rows.ids[i]));
        assert_true(row->exists);
        assert_memory_equal(&all.rows.values[i * WIDTH], row->values, sizeof(row->values));
        assert_int_equal(all.rows.steps[i], row->step);
        assert_int_equal(all.rows.counts[i], row->count);
    }
    bed_free(&all);
}

static void
run_against_model(uint64_t seed)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {0};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    struct model *model = calloc(1, sizeof(*model));
    struct sparse_memory memory;
    uint64_t random = seed;

    assert_non_null(model);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t ids[LIST];
        float gradients[LIST][WIDTH];
        const uint64_t created = model->created;
        struct sparse_outcome outcome;
        size_t count = bed_below(&random, LIST + 1);

        for (size_t i = 0; i < count; i++) {
            ids[i] = id_of(bed_below(&random, IDS * (step + 1) / STEPS));
        }
        count = bed_sort(ids, count);
        for (size_t i = 0; i < count; i++) {
            for (int j = 0; j < WIDTH; j++) {
                gradients[i][j] = bed_number(&random);
            }
            model_apply(model, &spec, ids[i], gradients[i], step);
        }
        outcome = bed_apply(store, ids, gradients[0], count, step);
        assert_int_equal(outcome.created, model->created - created);
        assert_int_equal(outcome.refused + outcome.waiting + outcome.evicted, 0);
    }
    compare_lookup(store, model, &spec);
    compare_saved(store, model, &spec, 1 + bed_below(&random, 40), 0);
    compare_saved(store, model, &spec, 1000, STEPS - 10);
    sparse_memory(store, &memory);
    assert_int_equal(memory.rows, model->created); /* looking has created none */
    sparse_destroy(store);
    free(model);
}

/* If this fails, a row is lost, found under another id, changed wrongly, or saved twice or never. */
static void
test_rows_agree_with_a_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        run_against_model(seed);
    }
}

/* ---- Bounds ---- */

/* If this fails, a table grows beyond its bound of memory, or dies of it, or loses what it had. */
static void
test_memory_is_bounded(void **state)
{
    enum { BOUND = 4 << 20, BATCH = 4096 };
    const struct psi_spec spec = bed_spec(PSD_RULE_ADAGRAD, 16);
    struct psi_row_policy policy = {0};
    const struct sparse_layout layout = {.spec = &spec,
                                         .policy = &policy,
                                         .bucket_bits = BITS,
                                         .bucket_count = 1u << BITS,
                                         .memory_max = BOUND,
                                         .level = psi_kernel_level_best()};
    static uint64_t ids[BATCH];
    static float gradients[BATCH][16];
    struct sparse_outcome outcome = {0};
    struct psd_error err = {0};
    struct sparse_memory memory;
    struct sparse *store;

    (void)state;
    psi_row_policy_fill(&policy, BITS);
    assert_int_equal(sparse_create(&layout, &store, &err), PSD_OK);
    for (uint64_t step = 0; outcome.refused == 0; step++) {
        assert_true(step < 100);
        for (uint64_t i = 0; i < BATCH; i++) {
            ids[i] = step * BATCH + i;
        }
        bed_sort(ids, BATCH);
        outcome = bed_apply(store, ids, gradients[0], BATCH, step);
        sparse_memory(store, &memory);
        assert_true(memory.total_bytes <= BOUND);
    }
    assert_true(memory.rows * memory.row_bytes > BOUND / 3); /* the bound is of use */
    assert_int_equal(sparse_refusal(store, &err), PSD_ERR_TOO_BIG);
    assert_non_null(strstr(err.text, "embedding"));
    assert_non_null(strstr(err.text, "memory_max"));
    sparse_destroy(store);
}

/* If this fails, a row takes more memory than is promised: its numbers and 24 bytes. */
static void
test_memory_of_a_row(void **state)
{
    enum { ROWS = 200000, BATCH = 4000, BUCKET_BITS = 6 };
    const struct psi_spec spec = bed_spec(PSD_RULE_ADAGRAD, 3);
    struct psi_row_policy policy = {0};
    struct sparse *store = bed_create(&spec, &policy, BUCKET_BITS);
    static uint64_t ids[BATCH];
    static float gradients[BATCH][3];
    struct sparse_memory memory;

    (void)state;
    for (uint64_t step = 0; step < ROWS / BATCH; step++) {
        for (uint64_t i = 0; i < BATCH; i++) {
            ids[i] = step * BATCH + i;
        }
        bed_sort(ids, BATCH);
        bed_apply(store, ids, gradients[0], BATCH, step);
        sparse_memory(store, &memory);
        if (step >= 5) {
            assert_true(memory.rows * memory.row_bytes + memory.index_bytes <=
                        memory.rows * (3 * 2 * sizeof(float) + 24));
        }
    }
    assert_true(memory.slab_bytes < memory.rows * memory.row_bytes + (2u << 20));
    sparse_destroy(store);
}

/* If this fails, the time that updates of sparse tables take is not told, or the clock is read for
 * updates that are over sooner. */
static void
test_a_change_is_as_large_as_its_rows(void **state)
{
    struct psi_spec spec = bed_spec(PSD_RULE_ADD, 16);
    const struct store_layout layout = {
        .spec = &spec, .chunks = 1, .chunks_in_all = 1, .level = psi_kernel_level_best()};
    const struct store_rows many = {.count = 300};
    const struct store_rows one = {.count = 1};
    const struct leaf leaves[] = {{.rank = 0, .data = &many}, {.rank = 2, .data = &one}};
    struct psd_error err = {0};
    struct store *store;

    (void)state;
    spec.width = 16;
    spec.bucket_bits = 10;
    psi_row_policy_fill(&spec.rows, spec.bucket_bits);
    if (store_sparse.create(&layout, &store, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(
        store->ops->numbers(store, &(struct store_change){.leaves = leaves, .leaf_count = 2}),
        301 * 16);
    assert_int_equal(store->ops->numbers(store, &(struct store_change){.leaf_count = 0}), 0);
    store->ops->destroy(store);
}

/* If this fails, a malicious or broken worker's list of ids is taken for a good one. */
static void
test_ids_are_checked(void **state)
{
    uint64_t ids[4] = {1, 2, 3, 4};
    const uint32_t bits = 10;
    size_t at = 0;

    (void)state;
    bed_sort(ids, 4);
    assert_int_equal(sparse_check_ids(ids, 4, bits, 0, 1u << bits, &at), SPARSE_IDS_GOOD);
    assert_int_equal(sparse_check_ids(ids, 0, bits, 0, 0, &at), SPARSE_IDS_GOOD);
    assert_int_equal(sparse_check_ids(ids, 4, bits, psi_bucket_of(ids[1], bits), 1u << bits, &at),
                     SPARSE_IDS_FOREIGN);
    assert_int_equal(at, 0);
    assert_int_equal(sparse_check_ids(ids, 4, bits, 0, psi_bucket_of(ids[3], bits), &at),
                     SPARSE_IDS_FOREIGN);
    assert_int_equal(at, 3);
    ids[2] = ids[1];
    assert_int_equal(sparse_check_ids(ids, 4, bits, 0, 1u << bits, &at), SPARSE_IDS_REPEATED);
    assert_int_equal(at, 2);
    ids[2] = ids[3];
    ids[3] = ids[0];
    assert_int_equal(sparse_check_ids(ids, 4, bits, 0, 1u << bits, &at), SPARSE_IDS_UNSORTED);
    assert_int_equal(at, 3);
}

/* If this fails, one bad number of a worker spoils a table that was to be kept from it. */
static void
test_not_finite_changes_nothing(void **state)
{
    struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {0};
    struct sparse *store;
    uint64_t ids[3] = {10, 20, 30};
    float gradients[3][WIDTH] = {{1}, {2}, {3}};
    float before[3][WIDTH];
    float after[3][WIDTH];
    struct sparse_outcome outcome;

    (void)state;
    bed_sort(ids, 3);
    store = bed_create(&spec, &policy, BITS);
    bed_apply(store, ids, gradients[0], 3, 0);
    sparse_lookup(store, ids, 3, before);
    gradients[1][2] = NAN;
    outcome = bed_apply(store, ids, gradients[0], 3, 1);
    assert_true(outcome.not_finite);
    assert_int_equal(outcome.bad_id, ids[1]);
    sparse_lookup(store, ids, 3, after);
    assert_memory_equal(before, after, sizeof(before));
    sparse_destroy(store);

    spec.nan_policy = PSD_NAN_ALLOW;
    store = bed_create(&spec, &policy, BITS);
    outcome = bed_apply(store, ids, gradients[0], 3, 1);
    assert_false(outcome.not_finite);
    sparse_lookup(store, ids, 3, after);
    assert_true(isnan(after[1][2]));
    sparse_destroy(store);
}

/* The id whose mixed id this is. */
static uint64_t
unmix(uint64_t key)
{
    key = (key ^ key >> 31 ^ key >> 62) * UINT64_C(0x319642b2d24d8ec3);
    key = (key ^ key >> 27 ^ key >> 54) * UINT64_C(0x96de1b173f119089);
    return key ^ key >> 30 ^ key >> 60;
}

/* If this fails, a worker that says a step beyond all sense ends the server. */
static void
test_steps_beyond_the_last(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, 1);
    struct psi_row_policy policy = {.idle_steps = 1, .sweep_every = 1, .admit_after = 2};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    const float gradient = 1;
    const uint64_t id = 3;

    (void)state;
    assert_int_equal(bed_apply(store, &id, &gradient, 1, UINT64_MAX - 1).waiting, 1);
    assert_int_equal(bed_apply(store, &id, &gradient, 1, UINT32_MAX).created, 1);
    assert_int_equal(sparse_close_step(store, UINT64_MAX - 1), 0);
    assert_int_equal(sparse_close_step(store, UINT64_MAX), 0);
    assert_int_equal(sparse_bucket_info(store, psi_bucket_of(id, BITS)).rows, 1);
    sparse_destroy(store);
}

/* If this fails, ids that were chosen to collide crash the server or are mixed up. */
static void
test_ids_that_collide(void **state)
{
    enum { ROWS = 1000 };
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, 1);
    struct psi_row_policy policy = {0};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    uint64_t ids[ROWS];
    float gradients[ROWS] = {0};
    struct bed_rows all;

    (void)state;
    for (uint64_t i = 0; i < ROWS; i++) {
        const uint64_t key = UINT64_C(0x1234567) << 36 | i << 8; /* one bucket, home and tag */

        ids[i] = unmix(key);
        assert_int_equal(psi_bucket_mix(ids[i]), key);
    }
    for (uint32_t step = 0; step < 3; step++) {
        const struct sparse_outcome outcome = bed_apply(store, ids, gradients, ROWS, step);

        assert_int_equal(outcome.created, step == 0 ? ROWS : 0);
    }
    for (size_t batch = 90; batch < ROWS; batch += 400) {
        all = bed_save(store, BITS, 0, batch, &spec);
        assert_int_equal(all.rows.count, ROWS);
        assert_memory_equal(all.rows.ids, ids, sizeof(ids));
        bed_free(&all);
    }
    sparse_clear(store, psi_bucket_of(ids[0], BITS));
    all = bed_save(store, BITS, 0, 90, &spec);
    assert_int_equal(all.rows.count, 0);
    bed_free(&all);
    sparse_destroy(store);
}

/* If this fails, searches in a table whose rows come and go become longer and longer. */
static void
test_removed_rows_leave_nothing(void **state)
{
    enum { ROWS = 2000 };
    struct row_index index = {0};
    struct index_memory memory;
    struct row_pool pool;
    uint32_t slots[ROWS];

    (void)state;
    assert_int_equal(row_pool_init(&pool, ROW_HEAD_BYTES, ROWS, NULL), PSD_OK);
    assert_int_equal(index_memory_init(&memory, ROWS, 1, NULL), PSD_OK);
    for (uint64_t id = 0; id < ROWS; id++) {
        const uint64_t bytes = row_index_next_bytes(&index, 0);

        if (row_pool_spare(&pool) == 0) {
            row_pool_grow(&pool);
        }
        if (bytes > 0) {
            assert_true(row_index_grow(&index, bytes, &memory, &pool, BITS));
        }
        slots[id] = row_pool_take(&pool);
        row_at(&pool, slots[id])->id = id;
        row_index_add(&index, BITS, psi_bucket_mix(id), slots[id]);
    }
    for (uint64_t id = ROWS; id > 0; id--) {
        row_index_remove(&index, BITS, psi_bucket_mix(id - 1), slots[id - 1]);
    }
    assert_int_equal(index.rows, 0);
    for (uint32_t i = 0; i < index.group_count; i++) {
        assert_int_equal(index.groups[i].passed, 0);
        assert_int_equal(group_match(&index.groups[i], 0), (1u << GROUP_SLOTS) - 1);
    }
    row_index_fini(&index, &memory);
    assert_int_equal(memory.end, 0);
    index_memory_fini(&memory);
    row_pool_fini(&pool);
}

/* If this fails, memory that is touched ahead is not used, or is more than there may be. */
static void
test_touch_ahead(void **state)
{
    enum { BATCH = 4096 };
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, 64);
    struct psi_row_policy policy = {0};
    struct sparse *store = bed_create(&spec, &policy, BITS);
    static uint64_t ids[BATCH];
    static float gradients[BATCH][64];
    uint64_t ahead = sparse_touch_ahead(store, 8 << 20);
    float row[64];

    (void)state;
    assert_true(ahead <= 10 << 20);
    for (uint64_t i = 0; i < BATCH; i++) {
        ids[i] = i;
        gradients[i][0] = 1;
    }
    bed_sort(ids, BATCH);
    bed_apply(store, ids, gradients[0], BATCH, 0);
    sparse_lookup(store, ids, 1, row);
    sparse_touch_ahead(store, 8 << 20);
    gradients[0][0] = 0;
    bed_apply(store, ids, gradients[0], 1, 1);
    sparse_lookup(store, ids, 1, gradients[0]);
    assert_memory_equal(gradients[0], row, sizeof(row)); /* touching has changed nothing */
    sparse_destroy(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_agree_with_a_model),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_memory_of_a_row),
        cmocka_unit_test(test_a_change_is_as_large_as_its_rows),
        cmocka_unit_test(test_ids_are_checked),
        cmocka_unit_test(test_not_finite_changes_nothing),
        cmocka_unit_test(test_steps_beyond_the_last),
        cmocka_unit_test(test_ids_that_collide),
        cmocka_unit_test(test_removed_rows_leave_nothing),
        cmocka_unit_test(test_touch_ahead),
    };

    return cmocka_run_group_tests_name("store_sparse", tests, NULL, NULL);
}
