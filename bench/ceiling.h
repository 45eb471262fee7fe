/*
 * ceiling.h - what bare sockets reach: the smallest tcp parameter server that does the same work.
 *
 * No frames, no names, no retries, no membership: every worker has one connection to every server
 * and both know the sizes. Chunk c of the tensor lives on server c modulo servers. A worker streams
 * its gradient while it reads the new values; a server receives a chunk from every worker, adds and
 * applies it while it is in cache, and sends it back from the parameters.
 */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include <sys/types.h>

#include "crew.h"

enum { CEILING_SERVERS_MAX = 64 };

/* Thread: owned by the runner. */
struct ceiling {
    struct crew crew; /* follows CREW_RUN; its tensor was fixed by the start */
    pid_t pids[CREW_MAX + CEILING_SERVERS_MAX];
    uint32_t pid_count;
};

psd_status ceiling_start(uint32_t workers, uint32_t servers, uint64_t bytes,
                         struct ceiling *ceiling_p, struct psd_error *err);
void ceiling_stop(struct ceiling *ceiling);

/* Two ends of one tcp connection over loopback, tuned as Poseidon's are; errno says why not. */
bool ceiling_connect(int pair_p[2]);

#endif
