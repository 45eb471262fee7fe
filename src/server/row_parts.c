/*
 * row_parts.c - a push to a sparse table that does not fit one frame, and comes in several.
 *
 * All but the last have the flag MORE. Each is kept in a slot, and nothing counts before the last one is
 * here: then the slots are one gradient, which counts as a whole. Parts of which something is missing
 * are let go: when the connection ends, when a frame of another request comes between them, and when
 * some came while their round was not open. Their worker still has all of them, and is asked again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "server/state.h"
#include "shard/bucket.h"
#include "wire/bytes.h"

/* Parts of one push, whatever a worker may say. */
static bool
are_of(const struct row_parts *parts, const struct psi_frame *frame)
{
    return parts->any && parts->request == frame->request && parts->table == frame->table &&
           parts->chunk == frame->chunk && parts->step == frame->step;
}

bool
row_parts_go_on(const struct session *session)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;

    return (frame->flags & PSI_FLAG_MORE) != 0 || are_of(&session->parts, frame);
}

void
row_parts_drop(struct session *session)
{
    slot_give(&session->lane->pool, session->parts.slots);
    session->parts = (struct row_parts){0};
}

/* Another part, and its ids: they follow those before it. */
static psd_status
follow(struct session *session, struct psd_error *err)
{
    struct row_parts *parts = &session->parts;
    const struct psi_rows *rows = &session->rows;
    const struct psi_frame *frame = &session->guest.inbox.frame;

    if (!are_of(parts, frame)) {
        row_parts_drop(session);
        *parts = (struct row_parts){.any = true,
                                    .request = frame->request,
                                    .table = frame->table,
                                    .chunk = frame->chunk,
                                    .step = frame->step};
    }
    parts->lost = parts->lost || session->receiving == NULL;
    if (rows->pushed == 0) {
        return PSD_OK;
    }
    if (parts->has_last && psi_bucket_mix(psi_load_u64(rows->ids)) <= parts->last) {
        return psi_fail(
            err, PSD_ERR_PROTOCOL, "%s: id %llu is not where it belongs: not sorted between parts",
            psi_frame_type_name(frame->type), (unsigned long long)psi_load_u64(rows->ids));
    }
    parts->has_last = true;
    parts->last = psi_bucket_mix(psi_load_u64(rows->ids + (rows->pushed - 1) * sizeof(uint64_t)));
    return PSD_OK;
}

psd_status
row_parts_add(struct session *session, struct psd_error *err)
{
    struct row_parts *parts = &session->parts;
    struct slot *slot;
    const psd_status status = follow(session, err);

    slot = session->receiving;
    if (status != PSD_OK || slot == NULL) {
        return status;
    }
    session->receiving = NULL;
    slot->rows = (struct store_rows){.ids = (const void *)session->rows.ids,
                                     .rows = session->rows.rows,
                                     .count = session->rows.pushed,
                                     .next = parts->slots == NULL ? NULL : &parts->slots->rows};
    slot->cost = session->guest.inbox.frame.payload_bytes;
    slot->more = parts->slots;
    parts->slots = slot;
    return PSD_OK;
}

psd_status
row_parts_end(struct session *session, struct psd_error *err)
{
    struct row_parts *parts = &session->parts;
    psd_status status;

    if (!row_parts_go_on(session)) {
        row_parts_drop(session);
        return PSD_OK;
    }
    status = follow(session, err);
    if (status == PSD_OK && parts->lost) {
        slot_give(&session->lane->pool, session->receiving);
        session->receiving = NULL;
    } else if (status == PSD_OK) {
        session->receiving->more = parts->slots;
        parts->slots = NULL;
    }
    row_parts_drop(session);
    return status;
}
