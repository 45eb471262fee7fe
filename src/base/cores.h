/*
 * cores.h - how many cores this process may use: taskset, batch systems and containers give fewer
 * than the machine has.
 */
#ifndef PSI_BASE_CORES_H
#define PSI_BASE_CORES_H

#include <stdint.h>

uint32_t psi_usable_cores(void); /* at least 1 */

#endif
