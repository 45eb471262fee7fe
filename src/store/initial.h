/*
 * initial.h - initial values of a table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_INITIAL_H
#define STORE_INITIAL_H

#include <stdint.h>

#include "table/spec.h"

/*
 * Elements first .. first + count - 1 of a table, in dtype, by element index and seed alone (a
 * counter-based generator), so that the number of servers does not matter.
 */
void store_initial(psd_init init, double value, uint64_t seed, psd_dtype dtype, uint64_t first,
                   uint64_t count, void *to);

#endif
