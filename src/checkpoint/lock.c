/*
 * lock.c - one save at a time into a directory.
 *
 * The manifest's temporary file exists during the whole save and is locked by the process that
 * saves: a locked one means that somebody else is saving, an unlocked one that somebody died doing
 * so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "checkpoint/generations.h"

enum { ATTEMPTS = 3 };

/* A file system without locks answers otherwise, and gets no protection. */
static bool
locked_by_another(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static psd_status
busy(const struct psi_directory *directory, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_BUSY, "save into %s: another save is under way", directory->path);
}

/* Is the open file still the one of that name? */
static bool
is_named(int fd, const struct psi_directory *directory, const char *name)
{
    struct stat ours;
    struct stat there;

    return fstat(fd, &ours) == 0 && fstatat(directory->fd, name, &there, 0) == 0 &&
           ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

/* The file exists. Removes it if whoever made it is dead. */
static psd_status
break_lock(const struct psi_directory *directory, const char *name, struct psd_error *err)
{
    psd_status status = PSD_OK;
    int fd = psi_disk_open(directory->disk, directory->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return errno == ENOENT
                   ? PSD_OK
                   : psi_fail_errno(err, PSD_ERR_IO, "open %s/%s", directory->path, name);
    }
    if (locked_by_another(fd)) {
        status = busy(directory, err);
    } else if (is_named(fd, directory, name)) {
        status = psi_directory_remove(directory, name, err);
    }
    psi_disk_close(&fd);
    return status;
}

psd_status
psi_checkpoint_lock(const struct psi_directory *directory, int *fd_p, struct psd_error *err)
{
    char name[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_temporary_name(name, PSI_CHECKPOINT_MANIFEST, 0);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int fd = psi_disk_open(directory->disk, directory->fd, name, PSI_DISK_NEW);
        psd_status status;

        if (fd < 0 && errno != EEXIST) {
            return psi_fail_errno(err, PSD_ERR_IO, "create %s/%s", directory->path, name);
        }
        if (fd >= 0 && locked_by_another(fd)) {
            psi_disk_close(&fd); /* taken for dead: now it is the other's to remove */
            return busy(directory, err);
        }
        if (fd >= 0) {
            *fd_p = fd;
            return PSD_OK;
        }
        status = break_lock(directory, name, err);
        if (status != PSD_OK) {
            return status;
        }
    }
    return busy(directory, err);
}
