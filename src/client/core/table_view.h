/*
 * table_view.h - the values of a table as one contiguous tensor (psd_view).
 *
 * Chunks whose server is on this host are its own memory, mapped here; the others are ours, and
 * values are copied into them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_TABLE_VIEW_H
#define PSI_CLIENT_CORE_TABLE_VIEW_H

#include "client/core/state.h"

/* What a chunk of the view is. */
enum shown { SHOWN_COPY, SHOWN_IN_PLACE, SHOWN_COPY_FOR_EVER };

struct chunk_view {
    enum shown shown;
    uint32_t ups;     /* in place: since when the lane's connection is up, ... */
    const void *from; /* ... and where it lends the value */
};

/* Guarded by the context's lock. */
struct table_view {
    uint8_t *base;
    size_t bytes;
    size_t chunk_bytes; /* of a full one */
    struct chunk_view *chunks;
    uint32_t *mapped_p;          /* chunks in place, of all the client's tables */
    _Atomic uint64_t *changes_p; /* of the table */
};

/* The table's view, made on the first call. NULL: no memory for it. */
struct table_view *psi_table_view(struct psd_table *table);

/*
 * A value is coming for the view. PSD_OK: the view shows it already, because it is on loan and lies
 * where the chunk is mapped, or was mapped now. PSD_PENDING: it has to be copied, and there is room
 * for it. PSD_ERR_NO_MEMORY: there is none, for the process has too many mappings.
 */
psd_status psi_table_view_show(struct table_view *view, const struct lane_link *lane,
                               uint32_t chunk, const struct psi_sink *sink, size_t bytes);

void psi_table_view_destroy(struct table_view *view);

#endif
