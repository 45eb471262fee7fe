/*
 * manifest.c - what a generation consists of: its tables, and the sizes and checksums of its files.
 *
 * A manifest's own checksum is right before anything else in it is looked at, but may have been
 * made right by an enemy: so the rest is not believed either.
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
#include "checkpoint/scan.h"

enum {
    FORMAT_VERSION = 3,
    FORMAT_VERSION_READ = 1,   /* and all since; 1 does not tell a table's moment */
    FORMAT_VERSION_MOMENT = 2, /* the first that does */
    FORMAT_VERSION_PARTS = 3,  /* the first with parts of workers */
    TAIL_BYTES = 21,
};

static const char *const moment_names[] = {
    [PSI_MANIFEST_MOMENT_STEP] = "step",
    [PSI_MANIFEST_MOMENT_CHUNK] = "chunk",
};

static const char format_name[] = "poseidon-checkpoint";

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
        free(manifest->files[kind].blocks);
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

void
psi_manifest_file_add(struct psi_manifest_file *file, uint64_t at, const void *data, size_t bytes)
{
    const uint8_t *from = data;

    while (bytes > 0) {
        const uint64_t rest = block_end(file, at) - at;
        const size_t count = bytes < rest ? bytes : (size_t)rest;
        const uint32_t crc = psi_crc32c(0, from, count);

        file->blocks[at / PSI_MANIFEST_BLOCK_BYTES] ^= psi_crc32c_change(crc, count, rest - count);
        file->checksum ^= psi_crc32c_change(crc, count, file->bytes - at - count);
        at += count;
        from += count;
        bytes -= count;
    }
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

/* Its last field: the checksum of what comes before. */
static void
make_tail(char tail[TAIL_BYTES + 1], const char *text, size_t bytes)
{
    snprintf(tail, TAIL_BYTES + 1, "\"crc32c\":\"%08x\"}\n", psi_crc32c(0, text, bytes));
}

/* ---------------------------------------------------------------------------------- parsing --- */

static bool
read_field(struct psi_scan *scan, bool *first_p, const char *expected)
{
    char key[32];

    if (!psi_scan_more(scan, '}', first_p)) {
        return psi_scan_fail(scan, "a field is missing");
    }
    if (!psi_scan_string(scan, key, sizeof(key))) {
        return false;
    }
    if (strcmp(key, expected) != 0) {
        return psi_scan_fail(scan, "unexpected field");
    }
    return psi_scan_take(scan, ':');
}

static void
read_text(struct psi_scan *scan, bool *first_p, const char *key, char *text, size_t size)
{
    if (read_field(scan, first_p, key)) {
        psi_scan_string(scan, text, size);
    }
}

static uint64_t
read_number(struct psi_scan *scan, bool *first_p, const char *key)
{
    uint64_t value = 0;

    if (read_field(scan, first_p, key)) {
        psi_scan_number(scan, &value);
    }
    return value;
}

/* A number that can only be this one. */
static void
read_constant(struct psi_scan *scan, bool *first_p, const char *key, uint64_t expected)
{
    if (read_number(scan, first_p, key) != expected) {
        psi_scan_fail(scan, key);
    }
}

static enum psi_manifest_moment
read_moment(struct psi_scan *scan, bool *first_p)
{
    char text[32] = "";

    read_text(scan, first_p, "moment", text, sizeof(text));
    if (strcmp(text, moment_names[PSI_MANIFEST_MOMENT_CHUNK]) == 0) {
        return PSI_MANIFEST_MOMENT_CHUNK;
    }
    if (strcmp(text, moment_names[PSI_MANIFEST_MOMENT_STEP]) != 0) {
        psi_scan_fail(scan, "moment");
    }
    return PSI_MANIFEST_MOMENT_STEP;
}

static void
read_tables(struct psi_scan *scan, struct psi_manifest *manifest, uint64_t version)
{
    size_t capacity = 0;

    psi_scan_take(scan, '[');
    for (bool first = true; psi_scan_more(scan, ']', &first);) {
        struct psi_manifest_table *table;
        bool first_field = true;

        if (manifest->table_count == capacity) {
            capacity = capacity * 2 + 16;
            table = reallocarray(manifest->tables, capacity, sizeof(*table));
            if (table == NULL) {
                psi_scan_no_memory(scan);
                return;
            }
            manifest->tables = table;
        }
        table = &manifest->tables[manifest->table_count++];
        memset(table, 0, sizeof(*table));
        psi_scan_take(scan, '{');
        read_text(scan, &first_field, "name", table->name, sizeof(table->name));
        read_text(scan, &first_field, "spec", table->spec, sizeof(table->spec));
        table->updates = read_number(scan, &first_field, "updates");
        table->step = read_number(scan, &first_field, "step");
        if (version >= FORMAT_VERSION_MOMENT) {
            table->moment = read_moment(scan, &first_field);
        }
        psi_scan_take(scan, '}');
    }
}

/* The file's name follows from the part's: a manifest cannot point elsewhere. */
static void
read_part(struct psi_scan *scan, struct psi_manifest *manifest)
{
    struct psi_manifest_part part = {0};
    char expected[PSI_CHECKPOINT_NAME_BYTES];
    char file[PSI_CHECKPOINT_NAME_BYTES] = "";
    uint64_t checksum;
    bool first = true;

    psi_scan_take(scan, '{');
    read_text(scan, &first, "name", part.name, sizeof(part.name));
    read_text(scan, &first, "file", file, sizeof(file));
    part.bytes = read_number(scan, &first, "bytes");
    checksum = read_number(scan, &first, "crc32c");
    psi_scan_take(scan, '}');
    psi_checkpoint_part_name(expected, manifest->generation, part.name);
    if (strcmp(file, expected) != 0) {
        psi_scan_fail(scan, "name of another file");
    }
    if (checksum > UINT32_MAX) {
        psi_scan_fail(scan, "checksum beyond 32 bits");
    }
    part.checksum = (uint32_t)checksum;
    if (scan->status == PSD_OK) {
        switch (psi_manifest_add_part(manifest, &part, NULL)) {
        case PSD_OK:
            break;
        case PSD_ERR_NO_MEMORY:
            psi_scan_no_memory(scan);
            break;
        default:
            psi_scan_fail(scan, "part that cannot be");
        }
    }
}

static void
read_parts(struct psi_scan *scan, struct psi_manifest *manifest)
{
    psi_scan_take(scan, '[');
    for (bool first = true; psi_scan_more(scan, ']', &first);) {
        read_part(scan, manifest);
    }
}

static void
read_blocks(struct psi_scan *scan, struct psi_manifest_file *file)
{
    size_t capacity = 0;

    psi_scan_take(scan, '[');
    for (bool first = true; psi_scan_more(scan, ']', &first);) {
        uint64_t block = 0;

        if (file->block_count == capacity) {
            uint32_t *blocks;

            capacity = capacity * 2 + 64;
            blocks = reallocarray(file->blocks, capacity, sizeof(*blocks));
            if (blocks == NULL) {
                psi_scan_no_memory(scan);
                return;
            }
            file->blocks = blocks;
        }
        psi_scan_number(scan, &block);
        if (block > UINT32_MAX) {
            psi_scan_fail(scan, "checksum beyond 32 bits");
        }
        file->blocks[file->block_count++] = (uint32_t)block;
    }
    if (file->block_count != psi_manifest_blocks(file->bytes)) {
        psi_scan_fail(scan, "blocks do not add up to bytes");
    }
}

/* The name must be the one expected: a manifest cannot point elsewhere. */
static void
read_file_entry(struct psi_scan *scan, struct psi_manifest_file *file)
{
    char name[sizeof(file->name)] = "";
    bool first = true;
    uint64_t checksum;

    psi_scan_take(scan, '{');
    read_text(scan, &first, "name", name, sizeof(name));
    if (strcmp(name, file->name) != 0) {
        psi_scan_fail(scan, "name of another file");
    }
    file->bytes = read_number(scan, &first, "bytes");
    checksum = read_number(scan, &first, "crc32c");
    if (checksum > UINT32_MAX) {
        psi_scan_fail(scan, "checksum beyond 32 bits");
    }
    file->checksum = (uint32_t)checksum;
    if (read_field(scan, &first, "blocks")) {
        read_blocks(scan, file);
    }
    psi_scan_take(scan, '}');
}

static void
read_manifest(struct psi_scan *scan, struct psi_manifest *manifest)
{
    char text[32] = "";
    bool first = true;
    uint64_t version;

    psi_scan_take(scan, '{');
    read_text(scan, &first, "format", text, sizeof(text));
    if (strcmp(text, format_name) != 0) {
        psi_scan_fail(scan, "not a manifest of a checkpoint");
    }
    version = read_number(scan, &first, "version");
    if (version < FORMAT_VERSION_READ || version > FORMAT_VERSION) {
        psi_scan_fail(scan, "version");
    }
    read_constant(scan, &first, "generation", manifest->generation);
    manifest->step = read_number(scan, &first, "step");
    read_constant(scan, &first, "block_bytes", PSI_MANIFEST_BLOCK_BYTES);
    if (read_field(scan, &first, "tables")) {
        read_tables(scan, manifest, version);
    }
    if (version >= FORMAT_VERSION_PARTS && read_field(scan, &first, "parts")) {
        read_parts(scan, manifest);
    }
    if (read_field(scan, &first, "files")) {
        psi_scan_take(scan, '[');
        read_file_entry(scan, &manifest->files[PSI_CHECKPOINT_PARAMS]);
        psi_scan_take(scan, ',');
        read_file_entry(scan, &manifest->files[PSI_CHECKPOINT_STATE]);
        psi_scan_take(scan, ']');
    }
    read_text(scan, &first, "crc32c", text, sizeof(text));
    psi_scan_take(scan, '}');
    psi_scan_end(scan);
}

psd_status
psi_manifest_parse(struct psi_manifest *manifest, const char *file, const char *text, size_t bytes,
                   struct psd_error *err)
{
    char tail[TAIL_BYTES + 1];
    struct psi_scan scan;

    if (bytes < TAIL_BYTES) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: only %zu bytes", file, bytes);
    }
    make_tail(tail, text, bytes - TAIL_BYTES);
    if (memcmp(text + bytes - TAIL_BYTES, tail, TAIL_BYTES) != 0) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: its checksum does not match", file);
    }
    psi_scan_init(&scan, file, text, bytes, err);
    read_manifest(&scan, manifest);
    return scan.status;
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
            moment_names[table->moment]);
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
            format_name, FORMAT_VERSION, (unsigned long long)manifest->generation,
            (unsigned long long)manifest->step, PSI_MANIFEST_BLOCK_BYTES);
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
            char tail[TAIL_BYTES + 1];

            make_tail(tail, text, bytes);
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
