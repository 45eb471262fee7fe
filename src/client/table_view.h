/*
 * table_view.h - the values of a table as one contiguous tensor (psd_view).
 *
 * Chunks whose server is on this host are its own memory, mapped here; the others are ours, and
 * values are copied into them.
 */
#ifndef PSI_CLIENT_TABLE_VIEW_H
#define PSI_CLIENT_TABLE_VIEW_H

#include "client/state.h"

/* Guarded by the context's lock. */
struct table_view {
    uint8_t *base;
    size_t bytes;
};

/* The table's view, made on the first call. NULL: no memory for it. */
struct table_view *psi_table_view(struct psd_table *table);
void psi_table_view_destroy(struct table_view *view);

#endif
