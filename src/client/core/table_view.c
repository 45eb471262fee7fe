/*
 * table_view.c - the values of a table as one contiguous tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/table_view.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"

/* Chunks in place, of all tables: each may be a mapping of its own, and the kernel allows a process
 * 65,530 of them, which are not all ours. */
enum { IN_PLACE_MAX = 16384 };

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
    view->mapped_p = &table->client->chunks_in_place;
    view->changes_p = &table->view_changes;
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
static psd_status
take_over(struct table_view *view, uint32_t chunk, size_t bytes)
{
    uint8_t *at = view->base + chunk * view->chunk_bytes;
    const void *mapped =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    atomic_fetch_add(view->changes_p, 1);
    return mapped == at ? PSD_PENDING : PSD_ERR_NO_MEMORY;
}

/* Shows the lent pages in the view too: an old size of 0 makes a second mapping of them. */
static psd_status
map_in_place(struct table_view *view, uint32_t chunk, const void *lent, size_t bytes)
{
    uint8_t *at = view->base + chunk * view->chunk_bytes;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *pages = (void *)(uintptr_t)lent;

    if ((uintptr_t)lent % page != 0 || (uintptr_t)at % page != 0 ||
        *view->mapped_p >= IN_PLACE_MAX) {
        return PSD_PENDING;
    }
    if (mremap(pages, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) {
        ++*view->mapped_p;
        atomic_fetch_add(view->changes_p, 1);
        return PSD_OK;
    }
    return take_over(view, chunk, bytes); /* it may have made a hole first */
}

psd_status
psi_table_view_show(struct table_view *view, const struct lane_link *lane, uint32_t chunk,
                    const struct psi_sink *sink, size_t bytes)
{
    struct chunk_view *shown = &view->chunks[chunk];
    const bool was_in_place = shown->shown == SHOWN_IN_PLACE;
    psd_status status = PSD_PENDING;

    if (was_in_place && sink->stays && shown->ups == lane->ups && shown->from == sink->lent) {
        return PSD_OK;
    }
    if (was_in_place) {
        /* A server that keeps two versions moves: not worth following. */
        shown->shown = sink->stays && shown->ups == lane->ups ? SHOWN_COPY_FOR_EVER : SHOWN_COPY;
        --*view->mapped_p;
        status = take_over(view, chunk, bytes);
    }
    if (status == PSD_PENDING && shown->shown == SHOWN_COPY && sink->stays) {
        status = map_in_place(view, chunk, sink->lent, bytes);
        if (status == PSD_OK) {
            *shown = (struct chunk_view){SHOWN_IN_PLACE, lane->ups, sink->lent};
        }
    }
    return status;
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
