/*
 * tensorboard.h - the curves of a job as files that TensorBoard reads, while it runs.
 *
 * One run for each worker: DIRECTORY/JOB/worker0/events.out.tfevents.TIME.psd_run. A file is a
 * sequence of records (length, checksum, bytes, checksum); each holds a protocol buffer "Event". All
 * that we need of it is written here by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_TENSORBOARD_H
#define LAUNCH_PAGE_TENSORBOARD_H

#include <stdint.h>

#include <psd/status.h>

struct feed;

enum { TENSORBOARD_PATH_MAX = 4096 };

/* Thread: owned by the main thread of psd_run. */
struct tensorboard {
    char directory[TENSORBOARD_PATH_MAX]; /* of the job; "": not wanted */
    uint64_t begun_s;                     /* part of the names of files */
    uint64_t since;                       /* points up to this number are written */
};

/* Makes the directory. PSD_ERR_IO: it cannot be made. */
psd_status tensorboard_open(struct tensorboard *board, const char *directory, const char *job,
                            uint64_t begun_s, struct psd_error *err);

/* Appends what is new. On an error (PSD_ERR_IO) those points are lost to TensorBoard. */
psd_status tensorboard_write(struct tensorboard *board, struct feed *feed, struct psd_error *err);

#endif
