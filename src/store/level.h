/*
 * level.h - from a SIMD level to its kernels. The levels themselves are in sum.h.
 */
#ifndef STORE_LEVEL_H
#define STORE_LEVEL_H

#include "store/kernels.h"
#include "store/sum.h"

/* The level must be supported. */
const struct kernels *psi_kernel_level_kernels(enum kernel_level level);

#endif
