/*
 * outlet.c - where psd_run shows something, and whose reader may stop reading.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/tell/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/stat.h>

#include "base/monotonic.h"

enum {
    PIECE_BYTES = 4096, /* what a pipe that polls writable takes at once (PIPE_BUF) */
    LOOK_MS = 100,      /* while a reader is waited for */
};

void
outlet_init(struct outlet *outlet, int fd)
{
    struct stat info = {0};
    char path[32];
    int own = -1;

    *outlet = (struct outlet){.fd = fd, .kind = OUTLET_PLAIN};
    fstat(fd, &info);
    if (S_ISSOCK(info.st_mode)) {
        outlet->kind = OUTLET_SOCKET;
    } else if (S_ISREG(info.st_mode)) {
        outlet->kind = OUTLET_FILE;
    } else if (S_ISFIFO(info.st_mode) || isatty(fd)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }
    if (own >= 0) {
        outlet->fd = own;
        outlet->kind = OUTLET_OWN;
    }
}

void
outlet_fini(struct outlet *outlet)
{
    if (outlet->kind == OUTLET_OWN) {
        close(outlet->fd);
    }
    free(outlet->bytes);
    *outlet = (struct outlet){.fd = -1, .closed = true};
}

/* Writes once, without waiting. Returns as write() does. */
static ssize_t
write_some(const struct outlet *outlet)
{
    const char *at = outlet->bytes + outlet->first;
    struct pollfd room = {.fd = outlet->fd, .events = POLLOUT};

    switch (outlet->kind) {
    case OUTLET_SOCKET:
        return send(outlet->fd, at, outlet->count, MSG_DONTWAIT | MSG_NOSIGNAL);
    case OUTLET_FILE:
    case OUTLET_OWN:
        return write(outlet->fd, at, outlet->count);
    case OUTLET_PLAIN:
        break;
    }
    if (poll(&room, 1, 0) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(outlet->fd, at, outlet->count < PIECE_BYTES ? outlet->count : PIECE_BYTES);
}

bool
outlet_flush(struct outlet *outlet)
{
    while (outlet->count > 0) {
        const ssize_t written = write_some(outlet);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0 && errno == EAGAIN) {
            return false;
        }
        if (written < 0) { /* a closed console is no reason to end a job */
            outlet->closed = true;
            outlet->count = 0;
            return true;
        }
        outlet->stuck = false;
        outlet->first += (size_t)written;
        outlet->count -= (size_t)written;
    }
    outlet->first = 0;
    return true;
}

/* Behind what is there. False without memory. */
static bool
append(struct outlet *outlet, const char *text, size_t bytes)
{
    const size_t needed = outlet->count + bytes;

    if (outlet->first + needed > outlet->capacity && outlet->first > 0) {
        memmove(outlet->bytes, outlet->bytes + outlet->first, outlet->count);
        outlet->first = 0;
    }
    if (needed > outlet->capacity) {
        char *grown = realloc(outlet->bytes, 2 * needed);

        if (grown == NULL) {
            return false;
        }
        outlet->bytes = grown;
        outlet->capacity = 2 * needed;
    }
    memcpy(outlet->bytes + outlet->first + outlet->count, text, bytes);
    outlet->count = needed;
    return true;
}

static bool
has_room(const struct outlet *outlet, size_t bytes, bool news)
{
    return outlet->count + bytes <= (size_t)(news ? 2 * OUTLET_KEPT_BYTES : OUTLET_KEPT_BYTES);
}

/* Waits for the reader once. Returns false when somebody wants attention. */
static bool
look_once(const struct outlet *outlet, const struct outlet_waiter *waiter)
{
    struct pollfd polls[2] = {{.fd = outlet->fd, .events = POLLOUT},
                              {.fd = waiter->wake_fd, .events = POLLIN}};

    poll(polls, 2, LOOK_MS);
    if (polls[1].revents != 0) {
        return false;
    }
    if (polls[0].revents == 0 && waiter->meanwhile != NULL) {
        waiter->meanwhile(waiter->context);
    }
    return true;
}

/* Returns false when nobody reads. */
static bool
wait_for_room(struct outlet *outlet, size_t bytes, bool news, const struct outlet_waiter *waiter)
{
    uint64_t moved_ms = psi_monotonic_ms();

    while (!has_room(outlet, bytes, news) && !outlet->stuck) {
        const size_t before = outlet->count;
        const bool wanted = !look_once(outlet, waiter);

        outlet_flush(outlet);
        if (outlet->count < before) {
            moved_ms = psi_monotonic_ms();
        }
        outlet->stuck = wanted || psi_monotonic_ms() >= moved_ms + OUTLET_STUCK_MS;
    }
    return has_room(outlet, bytes, news);
}

static void
tell_missing(struct outlet *outlet)
{
    char text[128];
    const int bytes =
        snprintf(text, sizeof(text),
                 "psd_run: %llu lines are missing here, because nobody read them in time; the logs "
                 "have them\n",
                 (unsigned long long)outlet->missing);

    if (append(outlet, text, (size_t)bytes)) {
        outlet->missing = 0;
    }
}

void
outlet_put(struct outlet *outlet, const char *text, size_t bytes, bool news,
           const struct outlet_waiter *waiter)
{
    outlet_flush(outlet);
    if (outlet->closed) {
        return;
    }
    if (!has_room(outlet, bytes, news) && !wait_for_room(outlet, bytes, news, waiter)) {
        outlet->missing++;
        return;
    }
    if (outlet->missing > 0) {
        tell_missing(outlet);
    }
    if (!append(outlet, text, bytes)) {
        outlet->missing++;
    }
    outlet_flush(outlet);
}

void
outlet_finish(struct outlet *outlet, const struct outlet_waiter *waiter)
{
    if (outlet->missing > 0 && !outlet->closed) {
        tell_missing(outlet);
    }
    while (!outlet_flush(outlet) && look_once(outlet, waiter)) {
    }
}
