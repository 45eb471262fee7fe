/*
 * part.c - writing a part of a generation that another process begins and commits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/part.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static psd_status
open_file(struct psi_part_writer *writer, enum psi_checkpoint_kind kind, uint64_t bytes,
          struct psd_error *err)
{
    const struct psi_directory *directory = &writer->directory;
    char name[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_temporary_name(name, kind, writer->token);
    if (!psi_manifest_file_init(&writer->sums[kind], bytes)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save %s/%s: no memory for checksums",
                        directory->path, name);
    }
    writer->fds[kind] =
        psi_disk_open(directory->disk, directory->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (writer->fds[kind] < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "open %s/%s, which the master has made there",
                              directory->path, name);
    }
    return PSD_OK;
}

psd_status
psi_part_writer_init(struct psi_part_writer *writer, const struct psi_disk *disk, const char *path,
                     uint64_t token, const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                     struct psd_error *err)
{
    psd_status status;

    memset(writer, 0, sizeof(*writer));
    writer->token = token;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        writer->fds[kind] = -1;
    }
    status = psi_directory_open(&writer->directory, disk, path, err);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = open_file(writer, (enum psi_checkpoint_kind)kind, bytes[kind], err);
    }
    if (status != PSD_OK) {
        psi_part_writer_fini(writer);
    }
    return status;
}

void
psi_part_writer_fini(struct psi_part_writer *writer)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_disk_close(&writer->fds[kind]);
        free(writer->sums[kind].blocks);
        writer->sums[kind].blocks = NULL;
    }
    psi_directory_close(&writer->directory);
}

static psd_status
fail(const struct psi_part_writer *writer, const char *what, enum psi_checkpoint_kind kind,
     struct psd_error *err)
{
    char name[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_temporary_name(name, kind, writer->token);
    return psi_fail_errno(err, PSD_ERR_IO, "%s %s/%s", what, writer->directory.path, name);
}

psd_status
psi_part_write(struct psi_part_writer *writer, enum psi_checkpoint_kind kind, uint64_t at,
               const void *data, size_t bytes, struct psd_error *err)
{
    struct psi_manifest_file *sums = &writer->sums[kind];

    psi_assert(at <= sums->bytes && bytes <= sums->bytes - at);
    if (psi_disk_write(writer->directory.disk, writer->fds[kind], data, bytes, at) != 0) {
        return fail(writer, "write", kind, err);
    }
    psi_manifest_file_add(sums, at, data, bytes);
    writer->written[kind] += bytes;
    return PSD_OK;
}

psd_status
psi_part_sync(struct psi_part_writer *writer, struct psd_error *err)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        if (writer->written[kind] > 0 &&
            psi_disk_sync(writer->directory.disk, writer->fds[kind]) != 0) {
            return fail(writer, "sync", (enum psi_checkpoint_kind)kind, err);
        }
    }
    return PSD_OK;
}
