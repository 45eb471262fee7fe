/*
 * table_view.c - the values of a table as one contiguous tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/table_view.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"

struct table_view *
psi_table_view(struct psd_table *table)
{
    struct table_view *view = table->view;
    void *base;

    if (view != NULL) {
        return view;
    }
    view = calloc(1, sizeof(*view));
    if (view == NULL) {
        return NULL;
    }
    view->bytes = table->spec.count * table->element_bytes;
    view->chunk_bytes = PSD_CHUNK_ELEMENTS * table->element_bytes;
    view->chunks = calloc(table->chunk_count, sizeof(*view->chunks));
    base = mmap(NULL, view->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (view->chunks == NULL || base == MAP_FAILED) {
        free(view->chunks);
        free(view);
        if (base != MAP_FAILED) {
            munmap(base, table->spec.count * table->element_bytes);
        }
        return NULL;
    }
    view->base = base;
    table->view = view;
    return view;
}

/* Makes the chunk memory of our own again; without it the view would be a hole. */
static void
take_over(struct table_view *view, uint32_t chunk, size_t bytes)
{
    uint8_t *at = view->base + chunk * view->chunk_bytes;
    const void *mapped =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    psi_assert(mapped == at);
}

/* Shows the lent pages in the view too: an old size of 0 makes a second mapping of them. */
static bool
map_in_place(struct table_view *view, uint32_t chunk, const void *lent, size_t bytes)
{
    uint8_t *at = view->base + chunk * view->chunk_bytes;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *pages = (void *)(uintptr_t)lent;

    if ((uintptr_t)lent % page != 0 || (uintptr_t)at % page != 0) {
        return false;
    }
    if (mremap(pages, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) {
        return true;
    }
    take_over(view, chunk, bytes); /* it may have made a hole first */
    return false;
}

bool
psi_table_view_shows(struct table_view *view, const struct lane_link *lane, uint32_t chunk,
                     const struct psi_sink *sink, size_t bytes)
{
    struct chunk_view *shown = &view->chunks[chunk];
    const bool was_in_place = shown->shown == SHOWN_IN_PLACE;

    if (was_in_place && sink->stays && shown->ups == lane->ups && shown->from == sink->lent) {
        return true;
    }
    if (was_in_place && sink->stays && shown->ups == lane->ups) {
        shown->shown = SHOWN_COPY_FOR_EVER; /* a server that keeps two versions: it moves */
    } else if (was_in_place) {
        shown->shown = SHOWN_COPY;
    }
    if (shown->shown == SHOWN_COPY && sink->stays && map_in_place(view, chunk, sink->lent, bytes)) {
        *shown = (struct chunk_view){SHOWN_IN_PLACE, lane->ups, sink->lent};
        return true;
    }
    if (was_in_place) {
        take_over(view, chunk, bytes);
    }
    return false;
}

void
psi_table_view_destroy(struct table_view *view)
{
    if (view != NULL) {
        munmap(view->base, view->bytes);
        free(view->chunks);
        free(view);
    }
}
