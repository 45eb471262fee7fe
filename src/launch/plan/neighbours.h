/*
 * neighbours.h - which processes share a computer, and so what ranks they have there.
 *
 * Of psd_run that were started one by one (join.h), several may run on one computer: each is a
 * machine of its own, but they share cores and names. So do two names of one computer in a cluster
 * file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_NEIGHBOURS_H
#define LAUNCH_NEIGHBOURS_H

#include "launch/plan/layout.h"

/* A process among those of its role on the same computer, and the computer among all, among those
 * with workers, and among those that have a worker of the same local rank. */
struct neighbours {
    uint32_t local_rank;
    uint32_t local_size;
    uint32_t node;
    uint32_t nodes;
    uint32_t worker_node;
    uint32_t worker_nodes;
    uint32_t cross_rank;
    uint32_t cross_size;
};

/* The computers of a layout, numbered in the order of its machines. Thread: owned by the caller. */
struct computers {
    const struct layout *layout; /* borrowed */
    uint32_t *node_of;           /* owned, by machine: its number */
    uint32_t *workers;           /* owned, by number: on all its machines */
    uint32_t count;
};

/* is_same: whether two machines are one computer; NULL: none are, as far as is known before they
 * are met. */
void computers_init(struct computers *computers, const struct layout *layout,
                    bool (*is_same)(const void *context, uint32_t one, uint32_t other),
                    const void *context);
void computers_fini(struct computers *computers);

struct neighbours neighbours_find(const struct computers *computers, uint32_t servers,
                                  uint32_t slot);

#endif
