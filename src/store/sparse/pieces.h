/*
 * pieces.h - all that a sparse table has, in pieces, for a copy of it: while the table goes on.
 *
 * A piece is a head and sections, each at a multiple of 8 bytes:
 *
 *     struct piece_head
 *     struct piece_section, then what it is about, padded with zeros
 *         PIECE_ROWS      u64 ids[count], u32 steps[count], u32 counts[count], f32 values[count * width],
 *                         f32 state[count * state numbers]: rows of a bucket by rising mixed id
 *         PIECE_COUNTERS  u8 counters[count], of admission to a bucket, from that one on
 *         PIECE_BEFORE    u64 ids[count], their rows in the table's type, as they were one step ago
 *     ...
 *
 * Numbers are those of this machine, as everywhere in a payload. A bucket that fits into a piece is
 * never split, so what is between two pieces is a boundary between buckets: a change that comes then
 * is made there, of the buckets that the copy has. A piece may be taken twice.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_PIECES_H
#define STORE_SPARSE_PIECES_H

#include "store/sparse/before.h"
#include "store/sparse/sparse.h"
#include "store/store.h"

struct piece_head {
    uint64_t step;     /* the largest that changed the table */
    uint64_t begins;   /* the steps before this one were closed */
    uint32_t is_first; /* whatever the copy has, it goes */
    uint32_t zero;
};

enum piece_kind { PIECE_ROWS = 1, PIECE_COUNTERS, PIECE_BEFORE };

struct piece_section {
    uint32_t kind;
    uint32_t count;
    uint32_t bucket; /* PIECE_BEFORE: 0 */
    uint32_t from;   /* rows, or counters, of it are in earlier sections; 0: it begins here */
    uint32_t changed;
    uint32_t removed; /* of the bucket, as struct sparse_bucket has them */
    uint32_t epoch;   /* of its counters */
    uint32_t zero;
};

/* The table that pieces are of, or that takes them. */
struct piece_source {
    const struct psi_spec *spec;
    struct sparse *rows;
    struct before *before;
    size_t row_bytes; /* in the table's type */
    uint32_t first_bucket;
    uint32_t end_bucket;
    uint64_t *step;
};

/* Where the numbers of a section of rows lie, and how many bytes they take, padding included. */
struct sparse_rows pieces_rows_in(const struct piece_source *source, uint8_t *at, size_t count,
                                  size_t *bytes_p);
size_t pieces_padded(size_t bytes);

/* As store_ops.piece and .take. PSD_ERR_PROTOCOL: it is no piece of such a table; PSD_ERR_TOO_BIG: there
 * is no room for it. */
size_t pieces_next(const struct piece_source *source, struct store_walk *walk, uint8_t *to,
                   size_t room);
psd_status pieces_take(const struct piece_source *source, const uint8_t *piece, size_t bytes,
                       struct psd_error *err);

#endif
