/*
 * ceiling.h - the least that has to be done: small programs that do the same work and nothing else.
 *
 * A ceiling has no names, no retries, no membership; both ends know the sizes, and its processes
 * trust each other. Each kind has its start; all follow TEAM_RUN and are stopped alike.
 *
 *   memory     threads of one process on memory that all share: nothing is sent
 *   sockets    one connection from every worker to every server; chunks are added while in cache
 *   tls        a worker and a server, or several pairs, that exchange TLS records and do not look at them
 *   ping-pong  one worker and one echo: what a round trip costs
 *   relay      several workers and one process that adds what they give: a round trip of all
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include <sys/types.h>

#include "team.h"

enum { CEILING_SERVERS_MAX = 64 };

/* Thread: owned by the runner. */
struct ceiling {
    struct team team; /* its helpers are the servers */
    pid_t workers[TEAM_MAX];
    uint32_t worker_count;
};

/* How processes wait for each other. */
enum ceiling_wait {
    CEILING_BLOCK,
    CEILING_SPIN, /* while a run lasts; idle, they sleep */
};

/* What the threads on shared memory do, each for its share of the tensor. */
enum ceiling_memory {
    CEILING_FULL,      /* write gradients, then add and apply, then read values */
    CEILING_BLOCKED,   /* the same, block by block, in cache */
    CEILING_FUSED,     /* add and apply alone */
    CEILING_COPY_NT,   /* copy private gradients in and values out, past the caches */
    CEILING_COPY_LIBC, /* the same by memcpy */
};

enum ceiling_ping {
    CEILING_PING_MEMORY, /* bytes in shared memory, announced by a counter */
    CEILING_PING_TCP,
    CEILING_PING_UNIX,
};

enum { CEILING_PING_BYTES_MAX = 65536 };

/* Who exchanges a tensor over sockets. Thread: immutable. */
struct ceiling_shape {
    enum ceiling_wait wait;
    uint32_t workers;
    uint32_t
        servers; /* processes of one thread each; of TLS: each thread of a worker has one of its own */
    uint32_t threads; /* of each worker, which share its connections; at least 1 */
    uint64_t bytes;
};

psd_status ceiling_memory_start(enum ceiling_memory kind, uint32_t workers, uint64_t bytes,
                                struct ceiling *ceiling_p, struct psd_error *err);
psd_status ceiling_sockets_start(const struct ceiling_shape *shape, struct ceiling *ceiling_p,
                                 struct psd_error *err);
psd_status ceiling_tls_start(const struct ceiling_shape *shape, struct ceiling *ceiling_p,
                             struct psd_error *err);
psd_status ceiling_ping_start(enum ceiling_ping kind, enum ceiling_wait wait, uint64_t bytes,
                              struct ceiling *ceiling_p, struct psd_error *err);
psd_status ceiling_relay_start(uint32_t workers, uint64_t bytes, struct ceiling *ceiling_p,
                               struct psd_error *err);
void ceiling_stop(struct ceiling *ceiling);

/* For the ceilings themselves: a process each. 0: this is the new one, and for a worker *control_p
 * is where its orders come from. */
pid_t ceiling_fork_server(struct ceiling *ceiling);
pid_t ceiling_fork_worker(struct ceiling *ceiling, int *control_p);

/* Two ends of one tcp connection over loopback, tuned as Poseidon's are; errno says why not. */
bool ceiling_connect(int pair_p[2]);

#endif
