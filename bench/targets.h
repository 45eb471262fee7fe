/*
 * targets.h - what the project wants to reach, and how near it came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_TARGETS_H
#define BENCH_TARGETS_H

#include <stdio.h>

#include "results.h"

/* Every target that was measured, and the ones of `all` that were not, too. */
void targets_print(FILE *file, const struct results *results, bool all);

#endif
