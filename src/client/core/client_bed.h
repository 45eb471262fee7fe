/*
 * client_bed.h - a worker's core for tests: the test is its master and its servers, frame by frame.
 *
 * The worker is rank 0 of a job of two, unless a test says so; every server has one lane. Tables are of f32, one or more
 * chunks long; their gradients and values are the bed's memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CLIENT_CORE_CLIENT_BED_H
#define CLIENT_CORE_CLIENT_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/core/core.h"
#include "client/core/state.h"
#include "world/world.h"

enum {
    BED_LANES_MAX = 2,
    BED_WORKERS_MAX = 3,
    BED_TABLES_MAX = 4,
    BED_CHUNKS_MAX = 6,
    BED_LONE_CHUNKS_MAX = 20, /* of a worker alone, whose large tables are copied piece by piece */
    BED_CHUNK_BYTES = PSD_CHUNK_ELEMENTS * 4,
    BED_TIMEOUT_MS = 1000, /* of an operation that has none of its own */
};

struct client_bed {
    struct world world; /* first */
    struct psi_client *client;
    uint32_t lanes;
    uint32_t view;                /* the last one it was told of */
    uint32_t life[BED_LANES_MAX]; /* of each server */
    bool near;                    /* servers share memory with it, from its next connection on */
    bool in_place;                /* values come where gradients were */
    uint64_t host;                /* of all workers; 0: nobody says */
    struct psi_welcome welcome;
    struct psd_table *table[BED_TABLES_MAX];
    uint32_t tables;
    float *gradient; /* BED_LONE_CHUNKS_MAX chunks; element i is i */
    float *values;   /* BED_LONE_CHUNKS_MAX chunks; at first -1 */
};

/* A worker that has joined. window_bytes: what a lane lets it have unanswered. */
struct client_bed *client_bed_start(uint32_t lanes, enum psi_death_policy policy,
                                    uint32_t window_bytes);
/* The same of a job that goes on when a server dies. */
struct client_bed *client_bed_start_surviving(uint32_t lanes, bool near, uint32_t window_bytes);

/* The same of a worker whose sums may stay in it, in a job of so many workers (elastic, surviving, policy). One lane. */
struct client_bed *client_bed_start_lone(const struct psi_welcome *job);

/* The same with all workers on one host, and the servers elsewhere: it sends for its host. */
struct client_bed *client_bed_start_sender(uint32_t workers, uint32_t lanes, uint32_t window_bytes);

/* The same as rank 1 of two: it pushes through rank 0, which the test is, too. */
struct client_bed *client_bed_start_neighbour(uint32_t lanes, uint32_t window_bytes);
void client_bed_stop(struct client_bed *bed);

/* The worker's connection to the master, to a lane, to who sends for its host; NULL: it has none. */
struct world_conn *bed_master(struct client_bed *bed);
struct world_conn *bed_sender(struct client_bed *bed);
struct world_conn *bed_lane(struct client_bed *bed, uint32_t lane);

/* A lane is gone; then there again, and has welcomed the worker anew. */
void bed_cut(struct client_bed *bed, uint32_t lane);
void bed_come_back(struct client_bed *bed, uint32_t lane);

/* A view without anything new; one with another life of a server, at another address. */
void bed_tell_view(struct client_bed *bed);
void bed_begin_life(struct client_bed *bed, uint32_t lane);

/* Opens a table of so many chunks; bed_open_sum: of gradients that are only added. */
struct psd_table *bed_open(struct client_bed *bed, unsigned chunks, uint32_t staleness,
                           uint32_t backup_workers);
struct psd_table *bed_open_sum(struct client_bed *bed, unsigned chunks);
struct psd_table *bed_open_sum_of_rows(struct client_bed *bed); /* one number each */

/* Starts an operation on the whole table. bed_begin: with anything else, `from` and `to` are filled
 * in, but for a view. */
struct psd_op *bed_push(struct client_bed *bed, struct psd_table *table, uint64_t step);
struct psd_op *bed_pull(struct client_bed *bed, struct psd_table *table, uint64_t step);
struct psd_op *bed_push_pull(struct client_bed *bed, struct psd_table *table, uint64_t step);
struct psd_op *bed_begin(struct client_bed *bed, struct psd_table *table,
                         const struct psi_transfer *transfer);

/* Takes it, and frees it: how it ended. It must have. */
struct psd_error bed_end(struct client_bed *bed, struct psd_op *op, psd_outcome *outcome_p);
void bed_end_well(struct client_bed *bed, struct psd_op *op);

/* The next frame that carries an operation to a lane, of whatever type. NULL: there is none. */
const struct psi_frame *bed_sent(struct client_bed *bed, uint32_t lane);

/* ... which must be of that kind. */
const struct psi_frame *bed_expect(struct client_bed *bed, uint32_t lane, uint8_t type,
                                   uint32_t chunk);
unsigned bed_sent_count(struct client_bed *bed, uint32_t lane); /* passes over all of them */

/* The lane's answers to a request. */
void bed_ack(struct client_bed *bed, uint32_t lane, const struct psi_frame *request);
void bed_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request, float value);
void bed_value_flagged(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
                       float value, uint16_t flags);

/* The same, and the worker has had no turn since: more comes. */
void bed_feed_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
                    float value, uint16_t flags);

/* Half of a value comes; and then, or not, the connection ends. */
void bed_begin_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
                     float value);
void bed_half_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
                    float value);

/* A value that a server of this host has lent: `memory` is its own. */
void bed_lend(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
              const void *memory, struct psi_loan *loan, uint16_t flags);

/* Two of them, of which the second begins before the first is heard. */
void bed_lend_both(struct client_bed *bed, uint32_t lane, const struct psi_frame *requests[2],
                   const void *const memory[2], struct psi_loan *const loans[2]);

/* Its head is here; if it is the last, the connection ends before the rest is heard. */
void bed_lend_half(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
                   const void *memory, struct psi_loan *loan, bool last);

/* The lane says a frame about that table, chunk and step. */
void bed_tell(struct client_bed *bed, uint32_t lane, uint8_t type, const struct psd_table *table,
              uint32_t chunk, uint64_t step);

#endif
