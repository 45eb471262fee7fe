/*
 * sparse_sums.h - what answers a push to a sparse sum: the rows that all workers gave, added, as they
 * come from each place; then all of them in the order of their ids.
 *
 * Thread: belongs to its operation. It may be read without a lock when that has ended, by one thread
 * at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_SPARSE_SUMS_H
#define PSI_CLIENT_CORE_SPARSE_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/psd.h>

#include "table/spec.h"

struct place_sum;
struct sparse_sums;

/* NULL: no memory. */
struct sparse_sums *psi_sparse_sums_create(const struct psi_spec *spec, uint32_t places);
void psi_sparse_sums_free(struct sparse_sums *sums);

/* A place's answers come from the first one on, perhaps not for the first time. */
void psi_sparse_sums_begin(struct sparse_sums *sums, uint64_t place);

/* Memory for the next one. NULL: there is none. */
void *psi_sparse_sums_room(struct sparse_sums *sums, uint64_t place, size_t bytes);

/* It is there. PSD_ERR_PROTOCOL: it is not what such an answer may be. */
psd_status psi_sparse_sums_came(struct sparse_sums *sums, uint64_t place, size_t bytes,
                                struct psd_error *err);

/* The last id that has come. False: none has. */
bool psi_sparse_sums_last(const struct sparse_sums *sums, uint64_t place, uint64_t *id_p);

/* What a place has answered, when all of it has come: for one more to keep. */
struct place_sum *psi_sparse_sums_share(const struct sparse_sums *sums, uint64_t place);
void psi_place_sum_release(struct place_sum *sum); /* or NULL */
uint64_t psi_place_sum_bytes(const struct place_sum *sum);

/* The index-th of its payloads, as it came, and whether there is one behind it. NULL: there are not so many. */
const void *psi_place_sum_part(const struct place_sum *sum, uint32_t index, size_t *bytes_p,
                               bool *more_p);

/* When all have come: how many rows there are, and all of them by rising id. False: no memory. */
uint64_t psi_sparse_sums_count(const struct sparse_sums *sums);
bool psi_sparse_sums_read(const struct sparse_sums *sums, uint64_t *ids_p, void *rows_p);

#endif
