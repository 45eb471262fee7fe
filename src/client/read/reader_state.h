/*
 * reader_state.h - the inside of a reader. For src/client/read only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_READ_READER_STATE_H
#define PSI_CLIENT_READ_READER_STATE_H

#include "client/core/sparse_ids.h"
#include "client/read/reader.h"
#include "rpc/master_link.h"
#include "view/view.h"

/* The lane at one place, and what it still has to tell. Units are rows that are wanted, in the order in
 * which they travel; or chunks. */
struct read_lane {
    struct psi_reader *reader;
    uint32_t place;
    bool is_started; /* there is a peer: made when it is first wanted */
    struct psi_peer peer;
    struct psi_view_place at; /* as the view has it */
    struct psd_error refused; /* why it, or its server, did not answer last; PSD_OK: it did */
    uint64_t again_ns;        /* not before then; 0: now */
    uint32_t request;         /* under way; 0: none ... */
    uint32_t asked;           /* ... for so many units ... */
    uint64_t asked_ns;        /* ... which left then */
    uint64_t next;            /* unit */
    uint64_t end;             /* behind the last one */
};

/* What is being read. */
struct reading {
    bool is_open;
    struct psi_read_args args;
    struct sparse_ids ids; /* owned */
    uint32_t *begin;       /* owned; in ids.list, of each unit; one more, the end */
    uint32_t lanes_left;   /* that have not told all */
    uint64_t oldest;
    uint64_t newest;
    uint64_t moment_ns; /* nothing that was told is older */
    uint64_t ended_ns;
    struct psd_error error; /* PSD_OK: none so far */
};

struct psi_reader {
    struct psi_env *env;
    uint64_t life;
    struct psi_master_link master;
    uint64_t job; /* 0: not known yet */
    struct psi_view view;
    struct read_lane *lane; /* owned; view.places of them */
    uint32_t lanes;
    struct psi_read_table **table; /* owned, and every one of them */
    uint32_t tables;
    uint32_t requests; /* so far: the number of the last one */
    struct reading reading;
    struct psd_error over; /* PSD_OK: it is not */
};

/* read_tables.c */
psd_status read_table_arrived(struct psi_reader *reader, const void *body, size_t bytes,
                              struct psd_error *err);
void read_tables_destroy(struct psi_reader *reader);

/* read_lanes.c */
psd_status read_lanes_follow(struct psi_reader *reader, const struct psi_view *now,
                             struct psd_error *err);
void read_lanes_destroy(struct psi_reader *reader);
void read_lanes_tick(struct psi_reader *reader, uint64_t now_ns);
uint64_t read_lanes_next_ns(const struct psi_reader *reader);
void read_lane_hang_up(struct read_lane *lane); /* what it was asked is not wanted any more */

/* reading.c */
void reading_fail(struct psi_reader *reader, const struct psd_error *why);
/* Asks for the next units. */
void reading_ask(struct read_lane *lane);
psd_status reading_answered(struct read_lane *lane, const void *payload, size_t bytes,
                            struct psd_error *err);
size_t reading_answer_bytes(const struct read_lane *lane); /* of the request under way */

#endif
