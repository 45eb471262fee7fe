/*
 * manifest.c - what a generation consists of: its tables, and the sizes and checksums of its files.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/manifest_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/scan.h"

const char *const psi_manifest_moments[] = {
    [PSI_MANIFEST_MOMENT_STEP] = "step",
    [PSI_MANIFEST_MOMENT_CHUNK] = "chunk",
};

const char psi_manifest_format_name[] = "poseidon-checkpoint";

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

void
psi_manifest_tail(char tail[PSI_MANIFEST_TAIL_BYTES + 1], const char *text, size_t bytes)
{
    snprintf(tail, PSI_MANIFEST_TAIL_BYTES + 1, "\"crc32c\":\"%08x\"}\n",
             psi_crc32c(0, text, bytes));
}

/* ------------------------------------------------------------------------------- formatting --- */

static void
put_file(FILE *out, const struct psi_manifest_file *file)
{
    fprintf(out, "{\"name\":\"%s\",\"bytes\":%llu,\"crc32c\":%u,\"blocks\":[", file->name,
            (unsigned long long)file->bytes, file->checksum);
    for (size_t i = 0; i < file->block_count; i++) {
        fprintf(out, "%s%u", i > 0 ? "," : "", file->blocks[i]);
    }
    fputs("],\"earlier\":[", out);
    for (size_t i = 0; i < file->earlier.count; i++) {
        const struct psi_range *range = &file->earlier.list[i];

        fprintf(out, "%s[%llu,%llu,%llu]", i > 0 ? "," : "", (unsigned long long)range->generation,
                (unsigned long long)range->begin, (unsigned long long)range->end);
    }
    fputs("]}", out);
}

static void
put_table(FILE *out, const struct psi_manifest_table *table)
{
    fputs("{\"name\":", out);
    psi_scan_quote(out, table->name);
    fputs(",\"spec\":", out);
    psi_scan_quote(out, table->spec);
    fprintf(out, ",\"updates\":%llu,\"step\":%llu,\"moment\":\"%s\"}",
            (unsigned long long)table->updates, (unsigned long long)table->step,
            psi_manifest_moments[table->moment]);
}

static void
put_part(FILE *out, const struct psi_manifest *manifest, const struct psi_manifest_part *part)
{
    char file[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_part_name(file, manifest->generation, part->name);
    fprintf(out, "{\"name\":\"%s\",\"file\":\"%s\",\"bytes\":%llu,\"crc32c\":%u}", part->name, file,
            (unsigned long long)part->bytes, part->checksum);
}

/* All but its own checksum. One table or file per line: people read it, too. */
static void
put_manifest(FILE *out, const struct psi_manifest *manifest)
{
    fprintf(out,
            "{\"format\":\"%s\",\"version\":%d,\"generation\":%llu,\"step\":%llu,"
            "\"block_bytes\":%d,\n\"tables\":[",
            psi_manifest_format_name, PSI_MANIFEST_VERSION,
            (unsigned long long)manifest->generation, (unsigned long long)manifest->step,
            PSI_MANIFEST_BLOCK_BYTES);
    for (size_t i = 0; i < manifest->table_count; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        put_table(out, &manifest->tables[i]);
    }
    fputs("],\n\"parts\":[", out);
    for (size_t i = 0; i < manifest->part_count; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        put_part(out, manifest, &manifest->parts[i]);
    }
    fputs("],\n\"files\":[", out);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        fputs(kind > 0 ? ",\n" : "\n", out);
        put_file(out, &manifest->files[kind]);
    }
    fputs("],\n", out);
}

psd_status
psi_manifest_format(const struct psi_manifest *manifest, const char *file, char **text_p,
                    size_t *bytes_p, struct psd_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bool failed = out == NULL;

    if (out != NULL) {
        put_manifest(out, manifest);
        failed = fflush(out) != 0; /* sets text and bytes */
        if (!failed) {
            char tail[PSI_MANIFEST_TAIL_BYTES + 1];

            psi_manifest_tail(tail, text, bytes);
            fputs(tail, out);
        }
        failed = ferror(out) != 0 || failed;
        failed = fclose(out) != 0 || failed;
    }
    if (failed || bytes > PSI_MANIFEST_BYTES_MAX) {
        free(text);
        return psi_fail(err, failed ? PSD_ERR_NO_MEMORY : PSD_ERR_TOO_BIG,
                        "save %s: a manifest of %zu tables does not fit", file,
                        manifest->table_count);
    }
    *text_p = text;
    *bytes_p = bytes;
    return PSD_OK;
}
