/*
 * vector.h - a cache line as one value, for code that must be as fast as memory.
 */
#ifndef BENCH_VECTOR_H
#define BENCH_VECTOR_H

#include <stdint.h>

enum { VECTOR_COUNT = 16 };

typedef float vector_f32 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t vector_u32 __attribute__((vector_size(64), aligned(4), may_alias));

/* Compiled for the wider registers as well; the program chooses when it starts. */
#if defined(__x86_64__) && !defined(__clang__)
#define VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define VECTOR_CLONES
#endif

#endif
