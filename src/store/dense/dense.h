/*
 * dense.h - tables of a fixed number of elements, all of which have a place in memory from the
 * start.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_DENSE_DENSE_H
#define STORE_DENSE_DENSE_H

#include "store/store.h"

extern const struct store_ops store_dense;

#endif
