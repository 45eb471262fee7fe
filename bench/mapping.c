/*
 * mapping.c - what kind of memory a pointer points to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "mapping.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

bool
mapping_is_shared(const void *memory)
{
    const uintptr_t wanted = (uintptr_t)memory;
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool shared = false;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        uintptr_t begin;
        uintptr_t end;
        char how[5];

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, how) == 3 &&
            begin <= wanted && wanted < end) {
            shared = how[3] == 's';
            break;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return shared;
}
