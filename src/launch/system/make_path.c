/*
 * make_path.c - mkdir -p.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/make_path.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

/* Somebody else may make it at the same time, and what is there need not be ours to make. */
static bool
make_one(const char *path)
{
    const int code = mkdir(path, 0755) == 0 ? 0 : errno;
    struct stat found;
    const bool made = code == 0 || code == EEXIST || stat(path, &found) == 0;

    errno = code;
    return made;
}

int
make_path(const char *path, size_t *failed_p)
{
    char *part = strdup(path);
    bool made = false;
    size_t end = 0;

    if (part != NULL) {
        do {
            end += path[end] != '\0'; /* past a '/' */
            end += strcspn(path + end, "/");
            part[end] = '\0';
            made = make_one(part);
            part[end] = path[end];
        } while (made && path[end] != '\0');
        free(part);
    }
    if (failed_p != NULL) {
        *failed_p = end;
    }
    return made ? 0 : -1;
}
