/*
 * part.c - writing a part of a generation that another process begins and commits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/part.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "checkpoint/needed.h"

static psd_status
open_file(struct psi_part_writer *writer, enum psi_checkpoint_kind kind, uint64_t bytes,
          struct psd_error *err)
{
    const struct psi_directory *directory = &writer->directory;
    char name[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_temporary_name(name, kind, writer->order.token);
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
                     const struct psi_part_order *order, struct psi_earlier *earlier,
                     struct psd_error *err)
{
    psd_status status;

    memset(writer, 0, sizeof(*writer));
    writer->order = *order;
    writer->earlier = earlier;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        writer->fds[kind] = -1;
    }
    status = psi_directory_open(&writer->directory, disk, path, err);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = open_file(writer, (enum psi_checkpoint_kind)kind, order->bytes[kind], err);
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
        psi_manifest_file_fini(&writer->sums[kind]);
        psi_ranges_fini(&writer->referred[kind]);
    }
    while (writer->source_count > 0) {
        psi_disk_close(&writer->sources[--writer->source_count].fd);
    }
    free(writer->buffer);
    writer->buffer = NULL;
    psi_directory_close(&writer->directory);
}

static psd_status
fail(const struct psi_part_writer *writer, const char *what, enum psi_checkpoint_kind kind,
     struct psd_error *err)
{
    char name[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_temporary_name(name, kind, writer->order.token);
    return psi_fail_errno(err, PSD_ERR_IO, "%s %s/%s", what, writer->directory.path, name);
}

/* -1: it is gone, or there are too many. */
static int
open_source(struct psi_part_writer *writer, uint64_t generation, enum psi_checkpoint_kind kind)
{
    struct psi_part_source *source;
    char name[PSI_CHECKPOINT_NAME_BYTES];

    for (unsigned i = 0; i < writer->source_count; i++) {
        source = &writer->sources[i];
        if (source->generation == generation && source->kind == kind) {
            return source->fd;
        }
    }
    if (writer->source_count == PSI_PART_SOURCES_MAX) {
        return -1;
    }
    source = &writer->sources[writer->source_count++];
    *source = (struct psi_part_source){.generation = generation, .kind = kind};
    source->fd = psi_needed_open(&writer->directory, kind, generation, name);
    return source->fd;
}

/* Are these bytes in the earlier file, too? Who cannot tell writes them. */
static bool
is_there(struct psi_part_writer *writer, enum psi_checkpoint_kind kind,
         const struct psi_piece *piece, const void *data)
{
    const int fd = open_source(writer, piece->generation, kind);

    if (fd < 0) {
        return false;
    }
    if (writer->buffer_bytes < piece->bytes) {
        free(writer->buffer);
        writer->buffer = malloc(piece->bytes);
        writer->buffer_bytes = writer->buffer == NULL ? 0 : piece->bytes;
    }
    return writer->buffer != NULL &&
           psi_disk_read(writer->directory.disk, fd, writer->buffer, piece->bytes, piece->at) ==
               0 &&
           memcmp(writer->buffer, data, piece->bytes) == 0;
}

/* Finds the piece in an earlier generation and refers to it. False: it has to be written. */
static bool
refer(struct psi_part_writer *writer, enum psi_checkpoint_kind kind, struct psi_piece *piece,
      const void *data)
{
    const struct psi_piece *known =
        psi_earlier_find(writer->earlier, kind, piece->at, piece->bytes, piece->checksum);
    struct psi_range range;

    if (known == NULL || !is_there(writer, kind, known, data)) {
        return false;
    }
    range = (struct psi_range){known->generation, piece->at, piece->at + piece->bytes};
    piece->generation = known->generation;
    return psi_ranges_add(&writer->referred[kind], range);
}

/* Of a processor, by this thread. */
static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

psd_status
psi_part_write(struct psi_part_writer *writer, enum psi_checkpoint_kind kind, uint64_t at,
               const void *data, size_t bytes, struct psd_error *err)
{
    struct psi_manifest_file *sums = &writer->sums[kind];
    struct psi_piece piece = {
        .at = at, .generation = writer->order.generation, .bytes = (uint32_t)bytes};

    const uint64_t begin_ns = now_ns();
    uint64_t checked_ns;
    bool referred;

    psi_assert(at <= sums->bytes && bytes <= sums->bytes - at && bytes <= UINT32_MAX);
    piece.checksum = psi_manifest_file_add(sums, at, data, bytes);
    referred = writer->earlier != NULL && refer(writer, kind, &piece, data);
    checked_ns = now_ns();
    writer->check_ns += checked_ns - begin_ns;
    if (!referred) {
        piece.generation = writer->order.generation;
        if (psi_disk_write(writer->directory.disk, writer->fds[kind], data, bytes, at) != 0) {
            return fail(writer, "write", kind, err);
        }
    }
    writer->write_ns += now_ns() - checked_ns;
    if (writer->earlier != NULL) {
        psi_earlier_add(writer->earlier, kind, piece);
    }
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
