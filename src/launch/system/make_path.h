/*
 * make_path.h - mkdir -p.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MAKE_PATH_H
#define LAUNCH_MAKE_PATH_H

#include <stddef.h>

/* Makes a directory, mode 0755 less the umask, and all missing directories above it. Returns 0, or -1
 * with errno. *failed_p (optional) is the length of the part of path that could not be made. If
 * something was there already, the caller checks whether it is a directory. */
int make_path(const char *path, size_t *failed_p);

#endif
