/*
 * close_fd.h - closes a descriptor that may not be open.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CLOSE_FD_H
#define LAUNCH_CLOSE_FD_H

#include <errno.h>
#include <unistd.h>

/* -1, before and afterwards: it is closed. errno stays as it is, for whoever reports why. */
static inline void
close_fd(int *fd)
{
    const int code = errno;

    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    errno = code;
}

#endif
