/*
 * entrants.h - everybody who can take part: Poseidon in its several uses, ceilings, peers.
 */
#ifndef BENCH_ENTRANTS_H
#define BENCH_ENTRANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ceiling.h"

enum entrant {
    ENTRANT_NONE,
    /* Poseidon */
    ENTRANT_IN_PLACE,
    ENTRANT_ORDINARY,
    ENTRANT_STREAMED,
    ENTRANT_SUM,
    ENTRANT_SCANNED,
    ENTRANT_HALF,
    ENTRANT_BLOCKING,
    ENTRANT_URGENT,
    ENTRANT_URGENT_EQUAL,
    /* ceilings */
    ENTRANT_FULL,
    ENTRANT_BLOCKED,
    ENTRANT_FUSED,
    ENTRANT_COPY_NT,
    ENTRANT_COPY_LIBC,
    ENTRANT_SOCKETS,
    ENTRANT_SOCKETS_SPIN,
    ENTRANT_SOCKETS_ONE_SERVER,
    ENTRANT_TLS,
    ENTRANT_PING_MEMORY,
    ENTRANT_PING_MEMORY_SPIN,
    ENTRANT_PING_TCP,
    ENTRANT_PING_TCP_SPIN,
    ENTRANT_PING_UNIX,
    ENTRANT_PING_UNIX_SPIN,
    /* peers */
    ENTRANT_MPI,
    ENTRANT_MPI_TCP,
    ENTRANT_MPI_TCP_TUNED,
    ENTRANT_GLOO,
    ENTRANT_GLOO_TUNED,
    ENTRANT_RPC,
    ENTRANT_RPC_TCP,
    ENTRANT_RPC_TCP_TUNED,
    ENTRANTS,
};

/* A set of them. */
#define ENTRANT_BIT(entrant) (UINT64_C(1) << (entrant))

enum entrant_kind {
    KIND_POSEIDON,
    KIND_MEMORY,
    KIND_SOCKETS,
    KIND_TLS,
    KIND_PING,
    KIND_MPI,
    KIND_GLOO,
    KIND_RPC,
};

/* Each contestant is timed by the call alone, with what a worker does before and after, or both. */
enum entrant_timing { TIMING_CALL = 1, TIMING_TOUCH = 2, TIMING_BOTH = 3 };

enum { ENTRANT_REFERENCES = 4 };

/* Thread: immutable. */
struct entrant_about {
    const char *name;  /* in the results file */
    const char *title; /* in tables */
    enum entrant_kind kind;
    unsigned timings;
    enum entrant references[ENTRANT_REFERENCES]; /* whom it is measured by: the best of those that
                                                    took part and were timed the same way */
    uint64_t flags;                              /* of its orders */
    bool urgent;                                 /* CREW_URGENT instead of CREW_RUN */
    int variant;            /* of a ceiling: enum ceiling_memory or ceiling_ping */
    enum ceiling_wait wait; /* of sockets and pings */
    bool tcp;               /* a peer: over tcp, though on one host */
    bool tuned;             /* a peer over tcp: with congestion control like ours */
    uint64_t bytes_min;     /* sizes it takes part in */
    uint64_t bytes_max;     /* 0: any */
};

const struct entrant_about *entrant_about(enum entrant entrant);

/* Whether it takes part with a tensor of this size. */
bool entrant_takes(enum entrant entrant, uint64_t bytes);

#endif
