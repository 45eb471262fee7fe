/*
 * monotonic.h - milliseconds of a clock that nobody sets: for deadlines.
 */
#ifndef PSI_BASE_MONOTONIC_H
#define PSI_BASE_MONOTONIC_H

#include <stdint.h>

uint64_t psi_monotonic_ms(void);

#endif
