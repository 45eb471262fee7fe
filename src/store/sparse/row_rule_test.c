/*
 * row_rule_test.c - the rules of sparse tables: beside values from an independent program
 * (tests/reference/sparse_rules.py), beside dense tables bit by bit, and saved and loaded in between.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "store/dense/apply.h"
#include "store/half.h"
#include "store/initial.h"
#include "store/merge.h"
#include "store/sparse/row_reference.h"
#include "store/sparse/sparse_bed.h"
#include "table/rule_args.h"

enum { BITS = 4 };

static struct sparse *
create(const struct psi_spec *spec, const struct psi_row_policy *policy, enum kernel_level level)
{
    const struct sparse_layout layout = {
        .spec = spec, .policy = policy, .bucket_bits = BITS, .level = level};
    struct psd_error err = {0};
    struct sparse *store;

    if (sparse_create(&layout, &store, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    return store;
}

/* ---- An independent program ---- */

/* The generator of sparse_rules.py. */
static uint32_t
next_draw(uint32_t *generator)
{
    *generator = *generator * 1664525u + 1013904223u;
    return *generator >> 8;
}

static void
compare(const struct row_reference *reference, int shown, struct sparse *store)
{
    for (uint64_t id = 0; id < REFERENCE_ROWS; id++) {
        float values[REFERENCE_WIDTH];

        sparse_lookup(store, &id, 1, values);
        for (int i = 0; i < REFERENCE_WIDTH; i++) {
            const double expected = reference->values[shown][id * REFERENCE_WIDTH + (size_t)i];

            if (fabs((double)values[i] - expected) > 2e-5 * fabs(expected) + 1e-7) {
                fail_msg("%s, update %llu, row %llu, number %d: %.9g, expected %.9g",
                         reference->name, (unsigned long long)reference_updates[shown],
                         (unsigned long long)id, i, (double)values[i], expected);
            }
        }
    }
}

static void
run_reference(const struct row_reference *reference, enum kernel_level level)
{
    struct psi_row_policy policy = {.row_wise = reference->row_wise,
                                    .group_lasso = reference->group_lasso};
    struct psi_spec spec = bed_spec(reference->args.rule, REFERENCE_WIDTH);
    uint32_t generator = REFERENCE_SEED;
    struct sparse *store;
    int shown = 0;

    spec.rule = reference->args;
    spec.init = PSD_INIT_CONSTANT;
    spec.init_value = REFERENCE_INITIAL;
    psi_row_policy_fill(&policy, BITS);
    store = create(&spec, &policy, level);
    for (uint64_t update = 1; shown < REFERENCE_SHOWN; update++) {
        for (uint64_t id = 0; id < REFERENCE_ROWS; id++) {
            float gradient[REFERENCE_WIDTH];

            if (next_draw(&generator) % 3 != 0) {
                for (int i = 0; i < REFERENCE_WIDTH; i++) {
                    gradient[i] = (float)((double)next_draw(&generator) / 8388608.0 - 1);
                }
                bed_apply(store, &id, gradient, 1, update - 1);
            }
        }
        if (update == reference_updates[shown]) {
            compare(reference, shown, store);
            shown++;
        }
    }
    sparse_destroy(store);
}

/* If this fails, a rule does to a row something else than the manual says: counts steps in which the
 * row had no gradient, say. */
static void
test_rules_match_reference(void **state)
{
    unsigned rules = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(row_references) / sizeof(row_references[0]); i++) {
        rules |= 1u << row_references[i].args.rule;
        for (int level = 0; level < KERNEL_LEVELS; level++) {
            if (psi_kernel_level_supported((enum kernel_level)level)) {
                run_reference(&row_references[i], (enum kernel_level)level);
            }
        }
    }
    assert_int_equal(rules, (1u << PSI_RULES) - 1); /* none was forgotten */
}

/* ---- A dense table ---- */

enum { ROWS = 120, WIDTH = 19, RANKS = 5, ROUNDS = 25, ELEMENTS = ROWS * WIDTH };

static _Alignas(64) double scratch[APPLY_SCRATCH_BYTES / sizeof(double)];

/* The same table, dense: all rows of the ids 0 .. ROWS - 1. */
struct dense_twin {
    char values[ELEMENTS * sizeof(float)];
    float master[ELEMENTS];
    float state[PSI_STATES_MAX][ELEMENTS];
    char gradients[RANKS][ELEMENTS * sizeof(float)];
};

/* What the ranks push: the rows that they have. */
struct lists {
    uint64_t ids[RANKS][ROWS];
    char rows[RANKS][ELEMENTS * sizeof(float)];
    struct psi_row_list list[RANKS];
};

static void
put(psd_dtype dtype, char *to, size_t index, float value)
{
    const uint16_t half = dtype == PSD_F16 ? f16_from_float(value) : bf16_from_float(value);

    if (dtype == PSD_F32) {
        memcpy(to + index * sizeof(value), &value, sizeof(value));
    } else {
        memcpy(to + index * sizeof(half), &half, sizeof(half));
    }
}

static void
draw_round(psd_dtype dtype, uint64_t *random, struct dense_twin *twin, struct lists *lists)
{
    memset(twin->gradients, 0, sizeof(twin->gradients));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        size_t count = 0;

        for (uint64_t id = 0; id < ROWS; id++) {
            if (bed_below(random, 3) == 0) {
                lists->ids[rank][count++] = id;
            }
        }
        count = bed_sort(lists->ids[rank], count);
        for (size_t i = 0; i < count; i++) {
            for (size_t j = 0; j < WIDTH; j++) {
                const float number = bed_number(random);

                put(dtype, twin->gradients[rank], lists->ids[rank][i] * WIDTH + j, number);
                put(dtype, lists->rows[rank], i * WIDTH + j, number);
            }
        }
        lists->list[rank] = (struct psi_row_list){.rank = rank == RANKS - 1 ? 17 : rank,
                                                  .ids = lists->ids[rank],
                                                  .rows = lists->rows[rank],
                                                  .count = count};
    }
}

static void
apply_dense(struct dense_twin *twin, const struct psi_spec *spec, const struct lists *lists,
            uint64_t update, uint32_t divisor)
{
    struct leaf leaves[RANKS];
    struct apply apply = {
        .kernels = psi_kernel_level_kernels(psi_kernel_level_best()),
        .dtype = spec->dtype,
        .use = PSD_USE_UPDATE,
        .rule = &spec->rule,
        .elements = ELEMENTS,
        .leaves = leaves,
        .leaf_count = RANKS,
        .divisor = divisor,
        .check = true,
        .update = update,
        .from = twin->values,
        .to = twin->values,
        .master = twin->master,
        .state = {twin->state[0], twin->state[1]},
    };

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        leaves[rank] = (struct leaf){.rank = lists->list[rank].rank, .data = twin->gradients[rank]};
    }
    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
}

static void
run_beside_dense(const struct psi_spec *spec, uint64_t seed)
{
    const size_t row_bytes = WIDTH * psi_dtype_bytes(spec->dtype);
    struct dense_twin *twin = calloc(1, sizeof(*twin));
    struct lists *lists = calloc(1, sizeof(*lists));
    struct psi_row_policy policy = {0};
    struct psi_merge merge = {0};
    struct sparse *store = bed_create(spec, &policy, BITS);
    uint64_t random = seed;

    assert_true(twin != NULL && lists != NULL);
    store_initial(spec->init, spec->init_value, spec->seed, spec->dtype, 0, ELEMENTS, twin->values);
    store_initial(spec->init, spec->init_value, spec->seed, PSD_F32, 0, ELEMENTS, twin->master);
    for (uint64_t update = 1; update <= ROUNDS; update++) {
        const uint32_t divisor = (uint32_t)(update % 6);
        struct sparse_change change = {
            .is_sum = true, .divisor = divisor, .update = update, .step = update - 1};
        struct sparse_outcome outcome;

        draw_round(spec->dtype, &random, twin, lists);
        apply_dense(twin, spec, lists, update, divisor);
        assert_int_equal(psi_merge_rows(&merge, spec->dtype, WIDTH, psi_kernel_level_best(),
                                        lists->list, RANKS, NULL),
                         PSD_OK);
        change.ids = merge.ids;
        change.gradients = merge.sums;
        change.count = merge.count;
        sparse_apply(store, &change, &outcome);
        assert_false(outcome.not_finite);
    }
    for (uint64_t id = 0; id < ROWS; id++) {
        char row[WIDTH * sizeof(float)];

        sparse_lookup(store, &id, 1, row);
        assert_memory_equal(row, twin->values + id * row_bytes, row_bytes);
    }
    psi_merge_fini(&merge);
    sparse_destroy(store);
    free(twin);
    free(lists);
}

/* If this fails, a model trained with a sparse table differs from the same one with a dense table. */
static void
test_same_bits_as_a_dense_table(void **state)
{
    static const psd_rule same[] = {PSD_RULE_SGD, PSD_RULE_ADD, PSD_RULE_ADAGRAD};
    static const psd_dtype dtypes[] = {PSD_F32, PSD_F16, PSD_BF16};

    (void)state;
    for (uint64_t seed = 1; seed <= 18; seed++) {
        struct psi_spec spec = bed_spec(same[seed % 3], WIDTH);

        spec.dtype = dtypes[seed / 3 % 3];
        spec.rule.clip_value = seed > 9 ? 0.75 : 0;
        spec.rule.warmup = spec.rule.rule == PSD_RULE_SGD ? 7 : 0;
        spec.init_value = 0.5;
        print_message("seed %llu\n", (unsigned long long)seed);
        run_beside_dense(&spec, seed);
    }
}

/* If this fails, a gradient that comes alone in 16 bits is not what the sum of one worker is. */
static void
test_one_gradient_in_the_table_s_type(void **state)
{
    struct psi_spec spec = bed_spec(PSD_RULE_ADAM, 3);
    struct psi_row_policy policy = {0};
    const uint64_t id = 77;
    const float wide[3] = {0.5f, -0.25f, 1.5f};
    uint16_t narrow[3];
    float rows[2][3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        narrow[i] = f16_from_float(wide[i]);
    }
    spec.dtype = PSD_F16;
    for (int as_sum = 0; as_sum < 2; as_sum++) {
        struct sparse *store = bed_create(&spec, &policy, BITS);
        const struct sparse_change change = {.ids = &id,
                                             .gradients = as_sum ? (const void *)wide : narrow,
                                             .count = 1,
                                             .is_sum = as_sum != 0,
                                             .divisor = 3,
                                             .update = 1};
        struct sparse_outcome outcome;

        sparse_apply(store, &change, &outcome);
        sparse_lookup(store, &id, 1, rows[as_sum]);
        sparse_destroy(store);
    }
    assert_memory_equal(rows[0], rows[1], 3 * sizeof(uint16_t));
}

/* If this fails, a value that 16 bits cannot hold becomes infinite and nobody says so. */
static void
test_a_value_that_is_too_large(void **state)
{
    struct psi_spec spec = bed_spec(PSD_RULE_ADD, 2);
    struct psi_row_policy policy = {0};
    const uint64_t ids[1] = {5};
    const float gradient[2] = {1, 65520};
    struct sparse_outcome outcome;
    struct sparse *store;

    (void)state;
    spec.dtype = PSD_F16;
    spec.init = PSD_INIT_ZERO;
    spec.init_value = 0;
    store = bed_create(&spec, &policy, BITS);
    outcome = bed_apply(store, ids, gradient, 1, 0);
    assert_true(outcome.not_finite);
    assert_int_equal(outcome.bad_id, 5);
    sparse_destroy(store);
}

/* ---- Saved and loaded ---- */

static void
train(struct sparse *store, uint64_t *random, uint64_t from, uint64_t to)
{
    enum { COUNT = 60 };

    for (uint64_t step = from; step < to; step++) {
        uint64_t ids[COUNT];
        float gradients[COUNT][REFERENCE_WIDTH];
        size_t count;

        for (int i = 0; i < COUNT; i++) {
            ids[i] = bed_below(random, 200) << 50;
            for (int j = 0; j < REFERENCE_WIDTH; j++) {
                gradients[i][j] = bed_number(random);
            }
        }
        count = bed_sort(ids, COUNT);
        bed_apply(store, ids, gradients[0], count, step);
    }
}

static void
assert_same_rows(const struct sparse *a, const struct sparse *b, const struct psi_spec *spec)
{
    struct bed_rows left = bed_save(a, BITS, 0, 7, spec);
    struct bed_rows right = bed_save(b, BITS, 0, 64, spec);
    const size_t count = left.rows.count;
    const size_t states = sparse_state_numbers(a);

    assert_int_equal(count, right.rows.count);
    assert_true(count > 100);
    assert_memory_equal(left.rows.ids, right.rows.ids, count * sizeof(uint64_t));
    assert_memory_equal(left.rows.values, right.rows.values, count * spec->count * sizeof(float));
    if (states > 0) {
        assert_memory_equal(left.rows.state, right.rows.state, count * states * sizeof(float));
    }
    assert_memory_equal(left.rows.steps, right.rows.steps, count * sizeof(uint32_t));
    assert_memory_equal(left.rows.counts, right.rows.counts, count * sizeof(uint32_t));
    bed_free(&left);
    bed_free(&right);
}

/* If this fails, a training that is loaded goes on differently from one that was not interrupted. */
static void
test_loaded_rows_go_on_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(row_references) / sizeof(row_references[0]); i++) {
        struct psi_row_policy policy = {.row_wise = row_references[i].row_wise,
                                        .group_lasso = row_references[i].group_lasso};
        struct psi_spec spec = bed_spec(row_references[i].args.rule, REFERENCE_WIDTH);
        uint64_t random = i;
        struct bed_rows saved;
        struct sparse *first;
        struct sparse *second;
        uint64_t same;

        spec.rule = row_references[i].args;
        spec.dtype = i % 2 == 0 ? PSD_F32 : PSD_BF16;
        spec.init = PSD_INIT_UNIFORM;
        first = bed_create(&spec, &policy, BITS);
        second = bed_create(&spec, &policy, BITS);
        train(first, &random, 0, 12);
        saved = bed_save(first, BITS, 0, 10, &spec);
        assert_true(sparse_load(second, &saved.rows));
        assert_true(sparse_load(second, &saved.rows)); /* over what is there */
        assert_same_rows(first, second, &spec);
        same = random;
        train(first, &random, 12, 25);
        train(second, &same, 12, 25);
        assert_same_rows(first, second, &spec);
        bed_free(&saved);
        sparse_destroy(first);
        sparse_destroy(second);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_match_reference),
        cmocka_unit_test(test_same_bits_as_a_dense_table),
        cmocka_unit_test(test_one_gradient_in_the_table_s_type),
        cmocka_unit_test(test_a_value_that_is_too_large),
        cmocka_unit_test(test_loaded_rows_go_on_alike),
    };

    return cmocka_run_group_tests_name("store_sparse_rule", tests, NULL, NULL);
}
