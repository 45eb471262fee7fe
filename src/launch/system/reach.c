/*
 * reach.c - whether machines reach each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/system/close_fd.h"
#include "launch/text/memory.h"

enum { BACKLOG = 4096, TEXT_BYTES = 320 };

/* Looks an address or a name up. NULL: there is none; *why_p says so. */
static struct addrinfo *
look_up(const char *host, const char *port, const char **why_p)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    const int result = getaddrinfo(host, port, &hints, &list);

    *why_p = result != 0 ? gai_strerror(result) : "";
    return result == 0 ? list : NULL;
}

int
reach_listen(const char *address, uint16_t *port_p, struct psd_error *err)
{
    const char *why;
    struct addrinfo *found = look_up(address, "0", &why);
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof(bound);
    int fd;

    if (found == NULL) {
        psi_fail(err, PSD_ERR_IO, "address %s: %s", address, why);
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0) {
        psi_fail_errno(err, PSD_ERR_IO, "listen on %s", address);
        close_fd(&fd);
    }
    freeaddrinfo(found);
    *port_p = bound.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&bound)->sin6_port)
                                          : ntohs(((struct sockaddr_in *)&bound)->sin_port);
    return fd;
}

/* Begins to connect. Returns the socket, or -1 with errno (EHOSTUNREACH: no such name). */
static int
begin(const char *target)
{
    char host[TEXT_BYTES];
    char port[16];
    const char *why;
    struct addrinfo *found;
    int fd;

    if (sscanf(target, "%300s %15s", host, port) != 2 ||
        (found = look_up(host, port, &why)) == NULL) {
        errno = EHOSTUNREACH;
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
        const int code = errno;

        close(fd);
        errno = code;
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* One that is being tried. */
struct attempt {
    int code; /* errno of the end; -1: not yet */
};

static void
conclude(struct pollfd *poll_item, struct attempt *attempt)
{
    socklen_t bytes = sizeof(attempt->code);

    getsockopt(poll_item->fd, SOL_SOCKET, SO_ERROR, &attempt->code, &bytes);
    close(poll_item->fd);
    poll_item->fd = -1;
}

/* Waits for all, at most until the deadline. */
static void
wait_all(struct pollfd *polls, struct attempt *attempts, size_t count, int64_t deadline_ms)
{
    size_t open = 0;

    for (size_t i = 0; i < count; i++) {
        open += polls[i].fd >= 0;
    }
    while (open > 0) {
        const int64_t left_ms = deadline_ms - (int64_t)psi_monotonic_ms();

        if (left_ms <= 0 || (poll(polls, count, (int)left_ms) < 0 && errno != EINTR)) {
            return;
        }
        for (size_t i = 0; i < count; i++) {
            if (polls[i].fd >= 0 && polls[i].revents != 0) {
                conclude(&polls[i], &attempts[i]);
                open--;
            }
        }
    }
}

void
reach_all(const struct words *targets, uint32_t timeout_ms, struct words *answers)
{
    struct pollfd *polls = memory_need(calloc(targets->count + 1, sizeof(*polls)));
    struct attempt *attempts = memory_need(calloc(targets->count + 1, sizeof(*attempts)));

    for (size_t i = 0; i < targets->count; i++) {
        polls[i] = (struct pollfd){.fd = begin(targets->list[i]), .events = POLLOUT};
        attempts[i].code = polls[i].fd >= 0 ? -1 : errno;
    }
    wait_all(polls, attempts, targets->count, (int64_t)psi_monotonic_ms() + timeout_ms);
    for (size_t i = 0; i < targets->count; i++) {
        close_fd(&polls[i].fd);
        if (attempts[i].code != 0) {
            words_add_format(answers, "%s: %s", targets->list[i],
                             attempts[i].code > 0 ? strerror(attempts[i].code) : "no answer");
        }
    }
    free(polls);
    free(attempts);
}

int
reach_connect(const char *address, uint16_t port, uint32_t timeout_ms)
{
    char target[TEXT_BYTES];
    struct attempt attempt = {.code = -1};
    struct pollfd item = {.events = POLLOUT};
    int fd;

    snprintf(target, sizeof(target), "%.300s %u", address, port);
    fd = begin(target);
    item.fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1; /* conclude() closes it */
    if (item.fd >= 0) {
        wait_all(&item, &attempt, 1, (int64_t)psi_monotonic_ms() + timeout_ms);
    }
    if (fd >= 0 && attempt.code != 0) {
        close_fd(&item.fd);
        close(fd);
        errno = attempt.code > 0 ? attempt.code : ETIMEDOUT;
        return -1;
    }
    return fd;
}

static void
add_addresses(const struct ifaddrs *list, int loopback, struct words *answers)
{
    for (; list != NULL; list = list->ifa_next) {
        const void *sockaddr = list->ifa_addr;
        char text[INET6_ADDRSTRLEN] = "";

        if (sockaddr == NULL || ((list->ifa_flags & IFF_LOOPBACK) != 0) != loopback ||
            (list->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        if (list->ifa_addr->sa_family == AF_INET) {
            inet_ntop(AF_INET, &((const struct sockaddr_in *)sockaddr)->sin_addr, text,
                      sizeof(text));
        } else if (list->ifa_addr->sa_family == AF_INET6) {
            const struct in6_addr *address = &((const struct sockaddr_in6 *)sockaddr)->sin6_addr;

            if (!IN6_IS_ADDR_LINKLOCAL(address)) {
                inet_ntop(AF_INET6, address, text, sizeof(text));
            }
        }
        if (text[0] != '\0') {
            words_add_format(answers, "address=%s %s", list->ifa_name, text);
        }
    }
}

psd_status
reach_addresses(struct words *answers, struct psd_error *err)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "list this machine's addresses");
    }
    add_addresses(list, 0, answers);
    add_addresses(list, 1, answers);
    freeifaddrs(list);
    return PSD_OK;
}

bool
reach_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

void
reach_resolve(const char *name, char text_p[64])
{
    const char *why;
    struct addrinfo *found = look_up(name, "9", &why);
    const struct addrinfo *chosen = found;

    for (const struct addrinfo *item = found; item != NULL; item = item->ai_next) {
        if (item->ai_family == AF_INET && chosen->ai_family != AF_INET) {
            chosen = item;
        }
    }
    text_p[0] = '\0';
    if (found != NULL) {
        getnameinfo(chosen->ai_addr, chosen->ai_addrlen, text_p, 64, NULL, 0, NI_NUMERICHOST);
        freeaddrinfo(found);
    }
}

void
reach_source(const char *address, char text_p[64])
{
    const char *why;
    struct addrinfo *found = look_up(address, "9", &why);
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof(own);
    int fd;

    text_p[0] = '\0';
    if (found == NULL) {
        return;
    }
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &bytes) == 0) {
        getnameinfo((struct sockaddr *)&own, bytes, text_p, 64, NULL, 0, NI_NUMERICHOST);
    }
    close_fd(&fd);
    freeaddrinfo(found);
}
