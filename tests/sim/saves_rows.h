/*
 * saves_rows.h - the files of rows that simulated jobs save, and what is in them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_SAVES_ROWS_H
#define SIM_SAVES_ROWS_H

#include "checkpoint/rows_piece.h"
#include "plan.h"
#include "server/disk.h"

/* One on the disk. */
struct rows_file {
    struct rows_file *next;
    uint32_t place;
    struct psi_saved_file saved;
    struct psi_rows_piece *piece; /* owned */
};

/* Adds what a lane hands over to the files of a generation. */
struct rows_file *rows_file_add(struct rows_file **list, const struct lane_disk_rows *rows,
                                uint64_t generation);
void rows_files_free(struct rows_file **list);

/* NULL: it is not there. */
const struct rows_file *rows_file_find(const struct rows_file *list, uint32_t place,
                                       uint32_t number);

/* Does the manifest say of the file what is in it? */
bool rows_file_is(const struct rows_file *file, const struct psi_rows_file *said);

/* A whole table: initial values, and what files change. */
struct rows_image {
    const struct plan *plan;
    unsigned index;  /* of the table */
    uint64_t *ids;   /* owned; as plan_row_ids() has them */
    uint8_t *values; /* owned; of all rows, in that order */
};

void rows_image_init(struct rows_image *image, const struct plan *plan, unsigned index);
void rows_image_fini(struct rows_image *image);

/* False: it has a row that the job does not. */
bool rows_image_take(struct rows_image *image, const struct rows_file *file);

#endif
