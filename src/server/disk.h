/*
 * disk.h - where a lane's part of a checkpoint goes: what the world does for the core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_DISK_H
#define SERVER_DISK_H

#include "checkpoint/earlier.h"
#include "checkpoint/manifest.h"
#include "checkpoint/outline.h"

/* What became of what was begun last. */
struct lane_disk_news {
    uint64_t written; /* bytes that need no memory any more */
    bool failed;      /* because: */
    char text[256];
    bool done;                            /* finished, and all of it is on the disk: */
    const struct psi_manifest_file *sums; /* `earlier` settled */
    const uint64_t *bytes; /* both one for each file, borrowed until the next begin() or drop() */
};

/* Nothing here waits for a disk. The lane is woken when there is news. */
struct lane_disk {
    void *self;
    void (*begin)(void *self, const struct psi_part_order *order);
    void (*write)(void *self, enum psi_checkpoint_kind kind, uint64_t at, void *data,
                  size_t bytes); /* takes data, from malloc() */
    void (*finish)(void *self);  /* that was all */
    void (*drop)(void *self);    /* what was begun is given up; nothing: is fine */
    void (*look)(void *self, struct lane_disk_news *news_p);
};

#endif
