/*
 * variables.c - an environment as a list of NAME=value.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/text/variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

const char *
variables_get(char *const *list, const char *name)
{
    const size_t bytes = strlen(name);

    for (; list != NULL && *list != NULL; list++) {
        if (strncmp(*list, name, bytes) == 0 && (*list)[bytes] == '=') {
            return *list + bytes + 1;
        }
    }
    return NULL;
}

/* The order is kept: a plain NAME among them unsets what was set before it, not behind it. */
static void
unset(struct words *variables, const char *name, size_t bytes)
{
    for (size_t i = 0; i < variables->count; i++) {
        if (strncmp(variables->list[i], name, bytes) == 0 && variables->list[i][bytes] == '=') {
            free(variables->list[i]);
            memmove(&variables->list[i], &variables->list[i + 1],
                    (variables->count - i) * sizeof(variables->list[0])); /* and the NULL */
            variables->count--;
            return;
        }
    }
}

void
variables_unset(struct words *variables, const char *name)
{
    unset(variables, name, strlen(name));
}

psd_status
variables_set(struct words *variables, const char *assignment, struct psd_error *err)
{
    const size_t bytes = strcspn(assignment, "=");

    unset(variables, assignment, bytes);
    return assignment[bytes] == '=' ? words_add(variables, assignment, err) : PSD_OK;
}

psd_status
variables_set_pair(struct words *variables, const char *name, const char *value,
                   struct psd_error *err)
{
    variables_unset(variables, name);
    return words_add_format(variables, err, "%s=%s", name, value);
}

psd_status
variables_set_all(struct words *variables, char *const *assignments, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (; status == PSD_OK && assignments != NULL && *assignments != NULL; assignments++) {
        status = variables_set(variables, *assignments, err);
    }
    return status;
}
