/*
 * log_file.c - opens a log for appending.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

int
log_file_open_at(int directory, const char *name)
{
    /* O_NONBLOCK: a pipe that nobody reads must not stop us. */
    const int fd = openat(
        directory, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    struct stat info;

    if (fd >= 0 && (fstat(fd, &info) != 0 || S_ISFIFO(info.st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

int
log_file_open(const char *path)
{
    return log_file_open_at(AT_FDCWD, path);
}
