/*
 * manifest_file.c - manifests and other files of a checkpoint, opened to be read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/manifest_file.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fail.h"

enum { LABEL_BYTES = PATH_MAX + PSI_CHECKPOINT_NAME_BYTES };

/* A file that is gone or unreadable is damaged; other failures say nothing about it. */
psd_status
psi_input_failed(struct psd_error *err, const char *what, const char *path, const char *name)
{
    const bool damaged = errno == ENOENT || errno == EIO;

    return psi_fail_errno(err, damaged ? PSD_ERR_CORRUPT : PSD_ERR_IO, "%s %s/%s", what, path,
                          name);
}

psd_status
psi_input_open(const struct psi_directory *directory, const char *name, int *fd_p,
               uint64_t *bytes_p, struct psd_error *err)
{
    /* O_NONBLOCK: a pipe of that name must not stop us. */
    int fd = psi_disk_open(directory->disk, directory->fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat stat;
    psd_status status = PSD_OK;

    if (fd < 0 || fstat(fd, &stat) != 0) {
        status = psi_input_failed(err, "open", directory->path, name);
    } else if (!S_ISREG(stat.st_mode)) {
        status =
            psi_fail(err, PSD_ERR_CORRUPT, "open %s/%s: not a regular file", directory->path, name);
    }
    if (status != PSD_OK) {
        psi_disk_close(&fd);
        return status;
    }
    *fd_p = fd;
    *bytes_p = (uint64_t)stat.st_size;
    return PSD_OK;
}

psd_status
psi_manifest_load(struct psi_manifest *manifest, const struct psi_directory *directory,
                  struct psd_error *err)
{
    char label[LABEL_BYTES];
    char name[PSI_CHECKPOINT_NAME_BYTES];
    uint64_t bytes;
    char *text;
    int fd;
    psd_status status;

    psi_checkpoint_name(name, PSI_CHECKPOINT_MANIFEST, manifest->generation);
    snprintf(label, sizeof(label), "%s/%s", directory->path, name);
    status = psi_input_open(directory, name, &fd, &bytes, err);
    if (status != PSD_OK) {
        return status;
    }
    text = bytes > PSI_MANIFEST_BYTES_MAX ? NULL : malloc(bytes + 1);
    if (text == NULL) {
        status = psi_fail(err, bytes > PSI_MANIFEST_BYTES_MAX ? PSD_ERR_CORRUPT : PSD_ERR_NO_MEMORY,
                          "%s: %llu bytes are too many", label, (unsigned long long)bytes);
    } else if (psi_disk_read(directory->disk, fd, text, bytes, 0) != 0) {
        status = psi_input_failed(err, "read", directory->path, name);
    } else {
        status = psi_manifest_parse(manifest, label, text, bytes, err);
    }
    free(text);
    psi_disk_close(&fd);
    return status;
}
