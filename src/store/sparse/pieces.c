/*
 * pieces.c - all that a sparse table has, written in pieces.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/pieces.h"

#include <string.h>

#include "base/fail.h"

/* A piece that is being written. */
struct writing {
    const struct piece_source *source;
    struct store_walk *walk;
    uint8_t *at;
    uint8_t *end;
    bool is_empty;
};

size_t
pieces_padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

struct sparse_rows
pieces_rows_in(const struct piece_source *source, uint8_t *at, size_t count, size_t *bytes_p)
{
    const size_t width = source->spec->width;
    const size_t states = sparse_state_numbers(source->rows);
    struct sparse_rows rows = {.count = count, .ids = (void *)at};

    rows.steps = (void *)(at + count * sizeof(*rows.ids));
    rows.counts = rows.steps + count;
    rows.values = (void *)(rows.counts + count);
    rows.state = rows.values + count * width;
    *bytes_p = pieces_padded(count * (sizeof(*rows.ids) + sizeof(*rows.steps) +
                                      sizeof(*rows.counts) + (width + states) * sizeof(float)));
    return rows;
}

static size_t
rows_bytes(const struct writing *writing, size_t count)
{
    size_t bytes;

    (void)pieces_rows_in(writing->source, writing->at, count, &bytes);
    return bytes;
}

static size_t
left(const struct writing *writing)
{
    return (size_t)(writing->end - writing->at);
}

/* Is there room for a section with so many bytes? */
static bool
fits(const struct writing *writing, size_t bytes)
{
    return left(writing) >= sizeof(struct piece_section) + bytes;
}

/* As many of `most` things as there is room for, of so many bytes each. */
static uint32_t
how_many(const struct writing *writing, uint64_t most, size_t each)
{
    const size_t slack = sizeof(struct piece_section) + 8; /* padding */
    const size_t room = left(writing) > slack ? (left(writing) - slack) / each : 0;

    return (uint32_t)(room < most ? room : most);
}

static void
begin_section(struct writing *writing, struct piece_section section)
{
    memcpy(writing->at, &section, sizeof(section));
    writing->at += sizeof(section);
    writing->is_empty = false;
}

/* Behind what a section has. */
static void
end_section(struct writing *writing, size_t bytes, size_t padded)
{
    memset(writing->at + bytes, 0, padded - bytes);
    writing->at += padded;
}

/* ---- a bucket ------------------------------------------------------------------------------ */

static void
write_rows(struct writing *writing, const struct sparse_bucket *info, uint32_t count)
{
    struct store_walk *walk = writing->walk;
    struct sparse_rows rows;
    size_t bytes;

    begin_section(writing, (struct piece_section){.kind = PIECE_ROWS,
                                                  .count = count,
                                                  .bucket = walk->bucket,
                                                  .from = walk->rows,
                                                  .changed = info->changed,
                                                  .removed = info->removed});
    if (count == 0) {
        return;
    }
    rows = pieces_rows_in(writing->source, writing->at, count, &bytes);
    memset(writing->at + bytes - 8, 0, 8); /* the padding is in there */
    (void)sparse_save(writing->source->rows, walk->bucket, 0, &walk->key, &rows);
    psi_assert(rows.count == count);
    writing->at += bytes;
    walk->rows += count;
}

static void
write_counters(struct writing *writing, const uint8_t *counters, uint32_t count, uint32_t epoch)
{
    struct store_walk *walk = writing->walk;

    begin_section(writing, (struct piece_section){.kind = PIECE_COUNTERS,
                                                  .count = count,
                                                  .bucket = walk->bucket,
                                                  .from = walk->counted,
                                                  .epoch = epoch});
    memcpy(writing->at, counters + walk->counted, count);
    end_section(writing, count, pieces_padded(count));
    walk->counted += count;
}

/* Writes what there is room for. True: and that was all of the bucket. */
static bool
write_bucket(struct writing *writing)
{
    const struct piece_source *source = writing->source;
    struct store_walk *walk = writing->walk;
    const struct sparse_bucket info = sparse_bucket_info(source->rows, walk->bucket);
    size_t bytes;
    uint32_t epoch;
    const uint8_t *counters = sparse_counters(source->rows, walk->bucket, &bytes, &epoch);
    const bool is_new = !walk->is_within;
    const size_t whole = rows_bytes(writing, info.rows) + sizeof(struct piece_section) + bytes;

    if (is_new && info.rows == 0 && info.changed == 0 && info.removed == 0 && counters == NULL) {
        return true; /* nobody has pushed any of it */
    }
    if (is_new && !writing->is_empty && !fits(writing, whole + 8)) {
        return false;
    }
    if (is_new || walk->rows < info.rows) {
        const size_t each = rows_bytes(writing, 2) - rows_bytes(writing, 0);

        write_rows(writing, &info, how_many(writing, info.rows - walk->rows, (each + 1) / 2));
        walk->is_within = true;
    }
    if (walk->rows == info.rows && walk->counted < bytes) {
        const uint32_t count = how_many(writing, bytes - walk->counted, 1);

        if (count > 0) {
            write_counters(writing, counters, count, epoch);
        }
    }
    return walk->rows == info.rows && walk->counted == bytes;
}

/* ---- the version before -------------------------------------------------------------------- */

static bool
write_before(struct writing *writing)
{
    const struct before *before = writing->source->before;
    const size_t row_bytes = writing->source->row_bytes;
    struct store_walk *walk = writing->walk;
    const uint32_t first = walk->before;
    const uint32_t count = how_many(writing, before->count - first, sizeof(uint64_t) + row_bytes);

    if ((count == 0 && before->count > first) || !fits(writing, 8)) {
        return false;
    }
    begin_section(writing,
                  (struct piece_section){.kind = PIECE_BEFORE, .count = count, .from = first});
    if (count > 0) {
        memcpy(writing->at, before->ids + first, count * sizeof(uint64_t));
        writing->at += count * sizeof(uint64_t);
        memcpy(writing->at, before->rows + first * row_bytes, count * row_bytes);
        end_section(writing, count * row_bytes, pieces_padded(count * row_bytes));
    }
    walk->before += count;
    walk->is_within = true;
    return walk->before == before->count;
}

/* ---- a piece ------------------------------------------------------------------------------- */

size_t
pieces_next(const struct piece_source *source, struct store_walk *walk, uint8_t *to, size_t room)
{
    const struct piece_head head = {
        .step = *source->step,
        .begins = sparse_begins_at(source->rows),
        .is_first = walk->bucket == 0 && !walk->is_within,
    };
    struct writing writing = {.source = source,
                              .walk = walk,
                              .at = to + sizeof(head),
                              .end = to + room,
                              .is_empty = true};

    memcpy(to, &head, sizeof(head));
    if (walk->bucket < source->first_bucket) {
        walk->bucket = source->first_bucket;
    }
    while (walk->bucket < source->end_bucket) {
        if (!write_bucket(&writing)) {
            return (size_t)(writing.at - to);
        }
        *walk = (struct store_walk){.bucket = walk->bucket + 1};
    }
    walk->is_done = write_before(&writing);
    return (size_t)(writing.at - to);
}
