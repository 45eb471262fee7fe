/*
 * descriptors.h - how many descriptors a daemon may open, and how many of them strangers may hold.
 * Daemons only: the limits of a worker's process are not ours to change.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_DESCRIPTORS_H
#define PSI_BASE_DESCRIPTORS_H

#include <stdint.h>

/* Raises the limit as far as this process may. Returns what it is then. */
uint32_t psi_descriptors_raise(void);

/* How many strangers each of `loops` loops may keep, so that all of them together never hold more
 * than a quarter of the limit: the rest is for members. At least 1; 256 where there is room. */
uint32_t psi_descriptors_for_strangers(uint32_t limit, uint32_t loops);

#endif
