/*
 * worker_part.c - the part of a generation that a worker brings.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/worker_part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/fail.h"

enum { PIECE_BYTES = 1 << 20 };

/* ---------------------------------------------------------------------------------- writing --- */

static psd_status
fill(const struct psi_disk *disk, int fd, const void *data, size_t bytes, const char *label,
     struct psd_error *err)
{
    if (psi_disk_reserve(disk, fd, bytes) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "reserve %zu bytes for %s", bytes, label);
    }
    if (psi_disk_write(disk, fd, data, bytes, 0) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "write %s", label);
    }
    if (psi_disk_sync(disk, fd) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync %s", label);
    }
    return PSD_OK;
}

psd_status
psi_worker_part_write(const struct psi_disk *disk, const char *path, uint64_t token,
                      const void *data, size_t bytes, uint32_t *checksum_p, struct psd_error *err)
{
    struct psi_directory directory;
    char name[PSI_CHECKPOINT_NAME_BYTES];
    char label[4096 + PSI_CHECKPOINT_NAME_BYTES];
    psd_status status = psi_directory_open(&directory, disk, path, err);
    int fd;

    if (status != PSD_OK) {
        return status;
    }
    psi_checkpoint_temporary_part_name(name, token, PSI_WORKER_PART);
    snprintf(label, sizeof(label), "%s/%s", path, name);
    status = psi_directory_remove(&directory, name, err); /* of an order that was given up */
    fd = status == PSD_OK ? psi_disk_open(disk, directory.fd, name, PSI_DISK_NEW) : -1;
    if (status == PSD_OK && fd < 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "create %s", label);
    } else if (status == PSD_OK) {
        status = fill(disk, fd, data, bytes, label, err);
        if (status != PSD_OK) {
            (void)psi_directory_remove(&directory, name, NULL);
        }
    }
    psi_disk_close(&fd);
    psi_directory_close(&directory);
    if (status == PSD_OK) {
        *checksum_p = psi_crc32c(0, data, bytes);
    }
    return status;
}

/* ---------------------------------------------------------------------------------- reading --- */

/* Where the bytes go besides their sum. */
struct sink {
    uint8_t *to;
    size_t capacity;
};

static psd_status
take_piece(const struct psi_directory *directory, int fd, uint64_t at, uint8_t *piece, size_t bytes,
           const char *name, struct psd_error *err)
{
    if (psi_disk_read(directory->disk, fd, piece, bytes, at) != 0) {
        return psi_fail_errno(err, errno == EIO ? PSD_ERR_CORRUPT : PSD_ERR_IO, "read %s/%s",
                              directory->path, name);
    }
    return PSD_OK;
}

static psd_status
take_all(const struct psi_directory *directory, int fd, const char *name,
         const struct psi_manifest_part *part, const struct sink *sink, struct psd_error *err)
{
    uint8_t *piece = malloc(PIECE_BYTES);
    uint32_t checksum = 0;
    psd_status status = piece == NULL ? psi_fail(err, PSD_ERR_NO_MEMORY, "load %s/%s: no memory",
                                                 directory->path, name)
                                      : PSD_OK;

    for (uint64_t at = 0; at < part->bytes && status == PSD_OK; at += PIECE_BYTES) {
        const size_t bytes =
            part->bytes - at < PIECE_BYTES ? (size_t)(part->bytes - at) : PIECE_BYTES;

        status = take_piece(directory, fd, at, piece, bytes, name, err);
        if (status == PSD_OK) {
            checksum = psi_crc32c(checksum, piece, bytes);
        }
        if (status == PSD_OK && at < sink->capacity) {
            const size_t room = sink->capacity - (size_t)at;

            memcpy(sink->to + at, piece, bytes < room ? bytes : room);
        }
    }
    free(piece);
    if (status == PSD_OK && checksum != part->checksum) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: damaged: checksum does not match",
                          directory->path, name);
    }
    return status;
}

const struct psi_manifest_part *
psi_worker_part(const struct psi_manifest *manifest)
{
    for (size_t i = 0; i < manifest->part_count; i++) {
        if (strcmp(manifest->parts[i].name, PSI_WORKER_PART) == 0) {
            return &manifest->parts[i];
        }
    }
    return NULL;
}

psd_status
psi_worker_part_read(const struct psi_directory *directory, uint64_t generation,
                     const struct psi_manifest_part *part, void *to, size_t capacity,
                     struct psd_error *err)
{
    const struct sink sink = {.to = to, .capacity = capacity};
    char name[PSI_CHECKPOINT_NAME_BYTES];
    struct stat found;
    psd_status status;
    int fd;

    psi_checkpoint_part_name(name, generation, part->name);
    fd = psi_disk_open(directory->disk, directory->fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found) != 0) {
        status = psi_fail_errno(err, errno == ENOENT ? PSD_ERR_CORRUPT : PSD_ERR_IO, "open %s/%s",
                                directory->path, name);
    } else if (!S_ISREG(found.st_mode) || (uint64_t)found.st_size != part->bytes) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: %llu bytes, the manifest says %llu",
                          directory->path, name, (unsigned long long)found.st_size,
                          (unsigned long long)part->bytes);
    } else {
        status = take_all(directory, fd, name, part, &sink, err);
    }
    psi_disk_close(&fd);
    return status;
}
