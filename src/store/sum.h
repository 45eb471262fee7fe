/*
 * sum.h - gradients added along one fixed tree over ranks.
 *
 * Leaf r is rank r's contribution as f32 (f64 for f64 tables), node(level, i) = node(level-1, 2i) +
 * node(level-1, 2i+1), left operand first, an absent child is skipped, never added as 0
 * (docs/consistency.md). A complete node may come as one leaf, added elsewhere: the bits are the
 * same. Neighbours: apply.c uses the sum, kernels.c adds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SUM_H
#define STORE_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/kernels.h"
#include "table/spec.h"

/* A contribution: `data` holds the chunk's elements, any alignment, in the table's type; or it is
 * the sum of all ranks of a node: then in f32 (f64 for f64 tables), and `rank` is the first. */
struct leaf {
    uint32_t rank;
    bool is_sum;
    const void *data;
};

enum {
    SUM_BLOCK_BYTES = 8192, /* of f32 or f64: what is worked on while it is in cache */
    SUM_TREE_DEPTH = 11,    /* nodes on the way from a leaf to the root */
    SUM_SCRATCH_BYTES = (SUM_TREE_DEPTH - 1) * SUM_BLOCK_BYTES, /* partial sums of a block */
};

/* What is to be added, with everything looked up. */
struct psi_sum {
    const struct leaf *leaves; /* by rising rank */
    uint32_t leaf_count;
    const struct kernels_real *real; /* f32 or f64: what is computed in */
    size_t real_bytes;
    size_t bytes; /* of an element in the table's type */
    void (*to_real)(void *to, const void *from, size_t count); /* NULL: they are the same */
    char *slots;                                               /* SUM_SCRATCH_BYTES */
};

void psi_sum_init(struct psi_sum *sum, const struct kernels *kernels, psd_dtype dtype,
                  const struct leaf *leaves, uint32_t leaf_count, void *scratch);

/* Whether these leaves, a power of two of them by rising rank, are all below one node and no other
 * is: then they are added as ((a + b) + (c + d)) + ... */
bool psi_sum_is_subtree(const struct leaf *leaves, uint32_t count);

/* How many elements make a block, from `first` of `elements` on. */
uint32_t psi_sum_block_count(const struct psi_sum *sum, uint32_t first, uint32_t elements);

/* Adds elements first .. first + count - 1, one block. Returns the sum: `work`, or a single leaf
 * itself. No leaves: zeros. */
const void *psi_sum_block(const struct psi_sum *sum, uint32_t first, uint32_t count, void *work);

/* Adds all elements into `to`. */
void psi_sum_all(const struct psi_sum *sum, uint32_t elements, void *to);

#endif
