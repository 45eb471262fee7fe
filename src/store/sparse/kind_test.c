/*
 * kind_test.c - the version before the current one, where only what has changed is kept of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/sparse/kind.h"
#include "store/sparse/sparse_bed.h"
#include "store/sum.h"

enum { WIDTH = 3, IDS = 6000, PUSHED = 300, STEPS = 40 };

struct looked_up {
    uint64_t ids[IDS];
    float rows[IDS * WIDTH];
    float again[IDS * WIDTH];
};

static struct store *
create(struct psi_spec *spec, const struct psd_sparse_args *asked)
{
    struct psd_sparse_args args = *asked;
    struct store_layout layout = {.spec = spec,
                                  .chunks = 1,
                                  .chunks_in_all = 1,
                                  .retain = true,
                                  .level = psi_kernel_level_best()};
    struct store *store;

    args.struct_size = sizeof(args);
    args.name = "e";
    args.width = WIDTH;
    args.init = PSD_INIT_UNIFORM;
    args.init_value = 1;
    assert_int_equal(psi_spec_init_sparse(spec, &args, 1, NULL), PSD_OK);
    assert_int_equal(store_sparse.create(&layout, &store, NULL), PSD_OK);
    return store;
}

static void
change(struct store *store, uint64_t step, uint64_t *random)
{
    uint64_t ids[PUSHED];
    float gradients[PUSHED * WIDTH];
    struct store_rows rows = {.ids = ids, .rows = gradients};
    const struct leaf leaf = {.data = &rows};
    struct store_trouble trouble;
    const struct store_change change = {.leaves = &leaf,
                                        .leaf_count = 1,
                                        .update = step + 1,
                                        .step = step,
                                        .from = step % 2,
                                        .to = 1 - step % 2,
                                        .trouble = &trouble};

    for (unsigned i = 0; i < PUSHED; i++) {
        ids[i] = bed_below(random, IDS);
    }
    rows.count = (uint32_t)bed_sort(ids, PUSHED);
    for (unsigned i = 0; i < PUSHED * WIDTH; i++) {
        gradients[i] = bed_number(random);
    }
    assert_int_equal(store->ops->apply(store, 0, &change), STORE_OK);
}

static void
look(struct store *store, struct looked_up *all, uint32_t buffer, float *rows)
{
    const struct store_rows asked = {.ids = all->ids, .count = IDS};

    store->ops->lookup(store, 0, buffer, &asked, rows);
}

static bool
is_same(const float *a, const float *b, unsigned row)
{
    return memcmp(&a[row * WIDTH], &b[row * WIDTH], WIDTH * sizeof(float)) == 0;
}

static void
check_with(const struct psd_sparse_args *args, bool rows_go)
{
    struct psi_spec spec;
    struct store *store = create(&spec, args);
    struct looked_up *all = malloc(sizeof(*all));
    float *initial = malloc(sizeof(all->rows));
    uint64_t random = 5;
    unsigned changed = 0;
    unsigned went = 0;

    assert_true(all != NULL && initial != NULL);
    for (uint64_t i = 0; i < IDS; i++) {
        all->ids[i] = i;
    }
    assert_int_equal(bed_sort(all->ids, IDS), IDS);
    look(store, all, 0, initial);
    for (uint64_t step = 0; step < STEPS; step++) {
        look(store, all, step % 2, all->rows);
        change(store, step, &random);
        look(store, all, step % 2, all->again);
        assert_memory_equal(all->rows, all->again, sizeof(all->rows));
        look(store, all, 1 - step % 2, all->again);
        for (unsigned row = 0; row < IDS; row++) {
            changed += !is_same(all->rows, all->again, row);
            went += !is_same(all->rows, initial, row) && is_same(all->again, initial, row);
        }
    }
    assert_true(changed > 0);
    assert_true((went > 0) == rows_go);
    store->ops->destroy(store);
    free(all);
    free(initial);
}

/* If this fails, a replacement computes its step again from rows that the step has changed. */
static void
test_rows_are_as_they_were_a_step_ago(void **state)
{
    (void)state;
    check_with(&(struct psd_sparse_args){.dtype = PSD_F32}, false);
    check_with(&(struct psd_sparse_args){.dtype = PSD_F32, .admit_after = 2}, false);
}

/* If this fails, a replacement computes its step again without the rows that went at the end of it. */
static void
test_rows_that_went_were_there_a_step_ago(void **state)
{
    (void)state;
    check_with(&(struct psd_sparse_args){.dtype = PSD_F32, .idle_steps = 5, .sweep_every = 3},
               true);
    check_with(&(struct psd_sparse_args){.dtype = PSD_F32, .norm_min = 0.9, .sweep_every = 7},
               true);
    check_with(
        &(struct psd_sparse_args){.dtype = PSD_F32, .capacity_rows = 2048, .full = PSD_FULL_OLDEST},
        true);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_as_they_were_a_step_ago),
        cmocka_unit_test(test_rows_that_went_were_there_a_step_ago),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
