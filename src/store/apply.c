/*
 * apply.c - the one pass over memory: add the gradients of a chunk and update its values.
 *
 * A chunk is worked through in blocks that stay in the first-level cache: the leaves of a block are
 * added along the tree, the sum is divided, clipped and handed to the rule, and the next block
 * follows. With `check` the sum of the whole chunk comes first, because nothing may change when any
 * element of it is not finite. The loops over elements are in kernels.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/apply.h"

#include <string.h>

#include "base/fail.h"
#include "store/level.h"

enum { RANKS_MAX = 1024 };

typedef void (*convert_fn)(void *to, const void *from, size_t count);

/* One call of store_apply(), with everything looked up. */
struct pass {
    const struct apply *apply;
    const struct kernels_real *real; /* f32 or f64: what is computed in */
    size_t real_bytes;
    size_t bytes;       /* of an element in the table's type */
    convert_fn to_real; /* NULL: the table's type is what is computed in */
    convert_fn from_real;
    struct kernel_numbers numbers; /* UPDATE */
    char *slots;                   /* APPLY_TREE_DEPTH - 1 blocks for partial sums */
};

/* A run of elements of the chunk, and where its sum may be put. */
struct block {
    uint32_t first;
    uint32_t count;
    void *work;
};

/* A node of the tree that waits for its right sibling. */
struct partial {
    const void *values;
    uint32_t join; /* level at which it meets the partial below it in the stack */
};

static void
numbers_init(struct kernel_numbers *numbers, const struct psd_rule_args *rule, uint64_t update)
{
    const double rate = psi_rule_rate(rule, update);

    *numbers = (struct kernel_numbers){
        .rate = rate,
        .momentum = rule->momentum,
        .beta1 = rule->beta1,
        .beta1_rest = 1 - rule->beta1,
        .beta2 = rule->beta2,
        .beta2_rest = 1 - rule->beta2,
        .epsilon = rule->epsilon,
        .l1 = rule->l1,
        .l2 = rule->l2,
        .ftrl_beta = rule->ftrl_beta,
        .shrink = rate * rule->weight_decay,
    };
    if (rule->rule == PSD_RULE_ADAM || rule->rule == PSD_RULE_ADAMW) {
        numbers->correction1 = 1 - psi_rule_power(rule->beta1, update);
        numbers->correction2 = 1 - psi_rule_power(rule->beta2, update);
    }
}

static void
pass_init(struct pass *pass, const struct apply *apply, char *slots)
{
    const struct kernels *kernels = kernel_level_kernels(apply->level);

    *pass = (struct pass){
        .apply = apply,
        .real = apply->dtype == PSD_F64 ? kernels->f64 : kernels->f32,
        .real_bytes = psi_dtype_state_bytes(apply->dtype),
        .bytes = psi_dtype_bytes(apply->dtype),
        .slots = slots,
    };
    if (apply->dtype == PSD_F16) {
        pass->to_real = kernels->f32_from_f16;
        pass->from_real = kernels->f16_from_f32;
    } else if (apply->dtype == PSD_BF16) {
        pass->to_real = kernels->f32_from_bf16;
        pass->from_real = kernels->bf16_from_f32;
    }
    if (apply->use == PSD_USE_UPDATE) {
        numbers_init(&pass->numbers, apply->rule, apply->update);
    }
}

/* Where the partial at this height of the stack may be kept; the root ends in block->work. */
static void *
slot(const struct pass *pass, const struct block *block, size_t height)
{
    return height == 0 ? block->work : pass->slots + (height - 1) * APPLY_BLOCK_BYTES;
}

/*
 * The leaves from `index` on that are a complete aligned subtree and can be added in one go: 8, 4,
 * 2, or only 1. Dense ranks are the usual case, and one pass over 8 arrays beats 7 over 2.
 */
static uint32_t
leaves_together(const struct pass *pass, uint32_t index)
{
    const struct leaf *leaf = &pass->apply->leaves[index];
    uint32_t size = pass->to_real != NULL ? 1 : 8;

    while (size > 1 && (size > pass->apply->leaf_count - index || leaf->rank % size != 0 ||
                        leaf[size - 1].rank != leaf->rank + size - 1)) {
        size /= 2;
    }
    return size;
}

/* The sum of `size` leaves, as what is computed in: in its slot, or a single leaf itself. */
static const void *
leaves_sum(const struct pass *pass, const struct block *block, const struct leaf *leaf,
           uint32_t size, void *to)
{
    const void *parts[8];

    for (uint32_t i = 0; i < size; i++) {
        parts[i] = (const char *)leaf[i].data + block->first * pass->bytes;
    }
    if (size == 8) {
        pass->real->add8(to, parts, block->count);
    } else if (size == 4) {
        pass->real->add4(to, parts, block->count);
    } else if (size == 2) {
        pass->real->add2(to, parts, block->count);
    } else if (pass->to_real != NULL) {
        pass->to_real(to, parts[0], block->count);
    } else {
        return parts[0];
    }
    return to;
}

/* Replaces the two partials on top of the stack by their sum. Returns the new height. */
static size_t
merge(const struct pass *pass, const struct block *block, struct partial *stack, size_t height)
{
    struct partial *left = &stack[height - 2];
    const void *parts[2] = {left->values, stack[height - 1].values};
    void *sum = slot(pass, block, height - 2);

    pass->real->add2(sum, parts, block->count);
    left->values = sum;
    return height - 1;
}

/*
 * Adds a block of all leaves along the tree. Two neighbours of the sorted ranks meet at the level
 * of the highest bit in which they differ; so a leaf that joins at some level first lets everything
 * before it, that meets at a lower level, become one. Absent ranks leave no trace in this.
 *
 * Returns the sum: in block->work, or a single leaf itself.
 */
static const void *
sum_block(const struct pass *pass, const struct block *block)
{
    const struct apply *apply = pass->apply;
    struct partial stack[APPLY_TREE_DEPTH];
    size_t height = 0;
    uint32_t size;

    if (apply->leaf_count == 0) {
        memset(block->work, 0, block->count * pass->real_bytes);
        return block->work;
    }
    for (uint32_t i = 0; i < apply->leaf_count; i += size) {
        const struct leaf *leaf = &apply->leaves[i];
        uint32_t join = 0;

        if (i > 0) {
            join = 32 - (uint32_t)__builtin_clz(leaf->rank ^ leaf[-1].rank);
        }
        while (height >= 2 && stack[height - 1].join < join) {
            height = merge(pass, block, stack, height);
        }
        psi_assert(height < APPLY_TREE_DEPTH);
        size = leaves_together(pass, i);
        stack[height].values = leaves_sum(pass, block, leaf, size, slot(pass, block, height));
        stack[height].join = join;
        height++;
    }
    while (height >= 2) {
        height = merge(pass, block, stack, height);
    }
    return stack[0].values;
}

static void
publish(const struct pass *pass, void *to, const void *values, size_t count)
{
    if (pass->from_real != NULL) {
        pass->from_real(to, values, count);
    } else {
        pass->real->publish(to, values, count);
    }
}

static void
update_block(const struct pass *pass, const struct block *block, const void *gradient)
{
    const struct apply *apply = pass->apply;
    const size_t offset = block->first * pass->real_bytes;
    void *to = (char *)apply->to + block->first * pass->bytes;
    struct kernel_block rule = {.count = block->count};

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
    if (apply->rule->weight_decay != 0 && apply->rule->rule != PSD_RULE_ADAMW) {
        pass->real->decay(block->work, gradient, rule.from, apply->rule->weight_decay,
                          block->count);
        gradient = block->work;
    }
    rule.gradient = gradient;
    pass->real->rule[apply->rule->rule](&pass->numbers, &rule);
    if (pass->from_real != NULL) {
        pass->from_real(to, rule.to, block->count);
    }
}

/* By a power of two it is the same as multiplying, which is several times faster. */
static void
divide(const struct pass *pass, const struct block *block, const void *sum)
{
    const uint32_t divisor = pass->apply->divisor;

    if ((divisor & (divisor - 1)) == 0) {
        pass->real->scale(block->work, sum, 1.0 / divisor, block->count);
    } else {
        pass->real->divide(block->work, sum, divisor, block->count);
    }
}

static void
finish_block(const struct pass *pass, const struct block *block, const void *sum)
{
    const struct apply *apply = pass->apply;

    if (apply->divisor > 1) { /* by 1: the same bits without it */
        divide(pass, block, sum);
        sum = block->work;
    }
    if (apply->use == PSD_USE_SUM) {
        publish(pass, (char *)apply->to + block->first * pass->bytes, sum, block->count);
    } else {
        update_block(pass, block, sum);
    }
}

/* The first element that is not finite, in a block that has one. */
static int64_t
find_bad(const struct pass *pass, const struct block *block)
{
    uint32_t i = 0;

    while (pass->real->finite((const char *)block->work + i * pass->real_bytes, 1)) {
        i++;
        psi_assert(i < block->count);
    }
    return block->first + i;
}

static struct block
block_at(const struct pass *pass, uint32_t first)
{
    const uint32_t most = (uint32_t)(APPLY_BLOCK_BYTES / pass->real_bytes);
    const uint32_t rest = pass->apply->elements - first;

    return (struct block){.first = first, .count = rest < most ? rest : most};
}

/* The sum is kept: a leaf in shared memory may change after it was checked. */
static int64_t
apply_checked(const struct pass *pass, char *scratch)
{
    struct block block;

    for (uint32_t first = 0; first < pass->apply->elements; first += block.count) {
        const void *sum;

        block = block_at(pass, first);
        block.work = scratch + first * pass->real_bytes;
        sum = sum_block(pass, &block);
        if (sum != block.work) {
            memcpy(block.work, sum, block.count * pass->real_bytes);
        }
        if (!pass->real->finite(block.work, block.count)) {
            return find_bad(pass, &block);
        }
    }
    for (uint32_t first = 0; first < pass->apply->elements; first += block.count) {
        block = block_at(pass, first);
        block.work = scratch + first * pass->real_bytes;
        finish_block(pass, &block, block.work);
    }
    return APPLY_OK;
}

static int64_t
apply_streaming(const struct pass *pass, char *scratch)
{
    struct block block;

    for (uint32_t first = 0; first < pass->apply->elements; first += block.count) {
        block = block_at(pass, first);
        block.work = scratch;
        finish_block(pass, &block, sum_block(pass, &block));
    }
    return APPLY_OK;
}

static void
assert_leaves(const struct apply *apply)
{
    psi_assert(apply->leaf_count <= RANKS_MAX);
    for (uint32_t i = 0; i < apply->leaf_count; i++) {
        psi_assert(apply->leaves[i].rank < RANKS_MAX);
        psi_assert(i == 0 || apply->leaves[i].rank > apply->leaves[i - 1].rank);
    }
}

int64_t
store_apply(const struct apply *apply, void *scratch)
{
    struct pass pass;

    psi_assert(apply->elements >= 1 && apply->elements <= PSD_CHUNK_ELEMENTS);
    assert_leaves(apply);
    pass_init(&pass, apply, (char *)scratch + PSD_CHUNK_ELEMENTS * sizeof(double));
    return apply->check ? apply_checked(&pass, scratch) : apply_streaming(&pass, scratch);
}
