/*
 * directory.c - the directory that a checkpoint's files lie in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fail.h"

enum { DIRECTORY = O_RDONLY | O_DIRECTORY | O_CLOEXEC };

/* Returns the descriptor, -1 with errno. */
static int
open_path(struct psi_directory *directory, const struct psi_disk *disk, const char *path)
{
    directory->disk = disk;
    directory->path = path;
    directory->fd = psi_disk_open(disk, AT_FDCWD, path, DIRECTORY);
    return directory->fd;
}

psd_status
psi_directory_open(struct psi_directory *directory, const struct psi_disk *disk, const char *path,
                   struct psd_error *err)
{
    if (open_path(directory, disk, path) < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "open directory %s", path);
    }
    return PSD_OK;
}

void
psi_directory_close(struct psi_directory *directory)
{
    psi_disk_close(&directory->fd);
}

/* A new directory's own name must be on the disk as well. */
static psd_status
sync_parent(const struct psi_directory *directory, struct psd_error *err)
{
    int fd = psi_disk_open(directory->disk, directory->fd, "..", DIRECTORY);
    psd_status status = PSD_OK;

    if (fd < 0 || psi_disk_sync_directory(directory->disk, fd) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "sync directory %s/..", directory->path);
    }
    psi_disk_close(&fd);
    return status;
}

psd_status
psi_directory_make(struct psi_directory *directory, const struct psi_disk *disk, const char *path,
                   struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (open_path(directory, disk, path) < 0 && errno == ENOENT) {
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            return psi_fail_errno(err, PSD_ERR_IO, "make directory %s", path);
        }
        status = psi_directory_open(directory, disk, path, err);
        return status == PSD_OK ? sync_parent(directory, err) : status;
    }
    if (directory->fd < 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "open directory %s", path);
    }
    return status;
}

psd_status
psi_directory_remove(const struct psi_directory *directory, const char *name, struct psd_error *err)
{
    const struct psi_disk *disk = directory->disk;

    if (disk->remove(disk->self, directory->fd, name) != 0 && errno != ENOENT) {
        return psi_fail_errno(err, PSD_ERR_IO, "remove %s/%s", directory->path, name);
    }
    return PSD_OK;
}
