/*
 * manifest_file.h - manifests and other files of a checkpoint, opened to be read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_MANIFEST_FILE_H
#define PSI_CHECKPOINT_MANIFEST_FILE_H

#include "checkpoint/manifest.h"

/* By errno. A file that is gone or unreadable is damaged; other failures say nothing about it. */
psd_status psi_input_failed(struct psd_error *err, const char *what, const char *path,
                            const char *name);

/* A regular file and its size. */
psd_status psi_input_open(const struct psi_directory *directory, const char *name, int *fd_p,
                          uint64_t *bytes_p, struct psd_error *err);

/* Reads the manifest of a generation into an empty one of its number. */
psd_status psi_manifest_load(struct psi_manifest *manifest, const struct psi_directory *directory,
                             struct psd_error *err);

#endif
