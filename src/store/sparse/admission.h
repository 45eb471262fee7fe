/*
 * admission.h - which new ids get a row: decided by ids and steps alone.
 *
 * By count: each bucket has a small table of 8-bit counters; an id has two of them, and the smaller
 * one says how often the id has come (never too low, sometimes too high). They are halved as steps
 * go by. Or by share: a hash of (seed, id, step) decides.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_ADMISSION_H
#define STORE_SPARSE_ADMISSION_H

#include "store/sparse/state.h"

/* An id without a row has come in `step`. May it have one? */
bool admission_passes(struct sparse *store, struct bucket *bucket, uint64_t id, uint64_t key,
                      uint64_t step);

/* Counters that are all 0; false: no memory. */
bool admission_make(struct sparse *store, struct bucket *bucket);
void admission_forget(struct sparse *store, struct bucket *bucket);

#endif
