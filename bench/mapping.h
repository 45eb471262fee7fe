/*
 * mapping.h - what kind of memory a pointer points to.
 */
#ifndef BENCH_MAPPING_H
#define BENCH_MAPPING_H

#include <stdbool.h>

/* Whether other processes may have the same memory, as the kernel knows it. */
bool mapping_is_shared(const void *memory);

#endif
