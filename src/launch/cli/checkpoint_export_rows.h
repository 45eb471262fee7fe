/*
 * checkpoint_export_rows.h - the rows of sparse tables of a checkpoint, for other programs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CLI_CHECKPOINT_EXPORT_ROWS_H
#define LAUNCH_CLI_CHECKPOINT_EXPORT_ROWS_H

#include <limits.h>

#include "checkpoint/read.h"

/*
 * Each row once, as it is in this generation: of each sparse table a safetensors file beside `path` (x.safetensors:
 * x.TABLE.safetensors). A file that is there already is left alone: PSD_ERR_IO.
 */
psd_status checkpoint_export_rows_files(const struct psi_checkpoint *checkpoint, const char *path,
                                        struct psd_error *err);

/* The file of one of them. */
psd_status checkpoint_export_rows_name(const struct psi_manifest_rows *rows, const char *path,
                                       char file[PATH_MAX], struct psd_error *err);

/* Likewise into a directory that is there: TABLE.ids.npy, TABLE.values.npy, and so on. */
psd_status checkpoint_export_rows_numpy(const struct psi_checkpoint *checkpoint, const char *path,
                                        struct psd_error *err);

#endif
