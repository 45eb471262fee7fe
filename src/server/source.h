/*
 * source.h - where the first values of a job's tables come from that goes on from a checkpoint: what
 * the world does for the core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_SOURCE_H
#define SERVER_SOURCE_H

#include "table/spec.h"

struct psi_rows_piece;

struct lane_source {
    void *self;
    uint64_t step; /* of the checkpoint */
    /* Elements first .. of that part of the table, and how many updates it had. */
    psd_status (*read)(void *self, const struct psi_spec *spec, unsigned part, uint64_t first,
                       size_t bytes, void *to, uint64_t *updates_p, struct psd_error *err);
    /* The next rows of a sparse table that may be of these buckets: the caller frees *piece_p. NULL: there are no
     * more. *cursor_p says where to go on, from 0 on. */
    psd_status (*read_rows)(void *self, const struct psi_spec *spec, uint32_t first_bucket,
                            uint32_t end_bucket, uint64_t *cursor_p,
                            struct psi_rows_piece **piece_p, uint64_t *updates_p,
                            struct psd_error *err);
};

struct psi_checkpoint;

/* One that reads a checkpoint. It is borrowed, and belongs to the lane's thread. */
struct lane_source lane_source_of(struct psi_checkpoint *checkpoint);

#endif
