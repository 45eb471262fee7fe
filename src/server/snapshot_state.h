/*
 * snapshot_state.h - a lane's part of a checkpoint, while it is made: what snapshot*.c share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_SNAPSHOT_STATE_H
#define SERVER_SNAPSHOT_STATE_H

#include "server/disk.h"
#include "server/state.h"

struct snapshot {
    uint64_t number; /* of the order */
    uint64_t step;
    struct psi_order order;            /* its list is owned */
    struct psi_written_table *written; /* owned; one for each table of the order */
    uint64_t left;                     /* chunks that are due */
    uint64_t given;                    /* bytes handed over */
    uint32_t rows_files;               /* files of rows, likewise */
    uint64_t rows_ns;                  /* of a processor, that copying rows took between rounds */
    uint64_t room;                     /* of those that are not written yet, at most */
    struct chunk *ready;               /* have come to the step; some are no longer due */
    struct chunk **ready_end;
    bool alone_waits;  /* chunks of tables without rounds, for a worker that comes to the step */
    bool finished;     /* nothing is due, and the disk knows */
    bool waits;        /* rounds wait for the disk ... */
    uint64_t waits_ns; /* ... since then */
    uint64_t taken;    /* bytes that the disk had taken ... */
    uint64_t taken_ns; /* ... then, for the first time */
    bool failed;
    char text[PSI_TEXT_MAX]; /* ... because */
    bool told;               /* what became of it */
};

/* What became of the order of that number: false: it could not be said. */
bool snapshot_tell(const struct lane *lane, uint64_t number, uint64_t step,
                   const struct psi_written *written);
bool snapshot_tell_failure(const struct lane *lane, uint64_t number, const char *text);

/* All is on the disk. Says so when the master can hear it. */
void snapshot_tell_all(const struct lane *lane, const struct lane_disk_news *news);

/* How far this lane is: when it was asked, or was given a step that is over. */
void snapshot_tell_reached(const struct lane *lane, uint64_t number, enum psi_written_news news);

/* The highest step of any chunk of a table with rounds: it may be late for another. */
uint64_t snapshot_highest(const struct lane *lane);

/* snapshot_ahead.c. How far is this lane? That is answered when there is room for copies. */
void snapshot_asked(struct lane *lane, uint64_t number);

/* Copies may take so much memory. */
uint64_t snapshot_room(const struct lane *lane);

/* What the chunk's copy will take. */
void snapshot_add_to_load(const struct chunk *chunk, struct lane_disk_load *load);

#endif
