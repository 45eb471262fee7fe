/*
 * rows_merge.h - the rows of a sparse table that count, out of all files that a generation has of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_ROWS_MERGE_H
#define PSI_CHECKPOINT_ROWS_MERGE_H

#include "checkpoint/read.h"

/* Thread: owned by its caller. */
struct psi_rows_merge;

/* Reads all files, and takes 17 bytes for each row in them. The checkpoint and `rows` are borrowed. */
psd_status psi_rows_merge_create(const struct psi_checkpoint *checkpoint,
                                 const struct psi_manifest_rows *rows,
                                 struct psi_rows_merge **merge_p, struct psd_error *err);
void psi_rows_merge_destroy(struct psi_rows_merge *merge); /* NULL is allowed */

/* How many rows count. */
uint32_t psi_rows_merge_count(const struct psi_rows_merge *merge);

/* The rows that count of the next file, which the caller destroys. NULL: there are no more files. */
psd_status psi_rows_merge_next(struct psi_rows_merge *merge, struct psi_rows_piece **piece_p,
                               struct psd_error *err);

#endif
