/*
 * merge.h - sorted lists of rows become one, and rows of the same id are added along the tree over
 * ranks.
 *
 * The lists are sorted by psi_bucket_mix(), each id once. A row that a rank does not have is an
 * absent leaf of the tree (sum.h): so a merged row has the bits that a dense table would have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_MERGE_H
#define STORE_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/level.h"
#include "table/spec.h"

/* What one rank gives, or, with is_sum, all ranks of a node of the tree. */
struct psi_row_list {
    uint32_t rank; /* of a node: its first */
    bool is_sum;   /* then the rows are f32; else in the table's type */
    const uint64_t *ids;
    const void *rows; /* any alignment */
    size_t count;
};

/* Memory of merges, used again and again. Thread: owned by whoever merges. */
struct psi_merge {
    uint64_t *ids; /* of the last merge, and ... */
    float *sums;   /* ... a row for each, 64-byte aligned: both until the next one */
    size_t count;
    size_t bytes; /* all that it keeps */
    struct psi_merge_memory *memory;
};

/* Zeroed is empty, too. */
void psi_merge_fini(struct psi_merge *merge);

/* `lists` by rising rank, of PSI_RANKS_MAX ranks at most. A rank may have several, which then have no id in
 * common. PSD_ERR_NO_MEMORY: and the last result is gone. */
psd_status psi_merge_rows(struct psi_merge *merge, psd_dtype dtype, uint32_t width,
                          enum kernel_level level, const struct psi_row_list *lists,
                          uint32_t list_count, struct psd_error *err);

/* Are all sums finite? Else *at_p is the index of the first row that is not. */
bool psi_merge_finite(const struct psi_merge *merge, uint32_t width, enum kernel_level level,
                      size_t *at_p);

/* What a table that keeps nothing answers: the sums, divided (0: not), in the table's type. */
void psi_merge_publish(const struct psi_merge *merge, psd_dtype dtype, uint32_t width,
                       enum kernel_level level, uint32_t divisor, void *rows);

#endif
