/*
 * variables.h - an environment as a list of NAME=value.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_VARIABLES_H
#define LAUNCH_VARIABLES_H

#include <stdint.h>

#include "launch/text/words.h"

/* The value of a variable, or NULL if it is missing; the second returns "" instead. */
const char *variables_get(char *const *list, const char *name);
const char *variables_text(char *const *list, const char *name);

/* Replaces or adds "NAME=value"; plain "NAME" removes it. */
void variables_set(struct words *variables, const char *assignment);
void variables_set_pair(struct words *variables, const char *name, const char *value);
void variables_set_number(struct words *variables, const char *name, uint32_t value);
void variables_set_all(struct words *variables, char *const *assignments);
void variables_unset(struct words *variables, const char *name);

#endif
