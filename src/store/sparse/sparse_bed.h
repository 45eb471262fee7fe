/*
 * sparse_bed.h - what the tests of sparse stores share: random lists of ids, a store for a spec.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_SPARSE_BED_H
#define STORE_SPARSE_SPARSE_BED_H

#include "store/sparse/sparse.h"

uint64_t bed_draw(uint64_t *random);
uint64_t bed_below(uint64_t *random, uint64_t limit);
float bed_number(uint64_t *random); /* in [-2, 2) */

/* Sorts by mixed id and drops repetitions. Returns how many are left. */
size_t bed_sort(uint64_t *ids, size_t count);

/* A table of f32 rows with that rule: defaults filled in. */
struct psi_spec bed_spec(psd_rule rule, uint32_t width);

/* Made with filled-in defaults, without bound of memory; it must succeed. */
struct sparse *bed_create(const struct psi_spec *spec, struct psi_row_policy *policy,
                          uint32_t bucket_bits);

/* Every row gets the gradient in its place. Returns what has become of it. */
struct sparse_outcome bed_apply(struct sparse *store, const uint64_t *ids, const float *gradients,
                                size_t count, uint64_t step);

/* All rows of the store, bucket by bucket, `batch` at a time. */
struct bed_rows {
    struct sparse_rows rows;
    size_t room;
};
struct bed_rows bed_save(const struct sparse *store, uint32_t bucket_bits, uint32_t since,
                         size_t batch, const struct psi_spec *spec);
void bed_free(struct bed_rows *all);

#endif
