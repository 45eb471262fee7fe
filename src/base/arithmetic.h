/*
 * arithmetic.h - how this thread's processor computes: the bits of a sum must not depend on it.
 *
 * A program may have told its threads to round in another way, to take tiny numbers for zero
 * (-ffast-math does, and machine learning frameworks can), or to stop at an overflow. Whatever adds
 * in a thread of the program does so between psi_arithmetic_enter() and psi_arithmetic_leave();
 * threads of our own begin with psi_arithmetic_enter().
 *
 * What is computed in between must reach memory before the end and come from memory after the
 * beginning: compilers do not know that arithmetic depends on the mode.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_ARITHMETIC_H
#define PSI_BASE_ARITHMETIC_H

#include <stdint.h>

#if defined(__x86_64__)

typedef uint32_t psi_arithmetic;

#define PSI_ARITHMETIC_IEEE UINT32_C(0x1f80) /* to nearest, tiny numbers kept, no exceptions */

static inline psi_arithmetic
psi_arithmetic_get(void)
{
    psi_arithmetic mode;

    __asm__ volatile("stmxcsr %0" : "=m"(mode) : : "memory");
    return mode;
}

static inline void
psi_arithmetic_set(psi_arithmetic mode)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}

#elif defined(__aarch64__)

typedef uint64_t psi_arithmetic;

#define PSI_ARITHMETIC_IEEE UINT64_C(0)

static inline psi_arithmetic
psi_arithmetic_get(void)
{
    psi_arithmetic mode;

    __asm__ volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
    return mode;
}

static inline void
psi_arithmetic_set(psi_arithmetic mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

#else
#error "say here how this processor is made to compute as IEEE 754 says"
#endif

/* Returns what was, for psi_arithmetic_leave(). */
static inline psi_arithmetic
psi_arithmetic_enter(void)
{
    const psi_arithmetic before = psi_arithmetic_get();

    psi_arithmetic_set(PSI_ARITHMETIC_IEEE);
    return before;
}

/* Also clears the flags that the sums raised (inexact, underflow): the program did not. */
static inline void
psi_arithmetic_leave(psi_arithmetic before)
{
    psi_arithmetic_set(before);
}

#endif
