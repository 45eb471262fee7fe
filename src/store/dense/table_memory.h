/*
 * table_memory.h - the memory of one table's chunks on one lane: values, master values, optimizer
 * state.
 *
 * Made when the table is opened and gone when it is dropped; nothing moves in between. Values may
 * lie in a segment of their own, for workers on this host to read, and everything else in another, for a
 * copy of the lane on this host. The pages are touched by the
 * first writes in table_memory_prepare(), piece by piece, so that a large table does not stop the
 * lane's heartbeats.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_DENSE_TABLE_MEMORY_H
#define STORE_DENSE_TABLE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/segment.h"
#include "table/spec.h"

/* Where one chunk's numbers are. Thread: owned by its lane. */
struct chunk_memory {
    uint8_t *value[2]; /* dtype; [1] only when versions are retained, else equal to [0] */
    float *master;     /* f16 and bf16 with PSD_USE_UPDATE, else NULL */
    uint8_t *state[PSI_STATES_MAX];
};

struct table_memory {
    struct psi_segment values; /* shared: what workers on this host read; else none */
    uint64_t values_used;
    struct psi_segment state; /* shared: everything else; or none */
    uint8_t *base;            /* everything else, there or not */
    uint64_t bytes;
    uint64_t used;
    uint64_t bytes_in_all;
};

/* What of a table a lane has. */
struct table_extent {
    uint64_t elements;
    uint64_t chunks;
    bool retain; /* two values of each chunk */
    bool copied; /* where values are shared, everything else is, too */
};

/* Bytes that it needs. */
uint64_t table_memory_bytes(const struct psi_spec *spec, const struct table_extent *extent);

/* Maps that much, as segments what is to be shared, if they are to be had.
 * PSD_ERR_NO_MEMORY when the system refuses. */
psd_status table_memory_init(struct table_memory *memory, const struct psi_spec *spec,
                             const struct table_extent *extent, bool shared, struct psd_error *err);
void table_memory_fini(struct table_memory *memory);

/* Carves the next chunk of `elements` out of it. */
void table_memory_carve(struct table_memory *memory, const struct psi_spec *spec, uint32_t elements,
                        bool retain, struct chunk_memory *chunk_p);

/* Writes the initial value (elements from `first` on) and zeros the rest: touches every page. */
void table_memory_prepare(const struct psi_spec *spec, uint64_t first, uint32_t elements,
                          const struct chunk_memory *chunk);

/* The value was written from outside: the master values follow it. */
void table_memory_widen(const struct psi_spec *spec, uint32_t elements,
                        const struct chunk_memory *chunk, uint32_t buffer);

/* Where a part of the chunk is: enum PSI_PART_*. NULL: it has none. */
uint8_t *table_memory_part(const struct chunk_memory *chunk, unsigned part, uint32_t buffer);

#endif
