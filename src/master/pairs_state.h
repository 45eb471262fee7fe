/*
 * pairs_state.h - copies of servers (pairs.c). For src/master only.
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

/* A lane that stands by, as the copy of one lane. */
struct copy {
    uint64_t life;
    uint32_t server; /* its name, while it stands by */
    uint32_t lane;
    uint32_t lanes;
    char address[PSI_ADDRESS_MAX];
    bool eligible;    /* it has all that the lane has told anybody */
    uint64_t gone_ns; /* since then it is not connected; 0: it is */
    bool is_placed;   /* it has been told to take the place */
    bool is_broken;   /* it says that it is none */
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
    PAIR_ENDING,  /* ... that takes no place any more; the server does not know yet */
};

/* The copy of a server. */
struct pair {
    enum pair_stage stage;
    uint64_t number;
    uint64_t process;  /* in which it is */
    struct copy *copy; /* owned; one per lane */
    uint64_t retry_ns; /* PAIR_NONE: not before */
    uint32_t failures; /* since it was last whole */
    uint64_t none_ns;  /* when to say that there is no place for one; 0: there was one */
    uint64_t shunned;  /* the process of the last one that failed */
    uint64_t crossed;  /* no copy takes a place by this number, or one before it; ... */
    uint64_t mark;     /* ... PAIR_ENDING: lanes have that in mind by this mark of done.c */
};

void master_pairs_tick(struct master *master, uint64_t now_ns);
bool master_pair_is_whole(const struct server *server);

/* ... and is it there, all of it, by what was heard lately? */
bool master_pair_is_here(const struct master *master, const struct server *server, uint64_t now_ns);

/* This process has ended, and with it the copies that were in it. */
void master_pair_gone(struct master *master, uint64_t process);

/* Is this lane, which stands by, a copy? */
bool master_is_copy(const struct master *master, const struct session *session);

/* pair_places.c */
/* May this lane become a copy? */
bool master_pair_may_use(const struct session *session, uint64_t now_ns);
/* The best process for a copy. False: none will do. */
bool master_pair_find_process(const struct master *master, const struct server *server,
                              uint64_t now_ns, uint64_t *process_p);
/* Nobody can hold a copy: people hear it, after a while. */
void master_pair_say_none(struct master *master, struct server *server, uint64_t now_ns);

/* Sends what a lane with a place, or one that stands by, may have missed. */
void master_pair_resend(const struct master *master, const struct member *lane);
void master_pair_greet(struct session *session);

/* Gives the places of a lost server to its copy, as far as it is here. False: the copy is lost. */
bool master_pair_promote(struct master *master, struct server *server, uint64_t now_ns);
/* The copy has the places; or never will. */
void master_pair_promoted(const struct master *master, struct server *server);
void master_pair_over(struct server *server);

/* No copy of this server takes its place by this number any more, or by one before it. */
void master_pair_give_up(struct master *master, struct server *server, uint64_t number);
void master_pair_free(struct server *server);

psd_status master_on_eligible(struct session *session, const void *body, size_t bytes,
                              struct psd_error *err);
psd_status master_on_copy(struct session *session, const void *body, size_t bytes,
                          struct psd_error *err);
/* By the copy itself. */
psd_status master_on_copy_lost(struct session *session, const void *body, size_t bytes,
                               struct psd_error *err);
psd_status master_on_pair_lost(struct session *session, const void *body, size_t bytes,
                               struct psd_error *err);

/* done.c */
/* The number of a copy is crossed out: lanes keep it in mind, by that mark. Do they? */
uint64_t master_done_cross_out(struct master *master);
bool master_done_has_crossed_out(const struct master *master, uint64_t mark);

#endif
