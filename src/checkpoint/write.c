/*
 * write.c - writing a generation of saved tables: whole or not at all.
 *
 * Invariants
 *   - a name that psi_checkpoint_open() looks for appears only by rename, after the file's bytes
 *     are on the disk; the manifest's only after the data files' names are, too;
 *   - nothing of the two newest committed generations is touched before a newer one is committed;
 *   - a manifest goes before the files it names, so none is left without them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/write.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/lock.h"
#include "checkpoint/manifest_file.h"
#include "checkpoint/needed.h"

enum { LABEL_BYTES = PATH_MAX + PSI_CHECKPOINT_NAME_BYTES };

/* What there is of a file that would have to go if the save failed now. */
enum output_state { OUTPUT_ABSENT, OUTPUT_TEMPORARY, OUTPUT_NAMED };

struct output {
    char name[PSI_CHECKPOINT_NAME_BYTES];
    int fd;
    enum output_state state;
    uint64_t written;
};

struct psi_checkpoint_writer {
    struct psi_directory directory;
    uint64_t token; /* of what others write into; 0: nobody does */
    uint32_t kept;
    bool refers;
    uint64_t spared; /* is not removed, however old; 0: none */
    bool committed;
    struct psi_manifest manifest;
    struct output outputs[PSI_CHECKPOINT_KINDS];
};

/* -------------------------------------------------------------------------------- beginning --- */

/* What dead saves left. Temporary files are in the way, the others only take space. */
static psd_status
remove_leftovers(const struct psi_directory *directory, const struct psi_generations *generations,
                 struct psd_error *err)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        char name[PSI_CHECKPOINT_NAME_BYTES];
        psd_status status;

        psi_checkpoint_temporary_name(name, (enum psi_checkpoint_kind)kind, 0);
        status = psi_directory_remove(directory, name, err);

        if (status != PSD_OK) {
            return status;
        }
    }
    psi_generations_remove_unfinished(generations, directory);
    return PSD_OK;
}

static psd_status
begin_generation(struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    struct psi_generations generations;
    psd_status status = psi_generations_init(&generations, &writer->directory, err);

    if (status != PSD_OK) {
        return status;
    }
    psi_manifest_init(&writer->manifest, psi_generations_next(&generations));
    status = remove_leftovers(&writer->directory, &generations, err);
    psi_generations_fini(&generations);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_KINDS; kind++) {
        psi_checkpoint_name(writer->outputs[kind].name, (enum psi_checkpoint_kind)kind,
                            writer->manifest.generation);
    }
    return status;
}

static psd_status
reserve(const struct psi_checkpoint_writer *writer, const struct output *output, uint64_t bytes,
        struct psd_error *err)
{
    if (psi_disk_reserve(writer->directory.disk, output->fd, bytes) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "reserve %llu bytes for %s/%s",
                              (unsigned long long)bytes, writer->directory.path, output->name);
    }
    return PSD_OK;
}

/* What lies elsewhere is a hole. */
static psd_status
make_long(const struct psi_checkpoint_writer *writer, const struct output *output, uint64_t bytes,
          struct psd_error *err)
{
    if (psi_disk_write(writer->directory.disk, output->fd, "", 1, bytes - 1) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "write %s/%s", writer->directory.path, output->name);
    }
    return PSD_OK;
}

/* Of a data file, or of the manifest. */
static void
temporary_name(const struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
               char name[PSI_CHECKPOINT_NAME_BYTES])
{
    psi_checkpoint_temporary_name(name, kind, kind == PSI_CHECKPOINT_MANIFEST ? 0 : writer->token);
}

static psd_status
begin_file(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind, uint64_t bytes,
           struct psd_error *err)
{
    const struct psi_directory *directory = &writer->directory;
    struct psi_manifest_file *file = &writer->manifest.files[kind];
    struct output *output = &writer->outputs[kind];
    char temporary[PSI_CHECKPOINT_NAME_BYTES];

    psi_assert(bytes > 0);
    temporary_name(writer, kind, temporary);
    if (!psi_manifest_file_init(file, bytes)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save %s/%s: no memory for checksums",
                        directory->path, file->name);
    }
    psi_manifest_file_zeros(file);
    output->fd = psi_disk_open(directory->disk, directory->fd, temporary, PSI_DISK_NEW);
    if (output->fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "create %s/%s", directory->path, temporary);
    }
    output->state = OUTPUT_TEMPORARY;
    return writer->refers ? make_long(writer, output, bytes, err)
                          : reserve(writer, output, bytes, err);
}

static psd_status
begin(struct psi_checkpoint_writer *writer, const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
      struct psd_error *err)
{
    struct output *manifest = &writer->outputs[PSI_CHECKPOINT_MANIFEST];
    psd_status status = psi_checkpoint_lock(&writer->directory, &manifest->fd, err);

    if (status != PSD_OK) {
        return status;
    }
    manifest->state = OUTPUT_TEMPORARY;
    status = begin_generation(writer, err);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = begin_file(writer, (enum psi_checkpoint_kind)kind, bytes[kind], err);
    }
    return status;
}

psd_status
psi_checkpoint_writer_share(const struct psi_disk *disk, const char *path,
                            const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                            const struct psi_checkpoint_shared *shared,
                            struct psi_checkpoint_writer **writer_p, struct psd_error *err)
{
    struct psi_checkpoint_writer *writer = calloc(1, sizeof(*writer));
    psd_status status;

    if (writer == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save into %s: no memory", path);
    }
    writer->token = shared->token;
    writer->kept = shared->kept;
    writer->refers = shared->refers;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_KINDS; kind++) {
        writer->outputs[kind].fd = -1;
    }
    status = psi_directory_make(&writer->directory, disk, path, err);
    if (status == PSD_OK) {
        status = begin(writer, bytes, err);
    }
    if (status != PSD_OK) {
        psi_checkpoint_writer_destroy(writer);
        return status;
    }
    *writer_p = writer;
    return PSD_OK;
}

psd_status
psi_checkpoint_writer_create(const struct psi_disk *disk, const char *path,
                             const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
                             struct psi_checkpoint_writer **writer_p, struct psd_error *err)
{
    const struct psi_checkpoint_shared alone = {.kept = PSI_GENERATIONS_KEPT};

    return psi_checkpoint_writer_share(disk, path, bytes, &alone, writer_p, err);
}

void
psi_checkpoint_spare(struct psi_checkpoint_writer *writer, uint64_t generation)
{
    writer->spared = generation;
}

uint64_t
psi_checkpoint_generation(const struct psi_checkpoint_writer *writer)
{
    return writer->manifest.generation;
}

/* On the way out: what cannot be removed now is left for the next save. */
static void
discard(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
        enum output_state state)
{
    struct output *output = &writer->outputs[kind];

    if (output->state == state) {
        char temporary[PSI_CHECKPOINT_NAME_BYTES];

        temporary_name(writer, kind, temporary);
        (void)psi_directory_remove(&writer->directory,
                                   state == OUTPUT_NAMED ? output->name : temporary, NULL);
        output->state = OUTPUT_ABSENT;
    }
}

static void
discard_parts(struct psi_checkpoint_writer *writer)
{
    for (size_t i = 0; !writer->committed && i < writer->manifest.part_count; i++) {
        char file[PSI_CHECKPOINT_NAME_BYTES];

        psi_checkpoint_part_name(file, writer->manifest.generation, writer->manifest.parts[i].name);
        (void)psi_directory_remove(&writer->directory, file, NULL);
        psi_checkpoint_temporary_part_name(file, writer->token, writer->manifest.parts[i].name);
        (void)psi_directory_remove(&writer->directory, file, NULL);
    }
}

/* Also those that nobody has told of: their writer may have been lost. */
static void
discard_rows(struct psi_checkpoint_writer *writer)
{
    struct psi_generations generations;

    if (writer->committed || writer->token == 0 ||
        psi_generations_init(&generations, &writer->directory, NULL) != PSD_OK) {
        return;
    }
    for (size_t i = 0; i < generations.count; i++) {
        const struct psi_generation *file = &generations.list[i];

        if ((file->kind == PSI_CHECKPOINT_ROWS && file->number == writer->manifest.generation) ||
            psi_checkpoint_is_temporary_rows(file->name, writer->token)) {
            (void)psi_directory_remove(&writer->directory, file->name, NULL);
        }
    }
    psi_generations_fini(&generations);
}

void
psi_checkpoint_writer_destroy(struct psi_checkpoint_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    discard(writer, PSI_CHECKPOINT_MANIFEST, OUTPUT_NAMED);
    discard_parts(writer);
    discard_rows(writer);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        discard(writer, (enum psi_checkpoint_kind)kind, OUTPUT_NAMED);
        discard(writer, (enum psi_checkpoint_kind)kind, OUTPUT_TEMPORARY);
    }
    discard(writer, PSI_CHECKPOINT_MANIFEST, OUTPUT_TEMPORARY); /* the lock: last */
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_KINDS; kind++) {
        psi_disk_close(&writer->outputs[kind].fd);
    }
    psi_manifest_fini(&writer->manifest);
    psi_directory_close(&writer->directory);
    free(writer);
}

/* ---------------------------------------------------------------------------------- writing --- */

static psd_status
put(struct psi_checkpoint_writer *writer, struct output *output, uint64_t at, const void *data,
    size_t bytes, struct psd_error *err)
{
    if (psi_disk_write(writer->directory.disk, output->fd, data, bytes, at) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "write %s/%s", writer->directory.path, output->name);
    }
    output->written += bytes;
    return PSD_OK;
}

psd_status
psi_checkpoint_write(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
                     uint64_t at, const void *data, size_t bytes, struct psd_error *err)
{
    struct psi_manifest_file *file;
    psd_status status;

    psi_assert(kind != PSI_CHECKPOINT_MANIFEST);
    file = &writer->manifest.files[kind];
    psi_assert(at <= file->bytes && bytes <= file->bytes - at);
    status = put(writer, &writer->outputs[kind], at, data, bytes, err);
    if (status == PSD_OK) {
        psi_manifest_file_add(file, at, data, bytes);
    }
    return status;
}

psd_status
psi_checkpoint_count(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
                     const struct psi_manifest_file *sums, uint64_t written, struct psd_error *err)
{
    struct psi_manifest_file *file = &writer->manifest.files[kind];
    bool complete = true;

    psi_assert(kind != PSI_CHECKPOINT_MANIFEST && sums->block_count == file->block_count);
    file->checksum ^= sums->checksum;
    for (size_t i = 0; i < file->block_count; i++) {
        file->blocks[i] ^= sums->blocks[i];
    }
    for (size_t i = 0; i < sums->earlier.count; i++) {
        complete = complete && psi_ranges_add(&file->earlier, sums->earlier.list[i]);
    }
    writer->outputs[kind].written += written;
    return complete ? PSD_OK
                    : psi_fail(err, PSD_ERR_NO_MEMORY, "save %s/%s: no memory for references",
                               writer->directory.path, file->name);
}

/* ------------------------------------------------------------------------------- committing --- */

/* Bytes to the disk, then the name. A file that could not be synced is given up: the system may
 * have dropped what it could not write and say so only once. */
static psd_status
publish(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind, struct psd_error *err)
{
    const struct psi_directory *directory = &writer->directory;
    const struct psi_disk *disk = directory->disk;
    struct output *output = &writer->outputs[kind];
    char temporary[PSI_CHECKPOINT_NAME_BYTES];

    temporary_name(writer, kind, temporary);
    if (psi_disk_sync(disk, output->fd) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync %s/%s", directory->path, output->name);
    }
    if (disk->rename(disk->self, directory->fd, temporary, output->name) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "rename %s/%s to %s", directory->path, temporary,
                              output->name);
    }
    output->state = OUTPUT_NAMED;
    if (psi_disk_sync_directory(disk, directory->fd) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync directory %s for %s", directory->path,
                              output->name);
    }
    return PSD_OK;
}

/* A file that another process has written is as long as was told, and gets its name. */
static psd_status
publish_brought(const struct psi_checkpoint_writer *writer, const char *temporary, const char *file,
                uint64_t bytes, const char *who, struct psd_error *err)
{
    const struct psi_directory *directory = &writer->directory;
    const struct psi_disk *disk = directory->disk;
    struct stat stat;
    int fd = psi_disk_open(disk, directory->fd, temporary, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    int code;

    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "open %s/%s, which a %s has made there",
                              directory->path, temporary, who);
    }
    code = fstat(fd, &stat) != 0 ? -1 : psi_disk_sync(disk, fd);
    psi_disk_close(&fd);
    if (code == 0 && (uint64_t)stat.st_size != bytes) {
        return psi_fail(err, PSD_ERR_IO, "%s/%s: %llu bytes, its %s says %llu", directory->path,
                        temporary, (unsigned long long)stat.st_size, who,
                        (unsigned long long)bytes);
    }
    if (code == 0) {
        code = disk->rename(disk->self, directory->fd, temporary, file);
    }
    return code == 0 ? PSD_OK
                     : psi_fail_errno(err, PSD_ERR_IO, "sync %s/%s and name it %s", directory->path,
                                      temporary, file);
}

static psd_status
publish_part(const struct psi_checkpoint_writer *writer, const struct psi_manifest_part *part,
             struct psd_error *err)
{
    char temporary[PSI_CHECKPOINT_NAME_BYTES];
    char file[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_temporary_part_name(temporary, writer->token, part->name);
    psi_checkpoint_part_name(file, writer->manifest.generation, part->name);
    return publish_brought(writer, temporary, file, part->bytes, "worker", err);
}

/* One of an earlier generation is there, as long as it was. */
static psd_status
check_earlier_rows(const struct psi_checkpoint_writer *writer, const char *name,
                   const struct psi_rows_file *file, struct psd_error *err)
{
    uint64_t bytes = 0;
    int fd = -1;
    psd_status status = psi_input_open(&writer->directory, name, &fd, &bytes, err);

    psi_disk_close(&fd);
    if (status == PSD_OK && bytes != file->bytes) {
        status = psi_fail(err, PSD_ERR_IO, "%s/%s: %llu bytes, the new generation refers to %llu",
                          writer->directory.path, name, (unsigned long long)bytes,
                          (unsigned long long)file->bytes);
    }
    return status;
}

static psd_status
publish_rows(const struct psi_checkpoint_writer *writer, const struct psi_manifest_rows *rows,
             struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < rows->count && status == PSD_OK; i++) {
        const struct psi_rows_file *file = &rows->files[i];
        char temporary[PSI_CHECKPOINT_NAME_BYTES];
        char name[PSI_CHECKPOINT_NAME_BYTES];

        psi_checkpoint_rows_name(name, file->generation, file->place, file->number);
        if (file->generation != writer->manifest.generation) {
            status = check_earlier_rows(writer, name, file, err);
            continue;
        }
        psi_checkpoint_temporary_rows_name(temporary, writer->token, file->place, file->number);
        status = publish_brought(writer, temporary, name, file->bytes, "server", err);
    }
    return status;
}

static psd_status
publish_all_brought(const struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    const struct psi_manifest *manifest = &writer->manifest;
    const struct psi_directory *directory = &writer->directory;
    psd_status status = PSD_OK;

    for (size_t i = 0; i < manifest->part_count && status == PSD_OK; i++) {
        status = publish_part(writer, &manifest->parts[i], err);
    }
    for (size_t i = 0; i < manifest->rows_count && status == PSD_OK; i++) {
        status = publish_rows(writer, &manifest->rows[i], err);
    }
    if (status == PSD_OK && manifest->part_count + manifest->rows_count > 0 &&
        psi_disk_sync_directory(directory->disk, directory->fd) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "sync directory %s for what others have written",
                                directory->path);
    }
    return status;
}

psd_status
psi_checkpoint_bring_rows(struct psi_checkpoint_writer *writer,
                          const struct psi_manifest_rows *rows, struct psd_error *err)
{
    struct psi_manifest_rows *added =
        psi_manifest_add_rows(&writer->manifest, rows->table, &rows->form);
    psd_status status =
        added != NULL ? PSD_OK
                      : psi_fail(err, PSD_ERR_NO_MEMORY, "save table %s: no memory", rows->table);

    for (size_t i = 0; i < rows->count && status == PSD_OK; i++) {
        status = psi_manifest_add_rows_file(added, &rows->files[i], err);
    }
    return status;
}

psd_status
psi_checkpoint_bring(struct psi_checkpoint_writer *writer, const struct psi_manifest_part *part,
                     struct psd_error *err)
{
    return psi_manifest_add_part(&writer->manifest, part, err);
}

static psd_status
set_tables(struct psi_manifest *manifest, const struct psi_manifest_table *tables, size_t count,
           struct psd_error *err)
{
    manifest->tables = calloc(count + 1, sizeof(tables[0]));
    if (manifest->tables == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save: no memory for a manifest of %zu tables",
                        count);
    }
    memcpy(manifest->tables, tables, count * sizeof(tables[0]));
    manifest->table_count = count;
    return PSD_OK;
}

static psd_status
write_manifest(struct psi_checkpoint_writer *writer, struct psd_error *err)
{
    struct output *output = &writer->outputs[PSI_CHECKPOINT_MANIFEST];
    char label[LABEL_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    psd_status status;

    snprintf(label, sizeof(label), "%s/%s", writer->directory.path, output->name);
    status = psi_manifest_format(&writer->manifest, label, &text, &bytes, err);
    if (status == PSD_OK) {
        status = reserve(writer, output, bytes, err);
    }
    if (status == PSD_OK) {
        status = put(writer, output, 0, text, bytes, err);
    }
    free(text);
    return status == PSD_OK ? publish(writer, PSI_CHECKPOINT_MANIFEST, err) : status;
}

/* What others referred to is there, and the file has the name of one that refers. */
static psd_status
settle_earlier(struct psi_checkpoint_writer *writer, enum psi_checkpoint_kind kind,
               struct psd_error *err)
{
    struct psi_manifest_file *file = &writer->manifest.files[kind];
    psd_status status = PSD_OK;

    if (!psi_ranges_settle(&file->earlier)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "save %s/%s: two servers refer to the same bytes",
                        writer->directory.path, file->name);
    }
    if (file->earlier.count > 0) {
        psi_checkpoint_changes_name(file->name, kind, writer->manifest.generation);
        memcpy(writer->outputs[kind].name, file->name, sizeof(file->name));
        status = psi_needed_check(&writer->directory, kind, &file->earlier, err);
    }
    return status;
}

psd_status
psi_checkpoint_commit(struct psi_checkpoint_writer *writer, uint64_t step,
                      const struct psi_manifest_table *tables, size_t count, struct psd_error *err)
{
    struct psi_manifest *manifest = &writer->manifest;
    psd_status status = set_tables(manifest, tables, count, err);

    manifest->step = step;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = settle_earlier(writer, (enum psi_checkpoint_kind)kind, err);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        psi_assert(writer->outputs[kind].written == manifest->files[kind].bytes);
        status = publish(writer, (enum psi_checkpoint_kind)kind, err);
    }
    if (status == PSD_OK) {
        status = publish_all_brought(writer, err);
    }
    if (status == PSD_OK) {
        status = write_manifest(writer, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_KINDS; kind++) {
        writer->outputs[kind].state = OUTPUT_ABSENT; /* no longer ours to discard */
    }
    writer->committed = true;
    /* The save has succeeded, whatever becomes of the old ones. */
    psi_needed_remove_others(&writer->directory, writer->kept, writer->spared);
    return PSD_OK;
}
