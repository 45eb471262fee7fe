/*
 * source.h - where the first values of a job's tables come from that goes on from a checkpoint: what
 * the world does for the core.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_SOURCE_H
#define SERVER_SOURCE_H

#include "table/spec.h"

struct lane_source {
    void *self;
    uint64_t step; /* of the checkpoint */
    /* Elements first .. of that part of the table, and how many updates it had. */
    psd_status (*read)(void *self, const struct psi_spec *spec, unsigned part, uint64_t first,
                       size_t bytes, void *to, uint64_t *updates_p, struct psd_error *err);
};

struct psi_checkpoint;

/* One that reads a checkpoint. It is borrowed, and belongs to the lane's thread. */
struct lane_source lane_source_of(struct psi_checkpoint *checkpoint);

#endif
