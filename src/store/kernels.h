/*
 * kernels.h - the loops over elements, one table of them per SIMD level.
 *
 * kernels.c is compiled once per level. Only +, -, *, /, sqrt and comparisons are used, element by
 * element and in a written order, so every level gives the same bits. Pointers have any alignment
 * (`state` included); an output may be the very memory of an input, but never overlap it otherwise.
 * Neighbours: sum.c and apply.c cut a chunk into blocks and call these; half.h has the 16-bit
 * formats.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_KERNELS_H
#define STORE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "table/spec.h"

/* The numbers of one update, ready to use. Kernels for f32 round each to f32 once. */
struct kernel_numbers {
    double rate;
    double momentum;
    double beta1, beta1_rest; /* rest = 1 - beta */
    double beta2, beta2_rest;
    double correction1, correction2; /* adam, adamw: 1 - beta^update */
    double epsilon;
    double l1, l2, ftrl_beta;
    double shrink; /* rules that decouple decay: rate * weight_decay */
    double group;  /* group_ftrl */
};

/* How many arrays a rule adds to get its gradient, as the tree does: a, a + b, or
 * (a + b) + (c + d). Kept: their sum is written, too. */
enum kernel_leaves {
    KERNEL_ONE_LEAF,
    KERNEL_TWO_LEAVES,
    KERNEL_FOUR_LEAVES,
    KERNEL_ONE_KEPT,
    KERNEL_TWO_KEPT,
    KERNEL_FOUR_KEPT,
    KERNEL_LEAVES,
};

/* What a rule works on: `count` elements of each. The gradient is `scale` times the leaves' sum. */
struct kernel_block {
    const void *leaves[4];
    void *kept; /* KERNEL_*_KEPT: gets the leaves' sum */
    double scale;
    const void *from;
    void *to;
    void *state[PSI_STATES_MAX];
    size_t count;
};

typedef void (*kernel_rule_fn)(const struct kernel_numbers *numbers,
                               const struct kernel_block *block);

/* Arithmetic in one type: f32 or f64. */
struct kernels_real {
    /* Adds 2, 4 or 8 neighbours as the tree does: ((a + b) + (c + d)) + ... */
    void (*add2)(void *to, const void *const parts[2], size_t count);
    void (*add4)(void *to, const void *const parts[4], size_t count);
    void (*add8)(void *to, const void *const parts[8], size_t count);
    bool (*finite)(const void *values, size_t count);
    void (*divide)(void *to, const void *values, double divisor, size_t count);
    void (*scale)(void *to, const void *values, double factor, size_t count);
    void (*clip)(void *to, const void *values, double limit, size_t count);
    /* to = gradient + decay * values */
    void (*decay)(void *to, const void *gradient, const void *values, double decay, size_t count);
    /* Rules and sums store no NaN but the canonical one. */
    kernel_rule_fn sum[KERNEL_LEAVES];             /* to = gradient */
    kernel_rule_fn rule[PSI_RULES][KERNEL_LEAVES]; /* by psd_rule */
    /* Rules that see a row of a sparse table as a whole; from one leaf. */
    kernel_rule_fn row_adagrad; /* state[0] is one number */
    kernel_rule_fn group_ftrl;
};

struct kernels {
    const struct kernels_real *f32;
    const struct kernels_real *f64;
    void (*f32_from_f16)(void *to, const void *from, size_t count);
    void (*f32_from_bf16)(void *to, const void *from, size_t count);
    void (*f16_from_f32)(void *to, const void *from, size_t count);
    void (*bf16_from_f32)(void *to, const void *from, size_t count);
};

extern const struct kernels psi_kernels_scalar;
extern const struct kernels psi_kernels_avx2;
extern const struct kernels psi_kernels_avx512;

#endif
