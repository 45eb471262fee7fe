/*
 * environment.h - variables besides the settings: switches, and names that were misspelt.
 *
 * A variable that nobody reads looks as if it had been heard. So whatever begins with PSD_ and is
 * nearly one of ours is told of: daemons log it, libpsd adds it to the error it may have caused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CONFIG_ENVIRONMENT_H
#define PSI_CONFIG_ENVIRONMENT_H

#include <stdbool.h>

#include <psd/status.h>

#include "config/variable.h"

/* 1 is on; 0, empty and unset are off; PSD_ERR_INVALID names the variable for anything else. */
psd_status psi_environment_switch(const char *name, bool *on_p, struct psd_error *err);

/* Calls back for every variable that is set, unknown and nearly a known one: "PSD_LANEZ",
 * "PSD_LANES". The names are valid during the call. */
void psi_environment_slips(void (*tell)(void *owner, const char *written, const char *meant),
                           void *owner);

/* err is about the lack of variable `name`: adds what was written instead of it, if anything. */
void psi_environment_hint(const char *name, struct psd_error *err);

#endif
