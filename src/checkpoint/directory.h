/*
 * directory.h - the directory that a checkpoint's files lie in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_DIRECTORY_H
#define PSI_CHECKPOINT_DIRECTORY_H

#include <psd/status.h>

#include "checkpoint/disk.h"

/* Thread: owned by its caller. */
struct psi_directory {
    const struct psi_disk *disk; /* borrowed, as is path */
    const char *path;
    int fd; /* -1: not open */
};

/* PSD_ERR_IO naming the path and the reason, here and below. */
psd_status psi_directory_open(struct psi_directory *directory, const struct psi_disk *disk,
                              const char *path, struct psd_error *err);
void psi_directory_close(struct psi_directory *directory);

/* Makes it before, if only its last name is missing. */
psd_status psi_directory_make(struct psi_directory *directory, const struct psi_disk *disk,
                              const char *path, struct psd_error *err);

/* A file that is not there is fine. */
psd_status psi_directory_remove(const struct psi_directory *directory, const char *name,
                                struct psd_error *err);

#endif
