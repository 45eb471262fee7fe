/*
 * strangers.c - accepted connections of which nothing is known yet: how many, and who gives way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/stream/listener_state.h"
#include "transport/stream/strangers.h"
#include "transport/stream/stream_state.h"

void
psi_stream_leave_strangers(struct psi_stream *stream)
{
    if (stream->stranger) {
        TAILQ_REMOVE(&stream->loop->strangers, stream, strangers_link);
        stream->loop->stranger_count--;
        stream->stranger = false;
        psi_admission_leave(stream->origin);
    }
}

/*
 * What a stranger has shown: 0, nothing, or nobody asked; 1, that it has the secret; 2, all that is
 * asked before the first frame.
 */
static int
proof(const struct psi_stream *stream)
{
    const struct psi_auth_ops *auth = stream->loop->config.auth;

    if (auth == NULL) {
        return 0;
    }
    if (stream->state == AUTHENTICATING) {
        return stream->handshake != NULL && auth->recognised != NULL &&
                       auth->recognised(stream->handshake->session)
                   ? 1
                   : 0;
    }
    return 2;
}

/* The oldest of those who have shown least, but no more than `most`; of one address or of all. */
static struct psi_stream *
find_weakest(struct psi_loop *loop, const struct psi_admission_origin *origin, int most)
{
    struct psi_stream *weakest = NULL;
    struct psi_stream *stream;

    TAILQ_FOREACH(stream, &loop->strangers, strangers_link)
    {
        if ((origin == NULL || stream->origin == origin) && proof(stream) <= most) {
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

bool
psi_stream_make_way(struct psi_loop *loop)
{
    return give_way(find_weakest(loop, NULL, 0));
}

bool
psi_stream_has_room(struct psi_loop *loop)
{
    return loop->stranger_count < loop->config.strangers_max || find_weakest(loop, NULL, 0) != NULL;
}

/* Room for one more stranger from that address. When its share is used up, only somebody from there
 * who has shown nothing gives way: the others are members, who come one after the other. */
static bool
make_room(struct psi_loop *loop, const struct psi_admission_origin *origin)
{
    const struct psi_loop_config *config = &loop->config;

    if (origin != NULL && origin->strangers >= config->strangers_from_one &&
        !give_way(find_weakest(loop, origin, 0))) {
        return false;
    }
    if (loop->stranger_count >= config->strangers_max || loop->conn_count >= config->conns_max) {
        (void)psi_stream_make_way(loop);
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
    struct psi_admission_origin *origin =
        listener->sockets->loopback(fd) ? NULL : psi_admission_find(&loop->admission, peer);
    struct psi_stream *stream = NULL;

    if (make_room(loop, origin) && !listener->closed) {
        stream = psi_stream_create(loop, listener->sockets, peer);
    }
    if (stream == NULL ||
        psi_stream_enter(stream, fd, EPOLLIN, loop->config.stranger_ms, NULL) != PSD_OK) {
        close(fd);
        free(stream);
        return;
    }
    TAILQ_INSERT_TAIL(&loop->strangers, stream, strangers_link);
    loop->stranger_count++;
    stream->stranger = true;
    stream->origin = origin;
    psi_admission_enter(origin);
    stream->listener = listener;
    psi_stream_begin(stream);
    /* A member speaks first and at once: hearing it now tells it from those who only wait. */
    if (stream->state == AUTHENTICATING && has_spoken(stream)) {
        (void)psi_stream_receive(stream);
    }
}

void
psi_stream_forget(const struct psi_listener *listener)
{
    struct psi_stream *stream = TAILQ_FIRST(&listener->loop->strangers);

    while (stream != NULL) {
        struct psi_stream *next = TAILQ_NEXT(stream, strangers_link);

        if (stream->listener == listener) {
            psi_stream_detach(stream);
        }
        stream = next;
    }
}
