/*
 * ports.c - ports for the workers' own use.
 *
 * A claim is a socket with an abstract name: it exists once in a network namespace, as ports do,
 * whoever the user is, and vanishes with its owner, so a killed agent leaves no file behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/ports.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fail.h"
#include "launch/system/close_fd.h"
#include "launch/text/memory.h"

enum {
    RANGE = PORTS_LAST - PORTS_FIRST + 1,
    STRIDE = 7919, /* a prime: agents that start together begin far from each other */
};

void
ports_fini(struct ports *ports)
{
    for (size_t i = 0; i < ports->count; i++) {
        close_fd(&ports->list[i].socket);
        close_fd(&ports->list[i].claim);
    }
    free(ports->list);
    *ports = (struct ports){0};
}

/* Returns the claim, or -1: another job has the port. */
static int
claim(uint16_t number)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int bytes = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "psd-port-%u", number);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 &&
        bind(fd, (struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes)) != 0) {
        close_fd(&fd);
    }
    return fd;
}

/* Returns the socket, or -1 with errno. again: connections that are only fading away do not count.
 */
static int
take(const struct ports *ports, uint16_t number, int again)
{
    struct sockaddr_storage bound = ports->address;
    int fd = socket(bound.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bound.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&bound)->sin6_port = htons(number);
    } else {
        ((struct sockaddr_in *)&bound)->sin_port = htons(number);
    }
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &again, sizeof(again));
    if (bind(fd, (struct sockaddr *)&bound, ports->address_bytes) != 0) {
        const int code = errno;

        close_fd(&fd);
        errno = code;
    }
    return fd;
}

bool
ports_is_taken(const struct ports *ports, uint16_t number)
{
    int fd = -1;

    for (size_t i = 0; i < ports->count; i++) {
        if (ports->list[i].number == number && ports->list[i].socket < 0) {
            fd = take(ports, number, 1);
            if (fd < 0) {
                return errno == EADDRINUSE;
            }
            close_fd(&fd);
        }
    }
    return false;
}

/* Adds a port to the list if it is free. */
static void
try_number(struct ports *ports, uint16_t number)
{
    struct ports_one one = {.number = number, .claim = claim(number)};

    one.socket = one.claim >= 0 ? take(ports, number, 0) : -1;
    if (one.socket >= 0) {
        ports->list[ports->count++] = one;
    } else {
        close_fd(&one.claim);
    }
}

static psd_status
fill(struct ports *ports, const char *text, size_t count, struct psd_error *err)
{
    const unsigned start = (unsigned)getpid() * STRIDE % RANGE;

    for (unsigned i = 0; i < RANGE && ports->count < count; i++) {
        try_number(ports, (uint16_t)(PORTS_FIRST + (start + i) % RANGE));
    }
    return ports->count == count
               ? PSD_OK
               : psi_fail(err, PSD_ERR_IO,
                          "%zu ports for workers on %s: only %zu are free from %d to %d", count,
                          text, ports->count, PORTS_FIRST, PORTS_LAST);
}

psd_status
ports_reserve(struct ports *ports, const char *address, size_t count, uint16_t wish,
              struct psd_error *err)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    psd_status status;
    int code;

    *ports = (struct ports){.list = memory_need(calloc(count, sizeof(*ports->list)))};
    code = getaddrinfo(address, NULL, &hints, &found);
    if (code != 0) {
        ports_fini(ports);
        return psi_fail(err, PSD_ERR_IO, "ports of %s: %s", address, gai_strerror(code));
    }
    memcpy(&ports->address, found->ai_addr, found->ai_addrlen);
    ports->address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    if (wish != 0 && count > 0) {
        try_number(ports, wish);
    }
    status = fill(ports, address, count, err);
    if (status != PSD_OK) {
        ports_fini(ports);
    }
    return status;
}

void
ports_release(struct ports *ports, uint16_t number)
{
    for (size_t i = 0; i < ports->count; i++) {
        if (ports->list[i].number == number) {
            close_fd(&ports->list[i].socket);
        }
    }
}
