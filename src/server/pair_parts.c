/*
 * pair_parts.c - a copy on this host takes what a round has made of a chunk from where that lies.
 *
 * A round is told when the copy has it, and the next one closes when it has been told. Until then
 * nobody writes the chunk. So no sum is kept for such a copy: it is lent all parts of the chunk, values
 * and optimizer state, and copies them. Those are fewer passes over memory than to write a sum, to read it
 * and to apply it once more, and the bits are the same without any arithmetic.
 *
 * It has to be a chunk that is PAIRED: one that is JOINING is told of at once, and goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "server/state.h"

enum {
    SMALL_SHARE = 128
}; /* of the room for sums: what is smaller is not worth frames of its own */

/* May a peer on this host read all parts where they are, and are all of them large? */
static bool
has_lent_parts(const struct pair *pair, const struct chunk *chunk)
{
    const struct store *store = chunk->table->store;

    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        const size_t bytes = chunk_part(chunk, part).bytes;
        const struct psi_segment *segment = part == PSI_PART_VALUE ? store->values : store->state;

        if (bytes > 0 && (segment == NULL || bytes <= pair->slots.bytes / SMALL_SHARE)) {
            return false;
        }
    }
    return true;
}

bool
pair_lends_parts(const struct lane *lane, const struct chunk *chunk)
{
    const struct pair *pair = lane->pair;
    const struct psi_spec *spec = &chunk->table->spec;

    return chunk->copy.mode == COPY_PAIRED && psi_spec_synchronous(spec) &&
           !psi_spec_is_sparse(spec) && pair_has_table(chunk->table) && !pair->is_broken &&
           pair->peer.state == PSI_PEER_UP && pair->peer.conn->lends && has_lent_parts(pair, chunk);
}

/* Not kept for it: where the chunk has it. */
static bool
lend(struct lane *lane, const struct chunk *chunk, unsigned part)
{
    const struct store_piece piece = chunk_part(chunk, part);
    struct parcel *parcel = parcel_create(PSI_FRAME_REPLICATE_PART, 0);

    if (parcel == NULL) {
        return false;
    }
    parcel->body = piece.base;
    parcel->bytes = piece.bytes;
    parcel->is_lent = true;
    parcel->frame.table = chunk->table->id;
    parcel->frame.chunk = chunk->index;
    parcel->frame.step = part;
    pair_enqueue(lane, parcel);
    lane->pair->gathered += piece.bytes;
    return true;
}

/* The change itself comes behind its parts, and counts with all of them. */
struct parcel *
pair_lend_parts(struct lane *lane, const struct chunk *chunk)
{
    struct parcel *parcel = parcel_create(PSI_FRAME_REPLICATE, PSI_CHANGE_BYTES);
    bool lent = parcel != NULL;

    for (unsigned part = 0; part < PSI_PARTS_MAX && lent; part++) {
        lent = chunk_part(chunk, part).bytes == 0 || lend(lane, chunk, part);
    }
    if (!lent) {
        parcel_free(parcel);
        pair_break(lane, "no memory to tell it of table %s", chunk->table->spec.name);
        return NULL;
    }
    parcel->in_parts = true;
    return parcel;
}

/* The copy may still lack it, though the chunk goes. */
static bool
keep(struct pair *pair, struct parcel *parcel)
{
    uint8_t *kept = aligned_alloc(64, (parcel->bytes + 63) / 64 * 64);

    if (parcel->borrowed) { /* what it has not sent it copies; an error ends the connection */
        (void)pair->peer.conn->ops->unshare(pair->peer.conn, parcel->body, parcel->bytes);
    }
    if (kept == NULL) {
        return false;
    }
    memcpy(kept, parcel->body, parcel->bytes);
    parcel->kept = kept;
    parcel->body = kept;
    parcel->is_lent = false;
    pair->lent_bytes -= parcel->bytes;
    pair->bytes += parcel->bytes;
    return true;
}

void
pair_keep_parts(struct lane *lane, const struct table *table)
{
    struct pair *pair = lane->pair;

    for (struct parcel *parcel = pair->first; parcel != NULL; parcel = parcel->next) {
        if (parcel->is_lent && parcel->frame.table == table->id && !keep(pair, parcel)) {
            pair_break(lane, "no memory to tell it of table %s", table->spec.name);
            pair->lent_bytes -= parcel->bytes;
            parcel->bytes = 0; /* there is nothing to be read any more */
            parcel->is_lent = false;
        }
    }
}
