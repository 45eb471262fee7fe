/*
 * mapping.h - what kind of memory this process has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_MAPPING_H
#define BENCH_MAPPING_H

#include <stdbool.h>

/* Whether it reads memory of another process of the job, as the kernel knows it: a segment of ours
 * that is mapped for reading only is a neighbour's. */
bool mapping_of_a_neighbour(void);

#endif
