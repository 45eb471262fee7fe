/*
 * variable.c - how a setting is called in the environment.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/variable.h"

#include <string.h>

void
psi_variable_name(const char *setting, char variable_p[PSI_VARIABLE_BYTES])
{
    size_t used = PSI_VARIABLE_PREFIX_BYTES;

    memcpy(variable_p, PSI_VARIABLE_PREFIX, PSI_VARIABLE_PREFIX_BYTES);
    for (; *setting != '\0' && used < PSI_VARIABLE_BYTES - 1; setting++) {
        variable_p[used++] = psi_variable_swap_case(*setting, 'a', 'z');
    }
    variable_p[used] = '\0';
}
