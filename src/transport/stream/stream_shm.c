/*
 * stream_shm.c - a stream whose frames go through shared memory: what carrier_shm.c moves, as a
 * connection with a queue, an owner and an end.
 *
 * Its socket wakes whoever sleeps, carries descriptors, and tells by its end that the peer is gone.
 * By the time a stream comes here it is open, authenticated, and has nothing left to say in bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "base/counter.h"
#include "transport/stream/shm_offer.h"
#include "transport/stream/stream_state.h"

/* ---- Sending ---- */

static void
watch(struct psi_stream *stream)
{
    const bool writable = psi_shm_awaits_socket(stream->shm) && !psi_stream_is_broken(stream);

    psi_loop_change(stream->loop, &stream->source, writable ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void
fail(struct psi_stream *stream, const struct psd_error *err)
{
    stream->reason = *err;
    psi_stream_end_later(stream);
}

static void
flush_queue(struct psi_stream *stream)
{
    struct psi_outgoing frame;
    struct psd_error err;
    psd_status status = PSD_OK;

    while (status == PSD_OK && psi_stream_out_first(&stream->out, &frame)) {
        status = psi_shm_send(stream->shm, &frame, false, &err);
        if (status == PSD_OK) {
            psi_stream_out_sent(&stream->out, psi_stream_out_size(&frame));
        }
    }
    if (status != PSD_OK && status != PSD_PENDING) {
        fail(stream, &err);
    }
}

static void
flush(struct psi_stream *stream)
{
    if (!psi_stream_is_broken(stream)) {
        flush_queue(stream);
    }
    watch(stream);
}

/* Sends all of a frame, or nothing of it. -1: the stream is broken. */
static ssize_t
send_at_once(struct psi_stream *stream, const struct psi_outgoing *frame)
{
    struct psd_error err;
    const psd_status status = psi_shm_send(stream->shm, frame, frame->release == NULL, &err);

    if (status == PSD_OK) {
        return (ssize_t)psi_stream_out_size(frame);
    }
    if (status != PSD_PENDING) {
        fail(stream, &err);
        return -1;
    }
    return 0;
}

static psd_status
send_frame(struct psi_conn *conn, const struct psi_outgoing *frame)
{
    struct psi_stream *stream = psi_stream_of(conn);
    const size_t bytes = psi_stream_out_size(frame);
    psd_status status = psi_stream_may_send(stream, frame, bytes);
    ssize_t sent = 0;

    if (status != PSD_OK) {
        return status;
    }
    stream->loop->counts.frames_out += PSI_COUNTS;
    if (stream->out.bytes == 0) {
        sent = send_at_once(stream, frame);
        if (sent < 0) {
            return stream->reason.status;
        }
    }
    if ((size_t)sent == bytes) {
        psi_stream_release(frame);
        return PSD_OK;
    }
    status = psi_stream_queue(stream, frame, 0);
    if (status == PSD_OK) {
        watch(stream);
    }
    return status;
}

static psd_status
unshare(struct psi_conn *conn, const void *base, size_t bytes)
{
    const struct psi_stream *stream = psi_stream_of(conn);

    if (stream->shm != NULL) {
        psi_shm_finish_sending(stream->shm);
    }
    return psi_stream_unshare(conn, base, bytes);
}

static void
wake_after(struct psi_conn *conn, uint32_t frames)
{
    struct psi_stream *stream = psi_stream_of(conn);

    if (stream->shm != NULL) {
        /* What waits for room may need the least of what the peer gives back. */
        psi_shm_wake_after(stream->shm, stream->out.bytes > 0 ? 1 : frames);
    }
}

/* ---- Receiving ---- */

/* Hears frames out of the ring, and sends what there is room for now. Returns whether there is
 * more to hear. */
static bool
receive(struct psi_stream *stream)
{
    struct psd_error err;
    unsigned frames;
    bool more;
    psd_status status;

    err.status = PSD_OK;
    status = psi_shm_receive(stream->shm, &frames, &more, &err);
    if (status == PSD_OK && frames > 0) {
        psi_stream_heard_a_frame(stream);
    }
    psi_stream_conclude(stream, status, &err);
    if (stream->state == OPEN) {
        flush(stream);
    }
    return more && stream->state == OPEN;
}

void
psi_stream_heard_later(void *object, psd_status status, struct psd_error *err)
{
    struct psi_stream *stream = object;

    if (status == PSD_OK) {
        psi_stream_heard_a_frame(stream);
    }
    psi_stream_conclude(stream, status, err);
}

/* The socket says that there is something in the ring, or that the peer is gone: then everything it
 * has written still counts, and that is no more than the ring can hold. */
static void
hear_socket(struct psi_stream *stream)
{
    struct psd_error err;
    bool ended;
    unsigned turns = 0;
    const psd_status status = psi_shm_read_socket(stream->shm, &ended, &err);

    if (status != PSD_OK) {
        psi_stream_end(stream, &err);
        return;
    }
    while (receive(stream) && ended && ++turns < PSI_SHM_TURNS_MAX) {
    }
    if (ended && stream->state == OPEN) {
        psi_stream_lost(stream, false);
    }
}

/* ---- Ending ---- */

/* The rest is sent; what the peer says is read over. */
static void
linger_on(struct psi_stream *stream)
{
    struct psd_error err;
    unsigned frames;
    bool more;
    bool ended;

    if (psi_shm_read_socket(stream->shm, &ended, &err) == PSD_OK && !ended &&
        psi_shm_receive(stream->shm, &frames, &more, &err) == PSD_OK) {
        flush(stream);
    } else {
        ended = true;
    }
    if (ended || psi_stream_is_broken(stream) || stream->out.bytes == 0) {
        psi_stream_detach(stream);
    }
}

static bool
linger(struct psi_stream *stream)
{
    if (stream->out.bytes == 0) {
        return false; /* what is in the ring can be read when we are gone */
    }
    psi_shm_deafen(stream->shm);
    return true;
}

static void
close_shm(struct psi_stream *stream)
{
    psi_shm_close(stream->shm);
    stream->shm = NULL;
}

/* ---- The carrier ---- */

void
psi_stream_ring_ready(void *object)
{
    struct psi_stream *stream = object;

    if (stream->state == LINGERING) {
        linger_on(stream);
    } else if (stream->state == OPEN && !psi_stream_is_broken(stream)) {
        (void)receive(stream);
    }
}

static void
ready(void *object, uint32_t events)
{
    struct psi_stream *stream = object;

    (void)events;
    if (stream->state == LINGERING) {
        linger_on(stream);
    } else {
        hear_socket(stream);
    }
}

const struct psi_carrier psi_carrier_shm = {
    .ops =
        {
            .send = send_frame,
            .unshare = unshare,
            .close = psi_stream_close,
            .close_after_send = psi_stream_close_after_send,
            .queued_bytes = psi_stream_queued_bytes,
            .wake_after = wake_after,
        },
    .ready = ready,
    .receive = receive,
    .flush = flush,
    .linger = linger,
    .close = close_shm,
};

void
psi_stream_switch(struct psi_stream *stream, struct psi_shm *shm, int old_fd)
{
    psi_assert(stream->handshake == NULL && stream->word_unsent == 0);
    psi_stream_end_moves(stream);
    psi_stream_unseal(stream);
    close(old_fd);
    stream->again = false;
    stream->shm = shm;
    stream->carrier = &psi_carrier_shm;
    stream->conn.ops = &stream->carrier->ops;
    stream->source.ready = stream->carrier->ready;
    stream->conn.lends = true;
}
