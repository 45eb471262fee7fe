/*
 * row_peers.c - who else keeps rows: plain memory, Redis and memcached.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "row_peers.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "peers.h"

enum {
    ROW_BYTES = 256,
    ADDRESS_BYTES = 96
}; /* of 64 bytes and what a cache has beside them, at most */

const char *
row_peer_name(enum row_peer peer)
{
    static const char *const names[ROW_PEERS] = {"plain", "redis", "memcached"};

    return names[peer];
}

const char *
row_peer_missing(enum row_peer peer)
{
    if (peer == ROW_PEER_REDIS && !peer_is_on_path("redis-server")) {
        return "Redis is not installed: make bench-peers";
    }
    if (peer == ROW_PEER_MEMCACHED && !peer_is_on_path("memcached")) {
        return "memcached is not installed: make bench-peers";
    }
    return NULL;
}

/* One that nobody had a moment ago. */
static uint16_t
free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return 0;
    }
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        address.sin_port = 0;
    }
    close(fd);
    return ntohs(address.sin_port);
}

static void
make_address(const struct group *group, bool tcp, char address[ADDRESS_BYTES])
{
    if (tcp) {
        snprintf(address, ADDRESS_BYTES, "%u", free_port());
    } else {
        snprintf(address, ADDRESS_BYTES, "%s/cache", group->directory);
    }
}

static psd_status
start_redis(struct group *group, const char *address, bool tcp, struct psd_error *err)
{
    const char *const words[] = {"redis-server",
                                 "--port",
                                 tcp ? address : "0",
                                 "--bind",
                                 "127.0.0.1",
                                 "--save",
                                 "",
                                 "--appendonly",
                                 "no",
                                 "--dir",
                                 group->directory,
                                 tcp ? NULL : "--unixsocket",
                                 address,
                                 NULL};

    return group_start(group, words, NULL, err);
}

static psd_status
start_memcached(struct group *group, const char *address, bool tcp, uint64_t bytes,
                struct psd_error *err)
{
    char megabytes[16];
    const char *const words[] = {"memcached",
                                 "-u",
                                 "root",
                                 "-A",
                                 "-t",
                                 "2",
                                 "-R",
                                 "1000",
                                 "-m",
                                 megabytes,
                                 "-U",
                                 "0",
                                 "-l",
                                 "127.0.0.1",
                                 "-p",
                                 tcp ? address : "0",
                                 tcp ? NULL : "-s",
                                 address,
                                 NULL};

    snprintf(megabytes, sizeof(megabytes), "%llu", (unsigned long long)(bytes >> 20) + 128);
    return group_start(group, words, NULL, err);
}

static psd_status
start_clients(struct group *group, enum row_peer peer, uint32_t clients, const char *address,
              struct psd_error *err)
{
    char program[PATH_MAX];
    char count[16];
    psd_status status = PSD_OK;

    peer_beside("peer_rows", program);
    snprintf(count, sizeof(count), "%u", clients);
    for (uint32_t rank = 0; rank < clients && status == PSD_OK; rank++) {
        char text[16];
        const char *const words[] = {
            program, row_peer_name(peer), text, count, group->control, address, NULL};

        snprintf(text, sizeof(text), "%u", rank);
        status = group_start(group, words, NULL, err);
    }
    return status;
}

psd_status
row_peer_start(enum row_peer peer, uint32_t clients, bool tcp, uint64_t rows, struct group *group_p,
               struct psd_error *err)
{
    char address[ADDRESS_BYTES];
    psd_status status = group_init(group_p, row_peer_name(peer), err);

    if (status != PSD_OK) {
        return status;
    }
    make_address(group_p, tcp, address);
    if (peer == ROW_PEER_REDIS) {
        status = start_redis(group_p, address, tcp, err);
    } else if (peer == ROW_PEER_MEMCACHED) {
        status = start_memcached(group_p, address, tcp, rows * ROW_BYTES, err);
    }
    if (status == PSD_OK) {
        status = start_clients(group_p, peer, clients, address, err);
    }
    if (status == PSD_OK) {
        status = group_gather(group_p, clients, err);
    }
    if (status != PSD_OK) {
        group_abandon(group_p);
    }
    return status;
}
