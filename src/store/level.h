/*
 * level.h - the SIMD levels of the kernels, and which of them this CPU can run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_LEVEL_H
#define STORE_LEVEL_H

#include <stdbool.h>

struct kernels;

enum kernel_level { KERNEL_SCALAR, KERNEL_AVX2, KERNEL_AVX512, KERNEL_LEVELS };

const char *psi_kernel_level_name(enum kernel_level level);
bool psi_kernel_level_supported(enum kernel_level level);
enum kernel_level psi_kernel_level_best(void);

/* The level must be supported. */
const struct kernels *psi_kernel_level_kernels(enum kernel_level level);

#endif
