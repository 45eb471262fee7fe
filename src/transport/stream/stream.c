/*
 * stream.c - a connection over a stream socket, whatever scheme it came from: its life, and what it
 * hears.
 *
 *   LOOKING_UP -> CONNECTING -> AUTHENTICATING -> OPEN -> LINGERING -> CLOSED
 *
 * (It begins with the first only for a host by name; any state may skip to CLOSED.)
 *
 * Invariants
 *   - events run only in dispatch: a failure inside an owner's call is kept in `reason`, and the
 *     timer, due at once, reports it;
 *   - a CLOSED stream has no descriptor, timer or borrowed memory; the object itself stays until
 *     the dispatch ends, because an event further up may still be looking at it.
 *
 * Sending bytes is in stream_send.c, what goes through shared memory in stream_shm.c, authentication
 * in stream_open.c, those who are not known yet in strangers.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/loop/lookup.h"
#include "transport/loop/loop.h"
#include "transport/stream/listener_state.h"
#include "transport/stream/shm_offer.h"
#include "transport/stream/stream_state.h"

enum { FIRST_BYTES = 2048 }; /* of a stranger, enough to recognise it by */

void
psi_stream_unseal(struct psi_stream *stream)
{
    if (stream->sealed != NULL) {
        stream->loop->config.auth->destroy(stream->sealed);
        stream->sealed = NULL;
    }
}

/* Ends the stream without an event. Outside of dispatch it is gone when this returns. */
void
psi_stream_detach(struct psi_stream *stream)
{
    struct psi_loop *loop = stream->loop;
    const int fd = stream->source.fd;

    psi_assert(stream->state != CLOSED);
    stream->state = CLOSED;
    stream->in.stopped = true;
    psi_timer_disarm(loop, &stream->timer);
    psi_stream_leave_strangers(stream);
    if (stream->lookup != NULL) {
        psi_lookup_leave(stream->lookup);
        stream->lookup = NULL;
    }
    psi_shm_offer_end(stream);
    psi_stream_end_moves(stream);
    psi_stream_leave_corked(stream);
    stream->carrier->close(stream);
    psi_stream_out_clear(&stream->out);
    psi_handshake_destroy(stream->handshake);
    stream->handshake = NULL;
    psi_stream_unseal(stream);
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
    psi_stream_detach(stream);
    if (tell) {
        stream->conn.events->on_close(stream->conn.owner, &stream->conn, reason);
    } else if (listener != NULL && listener->events->on_refused != NULL) {
        listener->events->on_refused(listener->owner, stream->conn.peer, reason);
    }
}

/* The stream failed inside a call of its owner (reason says how): the next dispatch, which is due
 * now, will tell. */
void
psi_stream_end_later(struct psi_stream *stream)
{
    psi_assert(psi_stream_is_broken(stream));
    psi_timer_arm(stream->loop, &stream->timer, psi_monotonic_ns());
    psi_loop_wake(stream->loop);
}

/* A stranger that has sent a whole frame is a stranger no longer. */
void
psi_stream_heard_a_frame(struct psi_stream *stream)
{
    if (stream->state == OPEN && stream->stranger) {
        psi_stream_leave_strangers(stream); /* a member for the rest of its life */
        if (!psi_stream_is_broken(stream)) {
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
        status = psi_stream_authenticate(stream, &err);
    }
    if (status == PSD_OK && stream->state == OPEN) {
        status = psi_stream_in_run(&stream->in, &stream->conn, &err);
    }
    if (status == PSD_OK && stream->in.frame_count > 0) {
        psi_stream_heard_a_frame(stream);
    }
    psi_stream_conclude(stream, status, &err);
}

void
psi_stream_lost(struct psi_stream *stream, bool by_error)
{
    const char *peer = stream->conn.peer;
    struct psd_error err;

    if (by_error) {
        psi_fail_errno(&err, psi_stream_lost_status(errno), "receive from %s", peer);
    } else if (stream->reason.status == PSD_ERR_TIMEOUT) {
        err = stream->reason; /* a send has heard of it: to whoever receives it looks like an end */
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

/* When too many have come to nothing, only those are tried whose first bytes show the secret: the
 * failures of others slow nobody down who has it. */
static bool
may_begin(const struct psi_stream *stream, const uint8_t *first, size_t bytes)
{
    struct psi_loop *loop = stream->loop;
    const struct psi_auth_ops *auth = loop->config.auth;

    return psi_admission_tries(&loop->admission, stream->origin, psi_monotonic_ns()) ||
           (auth->recognises != NULL && auth->recognises(loop->config.credentials, first, bytes));
}

static void
turn_away(struct psi_stream *stream)
{
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_BUSY, "authenticate %s: too many attempts, and no sign of the secret",
             stream->conn.peer);
    psi_stream_end(stream, &reason);
}

/* A stranger's first bytes begin the exchange; until then there is nothing to keep for it. Returns
 * whether the exchange goes on. */
static bool
listen_first(struct psi_stream *stream)
{
    uint8_t first[FIRST_BYTES];
    const ssize_t got = recv(stream->source.fd, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        psi_stream_lost(stream, got < 0);
    } else if (got > 0 && may_begin(stream, first, (size_t)got)) {
        psi_stream_begin_handshake(stream);
    } else if (got > 0) {
        turn_away(stream);
    }
    return got > 0 && stream->state == AUTHENTICATING;
}

/* Takes bytes off the wire, to where they belong. *room_p: how many it might have been. */
static ssize_t
take(struct psi_stream *stream, size_t budget, size_t *room_p)
{
    const size_t most = appetite(stream, budget);
    struct iovec iov[PSI_STREAM_IN_IOVECS];
    int count = psi_stream_in_room(&stream->in, iov);

    if (iov[0].iov_len > most) {
        iov[0].iov_len = most;
        count = 1;
    }
    *room_p = 0;
    for (int i = 0; i < count; i++) {
        *room_p += iov[i].iov_len;
    }
    return psi_stream_receive_some(stream, iov, count);
}

static bool
receive_and_hear(struct psi_stream *stream)
{
    size_t budget = PSI_STREAM_WORK_BYTES;
    bool taken = false; /* already, with others: then it is one turn */

    if (stream->state == AUTHENTICATING && stream->handshake == NULL && !listen_first(stream)) {
        return false;
    }
    while (budget > 0 && !taken) {
        size_t room;
        ssize_t got;

        taken = stream->moves != NULL && psi_stream_received(stream, &got, &room);
        if (!taken) {
            got = take(stream, budget, &room);
        }
        if (got < 0 && errno == EAGAIN) {
            return false;
        }
        if (got <= 0) {
            psi_stream_lost(stream, got < 0);
            return false;
        }
        psi_stream_in_took(&stream->in, (size_t)got);
        hear(stream);
        if (stream->state == LINGERING || stream->state == CLOSED ||
            stream->carrier != &psi_carrier_bytes ||
            ((size_t)got < room && stream->sealed == NULL)) {
            return false;
        }
        budget -= (size_t)got < budget ? (size_t)got : budget;
    }
    /* A session may hold bytes that the descriptor does not show any more. */
    if (stream->sealed != NULL && !stream->stranger && !psi_stream_is_broken(stream)) {
        stream->again = true;
        psi_timer_arm(stream->loop, &stream->timer, psi_monotonic_ns());
    }
    return true;
}

/* Receives and hears a bounded amount. Returns whether more may wait. */
bool
psi_stream_receive(struct psi_stream *stream)
{
    bool more;

    psi_loop_cork(stream->loop);
    more = receive_and_hear(stream);
    psi_loop_uncork(stream->loop);
    if (stream->state == AUTHENTICATING && stream->listener != NULL && stream->handshake != NULL) {
        psi_stream_wake_at(stream, appetite(stream, 1));
    }
    return more;
}

/* What is left is sent; what the peer still says is read and dropped. */
static void
linger_on(struct psi_stream *stream)
{
    struct iovec iov = {.iov_base = stream->buffer, .iov_len = PSI_STREAM_IN_BYTES};
    ssize_t got;

    if (psi_stream_has_unsent(stream)) {
        psi_stream_flush(stream);
    }
    if (!psi_stream_has_unsent(stream)) {
        (void)shutdown(stream->source.fd, SHUT_WR);
    }
    got = psi_stream_receive_some(stream, &iov, 1);
    if (psi_stream_is_broken(stream) || got == 0 || (got < 0 && errno != EAGAIN)) {
        psi_stream_detach(stream);
    }
}

void
psi_stream_close(struct psi_conn *conn)
{
    if (psi_stream_of(conn)->state != CLOSED) {
        psi_stream_pour(psi_stream_of(conn));
        psi_stream_detach(psi_stream_of(conn));
    }
}

void
psi_stream_close_after_send(struct psi_conn *conn, uint32_t linger_ms)
{
    struct psi_stream *stream = psi_stream_of(conn);
    const uint64_t linger_ns = linger_ms * UINT64_C(1000000);

    if (stream->state == LINGERING || stream->state == CLOSED) {
        return;
    }
    if (stream->state != OPEN || psi_shm_offer_is_asking(stream) || psi_stream_is_broken(stream) ||
        linger_ms == 0) {
        psi_stream_detach(stream);
        return;
    }
    psi_shm_offer_end(stream);
    psi_stream_flush(stream); /* what was held back for the sake of it */
    psi_stream_end_moves(stream);
    if (psi_stream_is_broken(stream) || !stream->carrier->linger(stream)) {
        psi_stream_detach(stream);
        return;
    }
    stream->state = LINGERING;
    stream->in.stopped = true;
    psi_timer_arm(stream->loop, &stream->timer, psi_monotonic_ns() + linger_ns);
}

static void
stream_ready(void *object, uint32_t events)
{
    struct psi_stream *stream = object;

    if (stream->state == LOOKING_UP) {
        psi_stream_finish_lookup(stream);
        return;
    }
    if (stream->state == CONNECTING) {
        psi_stream_finish_connecting(stream);
        return;
    }
    if (stream->state == LINGERING) {
        linger_on(stream);
        return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) != 0) {
        (void)psi_stream_receive(stream);
    }
    if ((events & EPOLLOUT) != 0 && (stream->state == OPEN || stream->state == AUTHENTICATING)) {
        psi_stream_flush_bytes(stream);
    }
}

static bool
linger(struct psi_stream *stream)
{
    if (!psi_stream_has_unsent(stream)) {
        (void)shutdown(stream->source.fd, SHUT_WR);
    }
    return true;
}

static void
close_nothing(struct psi_stream *stream)
{
    (void)stream; /* bytes need no more than the descriptor */
}

const struct psi_carrier psi_carrier_bytes = {
    .ops =
        {
            .send = psi_stream_send,
            .unshare = psi_stream_unshare,
            .close = psi_stream_close,
            .close_after_send = psi_stream_close_after_send,
            .queued_bytes = psi_stream_queued_bytes,
        },
    .ready = stream_ready,
    .receive = psi_stream_receive,
    .flush = psi_stream_flush_bytes,
    .linger = linger,
    .close = close_nothing,
};

/* What the peer said before it went still counts: a refusal explains more than a broken pipe. */
static void
end_broken(struct psi_stream *stream)
{
    if (stream->state == OPEN && stream->carrier->receive(stream)) {
        psi_stream_end_later(stream);
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

    if (psi_stream_is_broken(stream)) {
        end_broken(stream);
        return;
    }
    if (stream->again && stream->state == OPEN) {
        stream->again = false;
        (void)psi_stream_receive(stream);
        return;
    }
    if (stream->state == LOOKING_UP) {
        psi_fail(&err, PSD_ERR_TIMEOUT, "look up the host of %s: no answer in %u ms", peer,
                 config->auth_ms);
    } else if (stream->state == CONNECTING) {
        psi_fail(&err, PSD_ERR_TIMEOUT, "connect %s: no answer in %u ms", peer, config->auth_ms);
    } else if (stream->state == AUTHENTICATING || psi_shm_offer_is_asking(stream)) {
        psi_fail(&err, PSD_ERR_TIMEOUT, "authenticate %s: not done in %u ms", peer,
                 stream->stranger ? config->stranger_ms : config->auth_ms);
    } else {
        psi_fail(&err, PSD_ERR_TIMEOUT, "receive from %s: no frame in %u ms", peer,
                 config->stranger_ms);
    }
    psi_stream_end(stream, &err);
}

static void
stream_gone(void *object)
{
    psi_stream_detach(object);
}

struct psi_stream *
psi_stream_create(struct psi_loop *loop, const struct psi_sockets *sockets, const char *peer)
{
    struct psi_stream *stream = malloc(sizeof(*stream) + PSI_STREAM_IN_BYTES);

    if (stream == NULL) {
        return NULL;
    }
    memset(stream, 0, sizeof(*stream));
    stream->carrier = &psi_carrier_bytes;
    stream->conn.ops = &stream->carrier->ops;
    memcpy(stream->conn.peer, peer, strnlen(peer, PSI_ADDRESS_BYTES - 1));
    stream->source = (struct psi_source){
        .ready = stream->carrier->ready,
        .prepare = psi_stream_prepare,
        .close = stream_gone,
        .object = stream,
        .fd = -1,
    };
    stream->timer = (struct psi_timer){
        .fire = stream_due, .prepare = psi_stream_prepare_again, .object = stream};
    stream->loop = loop;
    stream->sockets = sockets;
    psi_stream_in_init(&stream->in, stream->buffer, &loop->counts.copied_ns);
    return stream;
}

/* Gives the stream its descriptor, and the loop the stream. In so many milliseconds it must be
 * open; one that was accepted must also have said its first frame. */
psd_status
psi_stream_enter(struct psi_stream *stream, int fd, uint32_t events, uint32_t within_ms,
                 struct psd_error *err)
{
    struct psi_loop *loop = stream->loop;
    psd_status status;

    stream->source.fd = fd;
    status = psi_loop_add(loop, &stream->source, events, err);
    if (status != PSD_OK) {
        return status;
    }
    loop->conn_count++;
    psi_timer_arm(loop, &stream->timer, psi_monotonic_ns() + within_ms * UINT64_C(1000000));
    return PSD_OK;
}

/* A descriptor that tells when there is more to do. */
static psd_status
begin_connecting(struct psi_stream *stream, const struct psi_address *address, int *fd_p)
{
    if (stream->sockets->is_name == NULL || !stream->sockets->is_name(address)) {
        return stream->sockets->connect(address, fd_p, &stream->reason);
    }
    stream->state = LOOKING_UP;
    return psi_lookup_begin(stream->loop, address, &stream->lookup, fd_p, &stream->reason);
}

psd_status
psi_stream_connect(struct psi_loop *loop, const struct psi_sockets *sockets,
                   const struct psi_address *address, const struct psi_conn_owner *owner,
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
    stream = psi_stream_create(loop, sockets, peer);
    if (stream == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "connect %s: no memory", peer);
    }
    stream->conn.events = owner->events;
    stream->conn.owner = owner->owner;
    if (owner->identity != NULL) {
        strncpy(stream->wanted, owner->identity, sizeof(stream->wanted) - 1);
    }
    status = begin_connecting(stream, address, &fd);
    if (status != PSD_OK && status != PSD_ERR_PEER_LOST) {
        goto err_reason;
    }
    status = psi_stream_enter(stream, fd, stream->state == LOOKING_UP ? EPOLLIN : EPOLLOUT,
                              loop->config.auth_ms, &stream->reason);
    if (status != PSD_OK) {
        goto err_close;
    }
    if (psi_stream_is_broken(stream)) {
        psi_stream_end_later(stream);
    }
    *conn_p = &stream->conn;
    return PSD_OK;

err_close:
    if (stream->lookup != NULL) {
        psi_lookup_leave(stream->lookup);
    }
    close(fd);
err_reason:
    if (err != NULL) {
        *err = stream->reason;
    }
    free(stream);
    return status;
}
