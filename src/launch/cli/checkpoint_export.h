/*
 * checkpoint_export.h - the values of a checkpoint, for other programs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CHECKPOINT_EXPORT_H
#define LAUNCH_CHECKPOINT_EXPORT_H

#include "checkpoint/read.h"

enum checkpoint_format { CHECKPOINT_NOT_SAID, CHECKPOINT_SAFETENSORS, CHECKPOINT_NUMPY };

/* One safetensors file, which must not be there yet. PSD_ERR_IO names it, here and below. */
psd_status checkpoint_export_file(struct psi_checkpoint *checkpoint, const char *path,
                                  struct psd_error *err);

/* A directory with a .npy for each table. What NumPy has no type for (bf16) is written as f32, which
 * holds it exactly; a / in a name becomes an _. */
psd_status checkpoint_export_numpy(struct psi_checkpoint *checkpoint, const char *path,
                                   struct psd_error *err);

#endif
