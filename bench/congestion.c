/*
 * congestion.c - preloaded into a peer: its tcp sockets get the congestion control that Poseidon
 * chooses on loopback.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TYPE_MASK = 0xf };

/* In place of the C library's: sockets that accept() returns inherit the choice. */
__attribute__((visibility("default"))) int
socket(int domain, int type, int protocol)
{
    const int fd = (int)syscall(SYS_socket, domain, type, protocol);

    if (fd >= 0 && (domain == AF_INET || domain == AF_INET6) && (type & TYPE_MASK) == SOCK_STREAM &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    }
    return fd;
}
