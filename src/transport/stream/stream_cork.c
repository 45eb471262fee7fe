/*
 * stream_cork.c - small frames that leave together.
 *
 * While one connection is heard, much may be said to others and to itself: a burst of requests has
 * an answer for each. So may a client say much at once, when it sends what has been waiting. The
 * first frame to a peer leaves at once, so that it can begin. Small ones behind it are queued, and
 * leave in one call of the kernel when all has been heard, or said.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/loop/loop.h"
#include "transport/stream/shm_offer.h"
#include "transport/stream/stream_state.h"

enum {
    SMALL_BYTES = 16 << 10, /* larger ones leave at once, unless something is queued before them */
    FULL_BYTES = 32 << 10,  /* so much is not kept waiting */
};

void
psi_loop_cork(struct psi_loop *loop)
{
    loop->corked = true;
    loop->cork_turn++;
}

void
psi_loop_uncork(struct psi_loop *loop)
{
    struct psi_stream *stream;

    loop->corked = false;
    while ((stream = TAILQ_FIRST(&loop->corked_streams)) != NULL) {
        psi_stream_pour(stream);
    }
}

bool
psi_stream_corks(struct psi_stream *stream, size_t bytes)
{
    struct psi_loop *loop = stream->loop;

    if (stream->cork_turn != loop->cork_turn) {
        stream->cork_turn = loop->cork_turn;
        return false;
    }
    if (bytes > SMALL_BYTES || stream->state != OPEN || stream->carrier != &psi_carrier_bytes ||
        psi_shm_offer_is_asking(stream)) {
        return false;
    }
    if (!stream->corked) {
        stream->corked = true;
        TAILQ_INSERT_TAIL(&loop->corked_streams, stream, corked_link);
    }
    return true;
}

bool
psi_stream_is_full(const struct psi_stream *stream)
{
    return stream->corked && stream->out.bytes >= FULL_BYTES;
}

void
psi_stream_leave_corked(struct psi_stream *stream)
{
    if (stream->corked) {
        stream->corked = false;
        TAILQ_REMOVE(&stream->loop->corked_streams, stream, corked_link);
    }
}

void
psi_stream_pour(struct psi_stream *stream)
{
    if (stream->corked) {
        psi_stream_leave_corked(stream);
        psi_stream_flush_bytes(stream);
    }
}
