/*
 * pairs_state.h - copies of servers' lanes (pairs.c). For src/master only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_PAIRS_STATE_H
#define MASTER_PAIRS_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/guest.h"

struct master;
struct member;
struct server;
struct session;

enum { PAIR_WHY = 192 };

/* A lane that stands by, as the copy of another. */
struct copy {
    uint64_t life;
    uint64_t process; /* in which it is */
    uint32_t server;  /* its name, while it stands by */
    uint32_t lane;
    uint32_t lanes;
    char address[PSI_ADDRESS_MAX];
    uint64_t gone_ns;   /* since then it is not connected; 0: it is */
    bool is_placed;     /* it has been told to take the place ... */
    uint64_t placed_ns; /* ... then, by this life of the master; 0: not yet */
    bool is_broken;     /* it says that it is none: */
    char broken[PAIR_WHY];
};

/* What a lane that stands by says of itself to a master that returned. */
struct claim {
    uint64_t number; /* of the copy; 0: it is none ... */
    uint32_t server; /* ... of that lane ... */
    uint32_t lane;
    bool eligible; /* ... and has all that was told */
};

enum pair_stage {
    PAIR_NONE,    /* it has no copy */
    PAIR_FORMING, /* it has one that may lack something */
    PAIR_WHOLE,   /* ... that lacks nothing */
    PAIR_ENDING,  /* ... that takes no place any more; the lane does not know yet */
};

/* A lane and its copy. */
struct pair {
    enum pair_stage stage;
    uint64_t number;
    struct copy copy;
    uint64_t retry_ns; /* PAIR_NONE: not before */
    uint64_t
        target;    /* the process that it is to be made in, because the place moves there; 0: any */
    bool is_given; /* the lane was told to hand its place over */
    bool is_planned;         /* is_promoting: ... because it has done so */
    uint32_t failures;       /* since it was last whole */
    uint64_t shunned;        /* the process of the last one that failed ... */
    char why[PAIR_WHY];      /* ... for this reason */
    uint32_t moves_failed;   /* of the place or its copy, since one came to its end: */
    uint32_t move_shunned;   /* the last one was to that server ... */
    char move_why[PAIR_WHY]; /* ... and failed for this reason ... */
    uint64_t move_retry_ns;  /* ... and is not tried again before */
    uint64_t mark; /* PAIR_ENDING: lanes have in mind that the number is crossed out by this mark of
                          done.c; 0: they have not been told */
    bool is_promoting; /* the lane is lost, and its copy takes its place ... */
    uint32_t left_by;  /* ... after the process that was started with this index */
};

void master_pairs_tick(struct master *master, uint64_t now_ns);

struct pair *master_pair_of(const struct master *master, const struct member *lane);
bool master_pair_is_whole(const struct pair *pair);
bool master_pair_has_copy(const struct pair *pair);
/* ... of all lanes of the server? */
bool master_pairs_are_whole(const struct server *server);

/* The lane that stands by and is that copy; NULL: it is not connected. Is the copy of the pair gone? */
struct session *master_pair_find_copy(const struct master *master, const struct copy *copy);
bool master_pair_copy_is_lost(struct master *master, struct pair *pair, uint64_t now_ns);

/* Is it whole, and there, by what was heard lately? */
bool master_pair_is_here(const struct master *master, const struct pair *pair, uint64_t now_ns);

/* Is a lane of the server lost whose copy takes its place? */
bool master_pairs_promote(const struct server *server);

/* ... because the place was handed over to it? */
bool master_is_moving(const struct server *server);

/* This process has ended, and with it the copies that were in it. */
void master_pair_gone(struct master *master, uint64_t process);

/* Is this lane, which stands by, a copy? */
bool master_is_copy(const struct master *master, const struct session *session);

/* Sends what a lane with a place, or one that stands by, may have missed. */
void master_pair_resend(const struct master *master, const struct member *lane);
void master_pair_greet(struct session *session);

/* Gives the place of a lost lane to its copy, if that is here. False: the copy is lost. */
bool master_pair_promote(struct master *master, struct member *lane, uint64_t now_ns);
/* The copies have the places; or one never will. */
void master_pair_promoted(const struct master *master, struct server *server);
void master_pair_over(struct pair *pair);

/* No copy of this lane takes its place by this number any more, or by one before it. */
void master_pair_give_up(struct master *master, const struct member *lane, uint64_t number);
/* ... and lanes hear of those that were given up since. */
void master_pairs_tell_crossed(struct master *master);

psd_status master_on_eligible(struct session *session, const void *body, size_t bytes,
                              struct psd_error *err);
psd_status master_on_copy(struct session *session, const void *body, size_t bytes,
                          struct psd_error *err);
/* By the copy itself. */
psd_status master_on_copy_lost(struct session *session, const void *body, size_t bytes,
                               struct psd_error *err);
psd_status master_on_pair_lost(struct session *session, const void *body, size_t bytes,
                               struct psd_error *err);

/* ------------------------------------------------------------------------- pair_places.c --- */

/* Lanes that may become copies, and how much each process has to do already. */
struct room {
    struct session **spare; /* owned; NULL: they are not known yet */
    uint32_t spares;
    uint32_t *load; /* owned; places and copies in a process, by its index */
};

/* PSD_ERR_NO_MEMORY. */
psd_status master_room_init(struct room *room, const struct master *master, uint64_t now_ns);
void master_room_fini(struct room *room);

/* The best lane for a copy of that one, which is used then. NULL: none will do. */
struct session *master_room_take(struct room *room, const struct master *master,
                                 const struct member *lane);

/* That lane is taken. */
void master_room_forget(struct room *room, uint64_t life);

/* Nobody can hold a copy: people hear it, after a while. */
void master_pair_say_none(struct master *master, struct server *server, uint64_t now_ns);

/* "server 1 (tcp://10.0.0.3:40112), server 2 (...)": where the copies of a server's lanes are. */
enum { MASTER_COPIES_TEXT = 400 };
void master_copies_name(const struct server *server, char text_p[MASTER_COPIES_TEXT]);

/* done.c */
/* The number of a copy is crossed out: lanes keep it in mind, by that mark. Do they? */
uint64_t master_done_cross_out(struct master *master);
bool master_done_has_crossed_out(const struct master *master, uint64_t mark);

#endif
