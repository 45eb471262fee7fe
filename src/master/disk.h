/*
 * disk.h - what the world does for the master of a job that writes checkpoints: the files.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_DISK_H
#define MASTER_DISK_H

#include <stdbool.h>

#include "checkpoint/manifest.h"
#include "checkpoint/outline.h"

/* A generation that all servers have written their parts of. Owned by who has it. */
struct master_generation {
    uint64_t step;
    struct psi_outline outline;
    struct psi_manifest_table *tables; /* owned */
    size_t table_count;
    struct psi_manifest_file
        sums[PSI_CHECKPOINT_DATA_FILES];         /* what servers add to the checksums */
    uint64_t written[PSI_CHECKPOINT_DATA_FILES]; /* by them */
    struct psi_manifest rows;                    /* owned; only of the rows of sparse tables */
    bool has_part;                               /* worker 0 has brought one */
    struct psi_manifest_part part;
};

void master_generation_destroy(struct master_generation *generation); /* NULL is allowed */

enum master_disk_state {
    MASTER_DISK_BUSY,
    MASTER_DISK_BEGUN,
    MASTER_DISK_COMMITTED,
    MASTER_DISK_FAILED
};

struct master_disk_news {
    enum master_disk_state state;
    uint64_t generation; /* BEGUN, COMMITTED: its number */
    char text[512];      /* FAILED: why */
};

/* Nothing here waits for a disk. The master is woken when there is news. */
struct master_disk {
    void *self;
    /* refers: the generation may refer to earlier ones */
    void (*begin)(void *self, uint64_t token, const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                  bool refers);
    void (*commit)(void *self, struct master_generation *generation); /* takes it */
    void (*drop)(void *self); /* what was begun is given up; nothing: is fine */
    void (*look)(void *self, struct master_disk_news *news_p);
};

#endif
