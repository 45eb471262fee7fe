/*
 * level.h - from a SIMD level to its kernels. The levels themselves are in apply.h.
 */
#ifndef STORE_LEVEL_H
#define STORE_LEVEL_H

#include "store/apply.h"
#include "store/kernels.h"

/* The level must be supported. */
const struct kernels *kernel_level_kernels(enum kernel_level level);

#endif
