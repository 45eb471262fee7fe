/*
 * join_state.h - what the coordinator knows of those who join. For join.c and join_members.c alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOIN_STATE_H
#define LAUNCH_JOIN_STATE_H

#include "launch/meet/join_line.h"
#include "launch/meet/join_member.h"
#include "secure/tls.h"
#include "transport/loop/loop.h"

enum {
    JOIN_FAREWELL_MS = 2000, /* for the last word to be heard */
    JOIN_REFUSAL_BYTES = 512,
};

/* A rank. Thread: owned by the main thread of psd_run. */
struct seat {
    struct join *join;
    struct join_member member; /* of its last life */
    struct join_line line;
    int theirs;          /* the other end of the line until it is taken; -1: taken */
    uint32_t line_wants; /* what the epoll set waits for on the line; 0: not in it */
    bool draining;       /* nothing more comes: the line closes when all was read */
    bool marked;         /* it was there at the last join_mark(), in this life */
    bool asked; /* to leave, and waits until the job is saved; join_next_asked() tells it once */
    char why_left[96];
};

/* A connection that has not said who it is. */
struct guest {
    struct join *join;
    struct psi_conn *conn;
    struct guest *next;
};

struct join {
    struct join_config config;
    struct psi_secret *secret;
    struct psi_tls *tls;
    struct psi_loop *loop;
    struct psi_listener *listener;
    int epoll;
    struct seat *seats;   /* owned, by rank; that of rank 0 is empty */
    struct guest *guests; /* owned */
    bool begun;           /* join_mark() was called: there is something to save */
    bool has_last_word;   /* from now on, newcomers are told this */
    enum join_kind last_kind;
    int32_t last_number;
    char last_text[160];
    char refusal[JOIN_REFUSAL_BYTES]; /* of a member; "": none since it was told */
    char stranger[JOIN_REFUSAL_BYTES];
    uint32_t strangers;
};

/* Newcomers, who become members; the owner is the join. */
extern const struct psi_listener_events join_listener_events;

/* Moves what the line of a rank can move; closes it. */
void join_move_line(struct seat *seat);
void join_close_line(struct seat *seat);

void join_forget_guest(struct guest *guest);

#endif
