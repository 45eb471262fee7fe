/*
 * sparse_rows.h - what one operation on a sparse table sends to each place, and where the rows that
 * come back belong.
 *
 * A place is to a sparse table what a chunk is to a dense one: one request, one round. Everything is
 * copied out of the program's memory when it is made, but for `values`, which gets the rows as they
 * come.
 *
 * Thread: made by any thread, without a lock; then it belongs to its operation.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_SPARSE_ROWS_H
#define PSI_CLIENT_CORE_SPARSE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/psd.h>

#include "table/spec.h"

struct sparse_rows;
struct sparse_sums;

/* What the program gives, and asks for. */
struct sparse_given {
    uint64_t push_count;
    const uint64_t *push_ids;
    const void *gradients;
    bool adds_nothing; /* it takes part in the round, and no more */
    uint64_t lookup_count;
    const uint64_t *lookup_ids;
    void *values;
    uint32_t part_bytes;   /* of one payload at most; 0: as large as a frame may be */
    uint32_t answer_bytes; /* likewise: of one answer to a lookup */
};

/* type: SPARSE_PUSH, SPARSE_PULL or SPARSE_PUSH_PULL. */
psd_status psi_sparse_rows_create(const struct psi_spec *spec, uint32_t places, uint8_t type,
                                  const struct sparse_given *given, struct sparse_rows **rows_p,
                                  struct psd_error *err);
void psi_sparse_rows_free(struct sparse_rows *rows);

/* The payloads for a place: one, or several where a frame does not hold all. And the bytes of all of
 * them. */
struct sparse_piece {
    uint8_t *base;
    size_t bytes;
};
uint32_t psi_sparse_rows_parts(const struct sparse_rows *rows, uint64_t place);
struct sparse_piece psi_sparse_rows_out(const struct sparse_rows *rows, uint64_t place,
                                        uint32_t part);
size_t psi_sparse_rows_out_bytes(const struct sparse_rows *rows, uint64_t place);

/* Memory in which all of them lie. */
struct sparse_piece psi_sparse_rows_all_out(const struct sparse_rows *rows);

/* The gradients in it, as they will be added to those of others; ids beside them. */
struct sparse_gradients {
    const uint8_t *ids; /* u64, little-endian */
    const void *numbers;
    uint64_t count;
};
struct sparse_gradients psi_sparse_rows_gradients(const struct sparse_rows *rows, uint64_t place,
                                                  uint32_t part);

/* Has the place anything to answer or to count? */
bool psi_sparse_rows_concern(const struct sparse_rows *rows, uint64_t place);

/* How long its answer is, and where that lies; of a sum, nobody knows before it comes. */
struct sparse_piece psi_sparse_rows_in(const struct sparse_rows *rows, uint64_t place);

/* Can an answer have so many bytes? Then, where it lands (NULL: no memory). When it is there its rows
 * go where they belong; those of a sum stay, for psi_sparse_rows_sums(). */
bool psi_sparse_rows_fit(const struct sparse_rows *rows, uint64_t place, size_t bytes);
void *psi_sparse_rows_into(const struct sparse_rows *rows, uint64_t place, size_t bytes);
psd_status psi_sparse_rows_came(struct sparse_rows *rows, uint64_t place, const void *payload,
                                size_t bytes, struct psd_error *err);

/* What is looked up, or a sum, may come in several answers. All of them come anew. */
void psi_sparse_rows_begin(struct sparse_rows *rows, uint64_t place);

/* Is more looked up of the place than has come? Of a sum its server says so. */
bool psi_sparse_rows_has_rest(const struct sparse_rows *rows, uint64_t place);

/* May it take several answers of one place? */
bool psi_sparse_rows_in_parts(const struct sparse_rows *rows);

/* The ids by which the next answer is asked for: of rows that are looked up, theirs; of a sum the last one that has
 * come, behind which the next begins. 0: there is none. ids_p: room for them; NULL: only how many. */
uint32_t psi_sparse_rows_ask(const struct sparse_rows *rows, uint64_t place, uint8_t *ids_p);

/* NULL: it is no push to a sum. */
const struct sparse_sums *psi_sparse_rows_sums(const struct sparse_rows *rows);

/* Is any of that memory written when rows come? */
bool psi_sparse_rows_borrow(const struct sparse_rows *rows, const void *base, size_t bytes);

#endif
