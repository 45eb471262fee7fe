/*
 * rows_piece.h - some rows of a sparse table in memory: gathered and written to a file of their own,
 * or read from one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_ROWS_PIECE_H
#define PSI_CHECKPOINT_ROWS_PIECE_H

#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_layout.h"

enum { PSI_ROWS_PIECE_BYTES = 16 << 20 /* about, of one that is gathered */ };

/* Thread: owned by its caller. */
struct psi_rows_piece {
    struct psi_row_form form;
    struct psi_rows_count count;
    struct psi_rows_count room;
    void *column[PSI_ROWS_COLUMNS]; /* aligned to their numbers; of items, `room` of them */
    void *memory;
};

/* Room for so much. NULL: no memory. */
struct psi_rows_piece *psi_rows_piece_create(const struct psi_row_form *form,
                                             const struct psi_rows_count *room);
void psi_rows_piece_destroy(struct psi_rows_piece *piece); /* NULL is allowed */

/* How many rows, or how many buckets that are counted, make PSI_ROWS_PIECE_BYTES. */
uint32_t psi_rows_per_piece(const struct psi_row_form *form);
uint32_t psi_rows_counted_per_piece(const struct psi_row_form *form);

/* Bytes of what is in it. */
uint64_t psi_rows_piece_bytes(const struct psi_rows_piece *piece);

/* Rows as arrays: what the store gives, and takes. */
struct psi_rows_arrays {
    size_t count;
    const uint64_t *ids;
    const float *values; /* width of each */
    const float *state;  /* of each row its arrays, one after the other */
    const uint32_t *steps;
    const uint32_t *counts;
};

/* Adds rows from `first` on, as many as there is room for. Returns how many. */
size_t psi_rows_piece_add(struct psi_rows_piece *piece, const struct psi_rows_arrays *rows,
                          size_t first);

/* The state of row `at`, its arrays one after the other. */
void psi_rows_piece_state(const struct psi_rows_piece *piece, uint32_t at, float *state);

/*
 * Writes it to a new file of the generation with that token, and waits until it is on the disk.
 * file->place and ->number name it; the rest of *file is filled in. PSD_ERR_IO naming the file and
 * the reason: nothing is left of it.
 */
psd_status psi_rows_piece_write(const struct psi_rows_piece *piece,
                                const struct psi_directory *directory, const char *table,
                                uint64_t token, struct psi_rows_file *file, struct psd_error *err);

/* Reads a file whose every byte is as the manifest says. PSD_ERR_CORRUPT: it is damaged, or gone. */
psd_status psi_rows_piece_read(const struct psi_directory *directory,
                               const struct psi_manifest_rows *rows,
                               const struct psi_rows_file *file, struct psi_rows_piece **piece_p,
                               struct psd_error *err);

#endif
