/*
 * variable.h - how a setting is called in the environment.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CONFIG_VARIABLE_H
#define PSI_CONFIG_VARIABLE_H

#include "config/nearest.h"

#define PSI_VARIABLE_PREFIX "PSD_"

enum {
    PSI_VARIABLE_PREFIX_BYTES = sizeof(PSI_VARIABLE_PREFIX) - 1,
    PSI_VARIABLE_BYTES = PSI_VARIABLE_PREFIX_BYTES + PSI_NEAREST_BYTES_MAX + 1, /* any of ours */
};

/* Switches the case of a letter between first and last; returns anything else as it is. This is not
 * toupper(), because the program around libpsd may have a locale in which that differs. */
static inline char
psi_variable_swap_case(char letter, char first, char last)
{
    return (char)(letter >= first && letter <= last ? letter ^ ('a' ^ 'A') : letter);
}

/* heartbeat_ms -> PSD_HEARTBEAT_MS */
void psi_variable_name(const char *setting, char variable_p[PSI_VARIABLE_BYTES]);

#endif
