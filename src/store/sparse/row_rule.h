/*
 * row_rule.h - what a gradient does to a row: the arithmetic of one sparse_apply().
 *
 * A row is a short run of elements for the kernels of dense tables, in the same order of operations:
 * divided, clipped, its weight decay added, then the rule. So a row has the bits that it would have
 * in a dense table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_ROW_RULE_H
#define STORE_SPARSE_ROW_RULE_H

#include "store/numbers.h"
#include "store/sparse/state.h"

/* Thread: on its user's stack. */
struct row_rule {
    struct sparse *store;
    const struct psd_rule_args *args;
    struct kernel_numbers numbers;
    struct kernel_block block; /* what is the same for all rows */
    kernel_rule_fn kernel;
    void (*to_real)(void *to, const void *from, size_t count); /* NULL: gradients are f32 */
    uint32_t divisor; /* 0: there is nothing to divide, or the kernel does it */
    uint32_t step;
    bool decays;
    bool corrects; /* by the row's own count */
    bool checks;   /* whether values are too large for their type */
};

void row_rule_init(struct row_rule *rule, struct sparse *store, const struct sparse_change *change);

/* Changes the row. false: it has values that are too large for the table's type. */
bool row_rule_apply(struct row_rule *rule, struct row *row, const void *gradient);

#endif
