/*
 * segment.h - memory that another process can read where it is.
 *
 * A segment is a memfd: it has no name anywhere, so it is gone with the last process that has it,
 * however that ends. Its owner alone can write it. It can neither shrink nor grow, so whoever maps
 * it need not fear that its pages vanish (SIGBUS), and nobody else gets a writable mapping of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_SEGMENT_H
#define PSI_BASE_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

/* A zeroed struct holds no segment, and can be destroyed. */
struct psi_segment {
    uint8_t *base;
    size_t bytes;
    int fd; /* owned; -1: closed after mapping */
};

/* Zeroed memory, mapped for writing here. The pages come with the first touch. */
psd_status psi_segment_create(struct psi_segment *segment_p, size_t bytes, struct psd_error *err);

/* Touches every page now, so that no later write has to wait for one, or finds none (SIGBUS). */
psd_status psi_segment_populate(const struct psi_segment *segment, struct psd_error *err);

/* Maps what a peer has sent for reading; believes nothing of it. Takes fd, on an error too.
 * PSD_ERR_PROTOCOL: not sealed, or not of that size. */
psd_status psi_segment_attach(struct psi_segment *segment_p, int fd, size_t bytes,
                              struct psd_error *err);

/* Nobody else is to be given it any more; the mapping stays. */
void psi_segment_close_fd(struct psi_segment *segment);

void psi_segment_destroy(struct psi_segment *segment);

#endif
