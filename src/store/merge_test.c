/*
 * merge_test.c - lists of rows become one; the sums have the bits of the tree.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/merge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "store/half.h"
#include "store/sparse/sparse_bed.h"
#include "store/sum.h"

enum { WIDTH = 37, IDS = 200, LISTS_MAX = 20 };

static _Alignas(64) char scratch[SUM_SCRATCH_BYTES];

/* What the ranks give: whether they have an id, and its row, in the table's type. */
struct given {
    uint32_t count;
    uint32_t ranks[LISTS_MAX];
    bool has[LISTS_MAX][IDS];
    uint64_t ids[IDS]; /* sorted */
    uint64_t list_ids[LISTS_MAX][IDS];
    char rows[LISTS_MAX][IDS * WIDTH * sizeof(float)];
    struct psi_row_list lists[LISTS_MAX];
};

static void
put_row(psd_dtype dtype, uint64_t *random, char *to)
{
    for (size_t i = 0; i < WIDTH; i++) {
        const float number = bed_number(random);
        const uint16_t half = dtype == PSD_F16 ? f16_from_float(number) : bf16_from_float(number);

        if (dtype == PSD_F32) {
            memcpy(to + i * sizeof(number), &number, sizeof(number));
        } else {
            memcpy(to + i * sizeof(half), &half, sizeof(half));
        }
    }
}

static struct given *
give(psd_dtype dtype, uint64_t *random)
{
    struct given *given = calloc(1, sizeof(*given));
    const size_t row_bytes = WIDTH * psi_dtype_bytes(dtype);

    assert_non_null(given);
    for (size_t i = 0; i < IDS; i++) {
        given->ids[i] = bed_draw(random);
    }
    assert_int_equal(bed_sort(given->ids, IDS), IDS);
    given->count = (uint32_t)bed_below(random, LISTS_MAX + 1);
    for (uint32_t list = 0; list < given->count; list++) {
        size_t rows = 0;

        given->ranks[list] = (list > 0 ? given->ranks[list - 1] + 1 : 0) +
                             (uint32_t)(bed_below(random, 4) == 0 ? bed_below(random, 9) : 0);
        for (size_t i = 0; i < IDS; i++) {
            given->has[list][i] = bed_below(random, 3) == 0;
            if (given->has[list][i]) {
                given->list_ids[list][rows] = given->ids[i];
                put_row(dtype, random, given->rows[list] + rows * row_bytes);
                rows++;
            }
        }
        given->lists[list] = (struct psi_row_list){.rank = given->ranks[list],
                                                   .ids = given->list_ids[list],
                                                   .rows = given->rows[list],
                                                   .count = rows};
    }
    return given;
}

/* The sum of one id, by sum.c alone. Returns how many ranks have it. */
static uint32_t
expect(const struct given *given, psd_dtype dtype, size_t id, const size_t *at, float *sum)
{
    struct leaf leaves[LISTS_MAX];
    struct psi_sum tree;
    uint32_t count = 0;

    for (uint32_t list = 0; list < given->count; list++) {
        if (given->has[list][id]) {
            leaves[count++] = (struct leaf){.rank = given->ranks[list],
                                            .data = given->rows[list] +
                                                    at[list] * WIDTH * psi_dtype_bytes(dtype)};
        }
    }
    psi_sum_init(&tree, psi_kernel_level_kernels(KERNEL_SCALAR), dtype, leaves, count, scratch);
    psi_sum_all(&tree, WIDTH, sum);
    return count;
}

static void
compare(const struct given *given, psd_dtype dtype, const struct psi_merge *merge)
{
    size_t at[LISTS_MAX] = {0};
    size_t rows = 0;

    for (size_t id = 0; id < IDS; id++) {
        float sum[WIDTH];

        if (expect(given, dtype, id, at, sum) > 0) {
            assert_true(rows < merge->count);
            assert_int_equal(merge->ids[rows], given->ids[id]);
            assert_memory_equal(merge->sums + rows * WIDTH, sum, sizeof(sum));
            rows++;
        }
        for (uint32_t list = 0; list < given->count; list++) {
            at[list] += given->has[list][id];
        }
    }
    assert_int_equal(rows, merge->count);
}

/* If this fails, a sum has other bits than a dense table gives it, or a row of a worker is lost or
 * counted twice. */
static void
test_sums_are_those_of_the_tree(void **state)
{
    static const psd_dtype dtypes[] = {PSD_F32, PSD_F16, PSD_BF16};
    struct psi_merge merge = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        const psd_dtype dtype = dtypes[seed % 3];
        uint64_t random = seed;
        struct given *given = give(dtype, &random);

        print_message("seed %llu\n", (unsigned long long)seed);
        for (int level = 0; level < KERNEL_LEVELS; level++) {
            if (psi_kernel_level_supported((enum kernel_level)level)) {
                assert_int_equal(psi_merge_rows(&merge, dtype, WIDTH, (enum kernel_level)level,
                                                given->lists, given->count, NULL),
                                 PSD_OK);
                compare(given, dtype, &merge);
            }
        }
        free(given);
    }
    psi_merge_fini(&merge);
}

/* If this fails, the bits of a sum depend on whether a host has added up its workers' rows. */
static void
test_sums_of_a_host(void **state)
{
    const enum kernel_level level = psi_kernel_level_best();
    uint64_t random = 7;
    struct psi_merge hosts[2] = {{0}};
    struct psi_merge whole = {0};
    struct psi_merge parts = {0};
    struct given *given = NULL;
    struct psi_row_list lists[2];

    (void)state;
    do {
        free(given);
        given = give(PSD_F16, &random);
    } while (given->count < 8 || given->ranks[7] != 7);
    for (uint32_t host = 0; host < 2; host++) {
        assert_int_equal(
            psi_merge_rows(&hosts[host], PSD_F16, WIDTH, level, &given->lists[host * 4], 4, NULL),
            PSD_OK);
        lists[host] = (struct psi_row_list){.rank = host * 4,
                                            .is_sum = true,
                                            .ids = hosts[host].ids,
                                            .rows = hosts[host].sums,
                                            .count = hosts[host].count};
    }
    assert_int_equal(psi_merge_rows(&whole, PSD_F16, WIDTH, level, given->lists, 8, NULL), PSD_OK);
    assert_int_equal(psi_merge_rows(&parts, PSD_F16, WIDTH, level, lists, 2, NULL), PSD_OK);
    assert_int_equal(whole.count, parts.count);
    assert_memory_equal(whole.ids, parts.ids, whole.count * sizeof(whole.ids[0]));
    assert_memory_equal(whole.sums, parts.sums, whole.count * WIDTH * sizeof(float));
    psi_merge_fini(&hosts[0]);
    psi_merge_fini(&hosts[1]);
    psi_merge_fini(&whole);
    psi_merge_fini(&parts);
    free(given);
}

/* If this fails, a table that keeps nothing answers with numbers that are not the mean, not in its
 * type, or not finite without saying so. */
static void
test_published_and_checked(void **state)
{
    const enum kernel_level level = psi_kernel_level_best();
    const float rows[2][2] = {{1, 3}, {9, -9}};
    struct psi_merge merge = {0};
    uint64_t sorted[2] = {5, 6};
    float mean[2][2];
    uint16_t half[2][2];
    const struct psi_row_list lists[2] = {{.rank = 0, .ids = sorted, .rows = rows, .count = 2},
                                          {.rank = 3, .ids = &sorted[1], .rows = rows, .count = 1}};
    size_t at = 99;

    (void)state;
    bed_sort(sorted, 2);
    assert_int_equal(psi_merge_rows(&merge, PSD_F32, 2, level, lists, 2, NULL), PSD_OK);
    assert_true(psi_merge_finite(&merge, 2, level, &at));
    psi_merge_publish(&merge, PSD_F32, 2, level, 4, mean);
    assert_true(mean[0][0] == 0.25f && mean[0][1] == 0.75f);
    assert_true(mean[1][0] == 2.5f && mean[1][1] == -1.5f);
    psi_merge_publish(&merge, PSD_BF16, 2, level, 0, half);
    assert_int_equal(half[1][0], bf16_from_float(10));
    merge.sums[3] *= 1e38f;
    merge.sums[3] *= 1e38f;
    assert_false(psi_merge_finite(&merge, 2, level, &at));
    assert_int_equal(at, 1);
    psi_merge_fini(&merge);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_the_tree),
        cmocka_unit_test(test_sums_of_a_host),
        cmocka_unit_test(test_published_and_checked),
    };

    return cmocka_run_group_tests_name("store_merge", tests, NULL, NULL);
}
