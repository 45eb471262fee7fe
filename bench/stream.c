/*
 * stream.c - all bytes of a message over a socket, waited for as a ceiling waits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "stream.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "spin.h"

/* After a call that would have blocked: spins a while, then sleeps until the socket is ready. */
static void
wait_for(int fd, short events, struct spin *spin)
{
    struct pollfd ready = {.fd = fd, .events = events};

    if (!spin_more(spin)) {
        (void)poll(&ready, 1, -1);
    }
}

bool
stream_receive(int fd, void *into, size_t bytes, enum ceiling_wait wait)
{
    const int flags = wait == CEILING_SPIN ? MSG_DONTWAIT : MSG_WAITALL;
    struct spin spin = {0};
    size_t here = 0;

    while (here < bytes) {
        const ssize_t got = recv(fd, (char *)into + here, bytes - here, flags);

        if (got > 0) {
            here += (size_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            wait_for(fd, POLLIN, &spin);
        } else {
            return false;
        }
    }
    return true;
}

bool
stream_send(int fd, const void *from, size_t bytes, enum ceiling_wait wait)
{
    const int flags = MSG_NOSIGNAL | (wait == CEILING_SPIN ? MSG_DONTWAIT : 0);
    struct spin spin = {0};
    size_t gone = 0;

    while (gone < bytes) {
        const ssize_t sent = send(fd, (const char *)from + gone, bytes - gone, flags);

        if (sent > 0) {
            gone += (size_t)sent;
        } else if (sent < 0 && errno == EAGAIN) {
            wait_for(fd, POLLOUT, &spin);
        } else {
            return false;
        }
    }
    return true;
}
