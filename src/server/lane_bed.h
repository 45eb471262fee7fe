/*
 * lane_bed.h - a small world for a lane's tests: the test is its master and its workers, frame by
 * frame.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_LANE_BED_H
#define SERVER_LANE_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/lane.h"
#include "world/world.h"

enum { LANE_BED_WORKERS_MAX = 4, LANE_BED_PEERS_MAX = 16 };

/* The test's end of one connection, and who it says it is. */
struct peer {
    struct world_conn *line;
    uint32_t rank;
    uint16_t incarnation;
};

struct lane_bed {
    struct world world; /* first */
    struct lane *lane;
    uint32_t workers;
    uint32_t view;
    bool elastic;         /* workers may join */
    bool survives;        /* the job goes on when a server dies */
    uint64_t first_step;  /* the job goes on from there */
    uint32_t life;        /* of the lane's server: its number ... */
    uint32_t life_in_job; /* ... and that of the one that the view has */
    struct psi_view_worker member[LANE_BED_WORKERS_MAX];
    struct peer peer[LANE_BED_PEERS_MAX];
    unsigned peers;
    struct peer *master;
    struct peer *worker[LANE_BED_WORKERS_MAX];
    char warnings[4096];
    char notes[4096]; /* lines of level info */
};

/* A lane that has joined a job; every worker is connected, as incarnation 1. */
struct lane_bed *lane_bed_start(uint32_t workers, enum psi_death_policy policy);
void lane_bed_stop(struct lane_bed *bed);

/* The same with room for more ranks than there are workers; others may join. */
struct lane_bed *lane_bed_start_elastic(uint32_t ranks, uint32_t workers,
                                        enum psi_death_policy policy);

/* A lane that stands by in another server of such a job. */
struct lane_bed *lane_bed_start_standby(uint32_t workers);

/* The same in a job that goes on when a server dies. And the second life of a server of such a job:
 * nobody is connected before server_back(), and tables that are opened were there before. */
struct lane_bed *lane_bed_start_surviving(uint32_t workers);
struct lane_bed *lane_bed_start_again(uint32_t workers);
void server_back(struct lane_bed *bed);

/* The master's connection ends, and the lane finds another life of it, of that term; what the lane
 * said to it. */
struct psi_hello meet_master(struct lane_bed *bed, uint32_t term);

/* What the master says. A proposal is for the next view; a commit carries bed->member. */
void open_table(struct lane_bed *bed, uint32_t id, const struct psd_table_args *args);
void open_sparse(struct lane_bed *bed, uint32_t id, const struct psd_sparse_args *args);
/* A table that the lane has: the master asks again. */
void open_table_again(struct lane_bed *bed, uint32_t id, const struct psi_spec *spec);
void propose(struct lane_bed *bed, uint32_t rank, bool leaves);
void commit(struct lane_bed *bed, const struct psi_view_table *left, uint32_t rank, bool leaves);
void propose_only(struct lane_bed *bed, uint32_t rank, bool leaves); /* it may not answer yet */

/* That rank joins: from which step on the lane closes nothing of its one table until then; and it does,
 * with that step. */
uint64_t propose_join(struct lane_bed *bed, uint32_t rank);
void commit_join(struct lane_bed *bed, uint32_t rank, uint32_t table, uint64_t first_step);
void close_round(struct lane_bed *bed, uint32_t table, uint64_t step, uint32_t rank_bits);

/* The newest connection that the lane has made to this address. */
struct peer *peer_at(struct lane_bed *bed, const char *address);

/* Has either side ended the connection? */
bool is_gone(const struct peer *peer);

/* A new connection that says HELLO as that life of the rank. */
struct peer *meet(struct lane_bed *bed, uint32_t rank, uint16_t incarnation);

/* A new connection of a reader, and the master's answer to the lane's PING, by which the lane knows that it
 * has its place. */
struct peer *meet_reader(struct lane_bed *bed, uint64_t life);
void pong(struct lane_bed *bed);

/* A frame from a peer, with a payload or without (bytes 0); rank, incarnation and view are filled
 * in. */
void say(struct lane_bed *bed, struct peer *peer, struct psi_frame frame, const void *payload,
         size_t bytes);

/* The same with the options behind the header. */
void say_with(struct lane_bed *bed, struct peer *peer, struct psi_frame frame,
              const struct psi_meta *meta, const void *payload, size_t bytes);

/* The next frame of this type that the peer was sent; others before it are passed over. NULL: there
 * is none. */
const struct world_heard *hear(struct peer *peer, uint8_t type);
struct psi_verdict hear_verdict(struct peer *peer, uint8_t type);

#endif
