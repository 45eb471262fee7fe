/*
 * resident.h - how much of this process is in memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_RESIDENT_H
#define PSI_BASE_RESIDENT_H

#include <stdint.h>

/* Thread: immutable after psi_resident_init(). A child of fork() reads its parent's. */
struct psi_resident {
    int fd; /* -1: the system does not say */
};

/* A process that can open no files later does this before. */
void psi_resident_init(struct psi_resident *resident);
void psi_resident_fini(struct psi_resident *resident);

/* In bytes, of which *shared_p are files and memory that others may have, too; 0: not known. */
uint64_t psi_resident_read(const struct psi_resident *resident, uint64_t *shared_p);

#endif
