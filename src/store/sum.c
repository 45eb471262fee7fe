/*
 * sum.c - gradients added along one fixed tree over ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sum.h"

#include <string.h>

#include "base/fail.h"

enum { RANKS_MAX = 1024 };

/* A run of elements, and where its sum may be put. */
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
assert_leaves(const struct leaf *leaves, uint32_t count)
{
    psi_assert(count <= RANKS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        psi_assert(leaves[i].rank < RANKS_MAX);
        psi_assert(i == 0 || leaves[i].rank > leaves[i - 1].rank);
    }
}

void
psi_sum_init(struct psi_sum *sum, const struct kernels *kernels, psd_dtype dtype,
             const struct leaf *leaves, uint32_t leaf_count, void *scratch)
{
    assert_leaves(leaves, leaf_count);
    *sum = (struct psi_sum){
        .leaves = leaves,
        .leaf_count = leaf_count,
        .real = dtype == PSD_F64 ? kernels->f64 : kernels->f32,
        .real_bytes = psi_dtype_state_bytes(dtype),
        .bytes = psi_dtype_bytes(dtype),
        .slots = scratch,
    };
    if (dtype == PSD_F16) {
        sum->to_real = kernels->f32_from_f16;
    } else if (dtype == PSD_BF16) {
        sum->to_real = kernels->f32_from_bf16;
    }
}

/* Where the partial at this height of the stack may be kept; the root ends in block->work. */
static void *
slot(const struct psi_sum *sum, const struct block *block, size_t height)
{
    return height == 0 ? block->work : sum->slots + (height - 1) * SUM_BLOCK_BYTES;
}

bool
psi_sum_is_subtree(const struct leaf *leaves, uint32_t count)
{
    return leaves[0].rank % count == 0 && leaves[count - 1].rank == leaves[0].rank + count - 1;
}

/*
 * The leaves from `index` on that are a complete aligned subtree and can be added in one go: 8, 4,
 * 2, or only 1. Dense ranks are the usual case, and one pass over 8 arrays beats 7 over 2. The
 * ranks behind a leaf that is a sum already are not there, so it is never among them.
 */
static uint32_t
leaves_together(const struct psi_sum *sum, uint32_t index)
{
    const struct leaf *leaf = &sum->leaves[index];
    uint32_t size = sum->to_real != NULL ? 1 : 8;

    while (size > 1 && (size > sum->leaf_count - index || !psi_sum_is_subtree(leaf, size))) {
        size /= 2;
    }
    return size;
}

/* The sum of `size` leaves, as what is computed in: in its slot, or a single leaf itself. */
static const void *
leaves_sum(const struct psi_sum *sum, const struct block *block, const struct leaf *leaf,
           uint32_t size, void *to)
{
    const void *parts[8];

    if (leaf->is_sum && size == 1) {
        return (const char *)leaf->data + block->first * sum->real_bytes;
    }
    for (uint32_t i = 0; i < size; i++) {
        parts[i] = (const char *)leaf[i].data + block->first * sum->bytes;
    }
    if (size == 8) {
        sum->real->add8(to, parts, block->count);
    } else if (size == 4) {
        sum->real->add4(to, parts, block->count);
    } else if (size == 2) {
        sum->real->add2(to, parts, block->count);
    } else if (sum->to_real != NULL) {
        sum->to_real(to, parts[0], block->count);
    } else {
        return parts[0];
    }
    return to;
}

/* Replaces the two partials on top of the stack by their sum. Returns the new height. */
static size_t
merge(const struct psi_sum *sum, const struct block *block, struct partial *stack, size_t height)
{
    struct partial *left = &stack[height - 2];
    const void *parts[2] = {left->values, stack[height - 1].values};
    void *to = slot(sum, block, height - 2);

    sum->real->add2(to, parts, block->count);
    left->values = to;
    return height - 1;
}

/*
 * Adds a block of all leaves along the tree. Two neighbours of the sorted ranks meet at the level
 * of the highest bit in which they differ; so a leaf that joins at some level first lets everything
 * before it, that meets at a lower level, become one. Absent ranks leave no trace in this.
 */
static const void *
sum_block(const struct psi_sum *sum, const struct block *block)
{
    struct partial stack[SUM_TREE_DEPTH];
    size_t height = 0;
    uint32_t size;

    for (uint32_t i = 0; i < sum->leaf_count; i += size) {
        const struct leaf *leaf = &sum->leaves[i];
        uint32_t join = 0;

        if (i > 0) {
            join = 32 - (uint32_t)__builtin_clz(leaf->rank ^ leaf[-1].rank);
        }
        while (height >= 2 && stack[height - 1].join < join) {
            height = merge(sum, block, stack, height);
        }
        psi_assert(height < SUM_TREE_DEPTH);
        size = leaves_together(sum, i);
        stack[height].values = leaves_sum(sum, block, leaf, size, slot(sum, block, height));
        stack[height].join = join;
        height++;
    }
    while (height >= 2) {
        height = merge(sum, block, stack, height);
    }
    return stack[0].values;
}

const void *
psi_sum_block(const struct psi_sum *sum, uint32_t first, uint32_t count, void *work)
{
    const struct block block = {.first = first, .count = count, .work = work};

    if (sum->leaf_count == 0) {
        memset(work, 0, count * sum->real_bytes);
        return work;
    }
    return sum_block(sum, &block);
}

uint32_t
psi_sum_block_count(const struct psi_sum *sum, uint32_t first, uint32_t elements)
{
    const uint32_t most = (uint32_t)(SUM_BLOCK_BYTES / sum->real_bytes);

    return elements - first < most ? elements - first : most;
}

void
psi_sum_all(const struct psi_sum *sum, uint32_t elements, void *to)
{
    uint32_t count;

    for (uint32_t first = 0; first < elements; first += count) {
        char *work = (char *)to + first * sum->real_bytes;
        const void *values;

        count = psi_sum_block_count(sum, first, elements);
        values = psi_sum_block(sum, first, count, work);
        if (values != work) {
            memcpy(work, values, count * sum->real_bytes);
        }
    }
}
