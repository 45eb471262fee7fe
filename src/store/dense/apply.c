/*
 * apply.c - the one pass over memory: add the gradients of a chunk and update its values.
 *
 * Few leaves and a plain rule go in one loop over elements. Else a chunk is worked through in
 * blocks that stay in the first-level cache: the leaves of a block are added along the tree
 * (sum.c), the sum is divided, clipped and handed to the rule, and the next block follows. With
 * `check` the sum of the whole chunk comes first, because nothing may change when any element of it
 * is not finite, or is not when it is narrowed to the table's type. The loops over elements are in
 * kernels.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/dense/apply.h"

#include <string.h>

#include "base/fail.h"
#include "store/numbers.h"

typedef void (*convert_fn)(void *to, const void *from, size_t count);

/* One call of store_apply(), with everything looked up. */
struct pass {
    const struct apply *apply;
    struct psi_sum sum;              /* of what does not fit one loop */
    const struct kernels_real *real; /* f32 or f64: what is computed in */
    size_t real_bytes;
    size_t bytes;                  /* of an element in the table's type */
    convert_fn from_real;          /* NULL: the table's type is what is computed in */
    struct kernel_numbers numbers; /* UPDATE */
};

/* A run of elements of the chunk, and where its sum may be put. */
struct block {
    uint32_t first;
    uint32_t count;
    void *work;
};

static void
pass_init(struct pass *pass, const struct apply *apply)
{
    const struct kernels *kernels = apply->kernels;

    *pass = (struct pass){
        .apply = apply,
        .real = apply->dtype == PSD_F64 ? kernels->f64 : kernels->f32,
        .real_bytes = psi_dtype_state_bytes(apply->dtype),
        .bytes = psi_dtype_bytes(apply->dtype),
    };
    if (apply->dtype == PSD_F16) {
        pass->from_real = kernels->f16_from_f32;
    } else if (apply->dtype == PSD_BF16) {
        pass->from_real = kernels->bf16_from_f32;
    }
    if (apply->use == PSD_USE_UPDATE) {
        psi_numbers_init(&pass->numbers, apply->rule, apply->update);
    }
}

/* The first element that has no finite number nearest to it in the table's type of two bytes. */
static int64_t
find_too_large(const struct pass *pass, const struct block *block, const void *values)
{
    const int64_t at = psi_find_too_large(pass->apply->dtype, values, block->count);

    return at < 0 ? APPLY_OK : block->first + at;
}

static void
publish(const struct pass *pass, void *to, const void *values, size_t count)
{
    if (pass->from_real != NULL) {
        pass->from_real(to, values, count);
    } else {
        const struct kernel_block copy = {.leaves = {values}, .scale = 1, .to = to, .count = count};

        pass->real->sum[KERNEL_ONE_LEAF](&pass->numbers, &copy);
    }
}

static int64_t
update_block(const struct pass *pass, const struct block *block, const void *gradient)
{
    const struct apply *apply = pass->apply;
    const size_t offset = block->first * pass->real_bytes;
    void *to = (char *)apply->to + block->first * pass->bytes;
    struct kernel_block rule = {.scale = 1, .count = block->count};

    if (pass->from_real != NULL) {
        rule.to = (char *)apply->master + offset;
        rule.from = rule.to;
    } else {
        rule.to = to;
        rule.from = (const char *)apply->from + offset;
    }
    for (unsigned i = 0; i < psi_rule_states(apply->rule->rule); i++) {
        rule.state[i] = (char *)apply->state[i] + offset;
    }
    if (apply->rule->clip_value != 0) {
        pass->real->clip(block->work, gradient, apply->rule->clip_value, block->count);
        gradient = block->work;
    }
    if (psi_decay_is_added(apply->rule)) {
        pass->real->decay(block->work, gradient, rule.from, apply->rule->weight_decay,
                          block->count);
        gradient = block->work;
    }
    rule.leaves[0] = gradient;
    pass->real->rule[apply->rule->rule][KERNEL_ONE_LEAF](&pass->numbers, &rule);
    if (pass->from_real != NULL) {
        pass->from_real(to, rule.to, block->count);
        return apply->check ? find_too_large(pass, block, rule.to) : APPLY_OK;
    }
    return APPLY_OK;
}

static int64_t
finish_block(const struct pass *pass, const struct block *block, const void *sum)
{
    const struct apply *apply = pass->apply;

    if (apply->divisor > 1) { /* by 1: the same bits without it */
        psi_divide_by(pass->real, block->work, sum, apply->divisor, block->count);
        sum = block->work;
    }
    if (apply->use == PSD_USE_SUM) {
        publish(pass, (char *)apply->to + block->first * pass->bytes, sum, block->count);
        return APPLY_OK;
    }
    return update_block(pass, block, sum);
}

/* The first element that is not finite, in the sum of a block that has one. */
static int64_t
find_bad(const struct pass *pass, const struct block *block, const void *sum)
{
    uint32_t i = 0;

    while (pass->real->finite((const char *)sum + i * pass->real_bytes, 1)) {
        i++;
        psi_assert(i < block->count);
    }
    return block->first + i;
}

/* A mean is no larger than the largest gradient, which was in the table's type. */
static bool
may_be_too_large(const struct pass *pass)
{
    return pass->apply->use == PSD_USE_SUM && pass->from_real != NULL && pass->apply->divisor <= 1;
}

static struct block
block_at(const struct pass *pass, uint32_t first)
{
    return (struct block){.first = first,
                          .count = psi_sum_block_count(&pass->sum, first, pass->apply->elements)};
}

/* The sum of a block, in `to` and nowhere else. */
static void
sum_into(const struct pass *pass, const struct block *block, void *to)
{
    const void *sum = psi_sum_block(&pass->sum, block->first, block->count, to);

    if (sum != to) {
        memcpy(to, sum, block->count * pass->real_bytes);
    }
}

/* The first element of the block's sum that is not finite, or would not be in the table's type. */
static int64_t
check_block(const struct pass *pass, const struct block *block, const void *sum)
{
    if (!pass->real->finite(sum, block->count)) {
        return find_bad(pass, block, sum);
    }
    return may_be_too_large(pass) ? find_too_large(pass, block, sum) : APPLY_OK;
}

/* The sum is kept: a leaf in shared memory may change after it was checked. Where somebody else wants
 * it, too, it is kept there; then what is made of it needs other room. */
static int64_t
apply_checked(const struct pass *pass, char *scratch)
{
    char *const sums = pass->apply->sum_out != NULL ? pass->apply->sum_out : scratch;
    struct block block;
    int64_t bad = APPLY_OK;

    for (uint32_t first = 0; first < pass->apply->elements; first += block.count) {
        char *const sum = sums + first * pass->real_bytes;

        block = block_at(pass, first);
        sum_into(pass, &block, sum);
        bad = check_block(pass, &block, sum);
        if (bad != APPLY_OK) {
            return bad;
        }
    }
    for (uint32_t first = 0; first < pass->apply->elements; first += block.count) {
        char *const sum = sums + first * pass->real_bytes;
        int64_t worse;

        block = block_at(pass, first);
        block.work = pass->apply->sum_out != NULL ? scratch : sum;
        worse = finish_block(pass, &block, sum);
        bad = bad == APPLY_OK ? worse : bad;
    }
    return bad;
}

/* Block by block; with sum_out the sum goes through there, and is read again while it is in cache. */
static int64_t
apply_streaming(const struct pass *pass, char *scratch)
{
    const struct apply *apply = pass->apply;
    struct block block;
    int64_t bad = APPLY_OK;

    for (uint32_t first = 0; first < apply->elements; first += block.count) {
        const void *sum;
        int64_t worse;

        block = block_at(pass, first);
        block.work = scratch;
        if (apply->sum_out != NULL) {
            sum = (char *)apply->sum_out + first * pass->real_bytes;
            sum_into(pass, &block, (void *)(uintptr_t)sum);
        } else {
            sum = psi_sum_block(&pass->sum, block.first, block.count, block.work);
        }
        if (apply->was_checked && bad == APPLY_OK) {
            bad = check_block(pass, &block, sum);
        }
        worse = finish_block(pass, &block, sum);
        bad = bad == APPLY_OK ? worse : bad;
    }
    return bad;
}

/* ---- All in one loop ---- */

/*
 * Blocks in cache cost another trip through it, and while the sum of a block is made the memory of
 * its values rests. Where the whole of an update can be said in one loop over elements it is.
 */
static bool
fits_one_loop(const struct pass *pass, enum kernel_leaves *leaves_p)
{
    const struct apply *apply = pass->apply;
    const bool plain = apply->use == PSD_USE_SUM ||
                       (apply->rule->clip_value == 0 && !psi_decay_is_added(apply->rule));

    if (apply->check || !plain || pass->from_real != NULL ||
        (apply->divisor & (apply->divisor - 1)) != 0) {
        return false;
    }
    if (apply->sum_out != NULL) {
        *leaves_p = apply->leaf_count == 1   ? KERNEL_ONE_KEPT
                    : apply->leaf_count == 2 ? KERNEL_TWO_KEPT
                                             : KERNEL_FOUR_KEPT;
    } else {
        *leaves_p = apply->leaf_count == 1   ? KERNEL_ONE_LEAF
                    : apply->leaf_count == 2 ? KERNEL_TWO_LEAVES
                                             : KERNEL_FOUR_LEAVES;
    }
    return apply->leaf_count == 1 || apply->leaf_count == 2 ||
           (apply->leaf_count == 4 && psi_sum_is_subtree(apply->leaves, 4));
}

static int64_t
apply_at_once(const struct pass *pass, enum kernel_leaves leaves)
{
    const struct apply *apply = pass->apply;
    _Static_assert(PSI_STATES_MAX == 2, "all of them are here");
    struct kernel_block block = {
        .kept = apply->sum_out,
        .scale = apply->divisor > 1 ? 1.0 / apply->divisor : 1,
        .from = apply->from,
        .to = apply->to,
        .state = {apply->state[0], apply->state[1]},
        .count = apply->elements,
    };

    for (uint32_t i = 0; i < apply->leaf_count; i++) {
        block.leaves[i] = apply->leaves[i].data;
    }
    if (apply->use == PSD_USE_SUM) {
        pass->real->sum[leaves](&pass->numbers, &block);
    } else {
        pass->real->rule[apply->rule->rule][leaves](&pass->numbers, &block);
    }
    return APPLY_OK;
}

int64_t
store_apply(const struct apply *apply, void *scratch)
{
    struct pass pass;
    enum kernel_leaves leaves;

    psi_assert(apply->elements >= 1 && apply->elements <= PSD_CHUNK_ELEMENTS);
    pass_init(&pass, apply);
    if (fits_one_loop(&pass, &leaves)) {
        return apply_at_once(&pass, leaves);
    }
    psi_sum_init(&pass.sum, apply->kernels, apply->dtype, apply->leaves, apply->leaf_count,
                 (char *)scratch + PSD_CHUNK_ELEMENTS * sizeof(double));
    return apply->check && !apply->was_checked ? apply_checked(&pass, scratch)
                                               : apply_streaming(&pass, scratch);
}
