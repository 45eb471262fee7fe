/*
 * row_peers.h - who else keeps rows: plain memory, Redis and memcached, each with clients in C.
 *
 * Redis and memcached are the servers of Debian's packages. They write nothing to disk and listen at a
 * unix socket, or on 127.0.0.1 at a port that was free.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_ROW_PEERS_H
#define BENCH_ROW_PEERS_H

#include "group.h"

enum row_peer { ROW_PEER_PLAIN, ROW_PEER_REDIS, ROW_PEER_MEMCACHED, ROW_PEERS };

const char *row_peer_name(enum row_peer peer);

/* Why it cannot take part here; NULL: it can. */
const char *row_peer_missing(enum row_peer peer);

/* Starts it with so many clients, for at most so many rows of 64 bytes. End it with group_end() or,
 * after a failure, group_abandon(). */
psd_status row_peer_start(enum row_peer peer, uint32_t clients, bool tcp, uint64_t rows,
                          struct group *group_p, struct psd_error *err);

#endif
