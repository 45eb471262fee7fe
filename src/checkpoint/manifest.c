/*
 * manifest.c - what a generation consists of: its tables, and the sizes and checksums of its files.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/manifest.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"

void
psi_manifest_init(struct psi_manifest *manifest, uint64_t generation)
{
    memset(manifest, 0, sizeof(*manifest));
    manifest->generation = generation;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_checkpoint_name(manifest->files[kind].name, (enum psi_checkpoint_kind)kind, generation);
    }
}

void
psi_manifest_fini(struct psi_manifest *manifest)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_manifest_file_fini(&manifest->files[kind]);
    }
    free(manifest->tables);
    free(manifest->parts);
    for (size_t i = 0; i < manifest->rows_count; i++) {
        free(manifest->rows[i].files);
    }
    free(manifest->rows);
    memset(manifest, 0, sizeof(*manifest));
}

uint64_t
psi_manifest_blocks(uint64_t bytes)
{
    return bytes / PSI_MANIFEST_BLOCK_BYTES + (bytes % PSI_MANIFEST_BLOCK_BYTES != 0);
}

bool
psi_manifest_file_init(struct psi_manifest_file *file, uint64_t bytes)
{
    file->bytes = bytes;
    file->checksum = 0;
    file->block_count = psi_manifest_blocks(bytes);
    file->blocks = calloc(file->block_count + 1, sizeof(file->blocks[0]));
    return file->blocks != NULL;
}

void
psi_manifest_file_fini(struct psi_manifest_file *file)
{
    free(file->blocks);
    file->blocks = NULL;
    file->block_count = 0;
    psi_ranges_fini(&file->earlier);
}

static uint64_t
block_end(const struct psi_manifest_file *file, uint64_t at)
{
    const uint64_t end = (at / PSI_MANIFEST_BLOCK_BYTES + 1) * PSI_MANIFEST_BLOCK_BYTES;

    return end < file->bytes ? end : file->bytes;
}

void
psi_manifest_file_zeros(struct psi_manifest_file *file)
{
    file->checksum ^= psi_crc32c_zeros(file->bytes);
    for (uint64_t at = 0; at < file->bytes; at += PSI_MANIFEST_BLOCK_BYTES) {
        file->blocks[at / PSI_MANIFEST_BLOCK_BYTES] ^= psi_crc32c_zeros(block_end(file, at) - at);
    }
}

uint32_t
psi_manifest_file_add(struct psi_manifest_file *file, uint64_t at, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    uint32_t sum = 0;

    while (bytes > 0) {
        const uint64_t rest = block_end(file, at) - at;
        const size_t count = bytes < rest ? bytes : (size_t)rest;
        const uint32_t crc = psi_crc32c(0, from, count);

        file->blocks[at / PSI_MANIFEST_BLOCK_BYTES] ^= psi_crc32c_change(crc, count, rest - count);
        file->checksum ^= psi_crc32c_change(crc, count, file->bytes - at - count);
        sum ^= psi_crc32c_change(crc, count, bytes - count);
        at += count;
        from += count;
        bytes -= count;
    }
    return sum;
}

const struct psi_manifest_table *
psi_manifest_table(const struct psi_manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->table_count; i++) {
        if (strcmp(manifest->tables[i].name, name) == 0) {
            return &manifest->tables[i];
        }
    }
    return NULL;
}

/* ---- Rows of sparse tables ---- */

const struct psi_manifest_rows *
psi_manifest_rows(const struct psi_manifest *manifest, const char *table)
{
    for (size_t i = 0; i < manifest->rows_count; i++) {
        if (strcmp(manifest->rows[i].table, table) == 0) {
            return &manifest->rows[i];
        }
    }
    return NULL;
}

struct psi_manifest_rows *
psi_manifest_add_rows(struct psi_manifest *manifest, const char *table,
                      const struct psi_row_form *form)
{
    struct psi_manifest_rows *rows =
        reallocarray(manifest->rows, manifest->rows_count + 1, sizeof(*rows));

    if (rows == NULL) {
        return NULL;
    }
    manifest->rows = rows;
    rows += manifest->rows_count++;
    *rows = (struct psi_manifest_rows){.form = *form};
    snprintf(rows->table, sizeof(rows->table), "%s", table);
    return rows;
}

psd_status
psi_manifest_add_rows_file(struct psi_manifest_rows *rows, const struct psi_rows_file *file,
                           struct psd_error *err)
{
    if (file->first_bucket > file->end_bucket || file->end_bucket > 1u << rows->form.bucket_bits ||
        file->bytes == 0 || file->bytes > PSI_ROWS_FILE_BYTES_MAX ||
        file->count.cleared > 1u << rows->form.bucket_bits ||
        (file->count.counted > 0 && rows->form.counter_bytes == 0)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: file %u of place %u: buckets %u to %u, %llu bytes", rows->table,
                        file->number, file->place, file->first_bucket, file->end_bucket,
                        (unsigned long long)file->bytes);
    }
    if (rows->count == PSI_ROWS_FILES_MAX) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "table %s: its rows are in more than %d files",
                        rows->table, PSI_ROWS_FILES_MAX);
    }
    if (rows->count == rows->capacity) {
        const size_t capacity = rows->capacity * 2 + 16;
        struct psi_rows_file *files = reallocarray(rows->files, capacity, sizeof(*files));

        if (files == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for a list of files",
                            rows->table);
        }
        rows->files = files;
        rows->capacity = capacity;
    }
    rows->files[rows->count++] = *file;
    return PSD_OK;
}

psd_status
psi_manifest_add_part(struct psi_manifest *manifest, const struct psi_manifest_part *part,
                      struct psd_error *err)
{
    struct psi_manifest_part *parts;

    if (!psi_checkpoint_part_name_fits(part->name)) {
        return psi_fail(err, PSD_ERR_INVALID, "part '%.60s': not a name for a part", part->name);
    }
    if (manifest->part_count == PSI_MANIFEST_PARTS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "part %s: %d are there already", part->name,
                        PSI_MANIFEST_PARTS_MAX);
    }
    for (size_t i = 0; i < manifest->part_count; i++) {
        if (strcmp(manifest->parts[i].name, part->name) == 0) {
            return psi_fail(err, PSD_ERR_INVALID, "part %s is there twice", part->name);
        }
    }
    parts = reallocarray(manifest->parts, manifest->part_count + 1, sizeof(*parts));
    if (parts == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "part %s: no memory", part->name);
    }
    manifest->parts = parts;
    parts[manifest->part_count++] = *part;
    return PSD_OK;
}
