/*
 * scratch.c - a directory for what workers on this machine write and nobody wants to keep.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>

#include "base/fail.h"

enum { OPEN_DIRECTORIES = 16, PREFIX_BYTES = 40, TRIES = 10 };

static void remove_tree(const char *path);

static int
remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)where;
    if (kind == FTW_DNR && chmod(path, 0700) == 0) { /* overlays leave directories closed */
        remove_tree(path);
        return 0;
    }
    remove(path); /* what cannot be removed stays, the rest goes */
    return 0;
}

/* Links are removed, not followed. */
static void
remove_tree(const char *path)
{
    nftw(path, remove_one, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void
name_prefix(char prefix_p[PREFIX_BYTES])
{
    snprintf(prefix_p, PREFIX_BYTES, "poseidon-scratch-%u-", (unsigned)geteuid());
}

/* Opens a directory of ours, and locks it unless its agent lives. Returns -1 if not. */
static int
lock_directory(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;

    if (fd >= 0 &&
        (fstat(fd, &info) != 0 || info.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void
remove_forgotten(const char *base, const char *prefix)
{
    DIR *directory = opendir(base);
    const struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char path[SCRATCH_PATH_BYTES];
        int lock;

        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
            snprintf(path, sizeof(path), "%s/%s", base, entry->d_name) >= (int)sizeof(path)) {
            continue;
        }
        lock = lock_directory(path);
        if (lock >= 0) {
            remove_tree(path);
            close(lock);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
}

psd_status
scratch_create(struct scratch *scratch_p, const char *base, struct psd_error *err)
{
    struct scratch made = {.lock = -1};
    char prefix[PREFIX_BYTES];

    name_prefix(prefix);
    remove_forgotten(base, prefix);
    /* Another agent may take one that has no lock yet for forgotten: then it is gone, and the next
     * one has better luck. */
    for (int tries = 0; made.lock < 0 && tries < TRIES; tries++) {
        struct stat info;

        if (snprintf(made.path, sizeof(made.path), "%s/%sXXXXXX", base, prefix) >=
            (int)sizeof(made.path)) {
            return psi_fail(err, PSD_ERR_INVALID, "scratch directory in %s: name too long", base);
        }
        if (mkdtemp(made.path) == NULL) {
            return psi_fail_errno(err, PSD_ERR_IO, "make a scratch directory in %s", base);
        }
        made.lock = lock_directory(made.path);
        if (made.lock >= 0 && stat(made.path, &info) != 0) {
            close(made.lock);
            made.lock = -1;
        }
    }
    if (made.lock < 0) {
        return psi_fail(err, PSD_ERR_IO, "lock a scratch directory in %s", base);
    }
    *scratch_p = made;
    return PSD_OK;
}

void
scratch_destroy(struct scratch *scratch)
{
    if (scratch->lock >= 0) {
        remove_tree(scratch->path);
        close(scratch->lock);
    }
    *scratch = (struct scratch){.lock = -1};
}
