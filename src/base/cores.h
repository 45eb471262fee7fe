/*
 * cores.h - the cores this process may use: taskset, batch systems and containers give fewer than
 * the machine has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_CORES_H
#define PSI_BASE_CORES_H

#include <stdint.h>

uint32_t psi_usable_cores(void); /* at least 1 */

/* As many as the control groups of this process allow, rounded up; UINT32_MAX: they do not say. */
uint32_t psi_allowed_cores(void);

/*
 * Threads that one of `processes` alike on this machine may have for what is worth several cores: half of
 * its share of them, or of those it is bound to, for there are servers and the program's own threads too, and no more than memory needs to
 * be busy. At least 1.
 */
uint32_t psi_spare_threads(uint32_t processes);

/*
 * From now on the calling thread runs on share `index` (from 0) of as many equal ones, of the cores
 * it may use, by their numbers, because neighbours often share a cache. More shares than cores: it
 * runs where it did.
 */
void psi_cores_keep_to_share(uint32_t index, uint32_t shares);

#endif
