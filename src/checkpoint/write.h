/*
 * write.h - writing a generation of saved tables: whole or not at all.
 *
 * Knows files and checksums; moving tables into them is client/api/save.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_WRITE_H
#define PSI_CHECKPOINT_WRITE_H

#include <stdbool.h>

#include "checkpoint/manifest.h"

/* Thread: owned by its caller. */
struct psi_checkpoint_writer;

/*
 * Begins the next generation in a directory (made if only its last name is missing): cleans up
 * after saves that died, creates both data files and reserves their bytes. PSD_ERR_BUSY while
 * another save into the directory is under way, PSD_ERR_IO naming the file and the reason. `path`
 * is borrowed, `disk` too.
 */
psd_status psi_checkpoint_writer_create(const struct psi_disk *disk, const char *path,
                                        const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                                        struct psi_checkpoint_writer **writer_p,
                                        struct psd_error *err);

/* A generation of which others write parts (part.h). */
struct psi_checkpoint_shared {
    uint64_t token; /* by which they know it; not 0 */
    uint32_t kept;  /* so many generations are left after the commit */
    bool refers;    /* most may lie in earlier generations: no space is reserved */
};

psd_status psi_checkpoint_writer_share(const struct psi_disk *disk, const char *path,
                                       const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                                       const struct psi_checkpoint_shared *shared,
                                       struct psi_checkpoint_writer **writer_p,
                                       struct psd_error *err);

/* So many bytes of a file are there, by others: with what they added to its checksums, and what of
 * them lies in earlier generations (sums->earlier, in any order). */
psd_status psi_checkpoint_count(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
                                const struct psi_manifest_file *sums, uint64_t written,
                                struct psd_error *err);

/*
 * Another process has written a part of its own, whole and synced, as
 * psi_checkpoint_temporary_part_name() says with this generation's token. The commit gives it its
 * name and lists it; a generation that is given up takes it along. PSD_ERR_INVALID: the name.
 */
psd_status psi_checkpoint_bring(struct psi_checkpoint_writer *writer,
                                const struct psi_manifest_part *part, struct psd_error *err);

/*
 * Other processes have written the rows of a sparse table. Those of this generation's files that the
 * list names as such are whole and synced, under their temporary names with this generation's token:
 * the commit names them. The others are there, from earlier generations.
 */
psd_status psi_checkpoint_bring_rows(struct psi_checkpoint_writer *writer,
                                     const struct psi_manifest_rows *rows, struct psd_error *err);

/* The commit does not remove that generation, though it is none of those kept: somebody needs it. */
void psi_checkpoint_spare(struct psi_checkpoint_writer *writer, uint64_t generation);

uint64_t psi_checkpoint_generation(const struct psi_checkpoint_writer *writer);

/* Without a commit before, leaves no trace of the generation. NULL is allowed. */
void psi_checkpoint_writer_destroy(struct psi_checkpoint_writer *writer);

/* Writes from byte `at` of one of the data files on. Pieces come in any order, each byte once. */
psd_status psi_checkpoint_write(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
                                uint64_t at, const void *data, size_t bytes, struct psd_error *err);

/*
 * Makes the generation the newest one, then removes all but it and the one before, or as many as are kept, and what these
 * refer to. Both files must have all their bytes, here or in earlier generations that are there. After an error only
 * psi_checkpoint_writer_destroy() is left to call.
 */
psd_status psi_checkpoint_commit(struct psi_checkpoint_writer *writer, uint64_t step,
                                 const struct psi_manifest_table *tables, size_t count,
                                 struct psd_error *err);

#endif
