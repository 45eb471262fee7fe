/*
 * manifest_parse.c - reads the text of a manifest.
 *
 * A manifest's own checksum is right before anything else in it is looked at, but may have been
 * made right by an enemy: so the rest is not believed either.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/manifest_text.h"
#include "checkpoint/scan.h"
#include "shard/bucket.h"
#include "table/dtype.h"
#include "table/rule.h"

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
    if (strcmp(text, psi_manifest_moments[PSI_MANIFEST_MOMENT_CHUNK]) == 0) {
        return PSI_MANIFEST_MOMENT_CHUNK;
    }
    if (strcmp(text, psi_manifest_moments[PSI_MANIFEST_MOMENT_STEP]) != 0) {
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
        if (version >= PSI_MANIFEST_VERSION_MOMENT) {
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

/* At most so much. */
static uint32_t
read_small(struct psi_scan *scan, bool *first_p, const char *key, uint32_t max)
{
    const uint64_t value = read_number(scan, first_p, key);

    if (value > max) {
        psi_scan_fail(scan, key);
        return 0;
    }
    return (uint32_t)value;
}

static void
read_buckets(struct psi_scan *scan, bool *first_p, struct psi_rows_file *file)
{
    uint64_t first = 0;
    uint64_t end = 0;

    if (read_field(scan, first_p, "buckets")) {
        psi_scan_take(scan, '[');
        psi_scan_number(scan, &first);
        psi_scan_take(scan, ',');
        psi_scan_number(scan, &end);
        psi_scan_take(scan, ']');
    }
    if (first > UINT32_MAX || end > UINT32_MAX) {
        psi_scan_fail(scan, "buckets");
    }
    file->first_bucket = (uint32_t)first;
    file->end_bucket = (uint32_t)end;
}

/* The file's name follows from its numbers: a manifest cannot point elsewhere. */
static void
read_rows_file(struct psi_scan *scan, struct psi_manifest_rows *rows, uint64_t generation)
{
    struct psi_rows_file file = {0};
    char expected[PSI_CHECKPOINT_NAME_BYTES];
    char name[PSI_CHECKPOINT_NAME_BYTES] = "";
    bool first = true;

    psi_scan_take(scan, '{');
    read_text(scan, &first, "file", name, sizeof(name));
    file.generation = read_number(scan, &first, "generation");
    file.place = read_small(scan, &first, "place", UINT32_MAX);
    file.number = read_small(scan, &first, "number", UINT32_MAX);
    read_buckets(scan, &first, &file);
    file.count.rows = read_small(scan, &first, "rows", UINT32_MAX);
    file.count.cleared = read_small(scan, &first, "cleared", UINT32_MAX);
    file.count.counted = read_small(scan, &first, "counted", UINT32_MAX);
    file.bytes = read_number(scan, &first, "bytes");
    file.checksum = read_small(scan, &first, "crc32c", UINT32_MAX);
    psi_scan_take(scan, '}');
    psi_checkpoint_rows_name(expected, file.generation, file.place, file.number);
    if (file.generation == 0 || file.generation > generation || strcmp(name, expected) != 0) {
        psi_scan_fail(scan, "name of another file");
    }
    if (scan->status == PSD_OK) {
        switch (psi_manifest_add_rows_file(rows, &file, NULL)) {
        case PSD_OK:
            break;
        case PSD_ERR_NO_MEMORY:
            psi_scan_no_memory(scan);
            break;
        default:
            psi_scan_fail(scan, "file of rows that cannot be");
        }
    }
}

static psd_dtype
read_dtype(struct psi_scan *scan, bool *first_p)
{
    static const psd_dtype dtypes[] = {PSD_F32, PSD_F16, PSD_BF16};
    char text[32] = "";

    read_text(scan, first_p, "dtype", text, sizeof(text));
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(text, psi_dtype_name(dtypes[i])) == 0) {
            return dtypes[i];
        }
    }
    psi_scan_fail(scan, "type that rows cannot have");
    return PSD_F32;
}

static psd_rule
read_rule(struct psi_scan *scan, bool *first_p)
{
    char text[32] = "";

    read_text(scan, first_p, "rule", text, sizeof(text));
    for (unsigned rule = 0; rule < PSI_RULES; rule++) {
        if (strcmp(text, psi_rule_name((psd_rule)rule)) == 0) {
            return (psd_rule)rule;
        }
    }
    psi_scan_fail(scan, "unknown rule");
    return PSD_RULE_SGD;
}

static void
read_form(struct psi_scan *scan, bool *first_p, struct psi_row_form *form)
{
    form->dtype = read_dtype(scan, first_p);
    form->rule = read_rule(scan, first_p);
    form->width = read_small(scan, first_p, "width", PSD_WIDTH_MAX);
    form->row_wise = read_small(scan, first_p, "row_wise", 1);
    form->bucket_bits = read_small(scan, first_p, "bucket_bits", PSI_BUCKET_BITS_MAX);
    form->counter_bytes = read_small(scan, first_p, "counter_bytes", PSI_ROWS_FILE_BYTES_MAX);
    if (form->width == 0 || form->bucket_bits == 0 ||
        (form->row_wise != 0 && psi_rule_states(form->rule) == 0)) {
        psi_scan_fail(scan, "rows that cannot be");
    }
}

static void
read_rows(struct psi_scan *scan, struct psi_manifest *manifest)
{
    psi_scan_take(scan, '[');
    for (bool first = true; psi_scan_more(scan, ']', &first);) {
        char table[PSD_NAME_MAX + 1] = "";
        struct psi_row_form form = {0};
        struct psi_manifest_rows *rows;
        bool first_field = true;

        psi_scan_take(scan, '{');
        read_text(scan, &first_field, "table", table, sizeof(table));
        read_form(scan, &first_field, &form);
        if (psi_manifest_rows(manifest, table) != NULL) {
            psi_scan_fail(scan, "table that is there twice");
        }
        rows = psi_manifest_add_rows(manifest, table, &form);
        if (rows == NULL) {
            psi_scan_no_memory(scan);
            return;
        }
        if (read_field(scan, &first_field, "files")) {
            psi_scan_take(scan, '[');
            for (bool first_file = true; psi_scan_more(scan, ']', &first_file);) {
                read_rows_file(scan, rows, manifest->generation);
            }
        }
        psi_scan_take(scan, '}');
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

/* [generation, begin, end], each before the next, of generations before this one. */
static void
read_earlier(struct psi_scan *scan, struct psi_manifest_file *file, uint64_t generation)
{
    psi_scan_take(scan, '[');
    for (bool first = true; psi_scan_more(scan, ']', &first);) {
        struct psi_range range = {0};

        psi_scan_take(scan, '[');
        psi_scan_number(scan, &range.generation);
        psi_scan_take(scan, ',');
        psi_scan_number(scan, &range.begin);
        psi_scan_take(scan, ',');
        psi_scan_number(scan, &range.end);
        psi_scan_take(scan, ']');
        if (range.generation == 0 || range.generation >= generation || range.begin >= range.end ||
            range.end > file->bytes ||
            (file->earlier.count > 0 &&
             range.begin < file->earlier.list[file->earlier.count - 1].end)) {
            psi_scan_fail(scan, "bytes that cannot be of an earlier generation");
        } else if (!psi_ranges_add(&file->earlier, range)) {
            psi_scan_no_memory(scan);
        }
    }
}

/* The name must be one of two: a manifest cannot point elsewhere. */
static void
read_file_entry(struct psi_scan *scan, struct psi_manifest *manifest, enum psi_checkpoint_kind kind,
                uint64_t version)
{
    struct psi_manifest_file *file = &manifest->files[kind];
    char changes[sizeof(file->name)];
    char name[sizeof(file->name)] = "";
    bool first = true;
    uint64_t checksum;

    psi_scan_take(scan, '{');
    read_text(scan, &first, "name", name, sizeof(name));
    psi_checkpoint_changes_name(changes, kind, manifest->generation);
    if (strcmp(name, file->name) != 0 && strcmp(name, changes) != 0) {
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
    if (version >= PSI_MANIFEST_VERSION_EARLIER && read_field(scan, &first, "earlier")) {
        read_earlier(scan, file, manifest->generation);
    }
    if (file->earlier.count > 0) {
        memcpy(file->name, changes, sizeof(file->name));
    }
    if (strcmp(name, file->name) != 0) {
        psi_scan_fail(scan, "name of another kind of file");
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
    if (strcmp(text, psi_manifest_format_name) != 0) {
        psi_scan_fail(scan, "not a manifest of a checkpoint");
    }
    version = read_number(scan, &first, "version");
    if (version < PSI_MANIFEST_VERSION_READ || version > PSI_MANIFEST_VERSION) {
        psi_scan_fail(scan, "version");
    }
    read_constant(scan, &first, "generation", manifest->generation);
    manifest->step = read_number(scan, &first, "step");
    read_constant(scan, &first, "block_bytes", PSI_MANIFEST_BLOCK_BYTES);
    if (read_field(scan, &first, "tables")) {
        read_tables(scan, manifest, version);
    }
    if (version >= PSI_MANIFEST_VERSION_PARTS && read_field(scan, &first, "parts")) {
        read_parts(scan, manifest);
    }
    if (version >= PSI_MANIFEST_VERSION_ROWS && read_field(scan, &first, "rows")) {
        read_rows(scan, manifest);
    }
    if (read_field(scan, &first, "files")) {
        psi_scan_take(scan, '[');
        read_file_entry(scan, manifest, PSI_CHECKPOINT_PARAMS, version);
        psi_scan_take(scan, ',');
        read_file_entry(scan, manifest, PSI_CHECKPOINT_STATE, version);
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
    char tail[PSI_MANIFEST_TAIL_BYTES + 1];
    struct psi_scan scan;

    if (bytes < PSI_MANIFEST_TAIL_BYTES) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: only %zu bytes", file, bytes);
    }
    psi_manifest_tail(tail, text, bytes - PSI_MANIFEST_TAIL_BYTES);
    if (memcmp(text + bytes - PSI_MANIFEST_TAIL_BYTES, tail, PSI_MANIFEST_TAIL_BYTES) != 0) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: its checksum does not match", file);
    }
    psi_scan_init(&scan, file, text, bytes, err);
    read_manifest(&scan, manifest);
    return scan.status;
}
