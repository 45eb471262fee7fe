/*
 * pair_state.h - a lane and its copy: a lane that stands by in another server and is told of every change
 * before anybody else is.
 *
 * The lane with the place has a struct pair: a connection to the copy, and a queue of parcels, each
 * with a number. A parcel stays until the copy has said that it has it; after a cut those it lacks
 * are sent again. The copy has a struct mirror: it applies what comes in order, and never waits.
 *
 * Thread: owned by the lane's thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_PAIR_STATE_H
#define SERVER_PAIR_STATE_H

#include "base/segment.h"
#include "rpc/peer.h"
#include "store/store.h"
#include "wire/frame.h"
#include "wire/message.h"

struct chunk;
struct closed_round;
struct lane;
struct session;
struct table;

/* How a chunk goes on, once its lane has a copy. */
enum copy_mode {
    COPY_ALONE,   /* the copy has nothing of it: answers wait for nobody */
    COPY_JOINING, /* a snapshot is on its way; nor do they now, but changes follow it */
    COPY_PAIRED,  /* the copy had it: answers wait until it has the change, too */
};

/* Of a chunk. Numbers are those of parcels; 0: none. */
struct chunk_copy {
    enum copy_mode mode;
    uint64_t snapshot; /* JOINING: of the snapshot that makes it PAIRED */
    uint64_t last;     /* of the last change that was sent */
    uint64_t load;     /* values from outside that nobody may hear of before the copy has them */
    uint32_t waiting;  /* PAIRED: changes that the copy may lack, ... */
    bool is_behind;    /* ... and there were more: the whole chunk goes when it has those */
    bool walks;        /* sparse tables: all that there is goes in pieces, of which ... */
    struct store_walk walk; /* ... these have been sent */
};

/* One frame to the copy. */
struct parcel {
    struct parcel *next;
    struct psi_frame frame; /* its seq is the number of the parcel */
    bool is_change;         /* pushes of a chunk wait for it: ... */
    uint64_t version;       /* ... of the chunk, with it */
    uint8_t *body;          /* behind the struct, or in a slot */
    size_t bytes;
    bool in_slot;
    bool is_lent;  /* the body is where its chunk has it: not ours */
    bool in_parts; /* of a change: what it has made of the chunk went before, on loan */
    uint8_t *kept; /* owned; the body, of a chunk that is gone; or NULL */
    bool borrowed; /* the connection has not sent all of it yet */
    bool over;     /* ... and nobody else wants it any more */
};

/*
 * Memory for sums on their way to the copy (pair_slots.c): a ring, because the copy has them in the
 * order in which they were made. A copy on this host reads them in here. It belongs to one pair: what
 * a copy has been lent is not written again when the pair has ended.
 */
struct sum_slots {
    struct psi_segment segment; /* lent to peers on this host; without one: */
    uint8_t *heap;              /* owned */
    size_t bytes;
    size_t next;           /* where the next slot may begin, ... */
    size_t oldest;         /* ... and where the oldest one begins that the copy may lack */
    uint32_t out;          /* how many of those there are */
    struct chunk *waiting; /* chunks whose round is full, and finds no room */
    struct chunk **waiting_end;
};

/* The answer to a STEP_ADD that waits for the copy. */
struct step_wait {
    struct step_wait *next;
    uint32_t rank;
    uint32_t request;
    uint64_t result;
    uint64_t parcel; /* that the copy must have */
};

struct pair {
    uint64_t number; /* the master's */
    struct psi_pair copy;
    struct psi_peer peer;
    bool is_met;          /* this connection: the copy has said what it has */
    struct parcel *first; /* that the copy may lack */
    struct parcel **end;
    struct parcel *unsent; /* ... on this connection */
    uint64_t last;         /* number of the last parcel */
    uint64_t acked;        /* the copy has all up to this one */
    uint64_t begun;        /* up to this one they say what there was before the copy */
    uint64_t told_alone;   /* up to this one they were told of without the copy */
    uint64_t view;         /* this one has the view of the lane ... */
    bool view_comes;       /* ... or it is just being taken */
    uint64_t bytes;        /* of all parcels that are not lent ... */
    uint64_t lent_bytes;   /* ... and of those that are ... */
    uint64_t burst_bytes;  /* ... and of both, at most, since the copy last lacked nothing */
    uint64_t rows_max;     /* the largest change of rows that it was told of, of these */
    uint64_t gathered;     /* ... of changes that came since parcels were last sent */
    struct sum_slots slots;
    uint64_t heard_ns; /* when it last had something, or there was nothing to be had */
    uint64_t warn_ns;  /* when to say next that it is slow */
    uint64_t unpaired; /* chunks that are not PAIRED ... */
    uint64_t alone;    /* ... of which are ALONE ... */
    uint64_t rate;     /* ... and go with so many bytes a second at most; 0: with any number ... */
    uint64_t snapshot_ns; /* ... the next one not before */
    bool gives;           /* the copy is to get the place ... */
    bool has_given;       /* ... and has been told so ... */
    uint64_t again_ns;    /* ... a connection that ends then is not to be renewed before */
    struct step_wait *waits;
    struct step_wait **waits_end;
    bool is_eligible;  /* the copy has all that was told, ... */
    uint64_t eligible; /* ... and knows it when it has this one */
    bool is_told;      /* the master knows */
    bool is_broken;    /* it cannot go on: the master has to end it ... */
    bool is_lost_told; /* ... which it knows */
    char reason[PSI_TEXT_MAX];
};

/* The list of rows of a change, until all of it is here. Zeroed: nothing is. */
struct mirror_rows {
    const struct chunk *chunk; /* of which more comes; NULL: of none */
    uint64_t *ids;             /* owned */
    uint8_t *sums;             /* owned; a row of f32 for each */
    uint32_t count;
};

/* What a change has made of a chunk, part by part, until all of it is here. Zeroed: nothing is. */
struct mirror_parts {
    const struct chunk *chunk;        /* whose; NULL: no part is here */
    struct slot *slot[PSI_PARTS_MAX]; /* each with its loan */
};

/* Of a lane that stands by, and is a copy. */
struct mirror {
    uint64_t number; /* the master's */
    struct psi_pair owner;
    struct session *session; /* of the owner; NULL: not connected */
    uint64_t applied;        /* number of the last parcel */
    bool ack_due;
    uint64_t unacked_bytes; /* of parcels since the last word to the owner */
    uint64_t turn_bytes;    /* of parcels that have come in this turn ... */
    uint64_t burst_bytes;   /* ... and in the last one in which any came */
    bool is_eligible;       /* the owner says that nothing is missing ... */
    bool is_given;          /* ... and has given it the place: it takes it with the next tick */
    bool is_broken;         /* something was not applied: no more is */
    void *view;             /* owned; the last view that the owner took */
    size_t view_bytes;
    struct mirror_rows rows;
    struct mirror_parts parts;
};

/* ------------------------------------------------------------------------- pair_queue.c --- */

/* A parcel with room for so many bytes; NULL: no memory. */
struct parcel *parcel_create(uint8_t type, size_t bytes);

/* The next one in the queue. Returns its number. */
uint64_t pair_enqueue(struct lane *lane, struct parcel *parcel);
void pair_pump(struct lane *lane);
void pair_send_again(struct lane *lane); /* on a new connection: what the copy lacks */
void pair_empty(struct pair *pair);

/* Takes the first parcel off, if the copy has it. NULL: it has not. free with parcel_free(). */
struct parcel *pair_take_acked(struct pair *pair);
void parcel_free(struct parcel *parcel);

/* ------------------------------------------------------------------------- pair_slots.c --- */

void pair_slots_init(struct lane *lane);
void pair_slots_fini(struct lane *lane); /* nothing borrows them any more */

/* A parcel whose body lies in a slot, if it is one of those that have one and there is room; else it
 * is kept for itself. NULL: no memory. */
struct parcel *parcel_in_slot(struct pair *pair, uint8_t type, size_t bytes);
void parcel_slot_give(struct pair *pair, const struct parcel *parcel); /* oldest first */

/* The round of the chunk is full. True: it has to wait for room for its sum, and closes then. */
bool pair_slots_wait(struct pair *pair, struct chunk *chunk);
void pair_slots_go_on(struct lane *lane); /* the copy has taken something: who waits may close */
void pair_slots_forget(struct pair *pair, const struct table *table);

/* ----------------------------------------------------------------------- pair_parcels.c --- */

/* Room for what is said of a change; parcel_sum() is where its numbers go. NULL: no memory. */
struct parcel *parcel_for_change(struct pair *pair, const struct chunk *chunk,
                                 const struct closed_round *round);
void *parcel_sum(const struct parcel *parcel);
size_t parcel_change_bytes(const struct chunk *chunk); /* of a round's, with its sum */
/* The change has been made: all but the numbers. */
void parcel_tell_change(struct parcel *parcel, const struct chunk *chunk,
                        const struct closed_round *round);

/* The same of sparse tables, in a part with so many rows of the list. */
void parcel_tell_part(struct parcel *parcel, const struct chunk *chunk,
                      const struct closed_round *round, uint32_t rows, bool goes_on);

/* What is said of a chunk, a table, a view, the global step. NULL: no memory. */
struct parcel *parcel_of_chunk(struct lane *lane, const struct chunk *chunk);
struct parcel *parcel_of_piece(const struct lane *lane, const struct chunk *chunk, size_t room,
                               size_t *head_p); /* room behind the head */
struct parcel *parcel_of_body(uint8_t type, uint32_t table, const void *body, size_t bytes);
struct parcel *parcel_of_steps(const struct lane *lane, uint32_t rank, uint32_t count);

/* ------------------------------------------------------------------------------- pair.c --- */

/* Is the table one whose contents nobody could make anew? */
bool pair_has_table(const struct table *table);

psd_status pair_ordered(struct lane *lane, const void *body, size_t bytes, struct psd_error *err);
void pair_ended(struct lane *lane, uint64_t number); /* UNPAIR: alone from the next tick on */
void pair_tick(struct lane *lane, uint64_t now_ns);
void pair_beat(const struct lane *lane); /* with every heartbeat */
uint64_t pair_next_ns(const struct lane *lane);
void pair_destroy(struct lane *lane);

/* It cannot go on, and answers wait: the master is to end it. */
void pair_break(struct lane *lane, const char *format, ...) __attribute__((format(printf, 2, 3)));

void pair_view(struct lane *lane, const void *body, size_t bytes);
void pair_view_comes(struct lane *lane, bool comes); /* that the copy cannot have yet */

/* Has the copy, if there is a whole one, the view of the lane? Until then nothing is done on the
 * strength of it: if the lane died now, together with the master, nobody would know of it. */
bool pair_has_view(const struct lane *lane);

/* ------------------------------------------------------------------------ pair_chunks.c --- */

/* The copy has a parcel: what waited for it may be told. */
void pair_parcel_arrived(struct lane *lane, const struct parcel *parcel);
void pair_send_snapshots(struct lane *lane);
/* When the next one may go; UINT64_MAX: not before something else happens. */
uint64_t pair_snapshot_next_ns(const struct pair *pair);

/* What happens on the lane. */
void pair_loaded(struct lane *lane, struct chunk *chunk);

/* The copy does not have yet what was loaded: nobody may be told that the table is here. */
bool pair_is_told_of_loads(const struct table *table);
void pair_table_opened(struct lane *lane, struct table *table, const void *body, size_t bytes);
void pair_table_dropped(struct lane *lane, const struct table *table);

/* Has the copy, if there is one, all changes so far that are known by the steps of ranks? (Not those of
 * asynchronous tables, which nobody resumes.) */
bool pair_has_all_given(const struct lane *lane);

/* ------------------------------------------------------------------------- pair_parts.c --- */

/* Will the copy take what a round makes of the chunk from where it lies? A round has changed it: the
 * parcel for the change, behind those that lend the parts. NULL: the pair is broken. */
bool pair_lends_parts(const struct lane *lane, const struct chunk *chunk);
struct parcel *pair_lend_parts(struct lane *lane, const struct chunk *chunk);
void pair_keep_parts(struct lane *lane, const struct table *table); /* which is about to go */

/* -------------------------------------------------------------------------- pair_rows.c --- */

/* Sparse tables: is so much on its way that a round has to wait? One has closed, or a push counts: the
 * copy is told. */
bool pair_rows_wait(const struct pair *pair);
void pair_rows_changed(struct lane *lane, struct chunk *chunk, const struct closed_round *round);

/* All that there is goes to the copy from now on. Its next pieces, up to the end of a bucket: how many
 * bytes; 0: no memory. */
void pair_rows_begin(struct lane *lane, struct chunk *chunk);
size_t pair_rows_send(struct lane *lane, struct chunk *chunk);

/* -------------------------------------------------------------------------- pair_give.c --- */

void pair_give(struct lane *lane, uint64_t number); /* GIVE_PLACE */
void pair_give_look(struct lane *lane);             /* does it, if it can be done now */

/* ----------------------------------------------------------------------- pair_changes.c --- */

/* A round is full: must it wait for room? It closes: where does its sum go,
 * for the copy? (NULL: nowhere.) It has changed the chunk. */
bool pair_must_wait(struct lane *lane, struct chunk *chunk);
struct parcel *pair_about_to_change(struct lane *lane, struct chunk *chunk,
                                    const struct closed_round *round);
void pair_changed(struct lane *lane, struct chunk *chunk, const struct closed_round *round);

/* ------------------------------------------------------------------------- pair_steps.c --- */

/* All additions to the global step so far, for a new copy. False: no memory. */
bool pair_steps_begin(struct lane *lane);
void pair_steps_added(struct lane *lane, uint32_t rank);
/* Does the answer wait for the copy? */
bool pair_steps_must_wait(const struct lane *lane);
/* False: no memory to wait with. */
bool pair_steps_wait(struct lane *lane, uint32_t rank, uint32_t request, uint64_t result);
void pair_steps_answer(struct lane *lane); /* those for whom the copy has enough by now */
void pair_steps_forget(struct lane *lane, uint32_t rank);
void pair_steps_free(struct pair *pair);

/* ----------------------------------------------------------------------------- mirror.c --- */

psd_status mirror_ordered(struct lane *lane, const void *body, size_t bytes, struct psd_error *err);
void mirror_ended(struct lane *lane, uint64_t number); /* UNPAIR */
void mirror_forget(struct lane *lane);
bool mirror_promote(struct lane *lane, uint64_t number); /* false: it is no such copy */
/* Tells the master that there is no such copy here, or none any more. */
void mirror_lost(const struct lane *lane, uint64_t number, const char *text);
void mirror_refused(struct lane *lane); /* the place was given to it, and another has it */
psd_status mirror_hello(struct session *session, const struct psi_hello *hello,
                        struct psd_error *err);
psd_status mirror_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err);
psd_status mirror_frame(struct session *session, const void *payload, size_t bytes,
                        struct psd_error *err);
void mirror_session_gone(const struct session *session);
void mirror_tick(struct lane *lane);
/* To a master that may not know whose copy it is, or which view there was. */
void mirror_tell(const struct lane *lane, const struct psi_welcome *welcome);

/* ----------------------------------------------------------------------- mirror_apply.c --- */

/* What a frame of the owner changes. An error: the copy is none. */
psd_status mirror_apply(struct lane *lane, const struct psi_frame *frame, const void *payload,
                        size_t bytes, struct psd_error *err);

/* ----------------------------------------------------------------------- mirror_parts.c --- */

/* A part of a chunk comes; it is here; all of them are, and so is the change. */
psd_status mirror_part_sink(struct session *session, struct psi_sink *sink_p,
                            struct psd_error *err);
psd_status mirror_part_comes(struct lane *lane, const struct chunk *chunk,
                             const struct psi_frame *frame, size_t bytes, struct psd_error *err);
psd_status mirror_parts_apply(struct lane *lane, struct chunk *chunk, struct psd_error *err);
void mirror_parts_drop(struct lane *lane);

/* ------------------------------------------------------------------------ mirror_rows.c --- */

/* A part of a change has come. It is all here: is it a list of rows that this lane may have? */
psd_status mirror_rows_come(struct mirror_rows *rows, const struct chunk *chunk,
                            const struct psi_change *change, const uint8_t *payload, size_t bytes,
                            struct psd_error *err);
psd_status mirror_rows_list(const struct mirror_rows *rows, const struct chunk *chunk,
                            struct store_rows *list_p, struct psd_error *err);
void mirror_rows_free(struct mirror_rows *rows);

/* A piece of a table. */
psd_status mirror_rows_piece(struct lane *lane, struct chunk *chunk, const uint8_t *piece,
                             size_t bytes, struct psd_error *err);

#endif
