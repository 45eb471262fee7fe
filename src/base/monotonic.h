/*
 * monotonic.h - clocks that nobody sets: for deadlines, durations, and what was used.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_MONOTONIC_H
#define PSI_BASE_MONOTONIC_H

#include <stdint.h>

uint64_t psi_monotonic_ns(void);
uint64_t psi_monotonic_ms(void);

/* Processor time of this thread, and of all threads of this process. */
uint64_t psi_thread_cpu_ns(void);
uint64_t psi_process_cpu_ns(void);

#endif
