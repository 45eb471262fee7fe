/*
 * std_fds.c - descriptors 0 to 2 of a program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/std_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int
psi_std_fds_fill(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* Those below are taken, so the one that open() gives is this one. */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) {
            return errno;
        }
    }
    return 0;
}
