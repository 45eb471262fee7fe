/*
 * part.h - writing a part of a generation that another process begins and commits (write.h).
 */
#ifndef PSI_CHECKPOINT_PART_H
#define PSI_CHECKPOINT_PART_H

#include "checkpoint/manifest.h"

/* Thread: owned by its caller. */
struct psi_part_writer {
    struct psi_directory directory;
    uint64_t token;
    int fds[PSI_CHECKPOINT_DATA_FILES];                       /* -1: not open */
    struct psi_manifest_file sums[PSI_CHECKPOINT_DATA_FILES]; /* what was added, to 0 */
    uint64_t written[PSI_CHECKPOINT_DATA_FILES];
};

/* Opens what whoever commits has made, of so many bytes. `path` and `disk` are borrowed. PSD_ERR_IO
 * naming the file and the reason, here and below; there is nothing to finish then. */
psd_status psi_part_writer_init(struct psi_part_writer *writer, const struct psi_disk *disk,
                                const char *path, uint64_t token,
                                const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                                struct psd_error *err);
void psi_part_writer_fini(struct psi_part_writer *writer);

/* Pieces in any order, each byte once. */
psd_status psi_part_write(struct psi_part_writer *writer, enum psi_checkpoint_kind kind,
                          uint64_t at, const void *data, size_t bytes, struct psd_error *err);

/* All that was written is on the disk. After an error the part is lost: a sync is not tried twice. */
psd_status psi_part_sync(struct psi_part_writer *writer, struct psd_error *err);

#endif
