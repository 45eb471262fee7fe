/*
 * memory.c - gradients that servers on the same host read in place, and values read in theirs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/api/memory.h"

#include <stdlib.h>

#include "base/fail.h"
#include "client/api/context.h"

/* Guarded by the context's lock; where it is does not change. */
struct psi_region {
    struct psi_region *next;
    struct psi_segment segment;
};

static bool
lies_within(const struct psi_region *region, const void *memory, uint64_t bytes)
{
    const uint8_t *first = memory;

    return first >= region->segment.base && bytes <= region->segment.bytes &&
           (size_t)(first - region->segment.base) <= region->segment.bytes - bytes;
}

static void
region_destroy(struct psi_region *region)
{
    psi_segment_destroy(&region->segment);
    free(region);
}

void
psi_regions_destroy(psd_context *context)
{
    while (context->regions != NULL) {
        struct psi_region *region = context->regions;

        context->regions = region->next;
        region_destroy(region);
    }
}

psd_status
psd_alloc(psd_context *context, size_t bytes, void **memory_p)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);
    struct psi_region *region;

    if (status != PSD_OK) {
        return status;
    }
    if (bytes == 0 || memory_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_alloc: no bytes, or memory_p is NULL");
    }
    region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "psd_alloc: no memory");
    }
    status = psi_segment_create(&region->segment, bytes, err);
    if (status == PSD_OK) {
        status = psi_segment_populate(&region->segment, err);
    }
    if (status != PSD_OK) {
        region_destroy(region);
        return status;
    }
    psi_context_lock(context);
    region->next = context->regions;
    context->regions = region;
    psi_loop_env(context->loop)->ops->lend(psi_loop_env(context->loop), &region->segment);
    pthread_mutex_unlock(&context->lock);
    *memory_p = region->segment.base;
    return PSD_OK;
}

psd_status
psd_free(psd_context *context, void *memory)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);
    struct psi_region **link;
    struct psi_region *region = NULL;

    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    link = &context->regions;
    while (*link != NULL && (*link)->segment.base != memory) {
        link = &(*link)->next;
    }
    region = *link;
    if (region == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_free: not from psd_alloc, or freed before");
    } else if (psi_client_borrows(context->client, region->segment.base, region->segment.bytes)) {
        status = psi_fail(err, PSD_ERR_STATE, "psd_free: an operation that uses it has not ended");
    } else {
        *link = region->next;
        psi_loop_env(context->loop)->ops->take_back(psi_loop_env(context->loop), &region->segment);
        region_destroy(region);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

bool
psi_region_has_locked(const psd_context *context, const void *memory, uint64_t bytes)
{
    const struct psi_region *region = context->regions;

    while (region != NULL && !lies_within(region, memory, bytes)) {
        region = region->next;
    }
    return region != NULL;
}
