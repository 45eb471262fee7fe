/*
 * mirror_parts.c - a copy on its owner's host: what a round has made of a chunk is copied from where the
 * owner has it.
 *
 * The parts come one by one, and are left where they are until all of them are here, with the change. Only
 * then is anything written: whenever the owner dies, the copy has the chunk as it was before the change or as
 * it is after it. The owner does not write its own before it has heard that the copy has the change.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "server/state.h"

void
mirror_parts_drop(struct lane *lane)
{
    struct mirror_parts *parts = &lane->mirror->parts;

    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        slot_give(&lane->pool, parts->slot[part]);
    }
    *parts = (struct mirror_parts){0};
}

psd_status
mirror_part_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    struct slot_pool *pool = &session->lane->pool;
    const size_t bytes = session->guest.inbox.frame.payload_bytes;
    struct slot *slot =
        sink_p->lent != NULL ? slot_take(pool, 0) : slot_take_alone(pool, bytes, UINT64_MAX);

    if (slot == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "REPLICATE_PART: no memory for %zu bytes", bytes);
    }
    if (sink_p->lent != NULL) {
        slot->gradient = sink_p->lent;
        slot->loan = sink_p->loan;
        sink_p->keep = true;
    } else {
        sink_p->into = slot->data;
    }
    session->receiving = slot;
    return PSD_OK;
}

psd_status
mirror_part_comes(struct lane *lane, const struct chunk *chunk, const struct psi_frame *frame,
                  size_t bytes, struct psd_error *err)
{
    struct mirror_parts *parts = &lane->mirror->parts;
    struct session *session = lane->mirror->session;
    const uint64_t part = frame->step;

    if (psi_spec_is_sparse(&chunk->table->spec) || part >= PSI_PARTS_MAX || bytes == 0 ||
        bytes != chunk_part(chunk, (unsigned)part).bytes || parts->slot[part] != NULL ||
        (parts->chunk != NULL && parts->chunk != chunk)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "REPLICATE_PART to chunk %u of table %s: part %llu of %zu bytes",
                        chunk->index, chunk->table->spec.name, (unsigned long long)part, bytes);
    }
    parts->chunk = chunk;
    parts->slot[part] = session->receiving; /* until the change comes */
    session->receiving = NULL;
    return PSD_OK;
}

psd_status
mirror_parts_apply(struct lane *lane, struct chunk *chunk, struct psd_error *err)
{
    const struct mirror_parts *parts = &lane->mirror->parts;
    const struct store *store = chunk->table->store;
    const uint32_t to = chunk->table->retain ? 1 - chunk->current : chunk->current;

    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        if (parts->chunk != chunk ||
            (chunk_part(chunk, part).bytes > 0) != (parts->slot[part] != NULL)) {
            return psi_fail(err, PSD_ERR_PROTOCOL,
                            "REPLICATE to chunk %u of table %s: without its part %u", chunk->index,
                            chunk->table->spec.name, part);
        }
    }
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        const struct store_piece piece = store->ops->part(store, chunk->place, part, to);

        if (piece.bytes > 0) {
            timed_copy(lane, piece.base, parts->slot[part]->gradient, piece.bytes);
        }
    }
    mirror_parts_drop(lane);
    chunk->current = to;
    chunk->updates++;
    return PSD_OK;
}
