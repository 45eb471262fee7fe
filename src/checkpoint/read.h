/*
 * read.h - reading a generation of saved tables: only when intact.
 *
 * Knows files and checksums; moving tables out of them is client/api/save.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_READ_H
#define PSI_CHECKPOINT_READ_H

#include "checkpoint/manifest.h"
#include "checkpoint/rows_piece.h"
#include "checkpoint/tensors.h"
#include "table/spec.h"

/* A file of an earlier generation that bytes are read from. */
struct psi_earlier_file {
    uint64_t generation;
    char name[PSI_CHECKPOINT_NAME_BYTES];
    int fd;
};

/* An intact generation. Thread: owned by its caller. */
struct psi_checkpoint {
    const struct psi_disk *disk;
    const char *path;
    struct psi_directory directory; /* open, for files of rows */
    struct psi_manifest manifest;
    struct psi_tensors tensors[PSI_CHECKPOINT_DATA_FILES];
    int fds[PSI_CHECKPOINT_DATA_FILES];
    struct psi_earlier_file *sources[PSI_CHECKPOINT_DATA_FILES]; /* each once */
    size_t source_count[PSI_CHECKPOINT_DATA_FILES];
    uint8_t *block; /* PSI_MANIFEST_BLOCK_BYTES to read into */
};

/*
 * Opens the newest generation whose every byte is as it was written. On PSD_OK err->text is empty,
 * or says what is wrong with the newest generation that was passed over. `path` and `disk` are
 * borrowed.
 *
 *   PSD_ERR_CORRUPT  there are generations, none intact: what is wrong with the newest;
 *   PSD_ERR_IO       no generation at all, or a failure that says nothing about the files.
 */
psd_status psi_checkpoint_open(const struct psi_disk *disk, const char *path,
                               struct psi_checkpoint **checkpoint_p, struct psd_error *err);
/* That generation. Not verified, only the heads are read: each block is checked when it is. */
psd_status psi_checkpoint_open_one(const struct psi_disk *disk, const char *path,
                                   uint64_t generation, bool verify,
                                   struct psi_checkpoint **checkpoint_p, struct psd_error *err);
void psi_checkpoint_destroy(struct psi_checkpoint *checkpoint); /* NULL is allowed */

/* Part of a tensor's bytes, checked once more on the way. */
psd_status psi_checkpoint_read(struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind,
                               const struct psi_tensor *tensor, uint64_t first, size_t bytes,
                               void *to, struct psd_error *err);

/* A file of rows of a sparse table, which psi_rows_piece_destroy() frees; each byte is checked. */
psd_status psi_checkpoint_read_rows(const struct psi_checkpoint *checkpoint,
                                    const struct psi_manifest_rows *rows,
                                    const struct psi_rows_file *file,
                                    struct psi_rows_piece **piece_p, struct psd_error *err);

/*
 * Is the table in it, with this shape, type and rule? PSD_ERR_MISMATCH names the table and shows both
 * sides.
 */
psd_status psi_checkpoint_fits(const struct psi_checkpoint *checkpoint, const struct psi_spec *spec,
                               struct psd_error *err);

#endif
