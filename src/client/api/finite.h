/*
 * finite.h - the look at a gradient before it leaves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_API_FINITE_H
#define PSI_CLIENT_API_FINITE_H

#include <psd/psd.h>

struct psi_crew;

/* Index of the first NaN or infinity in data (any alignment), or -1. One pass. */
int64_t psi_find_not_finite(psd_dtype dtype, const void *data, uint64_t count);

/* The same; a crew (or NULL) helps where there is much to look through. */
int64_t psi_find_not_finite_with(struct psi_crew *crew, psd_dtype dtype, const void *data,
                                 uint64_t count);

#endif
