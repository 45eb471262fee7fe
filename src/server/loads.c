/*
 * loads.c - values and optimizer state that a worker brings: INIT and STATE_PUSH.
 *
 * What is loaded replaces what the chunk has, and is no change of a round: it is taken before the
 * first gradient only, and as if the chunk had always been so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/fail.h"
#include "server/state.h"

/* An empty STATE_PUSH, for tables that have nothing to load. */
static bool
brings_step_only(const struct chunk *chunk, const struct psi_frame *frame)
{
    return frame->type == PSI_FRAME_STATE_PUSH && (frame->flags & PSI_FLAG_EMPTY) != 0 &&
           chunk->table->spec.use == PSD_USE_SUM;
}

/* The chunk and the part that an INIT or a STATE_PUSH brings. */
static psd_status
load_target(const struct session *session, struct chunk **chunk_p, unsigned *part_p,
            struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const unsigned part =
        session->guest.inbox.meta.has_part ? session->guest.inbox.meta.part : PSI_PART_VALUE;
    const psd_status status = asked_chunk(session, chunk_p, err);
    size_t bytes;

    if (status != PSD_OK) {
        return status;
    }
    bytes = chunk_part(*chunk_p, part).bytes;
    if (bytes == 0 || frame->payload_bytes != (brings_step_only(*chunk_p, frame) ? 0 : bytes)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to table %s: part %u of %u bytes",
                        psi_frame_type_name(frame->type), (*chunk_p)->table->spec.name, part,
                        frame->payload_bytes);
    }
    *part_p = part;
    return PSD_OK;
}

/*
 * Not written in place: while it comes in, others may read and push, the table may be dropped, and
 * the connection may end. An initial value is taken once; a loaded part any number of times, as
 * long as no gradient has come since the job began.
 */
psd_status
load_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    struct chunk *chunk = NULL;
    unsigned part = 0;
    const psd_status status = load_target(session, &chunk, &part, err);

    return status == PSD_OK ? psi_inbox_body(&session->guest.inbox, sink_p, err) : status;
}

/* The chunk now is what the file says it was at `step`. */
static void
load(struct session *session, struct chunk *chunk, unsigned part, const void *payload)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;

    if (part == PSI_PART_VALUE) {
        value_about_to_change(session->lane, chunk, chunk->current);
    }
    if (!brings_step_only(chunk, frame)) {
        timed_copy(session->lane, chunk_part(chunk, part).base, payload, frame->payload_bytes);
    }
    if (part != PSI_PART_VALUE) {
        return;
    }
    if (frame->type == PSI_FRAME_INIT) {
        chunk->table->store->ops->value_loaded(chunk->table->store, chunk->place, chunk->current);
    } else {
        chunk->clock.version = frame->step;
        chunk->clock.committed = frame->step;
        chunk->updates = frame->seq;
        for (uint32_t rank = 0; rank < session->lane->rows; rank++) {
            chunk->clock.next[rank] = frame->step;
        }
    }
    chunk->ready = true;
    chunk->blank = chunk->blank && brings_step_only(chunk, frame);
}

/* Has it no initial value, or lost it? */
static bool
lacks_initial_value(const struct chunk *chunk)
{
    return !chunk->ready || (chunk->blank && !chunk->pushed);
}

psd_status
load_arrived(struct session *session, const void *payload, struct psd_error *err)
{
    struct lane *lane = session->lane;
    const bool first = session->guest.inbox.frame.type == PSI_FRAME_INIT;
    struct chunk *chunk = NULL;
    unsigned part = 0;
    psd_status status = load_target(session, &chunk, &part, err);

    if (status != PSD_OK) {
        return status;
    }
    if (chunk->adopting != NULL) {
        answer_status(
            lane, session->rank, session->guest.inbox.frame.request, chunk, PSD_ERR_STATE,
            "load: a server was lost, and workers are telling its new life where they are");
        return PSD_OK;
    }
    if (first ? lacks_initial_value(chunk) && part == PSI_PART_VALUE : !chunk->pushed) {
        load(session, chunk, part, payload);
        psi_fail_point(server_chunk_loaded);
        pair_loaded(lane, chunk);
        psi_fail_point(server_chunk_load_told);
        if (chunk->due) {
            snapshot_reached(lane, chunk);
        }
    } else if (!first) {
        answer_status(lane, session->rank, session->guest.inbox.frame.request, chunk, PSD_ERR_STATE,
                      "load: gradients are under way; load before the first push");
        return PSD_OK;
    }
    status = answer_or_park(chunk, session, err);
    round_go_on(lane, chunk);
    return status;
}
