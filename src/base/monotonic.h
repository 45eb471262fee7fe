/*
 * monotonic.h - the time of a clock that nobody sets: for deadlines and durations.
 */
#ifndef PSI_BASE_MONOTONIC_H
#define PSI_BASE_MONOTONIC_H

#include <stdint.h>

uint64_t psi_monotonic_ns(void);
uint64_t psi_monotonic_ms(void);

#endif
