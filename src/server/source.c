/*
 * source.c - the first values of a job's tables, out of a checkpoint.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/source.h"

#include "base/fail.h"
#include "checkpoint/outline.h"
#include "checkpoint/read.h"

/* The master has looked whether the table fits; the files may be others than it saw. */
static psd_status
read_part(void *self, const struct psi_spec *spec, unsigned part, uint64_t first, size_t bytes,
          void *to, uint64_t *updates_p, struct psd_error *err)
{
    struct psi_checkpoint *checkpoint = self;
    struct psi_saved_part parts[PSI_PARTS_MAX];
    const unsigned count = psi_saved_parts(spec, parts);
    psd_status status = psi_checkpoint_fits(checkpoint, spec, err);
    unsigned i = 0;

    while (i < count && parts[i].number != part) {
        i++;
    }
    psi_assert(i < count);
    if (status == PSD_OK) {
        status = psi_checkpoint_read(
            checkpoint, parts[i].kind,
            psi_tensors_find(&checkpoint->tensors[parts[i].kind], parts[i].name),
            first * psi_spec_part_bytes(spec, part), bytes, to, err);
    }
    if (status == PSD_OK) {
        *updates_p = psi_manifest_table(&checkpoint->manifest, spec->name)->updates;
    }
    return status;
}

static psd_status
read_rows(void *self, const struct psi_spec *spec, uint32_t first_bucket, uint32_t end_bucket,
          uint64_t *cursor_p, struct psi_rows_piece **piece_p, uint64_t *updates_p,
          struct psd_error *err)
{
    const struct psi_checkpoint *checkpoint = self;
    const psd_status status = psi_checkpoint_fits(checkpoint, spec, err);
    const struct psi_manifest_rows *rows;

    *piece_p = NULL;
    if (status != PSD_OK) {
        return status;
    }
    *updates_p = psi_manifest_table(&checkpoint->manifest, spec->name)->updates;
    rows = psi_manifest_rows(&checkpoint->manifest, spec->name);
    while (*cursor_p < rows->count) {
        const struct psi_rows_file *file = &rows->files[(*cursor_p)++];

        if (file->first_bucket < end_bucket && file->end_bucket > first_bucket) {
            return psi_checkpoint_read_rows(checkpoint, rows, file, piece_p, err);
        }
    }
    return PSD_OK;
}

struct lane_source
lane_source_of(struct psi_checkpoint *checkpoint)
{
    return (struct lane_source){.self = checkpoint,
                                .step = checkpoint->manifest.step,
                                .read = read_part,
                                .read_rows = read_rows};
}
