/*
 * machine.h - a guess at which processes can reach each other's memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_MACHINE_H
#define PSI_BASE_MACHINE_H

#include <stdint.h>

/* A number that processes of one boot of one machine and one network namespace share, and others
 * hardly ever. A guess: it proves nothing. 0: nothing to go by. */
uint64_t psi_machine_guess(void);

#endif
