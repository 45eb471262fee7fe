/*
 * tcp.c - TCP sockets, and how ours are tuned.
 *
 * A name with several addresses means its first IPv4 address, or its first IPv6 address if it has
 * no other. Both ends choose alike, so "localhost" meets "localhost".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/stream/listener.h"
#include "transport/stream/stream.h"

enum {
    BACKLOG = 4096,
    KEEPALIVE_IDLE_S = 5,
    KEEPALIVE_INTERVAL_S = 2,
    KEEPALIVE_COUNT = 3,
    USER_TIMEOUT_MS = 2000,    /* unacknowledged bytes for that long: the peer is gone */
    UNSENT_BYTES = 256 * 1024, /* what the kernel queues beyond the window; an urgent frame waits
                                  behind no more than this */
};

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static void
take_apart(const union socket_address *address, struct psi_address *parts_p)
{
    parts_p->scheme = PSI_SCHEME_TCP;
    if (address->any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &address->v6.sin6_addr, parts_p->host, sizeof(parts_p->host));
        parts_p->port = ntohs(address->v6.sin6_port);
    } else {
        inet_ntop(AF_INET, &address->v4.sin_addr, parts_p->host, sizeof(parts_p->host));
        parts_p->port = ntohs(address->v4.sin_port);
    }
}

static void
format(const union socket_address *address, char text_p[PSI_ADDRESS_BYTES])
{
    struct psi_address parts;

    take_apart(address, &parts);
    (void)psi_address_format(&parts, text_p, NULL); /* numeric ones always fit */
}

static bool
is_loopback(const union socket_address *address)
{
    const struct in6_addr *v6 = &address->v6.sin6_addr;

    if (address->any.sa_family == AF_INET) {
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return IN6_IS_ADDR_LOOPBACK(v6) ||
           (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET);
}

static socklen_t
address_bytes(const union socket_address *address)
{
    return address->any.sa_family == AF_INET ? (socklen_t)sizeof(address->v4)
                                             : (socklen_t)sizeof(address->v6);
}

static const struct addrinfo *
choose(const struct addrinfo *list)
{
    for (const struct addrinfo *info = list; info != NULL; info = info->ai_next) {
        if (info->ai_family == AF_INET) {
            return info;
        }
    }
    return list;
}

/* Returns as getaddrinfo(), which blocks only for a name, and only without AI_NUMERICHOST. */
static int
ask_system(const struct psi_address *address, int flags, struct addrinfo **list_p)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    char port[8];

    snprintf(port, sizeof(port), "%u", address->port);
    return getaddrinfo(address->host, port, &hints, list_p);
}

static bool
tcp_is_name(const struct psi_address *address)
{
    struct addrinfo *list = NULL;
    const int code = ask_system(address, AI_NUMERICHOST, &list);

    if (code == 0) {
        freeaddrinfo(list);
    }
    return code == EAI_NONAME;
}

/* Only a name, not a numeric address, can make this block. */
static psd_status
resolve(const struct psi_address *address, union socket_address *found_p, psd_status failure,
        struct psd_error *err)
{
    struct addrinfo *list = NULL;
    const struct addrinfo *info;
    int code = ask_system(address, AI_NUMERICHOST, &list);

    if (code == EAI_NONAME) {
        code = ask_system(address, 0, &list);
    }
    if (code != 0) {
        return psi_fail(err, failure, "look up host %s: %s", address->host, gai_strerror(code));
    }
    info = choose(list);
    psi_assert(info->ai_addrlen <= sizeof(*found_p));
    memset(found_p, 0, sizeof(*found_p));
    memcpy(found_p, info->ai_addr, info->ai_addrlen);
    freeaddrinfo(list);
    return PSD_OK;
}

psd_status
psi_address_resolve(const struct psi_address *address, struct psi_address *numeric_p,
                    struct psd_error *err)
{
    union socket_address found;
    const psd_status status = resolve(address, &found, PSD_ERR_PEER_LOST, err);

    if (status == PSD_OK) {
        take_apart(&found, numeric_p);
    }
    return status;
}

static void
set_option(int fd, int option, int value)
{
    (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
}

/* Wishes, not conditions: a kernel that refuses one still moves our bytes. */
static void
tune(int fd, bool loopback)
{
    const int on = 1;

    set_option(fd, TCP_NODELAY, 1);
    set_option(fd, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
    set_option(fd, TCP_NOTSENT_LOWAT, UNSENT_BYTES);

    /* A connection that died in silence is noticed even when only the other side has words. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    set_option(fd, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(fd, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_option(fd, TCP_KEEPCNT, KEEPALIVE_COUNT);

    /* A pacing default (bbr) models a bottleneck which loopback does not have,
     * and is slow there. */
    if (loopback && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    }
}

static psd_status
open_socket(const union socket_address *address, int *fd_p, struct psd_error *err)
{
    const int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a tcp socket");
    }
    *fd_p = fd;
    return PSD_OK;
}

static psd_status
tcp_connect(const struct psi_address *address, int *fd_p, struct psd_error *err)
{
    union socket_address to;
    psd_status status = resolve(address, &to, PSD_ERR_PEER_LOST, err);
    int fd = -1;

    if (status != PSD_OK) {
        return status;
    }
    status = open_socket(&to, &fd, err);
    if (status != PSD_OK) {
        return status;
    }
    tune(fd, is_loopback(&to));
    if (connect(fd, &to.any, address_bytes(&to)) != 0 && errno != EINPROGRESS) {
        char text[PSI_ADDRESS_BYTES];

        format(&to, text);
        status = psi_fail_errno(err, PSD_ERR_PEER_LOST, "connect %s", text);
        close(fd);
        return status;
    }
    *fd_p = fd;
    return PSD_OK;
}

/* false: not connected any more. */
static bool
find_ends(int fd, union socket_address *here_p, union socket_address *there_p)
{
    socklen_t here_bytes = sizeof(*here_p);
    socklen_t there_bytes = sizeof(*there_p);

    memset(here_p, 0, sizeof(*here_p));
    memset(there_p, 0, sizeof(*there_p));
    return getsockname(fd, &here_p->any, &here_bytes) == 0 &&
           getpeername(fd, &there_p->any, &there_bytes) == 0;
}

/* A socket dialling a free local port can by chance get that very port and meet itself. */
static bool
met_itself(int fd)
{
    union socket_address here;
    union socket_address there;

    return find_ends(fd, &here, &there) && memcmp(&here, &there, sizeof(here)) == 0;
}

static bool
tcp_loopback(int fd)
{
    union socket_address here;
    union socket_address there;

    return find_ends(fd, &here, &there) && is_loopback(&here) && is_loopback(&there);
}

/* ::ffff:127.0.0.1 at one end is 127.0.0.1 at the other. */
static void
unmap(union socket_address *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = address->v6.sin6_port};

    if (address->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr)) {
        memcpy(&v4.sin_addr, address->v6.sin6_addr.s6_addr + 12, sizeof(v4.sin_addr));
        address->v4 = v4;
    }
}

static void
tcp_ends(int fd, bool connecting, char ends_p[PSI_ENDS_BYTES])
{
    union socket_address here;
    union socket_address there;
    char from[PSI_ADDRESS_BYTES];
    char to[PSI_ADDRESS_BYTES];

    ends_p[0] = '\0';
    if (find_ends(fd, &here, &there)) {
        unmap(&here);
        unmap(&there);
        format(connecting ? &here : &there, from);
        format(connecting ? &there : &here, to);
        snprintf(ends_p, PSI_ENDS_BYTES, "%s %s", from, to);
    }
}

static psd_status
tcp_connected(int fd, const char *peer, struct psd_error *err)
{
    int code = 0;
    socklen_t bytes = sizeof(code);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &bytes) != 0) {
        code = errno;
    }
    if (code == 0 && met_itself(fd)) {
        code = ECONNREFUSED;
    }
    if (code != 0) {
        errno = code;
        return psi_fail_errno(err, PSD_ERR_PEER_LOST, "connect %s", peer);
    }
    return PSD_OK;
}

static psd_status
tcp_listen(const struct psi_address *address, int *fd_p, char bound_p[PSI_ADDRESS_BYTES],
           struct psd_error *err)
{
    const int on = 1;
    union socket_address at;
    socklen_t at_bytes = sizeof(at);
    psd_status status = resolve(address, &at, PSD_ERR_INVALID, err);
    int fd = -1;

    if (status != PSD_OK) {
        return status;
    }
    status = open_socket(&at, &fd, err);
    if (status != PSD_OK) {
        return status;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    tune(fd, is_loopback(&at)); /* what it accepts inherits it: a stranger costs no call more */
    if (bind(fd, &at.any, address_bytes(&at)) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, &at.any, &at_bytes) != 0) {
        status = psi_fail_errno(err, errno == EADDRINUSE ? PSD_ERR_BUSY : PSD_ERR_INVALID,
                                "listen on %s port %u", address->host, address->port);
        close(fd);
        return status;
    }
    format(&at, bound_p);
    *fd_p = fd;
    return PSD_OK;
}

static int
tcp_accept(int listen_fd, char peer_p[PSI_ADDRESS_BYTES])
{
    union socket_address from = {0};
    socklen_t from_bytes = sizeof(from);
    const int fd = accept4(listen_fd, &from.any, &from_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) {
        format(&from, peer_p);
    }
    return fd;
}

static void
tcp_wake_at(int fd, size_t bytes)
{
    const int value = (int)bytes;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
}

static void
tcp_give_up_after(int fd, uint32_t ms)
{
    set_option(fd, TCP_USER_TIMEOUT, (int)ms);
}

static void
tcp_unlisten(int listen_fd)
{
    close(listen_fd);
}

const struct psi_sockets psi_sockets_tcp = {
    .is_name = tcp_is_name,
    .connect = tcp_connect,
    .connected = tcp_connected,
    .listen = tcp_listen,
    .accept = tcp_accept,
    .unlisten = tcp_unlisten,
    .wake_at = tcp_wake_at,
    .give_up_after = tcp_give_up_after,
    .loopback = tcp_loopback,
    .ends = tcp_ends,
};

const struct psi_transport psi_transport_tcp = PSI_STREAM_TRANSPORT(&psi_sockets_tcp);
