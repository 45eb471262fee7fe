/*
 * saved_tables.h - the tables that are saved and loaded. For save.c and load.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_API_SAVED_TABLES_H
#define PSI_CLIENT_API_SAVED_TABLES_H

#include "checkpoint/outline.h"
#include "client/api/context.h"

enum {
    RANGE_CHUNKS = 64, /* moved at once, if they fit the buffer */
    RANGE_ELEMENTS = RANGE_CHUNKS * PSD_CHUNK_ELEMENTS,
    BUFFER_BYTES = RANGE_ELEMENTS * 8, /* of the widest type */
};

/* The update tables of a context, by name. Thread: owned by the call that made it. */
struct saved_tables {
    psd_table **list;
    size_t count;
    uint8_t *buffer; /* BUFFER_BYTES: one range */
};

psd_status psi_saved_tables_init(struct saved_tables *tables, psd_context *context,
                                 struct psd_error *err);
void psi_saved_tables_fini(struct saved_tables *tables);

/* How many elements are moved at once, from `first` on. */
uint64_t psi_saved_range(const struct psi_spec *spec, uint64_t first);

#endif
