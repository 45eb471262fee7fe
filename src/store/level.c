/*
 * level.c - which kernels this CPU can run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/level.h"

#include "base/fail.h"

const char *
kernel_level_name(enum kernel_level level)
{
    static const char *const names[KERNEL_LEVELS] = {"scalar", "avx2", "avx512"};

    psi_assert(level < KERNEL_LEVELS);
    return names[level];
}

#if defined(__x86_64__)

bool
kernel_level_supported(enum kernel_level level)
{
    switch (level) {
    case KERNEL_SCALAR:
        return true;
    case KERNEL_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case KERNEL_AVX512:
        return __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    case KERNEL_LEVELS:
        break;
    }
    return false;
}

const struct kernels *
kernel_level_kernels(enum kernel_level level)
{
    static const struct kernels *const kernels[KERNEL_LEVELS] = {&kernels_scalar, &kernels_avx2,
                                                                 &kernels_avx512};

    psi_assert(kernel_level_supported(level));
    return kernels[level];
}

#else

bool
kernel_level_supported(enum kernel_level level)
{
    return level == KERNEL_SCALAR;
}

const struct kernels *
kernel_level_kernels(enum kernel_level level)
{
    psi_assert(kernel_level_supported(level));
    return &kernels_scalar;
}

#endif

enum kernel_level
kernel_level_best(void)
{
    unsigned level = KERNEL_LEVELS - 1;

    while (!kernel_level_supported((enum kernel_level)level)) {
        level--;
    }
    return (enum kernel_level)level;
}
