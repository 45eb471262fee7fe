/*
 * subjects.h - everybody who can take part: Poseidon in its several uses, ceilings, peers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SUBJECTS_H
#define BENCH_SUBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ceiling.h"

enum subject {
    SUBJECT_NONE,
    /* Poseidon */
    SUBJECT_IN_PLACE,
    SUBJECT_ORDINARY,
    SUBJECT_STREAMED,
    SUBJECT_SUM,
    SUBJECT_SCANNED,
    SUBJECT_HALF,
    SUBJECT_BLOCKING,
    SUBJECT_MOMENTUM,
    SUBJECT_ADAM,
    SUBJECT_COPIED,
    SUBJECT_COPIED_MOMENTUM,
    SUBJECT_COPIED_ADAM,
    SUBJECT_SUM_OFF,
    SUBJECT_SUM_HELD,
    SUBJECT_SUM_HELD_OFF,
    SUBJECT_TENSORS,
    SUBJECT_TRAIN,
    SUBJECT_URGENT,
    SUBJECT_URGENT_EQUAL,
    /* ceilings */
    SUBJECT_FULL,
    SUBJECT_BLOCKED,
    SUBJECT_FUSED,
    SUBJECT_COPY_NT,
    SUBJECT_COPY_LIBC,
    SUBJECT_SOCKETS,
    SUBJECT_SOCKETS_SPIN,
    SUBJECT_SOCKETS_ONE_SERVER,
    SUBJECT_SOCKETS_THREADS,
    SUBJECT_TLS,
    SUBJECT_TLS_THREADS,
    SUBJECT_PING_MEMORY,
    SUBJECT_PING_MEMORY_SPIN,
    SUBJECT_PING_TCP,
    SUBJECT_PING_TCP_SPIN,
    SUBJECT_PING_UNIX,
    SUBJECT_PING_UNIX_SPIN,
    SUBJECT_PING_RELAY,
    /* peers */
    SUBJECT_MPI,
    SUBJECT_MPI_TCP,
    SUBJECT_MPI_TCP_TUNED,
    SUBJECT_GLOO,
    SUBJECT_GLOO_TUNED,
    SUBJECT_RPC,
    SUBJECT_RPC_TCP,
    SUBJECT_RPC_TCP_TUNED,
    SUBJECT_TRAIN_MPI,
    SUBJECT_TRAIN_GLOO,
    SUBJECTS,
};

/* A set of them. */
#define SUBJECT_BIT(subject) (UINT64_C(1) << (subject))

enum subject_kind {
    KIND_POSEIDON,
    KIND_MEMORY,
    KIND_SOCKETS,
    KIND_TLS,
    KIND_PING,
    KIND_RELAY,
    KIND_MPI,
    KIND_GLOO,
    KIND_RPC,
};

/* Subjects of Poseidon that have the same job share it. */
enum subject_job {
    JOB_USUAL,
    JOB_BLOCKING, /* nobody spins before he sleeps */
    JOB_COPIED,   /* each server has a copy in another one */
    JOB_SUM_OFF,  /* sums are lost with their server: sum_failover=off */
    JOBS,
};

/* Each subject is timed by the call alone, with what a worker does before and after, or both. */
enum subject_timing { TIMING_CALL = 1, TIMING_TOUCH = 2, TIMING_BOTH = 3 };

enum { SUBJECT_REFERENCES = 6 };

/* Thread: immutable. */
struct subject_about {
    const char *name;  /* in the results file */
    const char *title; /* in tables */
    enum subject_kind kind;
    unsigned timings;
    enum subject references[SUBJECT_REFERENCES]; /* whom it is measured by: the best of those that
                                                    took part and were timed the same way */
    uint64_t flags;                              /* of its orders */
    enum subject_job job;
    bool urgent;            /* TEAM_URGENT instead of TEAM_RUN */
    int variant;            /* of a ceiling: enum ceiling_memory or ceiling_ping */
    enum ceiling_wait wait; /* of sockets and pings */
    bool threads;           /* of sockets and TLS: as many as a job has */
    bool tcp;               /* a peer: over tcp, though on one host */
    bool tuned;             /* a peer over tcp: with congestion control like ours */
    bool model;             /* only with tensors that stand for a model */
    uint64_t bytes_min;     /* sizes it takes part in */
    uint64_t bytes_max;     /* 0: any */
};

const struct subject_about *subject_about(enum subject subject);

/* Whether it takes part with a tensor of this size. */
bool subject_takes(enum subject subject, uint64_t bytes);

#endif
