/*
 * variables.c - an environment as a list of NAME=value.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/text/variables.h"

#include <stdlib.h>
#include <string.h>

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

const char *
variables_text(char *const *list, const char *name)
{
    const char *value = variables_get(list, name);

    return value != NULL ? value : "";
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

void
variables_set(struct words *variables, const char *assignment)
{
    const size_t bytes = strcspn(assignment, "=");

    unset(variables, assignment, bytes);
    if (assignment[bytes] == '=') {
        words_add(variables, assignment);
    }
}

void
variables_set_pair(struct words *variables, const char *name, const char *value)
{
    variables_unset(variables, name);
    words_add_format(variables, "%s=%s", name, value);
}

void
variables_set_number(struct words *variables, const char *name, uint32_t value)
{
    variables_unset(variables, name);
    words_add_format(variables, "%s=%u", name, value);
}

void
variables_set_all(struct words *variables, char *const *assignments)
{
    for (; assignments != NULL && *assignments != NULL; assignments++) {
        variables_set(variables, *assignments);
    }
}
