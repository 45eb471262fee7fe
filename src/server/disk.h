/*
 * disk.h - where a lane's part of a checkpoint goes: what the world does for the core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_DISK_H
#define SERVER_DISK_H

#include "base/log.h"
#include "checkpoint/earlier.h"
#include "checkpoint/manifest.h"
#include "checkpoint/outline.h"
#include "checkpoint/rows_piece.h"
#include "wire/message.h"

/* Processor time, by part. */
struct lane_disk_cost {
    uint64_t copy_ns;  /* in write(): the lane waits for that */
    uint64_t room_ns;  /* memory for copies, from prepare() on */
    uint64_t check_ns; /* checksums, and comparing with what is there */
    uint64_t write_ns;
};

/* What is coming, as far as the lane knows. */
struct lane_disk_load {
    uint64_t bytes;
    uint64_t room;      /* of them, so many wait for the disk at most */
    size_t piece_bytes; /* of the largest piece */
};

/* Rows of a sparse table, for a file of their own. */
struct lane_disk_rows {
    uint32_t table;
    char name[PSD_NAME_MAX + 1]; /* of the table */
    uint32_t place;
    uint32_t number; /* of the file, among those of the order */
    uint32_t first_bucket;
    uint32_t end_bucket;
    struct psi_rows_piece *piece;
};

/* What became of what was begun last. */
struct lane_disk_news {
    bool is_prepared; /* all the memory that there will be */
    bool has_room;    /* of that, some for a piece is left */
    uint64_t written; /* bytes that need no memory any more */
    bool failed;      /* because: */
    char text[256];
    bool done;                            /* finished, and all of it is on the disk: */
    const struct psi_manifest_file *sums; /* `earlier` settled */
    const uint64_t *bytes; /* both one for each file, borrowed until the next begin() or drop() */
    const struct psi_saved_file
        *rows; /* likewise: files of rows, in the order in which they came */
    uint32_t rows_count;
    struct lane_disk_cost cost;
};

/* Nothing here waits for a disk. The lane is woken when there is news. */
struct lane_disk {
    void *self;
    void (*prepare)(
        void *self,
        const struct lane_disk_load *load); /* memory for what will be begun; or drop() */
    void (*begin)(void *self, const struct psi_part_order *order,
                  const struct lane_disk_load *load);
    void (*write)(
        void *self, enum psi_checkpoint_kind kind, uint64_t at, const void *data,
        size_t bytes); /* copies data; without memory for that, look() says that it failed */
    void (*write_rows)(void *self,
                       const struct lane_disk_rows *rows); /* takes the piece; the rest is copied */
    void (*finish)(void *self);                            /* that was all */
    void (*drop)(void *self); /* what was begun is given up; nothing: is fine */
    void (*look)(void *self, struct lane_disk_news *news_p);
};

/* A line on what so many bytes have cost. */
void disk_tell_cost(const struct psi_log *log, uint64_t step, uint64_t bytes,
                    const struct lane_disk_cost *cost);

#endif
