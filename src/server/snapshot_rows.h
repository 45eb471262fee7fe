/*
 * snapshot_rows.h - a lane's rows of sparse tables in a checkpoint: all of them, or those that have
 * changed since the last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_SNAPSHOT_ROWS_H
#define SERVER_SNAPSHOT_ROWS_H

#include "server/disk.h"
#include "server/state.h"

/* What an order says, and where rows go. */
struct rows_order {
    uint64_t token;
    uint64_t after; /* the generation that it may refer to; 0: none */
    uint64_t step;
    const struct lane_disk *disk;
    uint32_t *files_p; /* of rows, in the order so far */
    uint64_t *given_p; /* bytes that were handed over to the disk */
};

/* The table is in this order. It outlives it. PSD_ERR_NO_MEMORY. */
psd_status snapshot_rows_ordered(struct table *table, const struct rows_order *order,
                                 struct psd_error *err);

/* The moment has come: from now on rows are kept as they are, until they are handed over. */
psd_status snapshot_rows_freeze(struct table *table, struct psd_error *err);
bool snapshot_rows_are_frozen(const struct table *table);

/* Hands over about so many bytes. *more_p: there are more. */
psd_status snapshot_rows_go_on(struct table *table, size_t bytes, bool *more_p,
                               struct psd_error *err);

/* What is left of it has no use any more: it was given up, or is on the disk. */
void snapshot_rows_end(struct table *table);
void snapshot_rows_forget(struct table *table);

/* All is on the disk: these files were written, of all tables. Adds those that the generation has of this
 * table, earlier ones first, to the list. PSD_ERR_NO_MEMORY. */
struct rows_list {
    struct psi_saved_file *file; /* owned */
    uint32_t count;
    uint32_t place; /* of the lane */
};
psd_status snapshot_rows_list(struct table *table, const struct lane_disk_news *news,
                              struct rows_list *list, struct psd_error *err);

#endif
