/*
 * lending.h - which memory of this process peers on the same host may read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_SHM_LENDING_H
#define PSI_TRANSPORT_SHM_LENDING_H

#include "base/segment.h"

struct psi_lent {
    const struct psi_segment *segment; /* borrowed */
    uint32_t id;                       /* below the capacity; used again when it is removed */
};

/* A zeroed one is empty. Thread: owned by the loop. */
struct psi_lending {
    struct psi_lent *items; /* by address */
    uint32_t count;
    uint32_t capacity;
    uint32_t *ids; /* capacity of them; those from `count` on are free */
};

/* Without memory to note it, nothing is lent: it is only slower. */
void psi_lending_add(struct psi_lending *lending, const struct psi_segment *segment);

/* Returns the id it had; UINT32_MAX: it was not there. */
uint32_t psi_lending_remove(struct psi_lending *lending, const struct psi_segment *segment);

/* The segment that has all of it, or NULL. */
const struct psi_lent *psi_lending_find(const struct psi_lending *lending, const void *base,
                                        size_t bytes);

void psi_lending_fini(struct psi_lending *lending);

#endif
