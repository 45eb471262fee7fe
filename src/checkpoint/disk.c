/*
 * disk.c - the system calls through which a checkpoint reaches the disk and comes back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int
system_open(void *self, int directory, const char *name, int flags)
{
    return openat(directory, name, flags, 0666);
}

static int
system_reserve(void *self, int fd, uint64_t bytes)
{
    const int code = bytes > INT64_MAX ? EFBIG : posix_fallocate(fd, 0, (off_t)bytes);

    if (code == 0 || code == EOPNOTSUPP) {
        return 0; /* a file system that cannot promise space may still have it */
    }
    errno = code;
    return -1;
}

static ssize_t
system_write(void *self, int fd, const void *data, size_t bytes, uint64_t offset)
{
    return pwrite(fd, data, bytes, (off_t)offset);
}

static ssize_t
system_read(void *self, int fd, void *data, size_t bytes, uint64_t offset)
{
    return pread(fd, data, bytes, (off_t)offset);
}

static int
system_sync(void *self, int fd)
{
    return fdatasync(fd);
}

static int
system_sync_directory(void *self, int fd)
{
    return fsync(fd);
}

static int
system_rename(void *self, int directory, const char *from, const char *to)
{
    return renameat(directory, from, directory, to);
}

static int
system_remove(void *self, int directory, const char *name)
{
    return unlinkat(directory, name, 0);
}

const struct psi_disk psi_disk_system = {
    .open = system_open,
    .reserve = system_reserve,
    .write = system_write,
    .read = system_read,
    .sync = system_sync,
    .sync_directory = system_sync_directory,
    .rename = system_rename,
    .remove = system_remove,
};

int
psi_disk_open(const struct psi_disk *disk, int directory, const char *name, int flags)
{
    int fd;

    do {
        fd = disk->open(disk->self, directory, name, flags);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int
psi_disk_reserve(const struct psi_disk *disk, int fd, uint64_t bytes)
{
    int code;

    do {
        code = disk->reserve(disk->self, fd, bytes);
    } while (code != 0 && errno == EINTR);
    return code;
}

int
psi_disk_sync(const struct psi_disk *disk, int fd)
{
    int code;

    do {
        code = disk->sync(disk->self, fd);
    } while (code != 0 && errno == EINTR);
    return code;
}

int
psi_disk_sync_directory(const struct psi_disk *disk, int fd)
{
    int code;

    do {
        code = disk->sync_directory(disk->self, fd);
    } while (code != 0 && errno == EINTR);
    return code;
}

int
psi_disk_write(const struct psi_disk *disk, int fd, const void *data, size_t bytes, uint64_t offset)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        const ssize_t count = disk->write(disk->self, fd, at, bytes, offset);

        if (count > 0) {
            at += count;
            bytes -= (size_t)count;
            offset += (uint64_t)count;
        } else if (count == 0 || errno != EINTR) {
            errno = count == 0 ? EIO : errno;
            return -1;
        }
    }
    return 0;
}

int
psi_disk_read(const struct psi_disk *disk, int fd, void *data, size_t bytes, uint64_t offset)
{
    uint8_t *at = data;

    while (bytes > 0) {
        const ssize_t count = disk->read(disk->self, fd, at, bytes, offset);

        if (count > 0) {
            at += count;
            bytes -= (size_t)count;
            offset += (uint64_t)count;
        } else if (count == 0 || errno != EINTR) {
            errno = count == 0 ? EIO : errno;
            return -1;
        }
    }
    return 0;
}

void
psi_disk_close(int *fd_p)
{
    if (*fd_p >= 0) {
        close(*fd_p); /* what matters was synced before: nothing is left to go wrong */
        *fd_p = -1;
    }
}
