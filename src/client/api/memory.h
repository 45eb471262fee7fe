/*
 * memory.h - gradients that servers on the same host read in place, and values read in theirs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_API_MEMORY_H
#define PSI_CLIENT_API_MEMORY_H

#include "base/segment.h"
#include "client/api/context.h"

/* Whether all of it is of one psd_alloc. */
bool psi_region_has_locked(const psd_context *context, const void *memory, uint64_t bytes);

/* When nothing is under way any more. */
void psi_regions_destroy(psd_context *context);

#endif
