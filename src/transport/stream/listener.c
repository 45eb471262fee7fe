/*
 * listener.c - accepts connections, even when no descriptor is left. Then a stranger gives way that
 * has shown nothing; only if there is none is the newcomer turned away.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/stream/strangers.h"

enum {
    ACCEPTS_MAX = 32, /* at a time, so that a crowd does not starve open connections */
    PAUSE_NS = 100 * 1000 * 1000,

    CROWDED_PAUSE_NS = 10 * 1000 * 1000,
};

/* Nobody can give way: uses the spare descriptor to accept the peer and close it at once. So the
 * peer does not wait in vain, and the listener does not stay readable for ever. */
static bool
turn_away(struct psi_listener *listener)
{
    struct psi_loop *loop = listener->loop;
    char peer[PSI_ADDRESS_BYTES];
    int fd;

    if (loop->spare_fd < 0) {
        return false;
    }
    close(loop->spare_fd);
    fd = listener->sockets->accept(listener->source.fd, peer);
    if (fd >= 0) {
        close(fd);
    }
    loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

static void
resume(void *object)
{
    struct psi_listener *listener = object;
    struct psi_loop *loop = listener->loop;

    if (loop->spare_fd < 0) {
        loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    psi_loop_change(loop, &listener->source, EPOLLIN);
}

static void
stop_for(struct psi_listener *listener, uint64_t pause_ns)
{
    psi_loop_change(listener->loop, &listener->source, 0);
    psi_timer_arm(listener->loop, &listener->pause, psi_monotonic_ns() + pause_ns);
}

/* Is a connection waiting? A failed accept() does not say: the kernel looks for a free descriptor
 * first, and only then for a connection. */
static bool
is_waited_for(const struct psi_listener *listener)
{
    struct pollfd polled = {.fd = listener->source.fd, .events = POLLIN};

    return poll(&polled, 1, 0) > 0;
}

/* Whether to go on accepting after a failure. */
static bool
survive(struct psi_listener *listener, int code)
{
    const bool exhausted = code == EMFILE || code == ENFILE;

    if (code == EAGAIN || (exhausted && !is_waited_for(listener))) {
        return false;
    }
    if (code == EINTR || code == ECONNABORTED) {
        return true;
    }
    if (exhausted && (psi_stream_make_way(listener->loop) || turn_away(listener))) {
        return true;
    }
    stop_for(listener, PAUSE_NS);
    return false;
}

/* A crowd waits in the kernel's queue, where it costs nothing, and gets in at the pace of admission.
 * Members wait there, too, while handshakes take up every place: none of these gives way. */
static bool
is_crowded(struct psi_loop *loop)
{
    return !psi_stream_has_room(loop) ||
           !psi_admission_accepts(&loop->admission, psi_monotonic_ns());
}

static void
listener_ready(void *object, uint32_t events)
{
    struct psi_listener *listener = object;
    struct psi_loop *loop = listener->loop;

    (void)events;
    for (int i = 0; i < ACCEPTS_MAX && !listener->closed; i++) {
        char peer[PSI_ADDRESS_BYTES];
        int fd;

        if (is_crowded(loop)) {
            stop_for(listener, CROWDED_PAUSE_NS);
            return;
        }
        fd = listener->sockets->accept(listener->source.fd, peer);
        if (fd >= 0) {
            psi_stream_accept(listener, fd, peer);
            continue;
        }
        psi_admission_return(&loop->admission);
        if (!survive(listener, errno)) {
            return;
        }
    }
}

static void
listener_close(void *object)
{
    psi_listener_destroy(object);
}

psd_status
psi_listener_create(struct psi_loop *loop, const struct psi_sockets *sockets,
                    const struct psi_address *address, struct psi_listener **listener_p,
                    char bound_p[PSI_ADDRESS_BYTES], struct psd_error *err)
{
    const struct psi_auth_ops *auth = loop->config.auth;
    struct psi_listener *listener = malloc(sizeof(*listener));
    psd_status status;
    int fd;

    if (listener == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "listener: no %zu bytes", sizeof(*listener));
    }
    status = sockets->listen(address, &fd, bound_p, err);
    if (status != PSD_OK) {
        goto err_free_listener;
    }
    *listener = (struct psi_listener){
        .source = {.ready = listener_ready, .close = listener_close, .object = listener, .fd = fd},
        .pause = {.fire = resume, .object = listener},
        .loop = loop,
        .sockets = sockets,
    };
    psi_sockets_give_up_after(sockets, fd, loop->config.give_up_ms);
    if (auth != NULL && auth->listens_first > 0 && sockets->wake_at != NULL) {
        sockets->wake_at(fd, auth->listens_first);
    }
    status = psi_loop_add(loop, &listener->source, EPOLLIN, err);
    if (status != PSD_OK) {
        goto err_unlisten;
    }
    *listener_p = listener;
    return PSD_OK;

err_unlisten:
    sockets->unlisten(fd);
err_free_listener:
    free(listener);
    return status;
}

void
psi_listener_destroy(struct psi_listener *listener)
{
    const struct psi_sockets *sockets = listener->sockets;
    const int fd = listener->source.fd;

    psi_assert(!listener->closed);
    listener->closed = true;
    psi_stream_forget(listener);
    psi_timer_disarm(listener->loop, &listener->pause);
    psi_loop_retire(listener->loop, &listener->source);
    sockets->unlisten(fd);
}
