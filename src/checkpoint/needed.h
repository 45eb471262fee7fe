/*
 * needed.h - which generations must stay, because newer ones refer to them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_NEEDED_H
#define PSI_CHECKPOINT_NEEDED_H

#include <stdbool.h>

#include "checkpoint/manifest.h"

/* Generations, in no order. Thread: owned by its caller. */
struct psi_needed {
    uint64_t *list;
    size_t count;
    bool all; /* nobody knows what else: a manifest cannot be read */
};

void psi_needed_fini(struct psi_needed *needed);

/* That generation, and all that it refers to. */
void psi_needed_add(struct psi_needed *needed, const struct psi_directory *directory,
                    uint64_t generation);

bool psi_needed_has(const struct psi_needed *needed, uint64_t generation);

/* The one without which neither that generation nor any after it that refers to it is whole: the oldest
 * one that it refers to, or itself. */
uint64_t psi_needed_base(const struct psi_directory *directory, uint64_t generation);

/*
 * Removes all but the `kept` newest generations, `spared` (0: none), and what these refer to. If all that are
 * kept need the same one, the newest that does not need it stays as well: no single file is needed by
 * all. What cannot be removed is left for the next time.
 */
void psi_needed_remove_others(const struct psi_directory *directory, uint32_t kept,
                              uint64_t spared);

/* The files that are referred to are there, and long enough. PSD_ERR_IO names one that is not. */
psd_status psi_needed_check(const struct psi_directory *directory, enum psi_checkpoint_kind kind,
                            const struct psi_ranges *ranges, struct psd_error *err);

/* A data file of a generation, whichever name it has. -1 with errno. */
int psi_needed_open(const struct psi_directory *directory, enum psi_checkpoint_kind kind,
                    uint64_t generation, char name_p[PSI_CHECKPOINT_NAME_BYTES]);

#endif
