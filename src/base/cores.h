/*
 * cores.h - the cores this process may use: taskset, batch systems and containers give fewer than
 * the machine has.
 */
#ifndef PSI_BASE_CORES_H
#define PSI_BASE_CORES_H

#include <stdint.h>

uint32_t psi_usable_cores(void); /* at least 1 */

/*
 * From now on the calling thread runs on share `index` (from 0) of as many equal ones, of the cores
 * it may use, by their numbers, because neighbours often share a cache. More shares than cores: it
 * runs where it did.
 */
void psi_cores_keep_to_share(uint32_t index, uint32_t shares);

#endif
