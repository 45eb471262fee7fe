/*
 * lock.h - one save at a time into a directory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_LOCK_H
#define PSI_CHECKPOINT_LOCK_H

#include "checkpoint/directory.h"

/*
 * Creates the manifest's temporary file, empty and locked, and gives its descriptor: the directory
 * is the caller's until that file is removed or renamed. PSD_ERR_BUSY while another save is under
 * way, PSD_ERR_IO naming the file and the reason.
 */
psd_status psi_checkpoint_lock(const struct psi_directory *directory, int *fd_p,
                               struct psd_error *err);

#endif
