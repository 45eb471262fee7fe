/*
 * stream_open.c - from connected to open: who is there, who owns it, and through what it goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/loop/lookup.h"
#include "transport/stream/listener_state.h"
#include "transport/stream/shm_offer.h"
#include "transport/stream/stream_state.h"

/* A stranger that says little costs little: it is heard again when it has said so much. */
void
psi_stream_wake_at(struct psi_stream *stream, size_t bytes)
{
    if (stream->sockets->wake_at != NULL) {
        stream->sockets->wake_at(stream->source.fd, bytes);
    }
}

/* Asks the listener's owner who will own this one. */
static void
admit(struct psi_stream *stream)
{
    const struct psi_listener *listener = stream->listener;
    struct psi_conn *conn = &stream->conn;
    psd_status status;

    stream->listener = NULL;
    psi_stream_wake_at(stream, 1);
    status = listener->events->on_accept(listener->owner, conn, &conn->events, &conn->owner);
    if (status != PSD_OK) {
        conn->events = NULL;
        if (stream->state == OPEN) {
            psi_stream_detach(stream);
        }
    } else if (stream->state == OPEN) {
        psi_shm_offer_await(stream);
    }
}

void
psi_stream_tell_open(struct psi_stream *stream)
{
    struct psi_conn *conn = &stream->conn;

    psi_shm_offer_end(stream);
    if (!psi_stream_is_broken(stream)) {
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
    } else if (!psi_shm_offer_ask(stream)) {
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
psd_status
psi_stream_authenticate(struct psi_stream *stream, struct psd_error *err)
{
    const psd_status status = psi_handshake_step(stream->handshake, &stream->in, err);

    psi_stream_flush(stream); /* also when refused: the peer may be told why */
    if (status == PSD_PENDING || psi_stream_is_broken(stream)) {
        return PSD_OK;
    }
    if (status == PSD_OK) {
        satisfied(stream);
        opened(stream);
    }
    return status;
}

/* Ends the stream if something that was heard says so. */
void
psi_stream_conclude(struct psi_stream *stream, psd_status status, struct psd_error *err)
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
void
psi_stream_begin_handshake(struct psi_stream *stream)
{
    const struct psi_loop_config *config = &stream->loop->config;
    char ends[PSI_ENDS_BYTES];
    const struct psi_auth_args args = {.connecting = stream->listener == NULL,
                                       .loopback = stream->sockets->loopback(stream->source.fd),
                                       .identity = stream->wanted,
                                       .ends = ends};
    struct psd_error err;
    psd_status status;

    err.status = PSD_OK;
    stream->sockets->ends(stream->source.fd, args.connecting, ends);
    stream->handshake = psi_handshake_create(config->auth, config->credentials, &args);
    if (stream->handshake == NULL) {
        status = psi_fail(&err, PSD_ERR_NO_MEMORY, "authenticate %s: no memory", stream->conn.peer);
    } else {
        status = psi_stream_authenticate(stream, &err);
    }
    psi_stream_conclude(stream, status, &err);
}

/* The bytes can flow: authenticates, or does without. */
void
psi_stream_begin(struct psi_stream *stream)
{
    const struct psi_auth_ops *auth = stream->loop->config.auth;

    psi_loop_change(stream->loop, &stream->source, EPOLLIN);
    if (auth == NULL) {
        opened(stream);
        return;
    }
    stream->state = AUTHENTICATING;
    if (stream->listener == NULL || !auth->listens_first) {
        psi_stream_begin_handshake(stream);
    }
}

void
psi_stream_finish_connecting(struct psi_stream *stream)
{
    struct psd_error err;

    if (stream->sockets->connected(stream->source.fd, stream->conn.peer, &err) != PSD_OK) {
        psi_stream_end(stream, &err);
        return;
    }
    psi_sockets_give_up_after(stream->sockets, stream->source.fd, stream->loop->config.give_up_ms);
    psi_stream_begin(stream);
}

void
psi_stream_finish_lookup(struct psi_stream *stream)
{
    const int asked = stream->source.fd;
    struct psi_lookup *lookup = stream->lookup;
    struct psi_address numeric;
    struct psd_error err;
    psd_status status;
    int fd = -1;

    stream->lookup = NULL;
    status = psi_lookup_end(stream->loop, lookup, &numeric, &err);
    if (status == PSD_OK) {
        status = stream->sockets->connect(&numeric, &fd, &err);
    }
    if (status == PSD_OK) {
        status = psi_loop_swap(stream->loop, &stream->source, fd, EPOLLOUT, &err);
        close(status == PSD_OK ? asked : fd);
    }
    if (status != PSD_OK) {
        psi_stream_end(stream, &err);
        return;
    }
    stream->state = CONNECTING;
}
