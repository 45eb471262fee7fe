/*
 * read.c - reading a generation of saved tables: only when intact.
 *
 * A generation is opened whole: manifest, every block of both data files, their heads. What did not
 * change since an earlier generation is read from that one's files. Blocks are checked again when they
 * are read, since files may rot in between.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/read.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/manifest_file.h"
#include "checkpoint/needed.h"
#include "checkpoint/safetensors.h"

enum { LABEL_BYTES = PATH_MAX + PSI_CHECKPOINT_NAME_BYTES };

/* ------------------------------------------------------------------------------- data files --- */

static const struct psi_earlier_file *
find_source(const struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind,
            uint64_t generation)
{
    const struct psi_earlier_file *source = checkpoint->sources[kind];

    while (source->generation != generation) { /* each range's is there */
        source++;
    }
    return source;
}

/* So many bytes of one file. */
static psd_status
take(const struct psi_checkpoint *checkpoint, int fd, const char *name, uint64_t at, size_t bytes,
     uint8_t *to, struct psd_error *err)
{
    return psi_disk_read(checkpoint->disk, fd, to, bytes, at) == 0
               ? PSD_OK
               : psi_input_failed(err, "read", checkpoint->path, name);
}

/* Bytes of a file into checkpoint->block, each from the generation that it lies in. */
static psd_status
gather(const struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind, uint64_t at,
       size_t bytes, struct psd_error *err)
{
    const struct psi_manifest_file *file = &checkpoint->manifest.files[kind];
    const struct psi_ranges *earlier = &file->earlier;
    const uint64_t end = at + bytes;
    size_t index = psi_ranges_find(earlier, at);
    uint8_t *to = checkpoint->block;
    psd_status status = PSD_OK;

    while (at < end && status == PSD_OK) {
        const struct psi_range *range = index < earlier->count ? &earlier->list[index] : NULL;
        uint64_t until = end;

        if (range != NULL && range->begin <= at) {
            const struct psi_earlier_file *source =
                find_source(checkpoint, kind, range->generation);

            until = range->end < end ? range->end : end;
            index++;
            status = take(checkpoint, source->fd, source->name, at, until - at, to, err);
        } else {
            until = range != NULL && range->begin < end ? range->begin : end;
            status = take(checkpoint, checkpoint->fds[kind], file->name, at, until - at, to, err);
        }
        to += until - at;
        at = until;
    }
    return status;
}

/* One block of a file into checkpoint->block, as its checksum says it was. */
static psd_status
read_block(const struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind, uint64_t index,
           size_t *bytes_p, struct psd_error *err)
{
    const struct psi_manifest_file *file = &checkpoint->manifest.files[kind];
    const uint64_t begin = index * PSI_MANIFEST_BLOCK_BYTES;
    const uint64_t rest = file->bytes - begin;
    const size_t bytes = rest < PSI_MANIFEST_BLOCK_BYTES ? (size_t)rest : PSI_MANIFEST_BLOCK_BYTES;
    psd_status status;

    status = gather(checkpoint, kind, begin, bytes, err);
    if (status != PSD_OK) {
        return status;
    }
    if (psi_crc32c(0, checkpoint->block, bytes) != file->blocks[index]) {
        return psi_fail(err, PSD_ERR_CORRUPT,
                        "%s/%s: damaged between bytes %llu and %llu: checksum does not match",
                        checkpoint->path, file->name, (unsigned long long)begin,
                        (unsigned long long)(begin + bytes));
    }
    *bytes_p = bytes;
    return PSD_OK;
}

/* What lies in earlier generations is a hole in the file itself. */
static psd_status
verify_holes(const struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind,
             struct psd_error *err)
{
    const struct psi_manifest_file *file = &checkpoint->manifest.files[kind];

    for (size_t i = 0; i < file->earlier.count; i++) {
        const struct psi_range *range = &file->earlier.list[i];
        size_t bytes;

        for (uint64_t at = range->begin; at < range->end; at += bytes) {
            psd_status status;

            bytes = range->end - at < PSI_MANIFEST_BLOCK_BYTES ? (size_t)(range->end - at)
                                                               : PSI_MANIFEST_BLOCK_BYTES;
            status = take(checkpoint, checkpoint->fds[kind], file->name, at, bytes,
                          checkpoint->block, err);
            if (status != PSD_OK) {
                return status;
            }
            if (checkpoint->block[0] != 0 ||
                memcmp(checkpoint->block, checkpoint->block + 1, bytes - 1) != 0) {
                return psi_fail(err, PSD_ERR_CORRUPT,
                                "%s/%s: damaged between bytes %llu and %llu: expected nothing "
                                "there",
                                checkpoint->path, file->name, (unsigned long long)at,
                                (unsigned long long)(at + bytes));
            }
        }
    }
    return PSD_OK;
}

static psd_status
verify_file(const struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind,
            struct psd_error *err)
{
    const struct psi_manifest_file *file = &checkpoint->manifest.files[kind];
    uint32_t checksum = 0;

    for (uint64_t index = 0; index < file->block_count; index++) {
        size_t bytes = 0;
        const psd_status status = read_block(checkpoint, kind, index, &bytes, err);

        if (status != PSD_OK) {
            return status;
        }
        checksum = psi_crc32c(checksum, checkpoint->block, bytes);
    }
    if (checksum != file->checksum) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: damaged: checksum does not match",
                        checkpoint->path, file->name);
    }
    return verify_holes(checkpoint, kind, err);
}

static psd_status
read_bytes(const struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind, uint64_t at,
           size_t bytes, uint8_t *to, struct psd_error *err)
{
    while (bytes > 0) {
        const size_t skip = (size_t)(at % PSI_MANIFEST_BLOCK_BYTES);
        size_t count = 0;
        const psd_status status =
            read_block(checkpoint, kind, at / PSI_MANIFEST_BLOCK_BYTES, &count, err);

        if (status != PSD_OK) {
            return status;
        }
        psi_assert(count > skip);
        count = count - skip < bytes ? count - skip : bytes;
        memcpy(to, checkpoint->block + skip, count);
        at += count;
        to += count;
        bytes -= count;
    }
    return PSD_OK;
}

static psd_status
read_head(struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind, struct psd_error *err)
{
    const struct psi_manifest_file *file = &checkpoint->manifest.files[kind];
    uint8_t length[PSI_SAFETENSORS_LENGTH_BYTES] = {0};
    const size_t length_bytes = file->bytes < sizeof(length) ? 0 : sizeof(length);
    char label[LABEL_BYTES];
    uint8_t *head = NULL;
    size_t bytes = 0;
    psd_status status;

    snprintf(label, sizeof(label), "%s/%s", checkpoint->path, file->name);
    status = read_bytes(checkpoint, kind, 0, length_bytes, length, err);
    if (status == PSD_OK) {
        status = psi_safetensors_head_bytes(label, length, file->bytes, &bytes, err);
    }
    if (status == PSD_OK) {
        head = malloc(bytes);
        status = head == NULL ? psi_fail(err, PSD_ERR_NO_MEMORY, "%s: no %zu bytes for its header",
                                         label, bytes)
                              : read_bytes(checkpoint, kind, 0, bytes, head, err);
    }
    if (status == PSD_OK) {
        status =
            psi_safetensors_parse(label, head, bytes, file->bytes, &checkpoint->tensors[kind], err);
    }
    free(head);
    return status;
}

static psd_status
open_source(struct psi_checkpoint *checkpoint, const struct psi_directory *directory,
            enum psi_checkpoint_kind kind, uint64_t generation, struct psd_error *err)
{
    const size_t count = checkpoint->source_count[kind];
    struct psi_earlier_file *sources =
        reallocarray(checkpoint->sources[kind], count + 1, sizeof(*sources));
    struct stat stat;

    if (sources == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "load %s: no memory", directory->path);
    }
    checkpoint->sources[kind] = sources;
    sources[count] = (struct psi_earlier_file){.generation = generation};
    sources[count].fd = psi_needed_open(directory, kind, generation, sources[count].name);
    if (sources[count].fd < 0) {
        return psi_input_failed(err, "open", checkpoint->path, sources[count].name);
    }
    checkpoint->source_count[kind]++;
    if (fstat(sources[count].fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        return psi_fail(err, PSD_ERR_CORRUPT, "open %s/%s: not a regular file", checkpoint->path,
                        sources[count].name);
    }
    return PSD_OK;
}

static psd_status
open_sources(struct psi_checkpoint *checkpoint, const struct psi_directory *directory,
             enum psi_checkpoint_kind kind, struct psd_error *err)
{
    const struct psi_ranges *earlier = &checkpoint->manifest.files[kind].earlier;
    psd_status status = PSD_OK;

    for (size_t i = 0; i < earlier->count && status == PSD_OK; i++) {
        const uint64_t generation = earlier->list[i].generation;
        size_t known = 0;

        while (known < checkpoint->source_count[kind] &&
               checkpoint->sources[kind][known].generation != generation) {
            known++;
        }
        if (known == checkpoint->source_count[kind]) {
            status = open_source(checkpoint, directory, kind, generation, err);
        }
    }
    return status;
}

static psd_status
open_file(struct psi_checkpoint *checkpoint, const struct psi_directory *directory,
          enum psi_checkpoint_kind kind, bool verify, struct psd_error *err)
{
    const struct psi_manifest_file *file = &checkpoint->manifest.files[kind];
    uint64_t bytes;
    psd_status status = psi_input_open(directory, file->name, &checkpoint->fds[kind], &bytes, err);

    if (status == PSD_OK && bytes != file->bytes) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: %llu bytes, the manifest says %llu",
                          checkpoint->path, file->name, (unsigned long long)bytes,
                          (unsigned long long)file->bytes);
    }
    if (status == PSD_OK) {
        status = open_sources(checkpoint, directory, kind, err);
    }
    if (status == PSD_OK && verify) {
        status = verify_file(checkpoint, kind, err);
    }
    return status == PSD_OK ? read_head(checkpoint, kind, err) : status;
}

/* A part of workers: its size, and all of its bytes. */
static psd_status
check_part(const struct psi_checkpoint *checkpoint, const struct psi_directory *directory,
           const struct psi_manifest_part *part, bool verify, struct psd_error *err)
{
    char name[PSI_CHECKPOINT_NAME_BYTES];
    uint32_t checksum = 0;
    uint64_t bytes = 0;
    int fd = -1;
    psd_status status;

    psi_checkpoint_part_name(name, checkpoint->manifest.generation, part->name);
    status = psi_input_open(directory, name, &fd, &bytes, err);
    if (status == PSD_OK && bytes != part->bytes) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: %llu bytes, the manifest says %llu",
                          checkpoint->path, name, (unsigned long long)bytes,
                          (unsigned long long)part->bytes);
    }
    for (uint64_t at = 0; verify && at < bytes && status == PSD_OK;) {
        const size_t count =
            bytes - at < PSI_MANIFEST_BLOCK_BYTES ? (size_t)(bytes - at) : PSI_MANIFEST_BLOCK_BYTES;

        if (psi_disk_read(checkpoint->disk, fd, checkpoint->block, count, at) != 0) {
            status = psi_input_failed(err, "read", checkpoint->path, name);
        } else {
            checksum = psi_crc32c(checksum, checkpoint->block, count);
        }
        at += count;
    }
    if (status == PSD_OK && verify && checksum != part->checksum) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: damaged: checksum does not match",
                          checkpoint->path, name);
    }
    psi_disk_close(&fd);
    return status;
}

psd_status
psi_checkpoint_read(struct psi_checkpoint *checkpoint, enum psi_checkpoint_kind kind,
                    const struct psi_tensor *tensor, uint64_t first, size_t bytes, void *to,
                    struct psd_error *err)
{
    const uint64_t data_begin = checkpoint->tensors[kind].data_begin;

    psi_assert(first <= tensor->end - tensor->begin);
    psi_assert(bytes <= tensor->end - tensor->begin - first);
    return read_bytes(checkpoint, kind, data_begin + tensor->begin + first, bytes, to, err);
}

psd_status
psi_checkpoint_read_rows(const struct psi_checkpoint *checkpoint,
                         const struct psi_manifest_rows *rows, const struct psi_rows_file *file,
                         struct psi_rows_piece **piece_p, struct psd_error *err)
{
    return psi_rows_piece_read(&checkpoint->directory, rows, file, piece_p, err);
}

/* Those of a sparse table, in this generation and before. */
static psd_status
check_rows(const struct psi_checkpoint *checkpoint, const struct psi_manifest_rows *rows,
           bool verify, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < rows->count && verify && status == PSD_OK; i++) {
        struct psi_rows_piece *piece = NULL;

        status = psi_checkpoint_read_rows(checkpoint, rows, &rows->files[i], &piece, err);
        psi_rows_piece_destroy(piece);
    }
    return status;
}

/* ------------------------------------------------------------------------------ generations --- */

static struct psi_checkpoint *
checkpoint_create(const struct psi_directory *directory, uint64_t generation)
{
    struct psi_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));

    if (checkpoint == NULL) {
        return NULL;
    }
    checkpoint->disk = directory->disk;
    checkpoint->path = directory->path;
    checkpoint->directory = *directory;
    checkpoint->directory.fd = fcntl(directory->fd, F_DUPFD_CLOEXEC, 0);
    psi_manifest_init(&checkpoint->manifest, generation);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        checkpoint->fds[kind] = -1;
    }
    checkpoint->block = malloc(PSI_MANIFEST_BLOCK_BYTES);
    if (checkpoint->block == NULL || checkpoint->directory.fd < 0) {
        psi_checkpoint_destroy(checkpoint);
        return NULL;
    }
    return checkpoint;
}

void
psi_checkpoint_destroy(struct psi_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return;
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_disk_close(&checkpoint->fds[kind]);
        while (checkpoint->source_count[kind] > 0) {
            psi_disk_close(&checkpoint->sources[kind][--checkpoint->source_count[kind]].fd);
        }
        free(checkpoint->sources[kind]);
        psi_tensors_fini(&checkpoint->tensors[kind]);
    }
    psi_directory_close(&checkpoint->directory);
    psi_manifest_fini(&checkpoint->manifest);
    free(checkpoint->block);
    free(checkpoint);
}

static psd_status
open_generation(const struct psi_directory *directory, uint64_t generation, bool verify,
                struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    struct psi_checkpoint *checkpoint = checkpoint_create(directory, generation);
    psd_status status;

    if (checkpoint == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "load %s: no memory", directory->path);
    }
    status = psi_manifest_load(&checkpoint->manifest, directory, err);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = open_file(checkpoint, directory, (enum psi_checkpoint_kind)kind, verify, err);
    }
    for (size_t i = 0; i < checkpoint->manifest.part_count && status == PSD_OK; i++) {
        status = check_part(checkpoint, directory, &checkpoint->manifest.parts[i], verify, err);
    }
    for (size_t i = 0; i < checkpoint->manifest.rows_count && status == PSD_OK; i++) {
        status = check_rows(checkpoint, &checkpoint->manifest.rows[i], verify, err);
    }
    if (status != PSD_OK) {
        psi_checkpoint_destroy(checkpoint);
        return status;
    }
    *checkpoint_p = checkpoint;
    return PSD_OK;
}

/* Newest first; err keeps what was wrong with the first one passed over. */
static psd_status
open_newest(const struct psi_directory *directory, const struct psi_generations *generations,
            struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    struct psd_error newest = {0};

    for (size_t i = 0; i < generations->count; i++) {
        struct psd_error reason = {0};
        psd_status status;

        if (generations->list[i].kind != PSI_CHECKPOINT_MANIFEST) {
            continue;
        }
        status =
            open_generation(directory, generations->list[i].number, true, checkpoint_p, &reason);
        if (status != PSD_OK && status != PSD_ERR_CORRUPT) {
            *err = reason;
            return status;
        }
        if (newest.status == PSD_OK) {
            newest = reason;
        }
        if (status == PSD_OK) {
            *err = newest;
            return PSD_OK;
        }
    }
    if (newest.status == PSD_OK) {
        return psi_fail(err, PSD_ERR_IO, "load %s: no checkpoint there", directory->path);
    }
    *err = newest;
    return newest.status;
}

psd_status
psi_checkpoint_open_one(const struct psi_disk *disk, const char *path, uint64_t generation,
                        bool verify, struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    struct psi_directory directory;
    psd_status status = psi_directory_open(&directory, disk, path, err);

    if (status == PSD_OK) {
        status = open_generation(&directory, generation, verify, checkpoint_p, err);
        psi_directory_close(&directory);
    }
    return status;
}

psd_status
psi_checkpoint_open(const struct psi_disk *disk, const char *path,
                    struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    struct psi_directory directory;
    struct psi_generations generations;
    psd_status status = psi_directory_open(&directory, disk, path, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_generations_init(&generations, &directory, err);
    if (status == PSD_OK) {
        status = open_newest(&directory, &generations, checkpoint_p, err);
        psi_generations_fini(&generations);
    }
    psi_directory_close(&directory);
    return status;
}
