/*
 * mapping.c - what kind of memory this process has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "mapping.h"

#include <stdio.h>
#include <string.h>

bool
mapping_of_a_neighbour(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;

    while (!found && maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        found = strstr(line, " r--s ") != NULL && strstr(line, "/memfd:psd") != NULL;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}
