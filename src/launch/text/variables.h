/*
 * variables.h - an environment as a list of NAME=value.
 */
#ifndef LAUNCH_VARIABLES_H
#define LAUNCH_VARIABLES_H

#include "launch/text/words.h"

/* The value of a variable, or NULL. */
const char *variables_get(char *const *list, const char *name);

/* Replaces or adds "NAME=value"; plain "NAME" removes it. */
psd_status variables_set(struct words *variables, const char *assignment, struct psd_error *err);
psd_status variables_set_pair(struct words *variables, const char *name, const char *value,
                              struct psd_error *err);
psd_status variables_set_all(struct words *variables, char *const *assignments,
                             struct psd_error *err);
void variables_unset(struct words *variables, const char *name);

#endif
