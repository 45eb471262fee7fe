/*
 * part.h - writing a part of a generation that another process begins and commits (write.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_PART_H
#define PSI_CHECKPOINT_PART_H

#include "checkpoint/earlier.h"
#include "checkpoint/manifest.h"

enum { PSI_PART_SOURCES_MAX = 16 };

/* A file of an earlier generation. */
struct psi_part_source {
    uint64_t generation;
    enum psi_checkpoint_kind kind;
    int fd; /* -1: it is gone */
};

/* Thread: owned by its caller. */
struct psi_part_writer {
    struct psi_directory directory;
    struct psi_part_order order;
    struct psi_earlier *earlier; /* (optional) borrowed */
    struct psi_ranges referred[PSI_CHECKPOINT_DATA_FILES];
    struct psi_part_source sources[PSI_PART_SOURCES_MAX];
    unsigned source_count;
    void *buffer; /* to compare with */
    size_t buffer_bytes;
    int fds[PSI_CHECKPOINT_DATA_FILES];                       /* -1: not open */
    struct psi_manifest_file sums[PSI_CHECKPOINT_DATA_FILES]; /* what was added, to 0 */
    uint64_t written[PSI_CHECKPOINT_DATA_FILES];              /* what is referred to included */
    uint64_t check_ns; /* of a processor: checksums, and comparing with what is there */
    uint64_t write_ns;
};

/* Opens what whoever commits has made. `path`, `disk` and `earlier` are borrowed. PSD_ERR_IO naming the
 * file and the reason, here and below; there is nothing to finish then. */
psd_status psi_part_writer_init(struct psi_part_writer *writer, const struct psi_disk *disk,
                                const char *path, const struct psi_part_order *order,
                                struct psi_earlier *earlier, struct psd_error *err);
void psi_part_writer_fini(struct psi_part_writer *writer);

/* Pieces in any order, each byte once. One that an earlier generation has at the same place, bit by
 * bit, is referred to there. */
psd_status psi_part_write(struct psi_part_writer *writer, enum psi_checkpoint_kind kind,
                          uint64_t at, const void *data, size_t bytes, struct psd_error *err);

/* All that was written is on the disk. After an error the part is lost: a sync is not tried twice. */
psd_status psi_part_sync(struct psi_part_writer *writer, struct psd_error *err);

#endif
