/*
 * outline.h - which tensors tables are in files, and where each of them lies. Pure.
 *
 * A function of the tables and the step alone, so that servers that know nothing of each other write
 * their parts of one file, and a job with other servers reads it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_OUTLINE_H
#define PSI_CHECKPOINT_OUTLINE_H

#include "checkpoint/generations.h"
#include "checkpoint/tensors.h"
#include "table/spec.h"

enum { PSI_SAVED_NAME_BYTES = PSD_NAME_MAX + 32 /* table.state */ };

/* One tensor of a table. */
struct psi_saved_part {
    uint8_t number; /* PSI_PART_* */
    enum psi_checkpoint_kind kind;
    psd_dtype dtype;
    char name[PSI_SAVED_NAME_BYTES];
};

/* All parts of a table, the value last: on the servers it is what makes a loaded chunk count. */
unsigned psi_saved_parts(const struct psi_spec *spec, struct psi_saved_part parts[PSI_PARTS_MAX]);

/* Which file a part is in. */
static inline enum psi_checkpoint_kind
psi_saved_kind(unsigned part)
{
    return part == PSI_PART_VALUE ? PSI_CHECKPOINT_PARAMS : PSI_CHECKPOINT_STATE;
}

/* Thread: owned by its caller. */
struct psi_outline {
    size_t tables;
    uint64_t (*begin)[PSI_PARTS_MAX]; /* of each table's parts, in their files */
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    uint8_t *head[PSI_CHECKPOINT_DATA_FILES];
    size_t head_bytes[PSI_CHECKPOINT_DATA_FILES]; /* whatever the step */
};

/* For update tables by rising name. PSD_ERR_NO_MEMORY, PSD_ERR_TOO_BIG, PSD_ERR_INVALID. */
psd_status psi_outline_init(struct psi_outline *outline, const struct psi_spec *const *specs,
                            size_t count, uint64_t step, struct psd_error *err);
void psi_outline_fini(struct psi_outline *outline);

#endif
