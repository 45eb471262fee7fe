/*
 * dense_test.c - a dense store, as a lane sees it: through its functions alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/dense/dense.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/sum.h"

enum { LAST = 5, CHUNKS = 2 }; /* elements of the last chunk; chunks on this lane */

/* Chunks 0 and 2 of a table of three. */
static struct store *
create(struct psi_spec *spec, psd_dtype dtype, psd_rule rule, bool retain)
{
    const struct psd_rule_args rule_args = {
        .struct_size = sizeof(rule_args), .rule = rule, .learning_rate = rule == PSD_RULE_SGD};
    const struct psd_table_args args = {.struct_size = sizeof(args),
                                        .name = "w",
                                        .dtype = dtype,
                                        .dims = 1,
                                        .shape = {2 * PSD_CHUNK_ELEMENTS + LAST},
                                        .reduce = PSD_REDUCE_SUM,
                                        .rule = &rule_args,
                                        .init = PSD_INIT_CONSTANT,
                                        .init_value = 2};
    const struct store_layout layout = {.spec = spec,
                                        .chunks = CHUNKS,
                                        .elements = PSD_CHUNK_ELEMENTS + LAST,
                                        .retain = retain,
                                        .copied = true, /* where values are shared */
                                        .level = psi_kernel_level_best()};
    struct store *store = NULL;

    assert_int_equal(psi_spec_init(spec, &args, 2, NULL), PSD_OK);
    assert_int_equal(store_dense.create(&layout, &store, NULL), PSD_OK);
    assert_int_equal(store->bytes, store_dense.bytes(&layout));
    assert_null(store->values); /* nobody asked for it */
    assert_null(store->state);
    store->ops->place(store, 0, 0);
    store->ops->place(store, 1, 2);
    assert_true(store->ops->prepare(store, 0) > store->ops->prepare(store, 1));
    return store;
}

static float
first_of(const struct store *store, uint64_t chunk, uint32_t buffer)
{
    float value;

    memcpy(&value, store->ops->read(store, chunk, buffer).base, sizeof(value));
    return value;
}

static int64_t
apply(struct store *store, uint64_t chunk, const float *gradient, uint32_t from, uint32_t to)
{
    void *scratch = aligned_alloc(64, STORE_SCRATCH_BYTES);
    const struct leaf leaf = {.data = gradient};
    const struct store_change change = {
        .leaves = &leaf, .leaf_count = 1, .update = 1, .from = from, .to = to, .scratch = scratch};
    int64_t result;

    assert_non_null(scratch);
    result = store->ops->apply(store, chunk, &change);
    free(scratch);
    return result;
}

/* If this fails, a lane takes gradients of another size than its chunks have, or reads past one. */
static void
test_a_chunk_has_its_size(void **state)
{
    struct psi_spec spec;
    struct store *store = create(&spec, PSD_F16, PSD_RULE_SGD, false);

    (void)state;
    assert_int_equal(store->ops->sink(store, 0, false).numbers, PSD_CHUNK_ELEMENTS);
    assert_int_equal(store->ops->sink(store, 1, false).numbers, LAST);
    assert_int_equal(store->ops->sink(store, 1, false).dtype, PSD_F16);
    assert_int_equal(store->ops->sink(store, 1, true).dtype, PSD_F32); /* as it is computed */
    assert_int_equal(store->ops->read(store, 1, 0).bytes, LAST * 2);
    assert_int_equal(store->ops->part(store, 1, PSI_PART_VALUE, 0).bytes, LAST * 2);
    assert_int_equal(store->ops->part(store, 1, PSI_PART_MASTER, 0).bytes, LAST * 4);
    assert_int_equal(store->ops->part(store, 1, PSI_PART_STATE, 0).bytes, 0); /* sgd has none */
    assert_null(store->ops->part(store, 1, 255, 0).base);
    store->ops->destroy(store);
}

static bool
is_in(const struct psi_segment *segment, struct store_piece piece)
{
    return segment != NULL && piece.bytes > 0 && piece.base >= segment->base &&
           piece.base + piece.bytes <= segment->base + segment->bytes;
}

/* If this fails, a copy on this host is sent what it could read where it is; or workers may map state that they
 * have no use for. */
static void
test_segments_have_what_others_read(void **state)
{
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADAM};
    const struct psd_table_args args = {.struct_size = sizeof(args),
                                        .name = "w",
                                        .dtype = PSD_F16,
                                        .dims = 1,
                                        .shape = {PSD_CHUNK_ELEMENTS},
                                        .rule = &rule};
    struct store_layout layout = {.chunks = 1,
                                  .elements = PSD_CHUNK_ELEMENTS,
                                  .shared = true,
                                  .level = psi_kernel_level_best()};
    struct psi_spec spec;

    (void)state;
    assert_int_equal(psi_spec_init(&spec, &args, 2, NULL), PSD_OK);
    layout.spec = &spec;
    for (unsigned i = 0; i < 2; i++) {
        struct store *store = NULL;

        layout.copied = i == 1;
        assert_int_equal(store_dense.create(&layout, &store, NULL), PSD_OK);
        assert_int_equal(store->bytes, store_dense.bytes(&layout));
        store->ops->place(store, 0, 0);
        (void)store->ops->prepare(store, 0);
        for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
            const struct store_piece piece = store->ops->part(store, 0, part, 0);

            assert_int_equal(is_in(store->values, piece), part == PSI_PART_VALUE);
            assert_int_equal(is_in(store->state, piece), layout.copied && part != PSI_PART_VALUE);
        }
        store->ops->destroy(store);
    }
}

/* If this fails, an update changes another chunk, or the version that was to be kept. */
static void
test_an_update_changes_its_buffer_alone(void **state)
{
    const float gradient[LAST] = {1, 1, 1, 1, 1};
    struct psi_spec spec;
    struct store *store = create(&spec, PSD_F32, PSD_RULE_ADD, true);

    (void)state;
    assert_true(first_of(store, 1, 0) == 2 && first_of(store, 1, 1) == 2);
    assert_int_equal(apply(store, 1, gradient, 0, 1), STORE_OK);
    assert_true(first_of(store, 1, 0) == 2);
    assert_true(first_of(store, 1, 1) == 3);
    assert_int_equal(apply(store, 1, gradient, 1, 0), STORE_OK);
    assert_true(first_of(store, 1, 0) == 4);
    assert_true(first_of(store, 1, 1) == 3);
    assert_true(first_of(store, 0, 0) == 2);
    store->ops->destroy(store);
}

/* If this fails, a sum that is not finite is taken, or the message names another element. */
static void
test_what_is_not_finite_is_named(void **state)
{
    const float huge[LAST] = {0, 0, 0, 3e38f, 0};
    const struct leaf leaves[2] = {{.rank = 0, .data = huge}, {.rank = 1, .data = huge}};
    void *scratch = aligned_alloc(64, STORE_SCRATCH_BYTES);
    const struct store_change change = {
        .leaves = leaves, .leaf_count = 2, .update = 1, .scratch = scratch};
    struct psi_spec spec;
    struct store *store = create(&spec, PSD_F32, PSD_RULE_ADD, false);

    (void)state;
    assert_non_null(scratch);
    assert_int_equal(store->ops->apply(store, 1, &change), 3);
    assert_true(first_of(store, 1, 0) == 2);
    free(scratch);
    store->ops->destroy(store);
}

/* If this fails, training goes on from other numbers than worker 0 gave. */
static void
test_a_loaded_value_is_what_rules_work_on(void **state)
{
    static const uint16_t loaded[LAST] = {0x4400, 0x4400, 0x4400, 0x4400, 0x4400}; /* f16: 4 */
    struct psi_spec spec;
    struct store *store = create(&spec, PSD_F16, PSD_RULE_SGD, false);
    float master;

    (void)state;
    memcpy(store->ops->part(store, 1, PSI_PART_VALUE, 0).base, loaded, sizeof(loaded));
    store->ops->value_loaded(store, 1, 0);
    memcpy(&master, store->ops->part(store, 1, PSI_PART_MASTER, 0).base, sizeof(master));
    assert_true(master == 4);
    store->ops->destroy(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chunk_has_its_size),
        cmocka_unit_test(test_segments_have_what_others_read),
        cmocka_unit_test(test_an_update_changes_its_buffer_alone),
        cmocka_unit_test(test_what_is_not_finite_is_named),
        cmocka_unit_test(test_a_loaded_value_is_what_rules_work_on),
    };

    return cmocka_run_group_tests_name("store_dense", tests, NULL, NULL);
}
