/*
 * stream.c - a connection over a stream socket, whatever scheme it came from.
 *
 *   CONNECTING -> AUTHENTICATING -> OPEN -> LINGERING -> CLOSED      (any state may skip to CLOSED)
 *
 * Invariants
 *   - events run only in dispatch: a failure inside an owner's call is kept in `reason`, and the
 *     timer, due at once, reports it;
 *   - a CLOSED stream has no descriptor, timer or borrowed memory; the object itself stays until
 * the dispatch ends, because an event further up may still be looking at it.
 *
 * receive_some() and send_some() are the only places that touch the bytes of the socket, but for
 * listen_first(), which looks whether there are any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/stream_state.h"

enum {
    WORK_BYTES_MAX = 512 * 1024, /* per connection and dispatch: the others get their turn */
    SEND_IOVECS = 16,
};

static struct psi_stream *
stream_of(struct psi_conn *conn)
{
    return (struct psi_stream *)conn;
}

static bool
is_broken(const struct psi_stream *stream)
{
    return stream->reason.status != PSD_OK;
}

/* ---- The end ---- */

static void
leave_strangers(struct psi_stream *stream)
{
    if (stream->stranger) {
        TAILQ_REMOVE(&stream->loop->strangers, stream, strangers_link);
        stream->loop->stranger_count--;
        stream->stranger = false;
        psi_door_leave(stream->place);
    }
}

/* Has the first frame been heard, it is a member for the rest of its life. */
static void
become_known(struct psi_stream *stream)
{
    leave_strangers(stream);
    stream->known = true;
    psi_door_welcome(stream->place);
}

static void
unseal(struct psi_stream *stream)
{
    if (stream->sealed != NULL) {
        stream->loop->config.auth->destroy(stream->sealed);
        stream->sealed = NULL;
    }
}

/* Ends the stream without an event. Outside of dispatch it is gone when this returns. */
static void
detach(struct psi_stream *stream)
{
    struct psi_loop *loop = stream->loop;
    const int fd = stream->source.fd;

    psi_assert(stream->state != CLOSED);
    stream->state = CLOSED;
    stream->in.stopped = true;
    psi_timer_disarm(loop, &stream->timer);
    leave_strangers(stream);
    if (stream->known) {
        psi_door_farewell(stream->place);
    }
    psi_upgrade_end(stream);
    if (stream->shm != NULL) {
        psi_shm_close(stream->shm);
        stream->shm = NULL;
    }
    psi_stream_out_clear(&stream->out);
    psi_handshake_destroy(stream->handshake);
    stream->handshake = NULL;
    unseal(stream);
    loop->conn_count--;
    psi_loop_retire(loop, &stream->source);
    if (fd >= 0) {
        close(fd);
    }
}

/* Ends the stream with on_close, if it has an owner who waits for events; the listener hears of one
 * that never had an owner. */
void
psi_stream_end(struct psi_stream *stream, const struct psd_error *reason)
{
    const struct psi_listener *listener = stream->listener;
    const bool tell = stream->conn.events != NULL && stream->state != LINGERING;

    psi_assert(stream->loop->dispatching);
    detach(stream);
    if (tell) {
        stream->conn.events->on_close(stream->conn.owner, &stream->conn, reason);
    } else if (listener != NULL && listener->events->on_refused != NULL) {
        listener->events->on_refused(listener->owner, stream->conn.peer, reason);
    }
}

/* The stream failed inside a call of its owner (reason says how): the next dispatch, which is due
 * now, will tell. */
static void
end_later(struct psi_stream *stream)
{
    psi_assert(is_broken(stream));
    psi_timer_arm(stream->loop, &stream->timer, psi_loop_now_ns());
    psi_loop_wake(stream->loop);
}

/* ---- Bytes ---- */

static ssize_t
receive_some(const struct psi_stream *stream, struct iovec *iov, int count)
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

/* What became of a send: how many bytes were taken, perhaps none; -1: the stream is broken. */
static ssize_t
sent_or_broken(struct psi_stream *stream, ssize_t sent)
{
    if (sent < 0 && errno == EAGAIN) {
        return 0;
    }
    if (sent < 0) {
        psi_fail_errno(&stream->reason, PSD_ERR_PEER_LOST, "send to %s", stream->conn.peer);
        end_later(stream);
    }
    return sent;
}

static ssize_t
send_some(struct psi_stream *stream, struct iovec *iov, int count)
{
    if (stream->sealed != NULL) {
        return sent_or_broken(
            stream, stream->loop->config.auth->send(stream->sealed, stream->source.fd, iov, count));
    }
    return sent_or_broken(stream, send_plain(stream, iov, count));
}

/* ---- Sending ---- */

/* Frames wait: it is not open yet, or may still go over to shared memory. */
static bool
holds_frames(const struct psi_stream *stream)
{
    return stream->state == CONNECTING || stream->state == AUTHENTICATING ||
           stream->handshake != NULL || stream->word_unsent > 0 || psi_upgrade_holds(stream);
}

/* Something waits for the socket to take it. */
static bool
has_unsent(const struct psi_stream *stream)
{
    if (stream->shm != NULL) {
        return psi_shm_awaits_socket(stream->shm);
    }
    if (stream->handshake != NULL) {
        return stream->handshake->sent_bytes < stream->handshake->made_bytes;
    }
    return stream->word_unsent > 0 || (stream->out.bytes > 0 && !holds_frames(stream));
}

static void
watch(struct psi_stream *stream)
{
    const bool writable = has_unsent(stream) && !is_broken(stream);

    psi_loop_change(stream->loop, &stream->source, writable ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void
flush_handshake(struct psi_stream *stream)
{
    struct psi_handshake *handshake = stream->handshake;

    while (has_unsent(stream)) {
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
fail_near(struct psi_stream *stream, const struct psd_error *err)
{
    stream->reason = *err;
    end_later(stream);
}

static void
flush_near(struct psi_stream *stream)
{
    struct psi_outgoing frame;
    struct psd_error err;
    psd_status status = PSD_OK;

    while (status == PSD_OK && psi_stream_out_first(&stream->out, &frame)) {
        status = psi_shm_send(stream->shm, &frame, &err);
        if (status == PSD_OK) {
            psi_stream_out_sent(&stream->out, psi_stream_out_size(&frame));
        }
    }
    if (status != PSD_OK && status != PSD_PENDING) {
        fail_near(stream, &err);
    }
}

static void
flush_frames(struct psi_stream *stream)
{
    size_t budget = WORK_BYTES_MAX;

    while (stream->out.bytes > 0 && budget > 0) {
        struct iovec iov[SEND_IOVECS];
        const int count = psi_stream_out_gather(&stream->out, iov, SEND_IOVECS);
        const ssize_t sent = send_some(stream, iov, count);

        if (sent <= 0) {
            return;
        }
        psi_stream_out_sent(&stream->out, (size_t)sent);
        budget -= (size_t)sent < budget ? (size_t)sent : budget;
    }
}

/* Sends what the kernel takes, and waits for it to take the rest. */
void
psi_stream_flush(struct psi_stream *stream)
{
    if (!is_broken(stream) && stream->handshake != NULL) {
        flush_handshake(stream);
    }
    if (!is_broken(stream) && stream->handshake == NULL) {
        flush_word(stream);
    }
    if (!is_broken(stream) && stream->shm != NULL) {
        flush_near(stream);
    } else if (!is_broken(stream) && !holds_frames(stream)) {
        flush_frames(stream);
    }
    watch(stream);
}

void
psi_stream_say(struct psi_stream *stream, const void *word)
{
    psi_assert(stream->word_unsent == 0);
    memcpy(stream->word, word, sizeof(stream->word));
    stream->word_unsent = sizeof(stream->word);
    psi_stream_flush(stream);
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

/* The same through shared memory: all of it, or nothing. */
static ssize_t
send_near(struct psi_stream *stream, const struct psi_outgoing *frame)
{
    struct psd_error err;
    const psd_status status = psi_shm_send(stream->shm, frame, &err);

    if (status == PSD_OK) {
        return (ssize_t)psi_stream_out_size(frame);
    }
    if (status != PSD_PENDING) {
        fail_near(stream, &err);
        return -1;
    }
    return 0;
}

static psd_status
stream_send(struct psi_conn *conn, const struct psi_outgoing *frame)
{
    struct psi_stream *stream = stream_of(conn);
    const size_t bytes = psi_stream_out_size(frame);
    ssize_t sent = 0;

    psi_assert(frame->head_bytes >= PSI_PREFIX_BYTES);
    psi_assert(frame->head_bytes <= PSI_PREFIX_BYTES + PSI_META_BYTES_MAX);
    psi_assert(frame->buffer_count <= PSI_BUFFERS_MAX);
    if (stream->state == LINGERING || stream->state == CLOSED) {
        return PSD_ERR_CLOSED;
    }
    if (is_broken(stream)) {
        return stream->reason.status;
    }
    if (bytes > PSI_CONN_QUEUE_BYTES_MAX - stream->out.bytes) {
        return PSD_ERR_BUSY;
    }
    if (!holds_frames(stream) && stream->out.bytes == 0) {
        sent = stream->shm != NULL ? send_near(stream, frame) : send_at_once(stream, frame);
        if (sent < 0) {
            return stream->reason.status;
        }
    }
    if ((size_t)sent == bytes) {
        if (frame->release != NULL) {
            frame->release(frame->release_owner, frame->release_cookie);
        }
        return PSD_OK;
    }
    if (psi_stream_out_add(&stream->out, frame, (size_t)sent) != PSD_OK) {
        psi_fail(&stream->reason, PSD_ERR_NO_MEMORY, "send to %s: no memory", conn->peer);
        end_later(stream);
        return PSD_ERR_NO_MEMORY;
    }
    if (stream->state == OPEN) {
        watch(stream);
    }
    return PSD_OK;
}

static psd_status
stream_unshare(struct psi_conn *conn, const void *base, size_t bytes)
{
    struct psi_stream *stream = stream_of(conn);
    const psd_status status = psi_stream_out_unshare(&stream->out, base, bytes);

    if (status != PSD_OK) {
        psi_stream_out_clear(&stream->out);
        if (!is_broken(stream)) {
            psi_fail(&stream->reason, status, "send to %s: no memory", conn->peer);
            end_later(stream);
        }
    }
    return status;
}

static size_t
stream_queued_bytes(const struct psi_conn *conn)
{
    return ((const struct psi_stream *)conn)->out.bytes;
}

/* ---- Opening ---- */

/* A stranger that says little costs little: it is heard again when it has said so much. */
static void
wake_at(struct psi_stream *stream, size_t bytes)
{
    if (stream->scheme->wake_at != NULL) {
        stream->scheme->wake_at(stream->source.fd, bytes);
    }
}

/* Asks the listener's owner who will own this one. */
static void
admit(struct psi_stream *stream)
{
    const struct psi_listener *listener = stream->listener;
    struct psi_conn *conn = &stream->conn;
    const uint64_t stranger_ns = stream->loop->config.stranger_ms * UINT64_C(1000000);
    psd_status status;

    stream->listener = NULL;
    wake_at(stream, 1);
    psi_timer_arm(stream->loop, &stream->timer, psi_loop_now_ns() + stranger_ns);
    status = listener->events->on_accept(listener->owner, conn, &conn->events, &conn->owner);
    if (status != PSD_OK) {
        conn->events = NULL;
        if (stream->state == OPEN) {
            detach(stream);
        }
    } else if (stream->state == OPEN) {
        psi_upgrade_await(stream);
    }
}

void
psi_stream_tell_open(struct psi_stream *stream)
{
    struct psi_conn *conn = &stream->conn;

    psi_upgrade_end(stream);
    if (!is_broken(stream)) {
        psi_timer_disarm(stream->loop, &stream->timer);
    }
    if (conn->events->on_open != NULL) {
        conn->events->on_open(conn->owner, conn);
    }
    if (stream->state == OPEN) {
        psi_stream_flush(stream);
    }
}

static void
opened(struct psi_stream *stream)
{
    stream->state = OPEN;
    if (stream->listener != NULL) {
        admit(stream);
    } else if (!psi_upgrade_ask(stream)) {
        psi_stream_tell_open(stream);
    }
    if (stream->state == OPEN) {
        psi_stream_flush(stream);
    }
}

/* The exchange ended well: who is there, and whether its bytes stay sealed. */
static void
satisfied(struct psi_stream *stream)
{
    const struct psi_auth_ops *auth = stream->loop->config.auth;
    struct psi_handshake *handshake = stream->handshake;

    if (auth->peer != NULL && stream->listener != NULL) {
        strncpy(stream->conn.identity, auth->peer(handshake->session),
                sizeof(stream->conn.identity) - 1);
    }
    if (auth->seals != NULL && auth->seals(handshake->session)) {
        stream->sealed = psi_handshake_take(handshake);
    }
}

/* One step of authentication; the last one opens the stream. */
static psd_status
authenticate(struct psi_stream *stream, struct psd_error *err)
{
    const psd_status status = psi_handshake_step(stream->handshake, &stream->in, err);

    psi_stream_flush(stream); /* also when refused: the peer may be told why */
    if (status == PSD_PENDING || is_broken(stream)) {
        return PSD_OK;
    }
    if (status == PSD_OK) {
        satisfied(stream);
        opened(stream);
    } else if (status == PSD_ERR_REFUSED) {
        psi_door_failed(stream->place, psi_loop_now_ns());
    }
    return status;
}

/* Ends the stream if something that was heard says so. */
static void
conclude(struct psi_stream *stream, psd_status status, struct psd_error *err)
{
    if (status == PSD_OK || stream->state == LINGERING || stream->state == CLOSED) {
        return;
    }
    if (err->status != status) {
        psi_fail(err, status, "%s: %s", stream->conn.peer, psd_status_text(status));
    }
    psi_stream_end(stream, err);
}

/* The first step of authentication. */
static void
begin_handshake(struct psi_stream *stream)
{
    const struct psi_loop_config *config = &stream->loop->config;
    const struct psi_auth_args args = {.connecting = stream->listener == NULL,
                                       .loopback = stream->scheme->loopback(stream->source.fd),
                                       .identity = stream->wanted};
    struct psd_error err;
    psd_status status;

    err.status = PSD_OK;
    stream->handshake = psi_handshake_create(config->auth, config->credentials, &args);
    if (stream->handshake == NULL) {
        status = psi_fail(&err, PSD_ERR_NO_MEMORY, "authenticate %s: no memory", stream->conn.peer);
    } else {
        status = authenticate(stream, &err);
    }
    conclude(stream, status, &err);
}

/* The bytes can flow: authenticates, or does without. */
static void
begin(struct psi_stream *stream)
{
    const struct psi_auth_ops *auth = stream->loop->config.auth;

    psi_loop_change(stream->loop, &stream->source, EPOLLIN);
    if (auth == NULL) {
        opened(stream);
        return;
    }
    stream->state = AUTHENTICATING;
    if (stream->listener == NULL || !auth->listens_first) {
        begin_handshake(stream);
    }
}

static void
finish_connecting(struct psi_stream *stream)
{
    struct psd_error err;

    if (stream->scheme->connected(stream->source.fd, stream->conn.peer, &err) != PSD_OK) {
        psi_stream_end(stream, &err);
        return;
    }
    begin(stream);
}

/* ---- Receiving ---- */

/* A stranger that has said something sensible is none any more. */
static void
heard_a_frame(struct psi_stream *stream)
{
    if (stream->state == OPEN && stream->stranger) {
        become_known(stream);
        if (!is_broken(stream)) {
            psi_timer_disarm(stream->loop, &stream->timer);
        }
    }
}

/* Lets everything that has come be heard. */
static void
hear(struct psi_stream *stream)
{
    struct psd_error err;
    psd_status status = PSD_OK;

    err.status = PSD_OK;
    if (stream->state == AUTHENTICATING) {
        status = authenticate(stream, &err);
    }
    if (status == PSD_OK && stream->state == OPEN) {
        status = psi_stream_in_run(&stream->in, &stream->conn, &err);
    }
    if (status == PSD_OK && stream->in.frame_count > 0) {
        heard_a_frame(stream);
    }
    conclude(stream, status, &err);
}

static void
lost(struct psi_stream *stream, bool by_error)
{
    const char *peer = stream->conn.peer;
    struct psd_error err;

    if (by_error) {
        psi_fail_errno(&err, PSD_ERR_PEER_LOST, "receive from %s", peer);
    } else if (stream->state == AUTHENTICATING) {
        psi_fail(&err, PSD_ERR_PEER_LOST, "authenticate %s: closed by the peer", peer);
    } else if (psi_stream_in_midway(&stream->in)) {
        psi_fail(&err, PSD_ERR_PEER_LOST, "receive from %s: closed within a frame", peer);
    } else {
        psi_fail(&err, PSD_ERR_PEER_LOST, "receive from %s: closed by the peer", peer);
    }
    psi_stream_end(stream, &err);
}

/* How much may be taken from the wire now: what authentication wants, else the budget. */
static size_t
appetite(const struct psi_stream *stream, size_t budget)
{
    const struct psi_auth_ops *auth = stream->loop->config.auth;

    if (stream->state != AUTHENTICATING || auth->wants == NULL) {
        return budget;
    }
    return auth->wants(stream->handshake->session);
}

/* A stranger's first bytes begin the exchange; until then there is nothing to keep for it. Returns
 * whether the exchange goes on. */
static bool
listen_first(struct psi_stream *stream)
{
    uint8_t byte;
    const ssize_t got = recv(stream->source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (got > 0) {
        begin_handshake(stream);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        lost(stream, got < 0);
    }
    return got > 0 && stream->state == AUTHENTICATING;
}

static bool
receive_and_hear(struct psi_stream *stream)
{
    size_t budget = WORK_BYTES_MAX;

    if (stream->state == AUTHENTICATING && stream->handshake == NULL && !listen_first(stream)) {
        return false;
    }
    while (budget > 0) {
        const size_t most = appetite(stream, budget);
        struct iovec iov[PSI_STREAM_IN_IOVECS];
        int count = psi_stream_in_room(&stream->in, iov);
        size_t room = 0;
        ssize_t got;

        if (iov[0].iov_len > most) {
            iov[0].iov_len = most;
            count = 1;
        }
        for (int i = 0; i < count; i++) {
            room += iov[i].iov_len;
        }
        got = receive_some(stream, iov, count);
        if (got < 0 && errno == EAGAIN) {
            return false;
        }
        if (got <= 0) {
            lost(stream, got < 0);
            return false;
        }
        psi_stream_in_took(&stream->in, (size_t)got);
        hear(stream);
        if (stream->state == LINGERING || stream->state == CLOSED || stream->shm != NULL ||
            ((size_t)got < room && stream->sealed == NULL)) {
            return false;
        }
        budget -= (size_t)got < budget ? (size_t)got : budget;
    }
    /* A session may hold bytes that the descriptor does not show any more. */
    if (stream->sealed != NULL && !stream->stranger && !is_broken(stream)) {
        stream->again = true;
        psi_timer_arm(stream->loop, &stream->timer, psi_loop_now_ns());
    }
    return true;
}

/* Receives and hears a bounded amount. Returns whether more may wait. */
static bool
receive(struct psi_stream *stream)
{
    const bool more = receive_and_hear(stream);

    if (stream->state == AUTHENTICATING && stream->listener != NULL && stream->handshake != NULL) {
        wake_at(stream, appetite(stream, 1));
    }
    return more;
}

/* ---- A peer on this host ---- */

void
psi_stream_switch(struct psi_stream *stream, struct psi_shm *shm, int old_fd)
{
    unseal(stream);
    close(old_fd);
    stream->again = false;
    stream->shm = shm;
    stream->conn.lends = true;
}

/* Hears frames out of the ring, and sends what there is room for now. Returns whether there is
 * more to hear. */
static bool
receive_near(struct psi_stream *stream)
{
    struct psd_error err;
    unsigned frames;
    bool more;
    psd_status status;

    err.status = PSD_OK;
    status = psi_shm_receive(stream->shm, &frames, &more, &err);
    if (status == PSD_OK && frames > 0) {
        heard_a_frame(stream);
    }
    conclude(stream, status, &err);
    if (stream->state == OPEN) {
        psi_stream_flush(stream);
    }
    return more && stream->state == OPEN;
}

/* The rest is sent; what the peer says is read over. */
static void
linger_near(struct psi_stream *stream)
{
    struct psd_error err;
    unsigned frames;
    bool more;
    bool ended;

    if (psi_shm_read_socket(stream->shm, &ended, &err) == PSD_OK && !ended &&
        psi_shm_receive(stream->shm, &frames, &more, &err) == PSD_OK) {
        psi_stream_flush(stream);
    } else {
        ended = true;
    }
    if (ended || is_broken(stream) || stream->out.bytes == 0) {
        detach(stream);
    }
}

void
psi_stream_ring_ready(void *object)
{
    struct psi_stream *stream = object;

    if (stream->state == LINGERING) {
        linger_near(stream);
    } else if (stream->state == OPEN && !is_broken(stream)) {
        (void)receive_near(stream);
    }
}

/* The socket says that there is something in the ring, or that the peer is gone: then everything it
 * has written still counts, and that is no more than the ring can hold. */
static void
near_ready(struct psi_stream *stream)
{
    struct psd_error err;
    bool ended;
    unsigned turns = 0;
    const psd_status status = psi_shm_read_socket(stream->shm, &ended, &err);

    if (status != PSD_OK) {
        psi_stream_end(stream, &err);
        return;
    }
    while (receive_near(stream) && ended && ++turns < PSI_SHM_TURNS_MAX) {
    }
    if (ended && stream->state == OPEN) {
        lost(stream, false);
    }
}

/* ---- Lingering: send the rest, then wait for the peer to close, so that nothing is lost ---- */

static void
linger(struct psi_stream *stream)
{
    struct iovec iov = {.iov_base = stream->buffer, .iov_len = PSI_STREAM_IN_BYTES};
    ssize_t got;

    if (has_unsent(stream)) {
        psi_stream_flush(stream);
    }
    if (!has_unsent(stream)) {
        (void)shutdown(stream->source.fd, SHUT_WR);
    }
    got = receive_some(stream, &iov, 1);
    if (is_broken(stream) || got == 0 || (got < 0 && errno != EAGAIN)) {
        detach(stream);
    }
}

static void
stream_close(struct psi_conn *conn)
{
    if (stream_of(conn)->state != CLOSED) {
        detach(stream_of(conn));
    }
}

static void
stream_close_after_send(struct psi_conn *conn, uint32_t linger_ms)
{
    struct psi_stream *stream = stream_of(conn);
    const uint64_t linger_ns = linger_ms * UINT64_C(1000000);

    if (stream->state == LINGERING || stream->state == CLOSED) {
        return;
    }
    if (stream->state != OPEN || psi_upgrade_is_asking(stream) || is_broken(stream) ||
        linger_ms == 0) {
        detach(stream);
        return;
    }
    psi_upgrade_end(stream);
    psi_stream_flush(stream); /* what was held back for the sake of it */
    if (is_broken(stream) || (stream->shm != NULL && stream->out.bytes == 0)) {
        detach(stream); /* what is in the ring can be read when we are gone */
        return;
    }
    stream->state = LINGERING;
    stream->in.stopped = true;
    if (stream->shm != NULL) {
        psi_shm_deafen(stream->shm);
    }
    psi_timer_arm(stream->loop, &stream->timer, psi_loop_now_ns() + linger_ns);
    if (stream->shm == NULL && !has_unsent(stream)) {
        (void)shutdown(stream->source.fd, SHUT_WR);
    }
}

static const struct psi_conn_ops stream_ops = {
    .send = stream_send,
    .unshare = stream_unshare,
    .close = stream_close,
    .close_after_send = stream_close_after_send,
    .queued_bytes = stream_queued_bytes,
};

/* ---- What the loop reports ---- */

static void
stream_ready(void *object, uint32_t events)
{
    struct psi_stream *stream = object;

    if (stream->state == CONNECTING) {
        finish_connecting(stream);
        return;
    }
    if (stream->state == LINGERING) {
        if (stream->shm != NULL) {
            linger_near(stream);
        } else {
            linger(stream);
        }
        return;
    }
    if (stream->shm != NULL) {
        near_ready(stream);
        return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) != 0) {
        (void)receive(stream);
    }
    if ((events & EPOLLOUT) != 0 && (stream->state == OPEN || stream->state == AUTHENTICATING)) {
        psi_stream_flush(stream);
    }
}

/* What the peer said before it went still counts: a refusal explains more than a broken pipe. */
static void
end_broken(struct psi_stream *stream)
{
    if (stream->state == OPEN && (stream->shm != NULL ? receive_near(stream) : receive(stream))) {
        end_later(stream);
    } else if (stream->state != CLOSED) {
        psi_stream_end(stream, &stream->reason);
    }
}

static void
stream_due(void *object)
{
    struct psi_stream *stream = object;
    const struct psi_loop_config *config = &stream->loop->config;
    const char *peer = stream->conn.peer;
    struct psd_error err;

    if (is_broken(stream)) {
        end_broken(stream);
        return;
    }
    if (stream->again && stream->state == OPEN) {
        stream->again = false;
        (void)receive(stream);
        return;
    }
    if (stream->state == CONNECTING) {
        psi_fail(&err, PSD_ERR_TIMEOUT, "connect %s: no answer in %u ms", peer, config->auth_ms);
    } else if (stream->state == AUTHENTICATING || psi_upgrade_is_asking(stream)) {
        psi_fail(&err, PSD_ERR_TIMEOUT, "authenticate %s: not done in %u ms", peer,
                 config->auth_ms);
    } else {
        psi_fail(&err, PSD_ERR_TIMEOUT, "receive from %s: no frame in %u ms", peer,
                 config->stranger_ms);
    }
    psi_stream_end(stream, &err);
}

static void
stream_gone(void *object)
{
    detach(object);
}

/* ---- The beginning ---- */

static struct psi_stream *
create(struct psi_loop *loop, const struct psi_scheme *scheme, const char *peer)
{
    struct psi_stream *stream = malloc(sizeof(*stream) + PSI_STREAM_IN_BYTES);

    if (stream == NULL) {
        return NULL;
    }
    memset(stream, 0, sizeof(*stream));
    stream->conn.ops = &stream_ops;
    memcpy(stream->conn.peer, peer, strnlen(peer, PSI_ADDRESS_BYTES - 1));
    stream->source = (struct psi_source){
        .ready = stream_ready, .close = stream_gone, .object = stream, .fd = -1};
    stream->timer = (struct psi_timer){.fire = stream_due, .object = stream};
    stream->loop = loop;
    stream->scheme = scheme;
    psi_stream_in_init(&stream->in, stream->buffer);
    return stream;
}

/* Gives the stream its descriptor, and the loop the stream. */
static psd_status
enter(struct psi_stream *stream, int fd, uint32_t events, struct psd_error *err)
{
    struct psi_loop *loop = stream->loop;
    psd_status status;

    stream->source.fd = fd;
    status = psi_loop_add(loop, &stream->source, events, err);
    if (status != PSD_OK) {
        return status;
    }
    loop->conn_count++;
    psi_timer_arm(loop, &stream->timer,
                  psi_loop_now_ns() + loop->config.auth_ms * UINT64_C(1000000));
    return PSD_OK;
}

psd_status
psi_stream_connect(struct psi_loop *loop, const struct psi_scheme *scheme,
                   const struct psi_address *address, const struct psi_stream_owner *owner,
                   struct psi_conn **conn_p, struct psd_error *err)
{
    char peer[PSI_ADDRESS_BYTES];
    struct psi_stream *stream;
    psd_status status;
    int fd = -1;

    if (psi_address_format(address, peer, NULL) != PSD_OK) {
        memcpy(peer, address->host, sizeof(peer) - 1); /* only for messages: the start will do */
        peer[sizeof(peer) - 1] = '\0';
    }
    if (loop->conn_count >= loop->config.conns_max) {
        return psi_fail(err, PSD_ERR_BUSY, "connect %s: the loop has %u connections, its maximum",
                        peer, loop->conn_count);
    }
    stream = create(loop, scheme, peer);
    if (stream == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "connect %s: no memory", peer);
    }
    stream->conn.events = owner->events;
    stream->conn.owner = owner->owner;
    if (owner->identity != NULL) {
        strncpy(stream->wanted, owner->identity, sizeof(stream->wanted) - 1);
    }
    status = scheme->connect(address, &fd, &stream->reason);
    if (status != PSD_OK && status != PSD_ERR_PEER_LOST) {
        goto err_reason;
    }
    status = enter(stream, fd, EPOLLOUT, &stream->reason);
    if (status != PSD_OK) {
        goto err_close;
    }
    if (is_broken(stream)) {
        end_later(stream);
    }
    *conn_p = &stream->conn;
    return PSD_OK;

err_close:
    close(fd);
err_reason:
    if (err != NULL) {
        *err = stream->reason;
    }
    free(stream);
    return status;
}

/*
 * What a stranger has shown: 0, nothing; 1, our first answer was worth sending, so it has the
 * secret or repeats somebody who had; 2, all that is asked before the first frame.
 */
static int
proof(const struct psi_stream *stream)
{
    if (stream->state == AUTHENTICATING) {
        return stream->handshake != NULL && stream->handshake->made_bytes > 0 ? 1 : 0;
    }
    return 2;
}

/* The oldest of those who have shown least, but no more than `most`; of one address or of all. */
static struct psi_stream *
find_weakest(struct psi_loop *loop, const struct psi_door_place *place, int most)
{
    struct psi_stream *weakest = NULL;
    struct psi_stream *stream;

    TAILQ_FOREACH(stream, &loop->strangers, strangers_link)
    {
        if ((place == NULL || stream->place == place) && proof(stream) <= most) {
            weakest = stream;
            most = proof(stream) - 1;
            if (most < 0) {
                break;
            }
        }
    }
    return weakest;
}

static bool
give_way(struct psi_stream *stream)
{
    struct psd_error reason;

    if (stream == NULL) {
        return false;
    }
    psi_fail(&reason, PSD_ERR_BUSY, "receive from %s: silent, gave way to a newer connection",
             stream->conn.peer);
    psi_stream_end(stream, &reason);
    return true;
}

/* Room for one more stranger from that address. When its share is used up, only somebody from there
 * who has shown nothing gives way: the others are members, who come one after the other. */
static bool
make_room(struct psi_loop *loop, const struct psi_door_place *place)
{
    const struct psi_loop_config *config = &loop->config;

    if (place != NULL && place->strangers >= config->strangers_from_one &&
        !give_way(find_weakest(loop, place, 0))) {
        return false;
    }
    if (loop->stranger_count >= config->strangers_max || loop->conn_count >= config->conns_max) {
        (void)give_way(find_weakest(loop, NULL, 2));
    }
    return loop->conn_count < config->conns_max;
}

static bool
has_spoken(const struct psi_stream *stream)
{
    const size_t wanted = stream->loop->config.auth->listens_first;
    int waiting = 0;

    return wanted == 0 ||
           (ioctl(stream->source.fd, FIONREAD, &waiting) == 0 && (size_t)waiting >= wanted);
}

void
psi_stream_accept(struct psi_listener *listener, int fd, const char *peer)
{
    struct psi_loop *loop = listener->loop;
    const uint64_t now_ns = psi_loop_now_ns();
    struct psi_door_place *place =
        listener->scheme->loopback(fd) ? NULL : psi_door_find(&loop->door, peer, now_ns);
    struct psi_stream *stream = NULL;

    if (!psi_door_is_shut(place, now_ns) && make_room(loop, place) && !listener->closed) {
        stream = create(loop, listener->scheme, peer);
    }
    if (stream == NULL || enter(stream, fd, EPOLLIN, NULL) != PSD_OK) {
        close(fd);
        free(stream);
        return;
    }
    TAILQ_INSERT_TAIL(&loop->strangers, stream, strangers_link);
    loop->stranger_count++;
    stream->stranger = true;
    stream->place = place;
    psi_door_enter(place);
    stream->listener = listener;
    begin(stream);
    /* A member speaks first and at once: hearing it now tells it from those who only wait. */
    if (stream->state == AUTHENTICATING && has_spoken(stream)) {
        (void)receive(stream);
    }
}

void
psi_stream_forget(const struct psi_listener *listener)
{
    struct psi_stream *stream = TAILQ_FIRST(&listener->loop->strangers);

    while (stream != NULL) {
        struct psi_stream *next = TAILQ_NEXT(stream, strangers_link);

        if (stream->listener == listener) {
            detach(stream);
        }
        stream = next;
    }
}
