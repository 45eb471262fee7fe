/*
 * manifest_text.c - writes the text of a manifest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/manifest_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/scan.h"
#include "table/dtype.h"
#include "table/rule.h"

const char *const psi_manifest_moments[] = {
    [PSI_MANIFEST_MOMENT_STEP] = "step",
    [PSI_MANIFEST_MOMENT_CHUNK] = "chunk",
};

const char psi_manifest_format_name[] = "poseidon-checkpoint";

void
psi_manifest_tail(char tail[PSI_MANIFEST_TAIL_BYTES + 1], const char *text, size_t bytes)
{
    snprintf(tail, PSI_MANIFEST_TAIL_BYTES + 1, "\"crc32c\":\"%08x\"}\n",
             psi_crc32c(0, text, bytes));
}

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

static void
put_rows_file(FILE *out, const struct psi_rows_file *file)
{
    char name[PSI_CHECKPOINT_NAME_BYTES];

    psi_checkpoint_rows_name(name, file->generation, file->place, file->number);
    fprintf(out,
            "{\"file\":\"%s\",\"generation\":%llu,\"place\":%u,\"number\":%u,\"buckets\":[%u,%u],"
            "\"rows\":%u,\"cleared\":%u,\"counted\":%u,\"bytes\":%llu,\"crc32c\":%u}",
            name, (unsigned long long)file->generation, file->place, file->number,
            file->first_bucket, file->end_bucket, file->count.rows, file->count.cleared,
            file->count.counted, (unsigned long long)file->bytes, file->checksum);
}

static void
put_rows(FILE *out, const struct psi_manifest_rows *rows)
{
    const struct psi_row_form *form = &rows->form;

    fputs("{\"table\":", out);
    psi_scan_quote(out, rows->table);
    fprintf(out,
            ",\"dtype\":\"%s\",\"rule\":\"%s\",\"width\":%u,\"row_wise\":%u,\"bucket_bits\":%u,"
            "\"counter_bytes\":%u,\"files\":[",
            psi_dtype_name(form->dtype), psi_rule_name(form->rule), form->width, form->row_wise,
            form->bucket_bits, form->counter_bytes);
    for (size_t i = 0; i < rows->count; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        put_rows_file(out, &rows->files[i]);
    }
    fputs("]}", out);
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
    fputs("],\n\"rows\":[", out);
    for (size_t i = 0; i < manifest->rows_count; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        put_rows(out, &manifest->rows[i]);
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
