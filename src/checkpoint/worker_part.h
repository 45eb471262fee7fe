/*
 * worker_part.h - the part of a generation that a worker brings: written by it, committed by the master (write.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_WORKER_PART_H
#define PSI_CHECKPOINT_WORKER_PART_H

#include "checkpoint/manifest.h"

/* What rank 0 had itself. */
#define PSI_WORKER_PART "worker0.safetensors"

/*
 * Writes the file of that token under its temporary name, waits until it is on the disk, and sums it up. PSD_ERR_IO
 * naming the file and the reason: nothing is left of it.
 */
psd_status psi_worker_part_write(const struct psi_disk *disk, const char *path, uint64_t token,
                                 const void *data, size_t bytes, uint32_t *checksum_p,
                                 struct psd_error *err);

/* Of a generation; NULL: it has none. */
const struct psi_manifest_part *psi_worker_part(const struct psi_manifest *manifest);

/*
 * Reads it and checks every byte. At most `capacity` of them are copied to `to` (0: it is only checked).
 * PSD_ERR_CORRUPT: it is damaged, or gone.
 */
psd_status psi_worker_part_read(const struct psi_directory *directory, uint64_t generation,
                                const struct psi_manifest_part *part, void *to, size_t capacity,
                                struct psd_error *err);

#endif
