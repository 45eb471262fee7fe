/*
 * apply_test.c - the sum along the tree, the update, and equal bits at every SIMD level.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/dense/apply.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clock/clock.h"
#include "store/half.h"
#include "store/level.h"

enum { SEED = 4711, RULES = PSI_RULES, DTYPES = 4, LEAVES_MAX = 64 };

static const psd_dtype dtypes[DTYPES] = {PSD_F32, PSD_F64, PSD_F16, PSD_BF16};

static _Alignas(64) double scratch[APPLY_SCRATCH_BYTES / sizeof(double)];

/* ------------------------------------------------------------------------------ randomness --- */

static uint64_t
draw(uint64_t *random)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return (*random ^ *random >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 13;
}

static uint64_t
below(uint64_t *random, uint64_t limit)
{
    return draw(random) % limit;
}

/* In [-2, 2), with about 24 significant bits. */
static double
calm_number(uint64_t *random)
{
    return (double)below(random, 1 << 25) * 0x1p-23 - 2;
}

static void
put(psd_dtype dtype, void *to, size_t index, double value)
{
    const float narrow = (float)value;
    const uint16_t half = dtype == PSD_F16 ? f16_from_float(narrow) : bf16_from_float(narrow);

    if (dtype == PSD_F64) {
        memcpy((char *)to + index * 8, &value, 8);
    } else if (dtype == PSD_F32) {
        memcpy((char *)to + index * 4, &narrow, 4);
    } else {
        memcpy((char *)to + index * 2, &half, 2);
    }
}

static double
get(psd_dtype dtype, const void *from, size_t index)
{
    double value;
    float narrow;
    uint16_t half;

    if (dtype == PSD_F64) {
        memcpy(&value, (const char *)from + index * 8, 8);
        return value;
    }
    if (dtype == PSD_F32) {
        memcpy(&narrow, (const char *)from + index * 4, 4);
        return (double)narrow;
    }
    memcpy(&half, (const char *)from + index * 2, 2);
    return (double)(dtype == PSD_F16 ? float_from_f16(half) : float_from_bf16(half));
}

/* Every fourth number of a wild array is any bits at all, or of the smallest or largest ones. */
static void
fill(uint64_t *random, psd_dtype dtype, void *to, size_t count, bool wild)
{
    const size_t bytes = psi_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++) {
        const uint64_t kind = wild ? below(random, 16) : 4;
        const uint64_t bits = draw(random) << 21 ^ draw(random);
        static const double edges[] = {INFINITY, -INFINITY, NAN, -0.0, 0.0, 1e-40, -1e-310, 1e38};

        if (kind < 2) {
            memcpy((char *)to + i * bytes, &bits, bytes);
        } else if (kind < 4) {
            put(dtype, to, i, edges[bits % 8]);
        } else {
            put(dtype, to, i, calm_number(random));
        }
    }
}

/* ------------------------------------------------------------------------------- a round --- */

/* Memory that begins `shift` bytes into its allocation and ends with it, so that overruns show. */
struct array {
    char *base;
    char *at;
    size_t bytes;
};

static struct array
array_create(size_t bytes, size_t shift)
{
    struct array array = {.base = malloc(bytes + shift), .bytes = bytes};

    assert_non_null(array.base);
    array.at = array.base + shift;
    return array;
}

static struct array
array_copy(const struct array *from)
{
    struct array array = array_create(from->bytes, (size_t)(from->at - from->base));

    memcpy(array.at, from->at, from->bytes);
    return array;
}

enum { TO, MASTER, STATE, OUTPUTS = STATE + PSI_STATES_MAX };

/* One chunk before an apply: inputs, and what the outputs hold at first. */
struct chunk {
    struct apply apply; /* `from` is NULL when it is to be updated in place */
    struct psd_rule_args rule;
    struct leaf leaves[LEAVES_MAX];
    struct array leaf_data[LEAVES_MAX];
    struct array from;
    struct array outputs[OUTPUTS];
};

static struct psd_rule_args
random_rule(uint64_t *random, psd_rule rule)
{
    struct psd_rule_args numbers = {.struct_size = sizeof(numbers), .rule = rule};
    struct psd_table_args args = {.struct_size = sizeof(args),
                                  .name = "t",
                                  .dtype = PSD_F32,
                                  .dims = 1,
                                  .shape = {1},
                                  .rule = &numbers};
    struct psi_spec spec;

    numbers.clip_value = below(random, 2) ? 1.25 : 0;
    numbers.weight_decay = below(random, 2) ? 0.0625 : 0;
    numbers.l1 = rule == PSD_RULE_FTRL ? 0.75 : 0;
    assert_int_equal(psi_spec_init(&spec, &args, 1, NULL), PSD_OK);
    return spec.rule;
}

/* Rising ranks below `ranks`: all of them, or each present with probability 3/4. */
static uint32_t
random_leaves(uint64_t *random, struct chunk *chunk, uint32_t ranks, bool wild)
{
    const struct apply *apply = &chunk->apply;
    const bool dense = below(random, 4) == 0;
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (dense || below(random, 4) != 0) {
            struct array *data = &chunk->leaf_data[count];

            *data =
                array_create(apply->elements * psi_dtype_bytes(apply->dtype), below(random, 16));
            fill(random, apply->dtype, data->at, apply->elements, wild);
            chunk->leaves[count++] = (struct leaf){.rank = rank, .data = data->at};
        }
    }
    return count;
}

static void
chunk_init(struct chunk *chunk, uint64_t *random, const struct apply *wanted, uint32_t ranks,
           bool wild)
{
    const psd_dtype real = wanted->dtype == PSD_F64 ? PSD_F64 : PSD_F32;
    const size_t value_bytes = wanted->elements * psi_dtype_bytes(wanted->dtype);
    const size_t real_bytes = wanted->elements * psi_dtype_bytes(real);

    *chunk = (struct chunk){.apply = *wanted};
    chunk->apply.leaf_count = random_leaves(random, chunk, ranks, wild);
    chunk->apply.leaves = chunk->leaves;
    chunk->from = array_create(value_bytes, below(random, 16));
    fill(random, wanted->dtype, chunk->from.at, wanted->elements, wild);
    for (int i = 0; i < OUTPUTS; i++) {
        chunk->outputs[i] = array_create(i == TO ? value_bytes : real_bytes,
                                         4 * below(random, 4) + (i == TO ? below(random, 4) : 0));
        fill(random, i == TO ? wanted->dtype : real, chunk->outputs[i].at, wanted->elements, wild);
    }
}

static void
chunk_fini(struct chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->apply.leaf_count; i++) {
        free(chunk->leaf_data[i].base);
    }
    free(chunk->from.base);
    for (int i = 0; i < OUTPUTS; i++) {
        free(chunk->outputs[i].base);
    }
}

/* Applies to copies of the outputs, which the caller frees. Nothing else may change. */
static int64_t
chunk_apply(const struct chunk *chunk, enum kernel_level level, bool in_place,
            struct array copies[OUTPUTS])
{
    struct array from = array_copy(&chunk->from);
    struct apply apply = chunk->apply;
    int64_t result;

    for (int i = 0; i < OUTPUTS; i++) {
        copies[i] = array_copy(&chunk->outputs[i]);
    }
    if (in_place) {
        memcpy(copies[TO].at, from.at, from.bytes);
    }
    apply.kernels = psi_kernel_level_kernels(level);
    apply.rule = &chunk->rule;
    apply.from = in_place ? copies[TO].at : from.at;
    apply.to = copies[TO].at;
    apply.master = (float *)(void *)copies[MASTER].at;
    for (int i = 0; i < PSI_STATES_MAX; i++) {
        apply.state[i] = copies[STATE + i].at;
    }
    memset(scratch, 0xee, sizeof(scratch));
    result = store_apply(&apply, scratch);
    assert_memory_equal(from.at, chunk->from.at, from.bytes);
    free(from.base);
    return result;
}

static void
free_all(struct array arrays[OUTPUTS])
{
    for (int i = 0; i < OUTPUTS; i++) {
        free(arrays[i].base);
    }
}

/* ---------------------------------------------------------------------------------- levels --- */

static void
compare_levels(const struct chunk *chunk, bool in_place, uint64_t seed)
{
    struct array expected[OUTPUTS];
    const int64_t result = chunk_apply(chunk, KERNEL_SCALAR, in_place, expected);

    for (int level = KERNEL_AVX2; level < KERNEL_LEVELS; level++) {
        struct array got[OUTPUTS];

        if (!psi_kernel_level_supported((enum kernel_level)level)) {
            continue;
        }
        assert_int_equal(chunk_apply(chunk, (enum kernel_level)level, in_place, got), result);
        for (int i = 0; i < OUTPUTS; i++) {
            if (memcmp(got[i].at, expected[i].at, got[i].bytes) != 0) {
                fail_msg("seed %llu: %s differs from scalar: %s, rule %s, %u elements, %u leaves, "
                         "output %d",
                         (unsigned long long)seed, psi_kernel_level_name((enum kernel_level)level),
                         psi_dtype_name(chunk->apply.dtype),
                         chunk->apply.use == PSD_USE_SUM ? "-" : psi_rule_name(chunk->rule.rule),
                         chunk->apply.elements, chunk->apply.leaf_count, i);
            }
        }
        free_all(got);
    }
    free_all(expected);
}

static uint32_t
random_elements(uint64_t *random)
{
    static const uint32_t edges[] = {1, 7, 1023, 1025, 2048, 2049, PSD_CHUNK_ELEMENTS};

    switch (below(random, 4)) {
    case 0:
        return edges[below(random, sizeof(edges) / sizeof(edges[0]))];
    case 1:
        return (uint32_t)below(random, PSD_CHUNK_ELEMENTS) + 1;
    default:
        return (uint32_t)below(random, 5000) + 1;
    }
}

/* If this fails, two servers with different CPUs, or a primary and its backup, drift apart. */
static void
test_levels_agree(void **state)
{
    (void)state;
    for (int level = 0; level < KERNEL_LEVELS; level++) {
        if (!psi_kernel_level_supported((enum kernel_level)level)) {
            print_message("level %s: this CPU lacks it, skipped\n",
                          psi_kernel_level_name((enum kernel_level)level));
        }
    }
    for (uint64_t round = 0; round < 5 * DTYPES * (RULES + 1); round++) {
        const uint64_t seed = SEED + round;
        uint64_t random = seed;
        const uint64_t kind = round / DTYPES % (RULES + 1); /* the last one: sum */
        const struct apply wanted = {.dtype = dtypes[round % DTYPES],
                                     .use = kind == RULES ? PSD_USE_SUM : PSD_USE_UPDATE,
                                     .elements = random_elements(&random),
                                     .divisor = (uint32_t)below(&random, 5),
                                     .check = below(&random, 2) != 0,
                                     .update = below(&random, 20) + 1};
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, (uint32_t)below(&random, 9), below(&random, 3) != 0);
        chunk.rule = random_rule(&random, kind == RULES ? PSD_RULE_SGD : (psd_rule)kind);
        compare_levels(&chunk, below(&random, 2) != 0, seed);
        chunk_fini(&chunk);
    }
}

/* ------------------------------------------------------------------------------------ tree --- */

/* The definition, word by word: a full tree over 64 ranks, level by level, absent nodes skipped. */
static double
slow_tree(psd_dtype dtype, const struct chunk *chunk, size_t element)
{
    double node[LEAVES_MAX];
    bool present[LEAVES_MAX] = {false};

    for (uint32_t i = 0; i < chunk->apply.leaf_count; i++) {
        present[chunk->leaves[i].rank] = true;
        node[chunk->leaves[i].rank] = get(dtype, chunk->leaves[i].data, element);
    }
    for (size_t width = LEAVES_MAX / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            const size_t left = 2 * i;
            const size_t right = 2 * i + 1;

            if (present[left] && present[right]) {
                const double sum = node[left] + node[right];

                /* Two f32 numbers added in f64 and then rounded: the same as added in f32. */
                node[i] = dtype == PSD_F64 ? sum : (double)(float)sum;
            } else if (present[left] || present[right]) {
                node[i] = present[left] ? node[left] : node[right];
            }
            present[i] = present[left] || present[right];
        }
    }
    return present[0] ? node[0] : 0;
}

static double
slow_chain(psd_dtype dtype, const struct chunk *chunk, size_t element)
{
    double sum = get(dtype, chunk->leaves[0].data, element);

    for (uint32_t i = 1; i < chunk->apply.leaf_count; i++) {
        sum += get(dtype, chunk->leaves[i].data, element);
        sum = dtype == PSD_F64 ? sum : (double)(float)sum;
    }
    return sum;
}

/* Compares all elements with the tree; returns in how many a chain has other bits. */
static int
compare_with_tree(const struct chunk *chunk, enum kernel_level level, uint64_t seed)
{
    const psd_dtype dtype = chunk->apply.dtype;
    struct array got[OUTPUTS];
    int chain_differs = 0;

    assert_int_equal(chunk_apply(chunk, level, false, got), APPLY_OK);
    for (size_t i = 0; i < chunk->apply.elements; i++) {
        char expected[8];

        put(dtype, expected, 0, slow_tree(dtype, chunk, i));
        if (memcmp(expected, got[TO].at + i * psi_dtype_bytes(dtype), psi_dtype_bytes(dtype)) !=
            0) {
            fail_msg("seed %llu: %s, %s, %u leaves, element %zu: %a, expected %a",
                     (unsigned long long)seed, psi_kernel_level_name(level), psi_dtype_name(dtype),
                     chunk->apply.leaf_count, i, get(dtype, got[TO].at, i),
                     get(dtype, expected, 0));
        }
        if (chunk->apply.leaf_count > 0) {
            chain_differs += slow_tree(dtype, chunk, i) != slow_chain(dtype, chunk, i);
        }
    }
    free_all(got);
    return chain_differs;
}

/* If this fails, the sum depends on the order of arrival or on who is absent. */
static void
test_sum_follows_the_tree(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        const uint64_t seed = SEED + 100000 + round;
        uint64_t random = seed;
        const struct apply wanted = {.dtype = dtypes[round % DTYPES],
                                     .use = PSD_USE_SUM,
                                     .elements =
                                         (uint32_t)below(&random, round % 30 == 0 ? 5000 : 40) + 1,
                                     .check = round % 3 == 0};
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, (uint32_t)below(&random, LEAVES_MAX + 1), false);
        compare_with_tree(&chunk, KERNEL_SCALAR, seed);
        compare_with_tree(&chunk, psi_kernel_level_best(), seed);
        chunk_fini(&chunk);
    }
}

/* The gradients of the ranks first .. end - 1 as the host that has them sends them: one sum, in
 * memory of its own, or a single gradient. Returns whether there is any. */
static bool
add_node(const struct chunk *chunk, uint32_t first, uint32_t end, enum kernel_level level,
         struct leaf *leaf_p)
{
    static _Alignas(64) char partial_sums[SUM_SCRATCH_BYTES];
    const struct leaf *leaves = chunk->leaves;
    uint32_t count = 0;
    struct psi_sum sum;
    void *to;

    while (leaves < chunk->leaves + chunk->apply.leaf_count && leaves->rank < first) {
        leaves++;
    }
    while (leaves + count < chunk->leaves + chunk->apply.leaf_count && leaves[count].rank < end) {
        count++;
    }
    if (count == 0 || end == first + 1) {
        *leaf_p = *leaves;
        return count > 0;
    }
    to = malloc(chunk->apply.elements * psi_dtype_state_bytes(chunk->apply.dtype));
    assert_non_null(to);
    psi_sum_init(&sum, psi_kernel_level_kernels(level), chunk->apply.dtype, leaves, count,
                 partial_sums);
    psi_sum_all(&sum, chunk->apply.elements, to);
    *leaf_p = (struct leaf){.rank = first, .is_sum = true, .data = to};
    return true;
}

/* Cuts the ranks into hosts of neighbours at random; each adds its nodes. */
static uint32_t
add_by_hosts(uint64_t *random, const struct chunk *chunk, uint32_t ranks, enum kernel_level level,
             struct leaf *leaves)
{
    uint32_t count = 0;
    uint32_t host_end;

    for (uint32_t host = 0; host < ranks; host = host_end) {
        struct psi_ranks here = {{0}};

        host_end = host + 1 + (uint32_t)below(random, 9);
        host_end = host_end < ranks ? host_end : ranks;
        for (uint32_t rank = host; rank < host_end; rank++) {
            psi_ranks_add(&here, rank);
        }
        for (uint32_t rank = host; rank < host_end;) {
            const uint32_t height = psi_ranks_node_level(&here, rank, ranks);
            const uint32_t end = psi_node_end(rank, height, ranks);

            assert_true(end <= host_end);
            count += add_node(chunk, rank, end, level, &leaves[count]);
            rank = end;
        }
    }
    return count;
}

/* If this fails, it matters where workers run: a host that adds first has other bits than flat. */
static void
test_hosts_may_add_first(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 200; round++) {
        const uint64_t seed = SEED + 200000 + round;
        uint64_t random = seed;
        const struct apply wanted = {.dtype = dtypes[round % DTYPES],
                                     .use = PSD_USE_SUM,
                                     .elements =
                                         (uint32_t)below(&random, round % 30 == 0 ? 5000 : 40) + 1,
                                     .divisor = 3,
                                     .check = round % 3 == 0};
        const uint32_t ranks = (uint32_t)below(&random, LEAVES_MAX) + 1;
        const enum kernel_level level = round % 2 == 0 ? KERNEL_SCALAR : psi_kernel_level_best();
        struct array flat[OUTPUTS];
        struct array grouped[OUTPUTS];
        struct chunk chunk;
        struct chunk sums;

        chunk_init(&chunk, &random, &wanted, ranks, false);
        sums = chunk;
        sums.apply.leaf_count = add_by_hosts(&random, &chunk, ranks, level, sums.leaves);
        sums.apply.leaves = sums.leaves;
        assert_int_equal(chunk_apply(&chunk, level, false, flat), APPLY_OK);
        assert_int_equal(chunk_apply(&sums, level, false, grouped), APPLY_OK);
        if (memcmp(flat[TO].at, grouped[TO].at, flat[TO].bytes) != 0) {
            fail_msg("seed %llu: %s, %u ranks, %u leaves, %u after the hosts added theirs",
                     (unsigned long long)seed, psi_dtype_name(wanted.dtype), ranks,
                     chunk.apply.leaf_count, sums.apply.leaf_count);
        }
        for (uint32_t i = 0; i < sums.apply.leaf_count; i++) {
            free((void *)(uintptr_t)(sums.leaves[i].is_sum ? sums.leaves[i].data : NULL));
        }
        free_all(flat);
        free_all(grouped);
        chunk_fini(&chunk);
    }
}

/* If this fails, four ranks are added as a chain; or the test could not see it. */
static void
test_sum_of_four_is_no_chain(void **state)
{
    const struct apply wanted = {.dtype = PSD_F32, .use = PSD_USE_SUM, .elements = 1000};
    uint64_t seed = SEED;
    struct chunk chunk = {0};

    (void)state;
    do { /* until all four are present */
        uint64_t random = ++seed;

        chunk_fini(&chunk);
        chunk_init(&chunk, &random, &wanted, 4, false);
    } while (chunk.apply.leaf_count < 4);
    assert_in_range(compare_with_tree(&chunk, psi_kernel_level_best(), seed), 100, 1000);
    chunk_fini(&chunk);
}

/* A sum of f32 leaves by the best level. */
static void
sum_f32(const struct leaf *leaves, uint32_t leaf_count, uint32_t divisor, uint32_t elements,
        float *to)
{
    const struct apply apply = {.kernels = psi_kernel_level_kernels(psi_kernel_level_best()),
                                .dtype = PSD_F32,
                                .use = PSD_USE_SUM,
                                .elements = elements,
                                .leaves = leaves,
                                .leaf_count = leaf_count,
                                .divisor = divisor,
                                .to = to};

    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
}

/* If this fails, an absent rank is added as 0, which turns -0 into +0. */
static void
test_absent_rank_is_not_zero(void **state)
{
    const float minus_zero = -0.0f;
    const struct leaf leaves[] = {{.rank = 1, .data = &minus_zero},
                                  {.rank = 6, .data = &minus_zero}};
    float sum;

    (void)state;
    sum_f32(leaves, 1, 0, 1, &sum);
    assert_true(signbit(sum));
    sum_f32(leaves, 2, 2, 1, &sum);
    assert_true(signbit(sum));
}

/* If this fails, the largest job overruns the stack of partial sums. */
static void
test_sum_of_1024_ranks(void **state)
{
    enum { RANKS = 1024 };
    static float ranks[RANKS];
    static struct leaf leaves[RANKS];
    const uint16_t one = f16_from_float(1);
    uint16_t half_sum;
    const struct apply halves = {.kernels = &psi_kernels_scalar,
                                 .dtype = PSD_F16,
                                 .use = PSD_USE_SUM,
                                 .elements = 1,
                                 .leaves = leaves,
                                 .leaf_count = RANKS,
                                 .to = &half_sum};
    float sum;

    (void)state;
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = (float)i;
        leaves[i] = (struct leaf){.rank = i, .data = &ranks[i]};
    }
    sum_f32(leaves, RANKS, 0, 1, &sum);
    assert_true(sum == RANKS * (RANKS - 1) / 2);

    for (uint32_t i = 0; i < RANKS; i++) { /* f16 leaves are added one by one */
        leaves[i].data = &one;
    }
    assert_int_equal(store_apply(&halves, scratch), APPLY_OK);
    assert_int_equal(half_sum, f16_from_float(RANKS));
}

/* If this fails, the mean is a multiplication by a rounded reciprocal. */
static void
test_mean_is_a_true_division(void **state)
{
    enum { COUNT = 1000 };
    float values[COUNT];
    float mean[COUNT];
    const struct leaf leaf = {.rank = 3, .data = values};
    int reciprocal_differs = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)(i + 1) * (i % 2 ? 1e-42f : 1); /* denormal ones, too */
    }
    for (uint32_t divisor = 1; divisor <= 40; divisor++) {
        const float by = (float)divisor;

        sum_f32(&leaf, 1, divisor, COUNT, mean);
        for (int i = 0; i < COUNT; i++) {
            assert_true(mean[i] == values[i] / by);
            reciprocal_differs += values[i] / by != values[i] * (1 / by);
        }
    }
    assert_true(reciprocal_differs > 0);
}

/* ------------------------------------------------------------------- what apply.h promises --- */

/* If this fails, a gradient that is not finite gets in, or half gets in,
 * or the wrong one is named. */
static void
test_check_leaves_everything_untouched(void **state)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    uint64_t random = SEED;

    (void)state;
    for (int round = 0; round < 2 * DTYPES * 3; round++) {
        const struct apply wanted = {.dtype = dtypes[round % DTYPES],
                                     .use = round < 3 * DTYPES ? PSD_USE_SUM : PSD_USE_UPDATE,
                                     .elements = 10000,
                                     .divisor = 2,
                                     .check = true,
                                     .update = 1};
        const size_t index = 5000 + below(&random, 4000);
        struct array got[OUTPUTS];
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, 8, false);
        assert_in_range(chunk.apply.leaf_count, 1, 8);
        chunk.rule = random_rule(&random, PSD_RULE_ADAM);
        put(wanted.dtype, chunk.leaf_data[0].at, 9999, NAN);
        put(wanted.dtype, chunk.leaf_data[0].at, index, bad[round / DTYPES % 3]);
        for (int level = 0; level < KERNEL_LEVELS; level++) {
            if (!psi_kernel_level_supported((enum kernel_level)level)) {
                continue;
            }
            assert_int_equal(chunk_apply(&chunk, (enum kernel_level)level, false, got), index);
            for (int i = 0; i < OUTPUTS; i++) {
                assert_memory_equal(got[i].at, chunk.outputs[i].at, got[i].bytes);
            }
            free_all(got);
        }
        chunk_fini(&chunk);
    }
}

/* If this fails, finite gradients with an infinite sum are taken for good. */
static void
test_check_sees_overflow(void **state)
{
    const float large = 3e38f;
    const struct leaf leaves[] = {{.rank = 0, .data = &large}, {.rank = 1, .data = &large}};
    float to = 7;
    struct apply apply = {.kernels = &psi_kernels_scalar,
                          .dtype = PSD_F32,
                          .use = PSD_USE_SUM,
                          .elements = 1,
                          .leaves = leaves,
                          .leaf_count = 2,
                          .divisor = 2,
                          .check = true,
                          .to = &to};

    (void)state;
    assert_int_equal(store_apply(&apply, scratch), 0);
    assert_true(to == 7);
    apply.leaf_count = 1;
    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
    assert_true(to == 1.5e38f);
}

/* The sum of two numbers, alone in a table of two bytes. */
static int64_t
add_two(psd_dtype dtype, uint32_t divisor, uint16_t first, uint16_t second, uint16_t *to)
{
    const struct leaf leaves[] = {{.rank = 0, .data = &first}, {.rank = 1, .data = &second}};
    const struct apply apply = {.kernels = &psi_kernels_scalar,
                                .dtype = dtype,
                                .use = PSD_USE_SUM,
                                .elements = 1,
                                .leaves = leaves,
                                .leaf_count = 2,
                                .divisor = divisor,
                                .check = true,
                                .to = to};

    return store_apply(&apply, scratch);
}

/* If this fails, a sum that is finite while it is added is an infinity where it is read. */
static void
test_check_sees_what_narrowing_makes(void **state)
{
    static const struct {
        psd_dtype dtype;
        uint32_t divisor;
        uint16_t first;
        uint16_t second;
        int64_t expected;
    } cases[] = {
        {PSD_F16, 0, 0x7bff, 0x4b7f, APPLY_OK}, /* 65504 + 14.99: rounded down */
        {PSD_F16, 0, 0x7bff, 0x4c00, 0},        /* + 16: halfway, rounded to even, infinity */
        {PSD_F16, 0, 0xfbff, 0xfbff, 0},
        {PSD_F16, 2, 0x7bff, 0x7bff, APPLY_OK},  /* the mean fits */
        {PSD_BF16, 0, 0x7f7f, 0x7af0, APPLY_OK}, /* less than half of the last place more */
        {PSD_BF16, 0, 0x7f7f, 0x7b00, 0},        /* half of it */
        {PSD_BF16, 2, 0x7eff, 0x7eff, APPLY_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint16_t to = 0x1234;
        const int64_t bad =
            add_two(cases[i].dtype, cases[i].divisor, cases[i].first, cases[i].second, &to);

        if (bad != cases[i].expected || (to == 0x1234) != (bad != APPLY_OK)) {
            fail_msg("case %zu: %lld, 0x%04x", i, (long long)bad, to);
        }
    }
}

static void
assert_same_outputs(struct array got[OUTPUTS], struct array expected[OUTPUTS], const char *what,
                    uint64_t seed)
{
    for (int i = 0; i < OUTPUTS; i++) {
        if (memcmp(got[i].at, expected[i].at, got[i].bytes) != 0) {
            fail_msg("seed %llu: %s: output %d has other bits", (unsigned long long)seed, what, i);
        }
    }
    free_all(got);
}

/* Applies the chunk once as it is, once with its sum kept, and then what was kept. */
static void
compare_with_kept_sum(struct chunk *chunk, enum kernel_level level, bool in_place, bool wild,
                      uint64_t seed)
{
    const size_t bytes = chunk->apply.elements * psi_dtype_state_bytes(chunk->apply.dtype);
    struct array sum = array_create(bytes, 1);
    struct array plain = array_create(bytes, 0);
    struct leaf kept = {.rank = 0, .is_sum = true, .data = sum.at};
    struct array expected[OUTPUTS];
    struct array got[OUTPUTS];
    const int64_t result = chunk_apply(chunk, level, in_place, expected);
    struct psi_sum adding;

    chunk->apply.sum_out = sum.at;
    assert_int_equal(chunk_apply(chunk, level, in_place, got), result);
    assert_same_outputs(got, expected, "with its sum kept", seed);
    if (result == APPLY_OK) {
        psi_sum_init(&adding, psi_kernel_level_kernels(level), chunk->apply.dtype, chunk->leaves,
                     chunk->apply.leaf_count, scratch);
        psi_sum_all(&adding, chunk->apply.elements, plain.at);
        assert_true(wild || memcmp(sum.at, plain.at, bytes) == 0); /* NaNs are of many kinds */

        struct chunk copy = *chunk;

        copy.apply.sum_out = NULL;
        copy.apply.leaves = &kept;
        copy.apply.leaf_count = 1;
        copy.apply.was_checked = copy.apply.check;
        assert_int_equal(chunk_apply(&copy, level, in_place, got), APPLY_OK);
        assert_same_outputs(got, expected, "from the sum", seed);
    }
    chunk->apply.sum_out = NULL;
    free_all(expected);
    free(sum.base);
    free(plain.base);
}

/* If this fails, a copy that applies the sum which its owner kept is another model, or keeping it
 * changes the owner's. */
static void
test_a_kept_sum_gives_the_same_bits(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 6 * DTYPES * (RULES + 1); round++) {
        const uint64_t seed = SEED + 300000 + round;
        uint64_t random = seed;
        const uint64_t kind = round / DTYPES % (RULES + 1); /* the last one: sum */
        const struct apply wanted = {.dtype = dtypes[round % DTYPES],
                                     .use = kind == RULES ? PSD_USE_SUM : PSD_USE_UPDATE,
                                     .elements = random_elements(&random),
                                     .divisor = (uint32_t)below(&random, 5),
                                     .check = below(&random, 2) != 0,
                                     .update = below(&random, 20) + 1};
        const bool wild = !wanted.check && below(&random, 2) != 0;
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, 1 + (uint32_t)below(&random, 9), wild);
        chunk.rule = random_rule(&random, kind == RULES ? PSD_RULE_SGD : (psd_rule)kind);
        if (chunk.apply.leaf_count > 0) {
            compare_with_kept_sum(&chunk, KERNEL_SCALAR, below(&random, 2) != 0, wild, seed);
            compare_with_kept_sum(&chunk, psi_kernel_level_best(), below(&random, 2) != 0, wild,
                                  seed);
        }
        chunk_fini(&chunk);
    }
}

/* If this fails, a sum that was spoilt on its way to a copy becomes the copy's values unseen. */
static void
test_a_checked_sum_that_is_bad_is_seen(void **state)
{
    uint64_t random = SEED;

    (void)state;
    for (int round = 0; round < DTYPES; round++) {
        const struct apply wanted = {.dtype = dtypes[round],
                                     .use = PSD_USE_UPDATE,
                                     .elements = 9000,
                                     .check = true,
                                     .was_checked = true,
                                     .update = 1};
        struct array got[OUTPUTS];
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, 8, false);
        assert_in_range(chunk.apply.leaf_count, 1, 8);
        chunk.rule = random_rule(&random, PSD_RULE_MOMENTUM);
        put(wanted.dtype, chunk.leaf_data[0].at, 7777, NAN);
        assert_int_equal(chunk_apply(&chunk, psi_kernel_level_best(), false, got), 7777);
        free_all(got);
        chunk_fini(&chunk);
    }
}

/* If this fails, the bits of a table depend on how its memory is kept or whether it is checked. */
static void
test_in_place_and_checked_have_the_same_bits(void **state)
{
    uint64_t random = SEED;

    (void)state;
    for (int round = 0; round < DTYPES * RULES; round++) {
        const struct apply wanted = {.dtype = dtypes[round % DTYPES],
                                     .use = PSD_USE_UPDATE,
                                     .elements = 3000,
                                     .divisor = 3,
                                     .update = 5};
        struct array apart[OUTPUTS];
        struct array in_place[OUTPUTS];
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, 4, false);
        for (int i = STATE; i < OUTPUTS; i++) { /* squares are not negative */
            memset(chunk.outputs[i].at, 0, chunk.outputs[i].bytes);
        }
        chunk.rule = random_rule(&random, (psd_rule)(round / DTYPES));
        chunk_apply(&chunk, psi_kernel_level_best(), false, apart);
        chunk.apply.check = true;
        assert_int_equal(chunk_apply(&chunk, psi_kernel_level_best(), true, in_place), APPLY_OK);
        for (int i = 0; i < OUTPUTS; i++) {
            assert_memory_equal(apart[i].at, in_place[i].at, apart[i].bytes);
        }
        free_all(apart);
        free_all(in_place);
        chunk_fini(&chunk);
    }
}

/* Applies to elements first .. first + count - 1 of the arrays alone. */
static void
apply_piece(const struct chunk *chunk, struct array arrays[OUTPUTS], uint32_t first, uint32_t count)
{
    const size_t bytes = psi_dtype_bytes(chunk->apply.dtype);
    const size_t real_bytes = psi_dtype_state_bytes(chunk->apply.dtype);
    struct leaf leaves[LEAVES_MAX];
    struct apply apply = chunk->apply;

    for (uint32_t i = 0; i < apply.leaf_count; i++) {
        leaves[i] = (struct leaf){.rank = chunk->leaves[i].rank,
                                  .data = (const char *)chunk->leaves[i].data + first * bytes};
    }
    apply.kernels = psi_kernel_level_kernels(psi_kernel_level_best());
    apply.rule = &chunk->rule;
    apply.leaves = leaves;
    apply.elements = count;
    apply.from = chunk->from.at + first * bytes;
    apply.to = arrays[TO].at + first * bytes;
    apply.master = (float *)(void *)(arrays[MASTER].at + first * real_bytes);
    for (int i = 0; i < PSI_STATES_MAX; i++) {
        apply.state[i] = arrays[STATE + i].at + first * real_bytes;
    }
    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
}

/* If this fails, an element's value depends on where in its chunk it is. */
static void
test_pieces_make_the_whole(void **state)
{
    enum { ELEMENTS = 5000, PIECE = 500 };
    uint64_t random = SEED;

    (void)state;
    for (int round = 0; round < DTYPES * (RULES + 1); round++) {
        const bool sum = round / DTYPES == RULES;
        const struct apply wanted = {.dtype = dtypes[round % DTYPES],
                                     .use = sum ? PSD_USE_SUM : PSD_USE_UPDATE,
                                     .elements = ELEMENTS,
                                     .divisor = 2,
                                     .update = 3};
        struct array whole[OUTPUTS];
        struct array pieces[OUTPUTS];
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, 6, true);
        chunk.rule = random_rule(&random, sum ? PSD_RULE_SGD : (psd_rule)(round / DTYPES));
        chunk_apply(&chunk, psi_kernel_level_best(), false, whole);
        for (int i = 0; i < OUTPUTS; i++) {
            pieces[i] = array_copy(&chunk.outputs[i]);
        }
        for (uint32_t first = 0; first < ELEMENTS; first += PIECE) {
            apply_piece(&chunk, pieces, first, PIECE);
        }
        for (int i = 0; i < OUTPUTS; i++) {
            assert_memory_equal(whole[i].at, pieces[i].at, whole[i].bytes);
        }
        free_all(whole);
        free_all(pieces);
        chunk_fini(&chunk);
    }
}

/* If this fails, a 16-bit table does not train like the f32 table of the same numbers. */
static void
test_halves_work_on_f32_masters(void **state)
{
    enum { COUNT = 2500 };
    static float gradient[COUNT], values[COUNT], master[COUNT];
    static uint16_t half_gradient[COUNT], half_values[COUNT];
    const struct psd_rule_args rule = {.rule = PSD_RULE_SGD, .learning_rate = 0.1};
    const struct leaf leaf = {.data = gradient};
    const struct leaf half_leaf = {.data = half_gradient};
    struct apply apply = {.kernels = psi_kernel_level_kernels(psi_kernel_level_best()),
                          .use = PSD_USE_UPDATE,
                          .rule = &rule,
                          .elements = COUNT,
                          .leaf_count = 1};
    uint64_t random = SEED;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        half_gradient[i] = f16_from_float((float)calm_number(&random));
        gradient[i] = float_from_f16(half_gradient[i]);
        values[i] = master[i] = (float)calm_number(&random);
    }
    for (apply.update = 1; apply.update <= 3; apply.update++) {
        apply.dtype = PSD_F32;
        apply.leaves = &leaf;
        apply.from = apply.to = values;
        assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
        apply.dtype = PSD_F16;
        apply.leaves = &half_leaf;
        apply.from = apply.to = half_values;
        apply.master = master;
        assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
    }
    assert_memory_equal(values, master, sizeof(values));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(half_values[i], f16_from_float(values[i]));
    }
}

/* If this fails, a NaN has other bits on another compiler or level. */
static void
test_published_nans_are_canonical(void **state)
{
    static const uint64_t canonical[DTYPES] = {0x7fc00000, UINT64_C(0x7ff8000000000000), 0x7e00,
                                               0x7fc0};
    uint64_t random = SEED;

    (void)state;
    for (int round = 0; round < DTYPES * (RULES + 1); round++) {
        const psd_dtype dtype = dtypes[round % DTYPES];
        const bool sum = round / DTYPES == RULES;
        const struct apply wanted = {.dtype = dtype,
                                     .use = sum ? PSD_USE_SUM : PSD_USE_UPDATE,
                                     .elements = 100,
                                     .update = 1};
        struct array got[OUTPUTS];
        struct chunk chunk;

        chunk_init(&chunk, &random, &wanted, 8, false);
        chunk.rule = random_rule(&random, sum ? PSD_RULE_SGD : (psd_rule)(round / DTYPES));
        memset(chunk.leaf_data[0].at, 0xff, chunk.leaf_data[0].bytes); /* -NaN, full payload */
        chunk_apply(&chunk, psi_kernel_level_best(), false, got);
        for (size_t i = 0; i < 100; i++) {
            uint64_t bits = 0;

            memcpy(&bits, got[TO].at + i * psi_dtype_bytes(dtype), psi_dtype_bytes(dtype));
            assert_int_equal(bits, canonical[round % DTYPES]);
        }
        free_all(got);
        chunk_fini(&chunk);
    }
}

/* If this fails, clipping limits the weight decay, too. */
static void
test_clip_comes_before_decay(void **state)
{
    const struct psd_rule_args rule = {
        .rule = PSD_RULE_SGD, .learning_rate = 1, .weight_decay = 0.125, .clip_value = 1};
    const double gradient = -5;
    const struct leaf leaf = {.data = &gradient};
    double value = 16;
    const struct apply apply = {.kernels = &psi_kernels_scalar,
                                .dtype = PSD_F64,
                                .use = PSD_USE_UPDATE,
                                .rule = &rule,
                                .elements = 1,
                                .leaves = &leaf,
                                .leaf_count = 1,
                                .update = 1,
                                .from = &value,
                                .to = &value};

    (void)state;
    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
    assert_true(value == 16 - (-1 + 0.125 * 16));
}

/* If this fails, a round without gradients publishes what was in memory before. */
static void
test_no_leaves_is_a_gradient_of_zero(void **state)
{
    const struct psd_rule_args rule = {
        .rule = PSD_RULE_MOMENTUM, .learning_rate = 1, .momentum = 0.5};
    double value = 3;
    double mean = 2;
    struct apply apply = {.kernels = &psi_kernels_scalar,
                          .dtype = PSD_F64,
                          .use = PSD_USE_UPDATE,
                          .rule = &rule,
                          .elements = 1,
                          .check = true,
                          .update = 1,
                          .from = &value,
                          .to = &value,
                          .state = {&mean}};

    (void)state;
    scratch[0] = 99;
    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
    assert_true(value == 2 && mean == 1);
    scratch[0] = 99;
    apply.use = PSD_USE_SUM;
    apply.check = false;
    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
    assert_true(value == 0 && !signbit(value));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_sum_follows_the_tree),
        cmocka_unit_test(test_hosts_may_add_first),
        cmocka_unit_test(test_sum_of_four_is_no_chain),
        cmocka_unit_test(test_absent_rank_is_not_zero),
        cmocka_unit_test(test_sum_of_1024_ranks),
        cmocka_unit_test(test_mean_is_a_true_division),
        cmocka_unit_test(test_check_leaves_everything_untouched),
        cmocka_unit_test(test_check_sees_overflow),
        cmocka_unit_test(test_check_sees_what_narrowing_makes),
        cmocka_unit_test(test_a_kept_sum_gives_the_same_bits),
        cmocka_unit_test(test_a_checked_sum_that_is_bad_is_seen),
        cmocka_unit_test(test_in_place_and_checked_have_the_same_bits),
        cmocka_unit_test(test_pieces_make_the_whole),
        cmocka_unit_test(test_halves_work_on_f32_masters),
        cmocka_unit_test(test_published_nans_are_canonical),
        cmocka_unit_test(test_clip_comes_before_decay),
        cmocka_unit_test(test_no_leaves_is_a_gradient_of_zero),
    };

    return cmocka_run_group_tests_name("store_apply", tests, NULL, NULL);
}
