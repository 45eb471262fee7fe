/*
 * files_state.h - what the lane and the thread that writes its checkpoints share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_FILES_STATE_H
#define SERVER_FILES_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include "checkpoint/part.h"
#include "server/copies.h"
#include "server/disk.h"

struct piece {
    struct piece *next;
    enum psi_checkpoint_kind kind;
    uint64_t at;
    struct copy *copy; /* NULL: rows */
    struct lane_disk_rows rows;
    size_t bytes;
};

struct lane_files {
    struct lane_disk disk;
    const struct psi_disk *system;
    const char *path;
    void (*wake)(void *owner);
    void *owner;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t asked;
    bool stop;
    uint64_t busy_ns; /* the thread is in a call of the system since then; 0: it is not */
    uint64_t epoch;   /* grows with begin and drop: news of an earlier one is dropped */
    struct psi_part_order order; /* token 0: nothing was begun */
    struct piece *first;
    struct piece **end;
    struct copies copies;
    bool prepares;    /* the lane is to be woken when there is room */
    uint64_t room_ns; /* of a processor, that made room for what was not begun yet */
    bool finish;      /* no piece follows */
    bool over;        /* done, or failed */
    struct lane_disk_news news;
    struct psi_manifest_file sums[PSI_CHECKPOINT_DATA_FILES]; /* once done; blocks are owned */
    uint64_t written[PSI_CHECKPOINT_DATA_FILES];
    struct psi_saved_file *rows; /* of which files were written; owned */
    uint32_t rows_count;

    struct psi_part_writer writer; /* the thread's, and what follows */
    struct psi_earlier earlier;
    uint64_t open; /* of which epoch the writer is; 0: it is not open */
};

/* What is in it has been written, or is given up. The mutex is held. */
void files_free_piece(struct lane_files *files, struct piece *piece);

/* files_thread.c: the thread, until files->stop. */
void *files_run(void *argument);

/* Of a processor, by the thread that asks; and of the clock. */
uint64_t files_used_ns(void);
uint64_t files_now_ns(void);

#endif
