/*
 * pieces_take.c - pieces become a table again.
 *
 * They come from another server. What they say is looked at before anything relies on it: a piece that is none
 * leaves a copy that nobody uses.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/fail.h"
#include "store/sparse/pieces.h"

/* A piece that is being read. */
struct reading {
    const struct piece_source *source;
    struct piece_head head;
    const uint8_t *at;
    size_t left;
    struct psd_error *err;
};

static psd_status
wrong(const struct reading *reading, const struct piece_section *section, const char *what)
{
    return psi_fail(reading->err, PSD_ERR_PROTOCOL,
                    "a piece of table %s: section %u of bucket %u, %u from %u on: %s",
                    reading->source->spec->name, section->kind, section->bucket, section->count,
                    section->from, what);
}

static psd_status
check_list(const struct reading *reading, const struct piece_section *section, const uint64_t *ids)
{
    const struct piece_source *source = reading->source;
    const bool is_bucket = section->kind == PIECE_ROWS;
    const uint32_t first = is_bucket ? section->bucket : source->first_bucket;
    const uint32_t buckets = is_bucket ? 1 : source->end_bucket - source->first_bucket;
    size_t at;
    const enum sparse_ids what =
        sparse_check_ids(ids, section->count, source->spec->bucket_bits, first, buckets, &at);

    return what == SPARSE_IDS_GOOD ? PSD_OK : wrong(reading, section, sparse_ids_text(what));
}

static psd_status
take_rows(const struct reading *reading, const struct piece_section *section, size_t *bytes_p)
{
    const struct piece_source *source = reading->source;
    const struct sparse_bucket info = {.changed = section->changed, .removed = section->removed};
    const bool may_fit = section->count <= reading->left / sizeof(uint64_t);
    const struct sparse_rows rows =
        pieces_rows_in(source, (uint8_t *)reading->at, may_fit ? section->count : 0, bytes_p);

    if (!may_fit || *bytes_p > reading->left) {
        return wrong(reading, section, "more rows than it has bytes for");
    }
    if (check_list(reading, section, rows.ids) != PSD_OK) {
        return reading->err->status;
    }
    for (size_t i = 0; i < rows.count; i++) {
        if (rows.steps[i] > reading->head.step) {
            return wrong(reading, section, "a row of a later step");
        }
    }
    if (section->from == 0) {
        sparse_clear(source->rows, section->bucket);
    }
    if (!sparse_load(source->rows, &rows)) {
        return sparse_refusal(source->rows, reading->err);
    }
    sparse_set_bucket_info(source->rows, section->bucket, &info);
    return PSD_OK;
}

static psd_status
take_counters(const struct reading *reading, const struct piece_section *section, size_t *bytes_p)
{
    *bytes_p = pieces_padded(section->count);
    if (*bytes_p > reading->left) {
        return wrong(reading, section, "more counters than it has bytes for");
    }
    if (!sparse_load_counters_at(reading->source->rows, section->bucket, section->from, reading->at,
                                 section->count, section->epoch)) {
        return wrong(reading, section, "not its counters, or there is no memory for them");
    }
    return PSD_OK;
}

static psd_status
take_before(const struct reading *reading, const struct piece_section *section, size_t *bytes_p)
{
    struct before *before = reading->source->before;
    const size_t row_bytes = reading->source->row_bytes;
    const size_t ids_bytes = section->count * sizeof(uint64_t);
    const uint32_t kept = section->from;

    *bytes_p = ids_bytes + pieces_padded(section->count * row_bytes);
    if (*bytes_p > reading->left) {
        return wrong(reading, section, "more rows of the version before than it has bytes for");
    }
    if (kept > 0 && kept != before->count) {
        return wrong(reading, section, "not the next rows of the version before");
    }
    if (!before_reserve(before, row_bytes, (size_t)kept + section->count)) {
        return psi_fail(reading->err, PSD_ERR_NO_MEMORY, "table %s: no memory for %u rows",
                        reading->source->spec->name, section->count);
    }
    before->count = kept + section->count;
    if (section->count == 0) {
        return PSD_OK;
    }
    memcpy(before->ids + kept, reading->at, ids_bytes);
    memcpy(before->rows + kept * row_bytes, reading->at + ids_bytes, section->count * row_bytes);
    return check_list(reading, section, before->ids + kept);
}

static psd_status
take_section(const struct reading *reading, const struct piece_section *section, size_t *bytes_p)
{
    const struct piece_source *source = reading->source;

    if (section->kind == PIECE_BEFORE) {
        return take_before(reading, section, bytes_p);
    }
    if (section->bucket < source->first_bucket || section->bucket >= source->end_bucket) {
        return wrong(reading, section, "not a bucket of this lane");
    }
    return section->kind == PIECE_ROWS       ? take_rows(reading, section, bytes_p)
           : section->kind == PIECE_COUNTERS ? take_counters(reading, section, bytes_p)
                                             : wrong(reading, section, "no such section");
}

static void
forget(const struct piece_source *source)
{
    for (uint32_t bucket = source->first_bucket; bucket < source->end_bucket; bucket++) {
        sparse_clear(source->rows, bucket);
    }
    source->before->count = 0;
}

static psd_status
take_sections(struct reading *reading)
{
    psd_status status = PSD_OK;

    while (status == PSD_OK && reading->left > 0) {
        struct piece_section section;
        size_t bytes = 0;

        if (reading->left < sizeof(section)) {
            return psi_fail(reading->err, PSD_ERR_PROTOCOL,
                            "a piece of table %s: %zu bytes behind its sections",
                            reading->source->spec->name, reading->left);
        }
        memcpy(&section, reading->at, sizeof(section));
        reading->at += sizeof(section);
        reading->left -= sizeof(section);
        status = take_section(reading, &section, &bytes);
        if (status == PSD_OK) {
            reading->at += bytes;
            reading->left -= bytes;
        }
    }
    return status;
}

psd_status
pieces_take(const struct piece_source *source, const uint8_t *piece, size_t bytes,
            struct psd_error *err)
{
    struct reading reading = {.source = source, .err = err};

    if (bytes < sizeof(reading.head)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "a piece of table %s: %zu bytes, at least %zu",
                        source->spec->name, bytes, sizeof(reading.head));
    }
    memcpy(&reading.head, piece, sizeof(reading.head));
    reading.at = piece + sizeof(reading.head);
    reading.left = bytes - sizeof(reading.head);
    if (reading.head.step < *source->step) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "a piece of table %s: of step %llu, after %llu",
                        source->spec->name, (unsigned long long)reading.head.step,
                        (unsigned long long)*source->step);
    }
    if (reading.head.is_first != 0) {
        forget(source);
    }
    *source->step = reading.head.step;
    sparse_begin_at(source->rows, reading.head.begins);
    return take_sections(&reading);
}
