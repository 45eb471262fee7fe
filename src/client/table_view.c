/*
 * table_view.c - the values of a table as one contiguous tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/table_view.h"

#include <stdlib.h>
#include <sys/mman.h>

struct table_view *
psi_table_view(struct psd_table *table)
{
    const size_t bytes = table->spec.count * table->element_bytes;
    struct table_view *view;
    void *base;

    if (table->view != NULL) {
        return table->view;
    }
    view = calloc(1, sizeof(*view));
    if (view == NULL) {
        return NULL;
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        free(view);
        return NULL;
    }
    view->base = base;
    view->bytes = bytes;
    table->view = view;
    return view;
}

void
psi_table_view_destroy(struct table_view *view)
{
    if (view != NULL) {
        munmap(view->base, view->bytes);
        free(view);
    }
}
