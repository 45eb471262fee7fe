/*
 * pair_rows.c - sparse tables of a lane that has a copy: what the copy is told.
 *
 * A change is the list of rows that the gradients have become, with their sums: the copy applies it as
 * one more list. It has as many REPLICATEs as it needs, and counts with the last.
 *
 * All that a table has may be more than anybody wants to wait for, so it goes in pieces, a run of buckets each,
 * and rounds close between them. Of such a round the copy is told what it has the buckets for: the rest comes
 * with later pieces, and is changed already.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/fail.h"
#include "server/state.h"
#include "shard/bucket.h"

/* Shares of the memory for sums on their way to the copy. */
enum {
    PARTS = 2,      /* of it, a change has at most one in a REPLICATE */
    PIECES = 8,     /* likewise: a table in a SNAPSHOT */
    TIMES = 8,      /* so often as much on its way, and rounds wait until the copy has taken some */
    ROW_ARRAYS = 4, /* of f32, at most: its values, and what its rule keeps */
    PIECE_BYTES_MIN = 256, /* of what is around a row */
};

bool
pair_rows_wait(const struct pair *pair)
{
    return pair->bytes / TIMES > pair->slots.bytes;
}

static uint32_t
rows_in_part(const struct pair *pair, size_t row_bytes)
{
    const size_t rows = pair->slots.bytes / PARTS / (sizeof(uint64_t) + row_bytes);

    return rows > 0 ? (uint32_t)rows : 1;
}

/* One row there must be room for. */
static size_t
piece_bytes(const struct pair *pair, const struct psi_spec *spec)
{
    const size_t least = PIECE_BYTES_MIN + ROW_ARRAYS * sizeof(float) * spec->width;

    return pair->slots.bytes / PIECES > least ? pair->slots.bytes / PIECES : least;
}

/* ---- changes ------------------------------------------------------------------------------- */

/* How many rows of the list are in buckets that the copy has. */
static uint32_t
rows_told(const struct chunk *chunk, const struct store_rows *rows)
{
    const struct chunk_copy *copy = &chunk->copy;
    const uint32_t bits = chunk->table->spec.bucket_bits;
    uint32_t low = 0;
    uint32_t high = rows->count;

    if (!copy->walks) {
        return rows->count;
    }
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (psi_bucket_of(rows->ids[middle], bits) < copy->walk.bucket) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct parcel *
part_of(const struct store_rows *rows, uint32_t first, uint32_t count, size_t row_bytes)
{
    const size_t ids_bytes = count * sizeof(*rows->ids);
    struct parcel *parcel =
        parcel_create(PSI_FRAME_REPLICATE, PSI_CHANGE_BYTES + ids_bytes + count * row_bytes);

    if (parcel != NULL && count > 0) {
        uint8_t *at = parcel->body + PSI_CHANGE_BYTES;

        memcpy(at, rows->ids + first, ids_bytes);
        memcpy(at + ids_bytes, (const uint8_t *)rows->rows + first * row_bytes, count * row_bytes);
    }
    return parcel;
}

static bool
tell_parts(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    const struct store *store = chunk->table->store;
    const size_t row_bytes = chunk->table->spec.width * sizeof(float);
    const uint32_t most = rows_in_part(lane->pair, row_bytes);
    const struct store_rows rows =
        round->leaf_count > 0 ? store->ops->merged(store) : (struct store_rows){0};
    const uint32_t count = rows_told(chunk, &rows);
    uint32_t first = 0;

    do {
        const uint32_t part = count - first < most ? count - first : most;
        struct parcel *parcel = part_of(&rows, first, part, row_bytes);

        if (parcel == NULL) {
            return false;
        }
        first += part;
        parcel_tell_part(parcel, chunk, round, part, first < count);
        parcel->is_change = first == count && chunk->copy.mode == COPY_PAIRED;
        chunk->copy.waiting += parcel->is_change;
        lane->pair->gathered += parcel->bytes;
        chunk->copy.last = pair_enqueue(lane, parcel);
    } while (first < count);
    return true;
}

/* Workers that keep to their windows do not have so many pushes that are not answered: one each may be larger. */
static bool
is_too_much(const struct lane *lane, const struct chunk *chunk)
{
    const struct pair *pair = lane->pair;

    return chunk->copy.mode == COPY_PAIRED && !psi_spec_synchronous(&chunk->table->spec) &&
           pair->bytes >
               lane->pool.bytes_max + TIMES * pair->slots.bytes + lane->rows * pair->rows_max;
}

void
pair_rows_changed(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    const uint64_t before = lane->pair->bytes;

    if (!tell_parts(lane, chunk, round)) {
        pair_break(lane, "no memory to tell it of table %s", chunk->table->spec.name);
        return;
    }
    if (lane->pair->bytes > before + lane->pair->rows_max) {
        lane->pair->rows_max = lane->pair->bytes - before;
    }
    if (is_too_much(lane, chunk)) {
        pair_break(lane, "it is %zu MiB behind", (size_t)(lane->pair->bytes >> 20));
    }
}

/* ---- all that there is --------------------------------------------------------------------- */

void
pair_rows_begin(struct lane *lane, struct chunk *chunk)
{
    if (!chunk->copy.walks && chunk->copy.mode == COPY_PAIRED) {
        chunk->table->alone++;
        lane->pair->alone++;
    }
    chunk->copy.walks = true;
    chunk->copy.walk = (struct store_walk){0};
    if (chunk->copy.mode == COPY_ALONE) {
        chunk->copy.mode = COPY_JOINING;
    } else if (chunk->copy.mode == COPY_PAIRED) {
        chunk->copy.load = UINT64_MAX;
    }
}

static void
end_walk(struct lane *lane, struct chunk *chunk)
{
    chunk->copy.walks = false;
    if (chunk->copy.mode == COPY_JOINING) {
        chunk->copy.snapshot = chunk->copy.last;
    } else {
        chunk->copy.load = chunk->copy.last;
    }
    chunk->table->alone--;
    lane->pair->alone--;
}

size_t
pair_rows_send(struct lane *lane, struct chunk *chunk)
{
    struct store *store = chunk->table->store;
    struct store_walk *walk = &chunk->copy.walk;
    const size_t room = piece_bytes(lane->pair, &chunk->table->spec);
    size_t sent = 0;

    if (!chunk->copy.walks) {
        pair_rows_begin(lane, chunk);
    }
    do {
        size_t head;
        struct parcel *parcel = parcel_of_piece(lane, chunk, room, &head);

        if (parcel == NULL) {
            return 0;
        }
        parcel->bytes = head + store->ops->piece(store, walk, parcel->body + head, room);
        sent += parcel->bytes;
        chunk->copy.last = pair_enqueue(lane, parcel);
        psi_fail_point(server_pair_piece_queued);
    } while (walk->is_within && !walk->is_done);
    if (walk->is_done) {
        end_walk(lane, chunk);
    }
    return sent;
}
