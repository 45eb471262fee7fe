/*
 * stream_send.c - bytes to and from the socket, sealed or not, and frames that wait to be sent.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/counter.h"
#include "base/fail.h"
#include "base/monotonic.h"
#include "transport/stream/shm_offer.h"
#include "transport/stream/stream_state.h"

/* What sealing costs is worth knowing, and more than two looks at the clock. */
static ssize_t
move_sealed(const struct psi_stream *stream,
            ssize_t (*move)(void *session, int fd, struct iovec *iov, int count), struct iovec *iov,
            int count)
{
    const uint64_t begun_ns = psi_monotonic_ns();
    const ssize_t moved = move(stream->sealed, stream->source.fd, iov, count);
    const int code = errno;

    stream->loop->counts.sealed_ns += psi_monotonic_ns() - begun_ns;
    errno = code;
    return moved;
}

ssize_t
psi_stream_receive_some(const struct psi_stream *stream, struct iovec *iov, int count)
{
    if (stream->sealed != NULL) {
        return move_sealed(stream, stream->loop->config.auth->receive, iov, count);
    }
    return psi_stream_receive_raw(stream, iov, count);
}

ssize_t
psi_stream_receive_raw(const struct psi_stream *stream, struct iovec *iov, int count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    ssize_t got;

    if (stream->sealed != NULL) {
        return stream->loop->config.auth->receive(stream->sealed, stream->source.fd, iov, count);
    }
    do {
        got = recvmsg(stream->source.fd, &message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

static ssize_t
send_plain(const struct psi_stream *stream, struct iovec *iov, int count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    ssize_t sent;

    do {
        sent = sendmsg(stream->source.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

ssize_t
psi_stream_send_raw(const struct psi_stream *stream, struct iovec *iov, int count)
{
    if (stream->sealed != NULL) {
        return stream->loop->config.auth->send(stream->sealed, stream->source.fd, iov, count);
    }
    return send_plain(stream, iov, count);
}

/* What became of a send: how many bytes were taken, perhaps none; -1: the stream is broken. */
static ssize_t
sent_or_broken(struct psi_stream *stream, ssize_t sent)
{
    if (sent < 0 && errno == EAGAIN) {
        return 0;
    }
    if (sent < 0) {
        psi_fail_errno(&stream->reason, psi_stream_lost_status(errno), "send to %s",
                       stream->conn.peer);
        psi_stream_end_later(stream);
    }
    return sent;
}

static ssize_t
send_some(struct psi_stream *stream, struct iovec *iov, int count)
{
    if (stream->sealed != NULL) {
        if (stream->moves != NULL) {
            psi_stream_finish_sealed(stream);
        }
        return sent_or_broken(stream,
                              move_sealed(stream, stream->loop->config.auth->send, iov, count));
    }
    return sent_or_broken(stream, send_plain(stream, iov, count));
}

/* Frames wait: it is not open yet, or may still go over to shared memory. */
static bool
holds_frames(const struct psi_stream *stream)
{
    return stream->state == LOOKING_UP || stream->state == CONNECTING ||
           stream->state == AUTHENTICATING || stream->handshake != NULL ||
           stream->word_unsent > 0 || psi_shm_offer_holds(stream);
}

/* Something waits for the socket to take it. */
bool
psi_stream_has_unsent(const struct psi_stream *stream)
{
    if (stream->handshake != NULL) {
        return stream->handshake->sent_bytes < stream->handshake->made_bytes;
    }
    return stream->word_unsent > 0 || (stream->out.bytes > 0 && !holds_frames(stream));
}

static void
watch(struct psi_stream *stream)
{
    const bool writable = psi_stream_has_unsent(stream) && !psi_stream_is_broken(stream);

    psi_loop_change(stream->loop, &stream->source, writable ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void
flush_handshake(struct psi_stream *stream)
{
    struct psi_handshake *handshake = stream->handshake;

    while (psi_stream_has_unsent(stream)) {
        struct iovec iov = {.iov_base = handshake->out + handshake->sent_bytes,
                            .iov_len = handshake->made_bytes - handshake->sent_bytes};
        const ssize_t sent = sent_or_broken(stream, send_plain(stream, &iov, 1));

        if (sent <= 0) {
            return;
        }
        handshake->sent_bytes += (size_t)sent;
    }
    if (stream->state != AUTHENTICATING) {
        psi_handshake_destroy(handshake);
        stream->handshake = NULL;
    }
}

static void
flush_word(struct psi_stream *stream)
{
    struct iovec iov = {.iov_base = stream->word + PSI_PREFIX_BYTES - stream->word_unsent,
                        .iov_len = stream->word_unsent};
    const ssize_t sent = stream->word_unsent > 0 ? send_some(stream, &iov, 1) : 0;

    if (sent > 0) {
        stream->word_unsent -= (size_t)sent;
    }
}

static void
flush_frames(struct psi_stream *stream)
{
    size_t budget = PSI_STREAM_WORK_BYTES;
    ssize_t sent;

    if (stream->moves != NULL &&
        psi_stream_sent(stream, &sent)) { /* the rest when it is ready again */
        sent = sent_or_broken(stream, sent);
        psi_stream_out_sent(&stream->out, sent > 0 ? (size_t)sent : 0);
        return;
    }
    while (stream->out.bytes > 0 && budget > 0) {
        PSI_UNINITIALIZED struct iovec iov[PSI_MOVE_IOVECS];
        const int count = psi_stream_out_gather(&stream->out, iov, PSI_MOVE_IOVECS);

        sent = send_some(stream, iov, count);
        if (sent <= 0) {
            return;
        }
        psi_stream_out_sent(&stream->out, (size_t)sent);
        budget -= (size_t)sent < budget ? (size_t)sent : budget;
    }
}

/* Sends what the kernel takes, and waits for it to take the rest. */
void
psi_stream_flush_bytes(struct psi_stream *stream)
{
    if (!psi_stream_is_broken(stream) && stream->handshake != NULL) {
        flush_handshake(stream);
    }
    if (!psi_stream_is_broken(stream) && stream->handshake == NULL) {
        flush_word(stream);
    }
    if (!psi_stream_is_broken(stream) && !holds_frames(stream)) {
        flush_frames(stream);
    }
    watch(stream);
}

void
psi_stream_say(struct psi_stream *stream, const void *word)
{
    psi_assert(stream->word_unsent == 0);
    psi_stream_pour(stream); /* nothing overtakes what was said before */
    memcpy(stream->word, word, sizeof(stream->word));
    stream->word_unsent = sizeof(stream->word);
    psi_stream_flush_bytes(stream);
}

/* Sends a frame which nothing precedes: no copy of it is made if the kernel takes it all. */
static ssize_t
send_at_once(struct psi_stream *stream, const struct psi_outgoing *frame)
{
    struct iovec iov[1 + PSI_BUFFERS_MAX];
    int count = 0;

    iov[count++] =
        (struct iovec){.iov_base = (void *)(uintptr_t)frame->head, .iov_len = frame->head_bytes};
    for (unsigned i = 0; i < frame->buffer_count; i++) {
        iov[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)frame->buffers[i].base,
                                      .iov_len = frame->buffers[i].bytes};
    }
    return send_some(stream, iov, count);
}

psd_status
psi_stream_queue(struct psi_stream *stream, const struct psi_outgoing *frame, size_t sent)
{
    if (psi_stream_out_add(&stream->out, frame, sent) != PSD_OK) {
        psi_fail(&stream->reason, PSD_ERR_NO_MEMORY, "send to %s: no memory", stream->conn.peer);
        psi_stream_end_later(stream);
        return PSD_ERR_NO_MEMORY;
    }
    return PSD_OK;
}

psd_status
psi_stream_send(struct psi_conn *conn, const struct psi_outgoing *frame)
{
    struct psi_stream *stream = psi_stream_of(conn);
    const size_t bytes = psi_stream_out_size(frame);
    psd_status status = psi_stream_may_send(stream, frame, bytes);
    ssize_t sent = 0;

    if (status != PSD_OK) {
        return status;
    }
    stream->loop->counts.frames_out += PSI_COUNTS;
    if (!holds_frames(stream) && stream->out.bytes == 0 &&
        (stream->loop->crew == NULL || !psi_stream_queues(stream, bytes)) &&
        !(stream->loop->corked && psi_stream_corks(stream, bytes))) {
        sent = send_at_once(stream, frame);
        if (sent < 0) {
            return stream->reason.status;
        }
    }
    if ((size_t)sent == bytes) {
        psi_stream_release(frame);
        return PSD_OK;
    }
    status = psi_stream_queue(stream, frame, (size_t)sent);
    if (status == PSD_OK && psi_stream_is_full(stream)) {
        psi_stream_pour(stream);
    } else if (status == PSD_OK && stream->state == OPEN && !stream->queued && !stream->corked) {
        watch(stream);
    }
    return status;
}

psd_status
psi_stream_unshare(struct psi_conn *conn, const void *base, size_t bytes)
{
    struct psi_stream *stream = psi_stream_of(conn);
    psd_status status;

    if (stream->moves != NULL) {
        psi_stream_finish_sending(stream);
    }
    status = psi_stream_out_unshare(&stream->out, base, bytes, &stream->loop->counts.copied_ns);
    if (status != PSD_OK) {
        psi_stream_out_clear(&stream->out);
        if (!psi_stream_is_broken(stream)) {
            psi_fail(&stream->reason, status, "send to %s: no memory", conn->peer);
            psi_stream_end_later(stream);
        }
    }
    return status;
}

size_t
psi_stream_queued_bytes(const struct psi_conn *conn)
{
    return ((const struct psi_stream *)conn)->out.bytes;
}
