/*
 * level.c - which kernels this CPU can run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/level.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#endif

#include "base/fail.h"
#include "store/kernels.h"

const char *
psi_kernel_level_name(enum kernel_level level)
{
    static const char *const names[KERNEL_LEVELS] = {"scalar", "avx2", "avx512"};

    psi_assert(level < KERNEL_LEVELS);
    return names[level];
}

#if defined(__x86_64__)

/* Not every compiler knows this one by name. Asked once: a virtual machine answers in microseconds,
 * and kernels are looked up for every chunk. */
static bool
converts_f16(void)
{
    enum { NOT_ASKED, NO, YES };
    static _Atomic int known = NOT_ASKED;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);

    if (answer == NOT_ASKED) {
        unsigned eax = 0;
        unsigned ebx = 0;
        unsigned ecx = 0;
        unsigned edx = 0;

        answer = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}

bool
psi_kernel_level_supported(enum kernel_level level)
{
    switch (level) {
    case KERNEL_SCALAR:
        return true;
    case KERNEL_AVX2:
        return __builtin_cpu_supports("avx2") && converts_f16();
    case KERNEL_AVX512:
        return converts_f16() && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    case KERNEL_LEVELS:
        break;
    }
    return false;
}

const struct kernels *
psi_kernel_level_kernels(enum kernel_level level)
{
    static const struct kernels *const kernels[KERNEL_LEVELS] = {
        &psi_kernels_scalar, &psi_kernels_avx2, &psi_kernels_avx512};

    psi_assert(psi_kernel_level_supported(level));
    return kernels[level];
}

#else

bool
psi_kernel_level_supported(enum kernel_level level)
{
    return level == KERNEL_SCALAR;
}

const struct kernels *
psi_kernel_level_kernels(enum kernel_level level)
{
    psi_assert(psi_kernel_level_supported(level));
    return &psi_kernels_scalar;
}

#endif

enum kernel_level
psi_kernel_level_best(void)
{
    unsigned level = KERNEL_LEVELS - 1;

    while (!psi_kernel_level_supported((enum kernel_level)level)) {
        level--;
    }
    return (enum kernel_level)level;
}
