/*
 * state.h - the inside of a lane: its tables, chunks, rounds and sessions. For src/server only.
 *
 * Thread: everything here is owned by the lane's thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_STATE_H
#define SERVER_STATE_H

#include "base/fail_points.h"
#include "base/limiter.h"
#include "base/pool.h"
#include "clock/clock.h"
#include "codec/codec.h"
#include "metric/metric.h"
#include "rpc/guest.h"
#include "rpc/master_link.h"
#include "server/lane_config.h"
#include "server/pair_state.h"
#include "server/parts_state.h"
#include "store/store.h"
#include "store/sum.h"
#include "wire/rows.h"

struct adopting;
struct adoption;
struct chunk;
struct known_table;
struct reader;
struct session;
struct snapshot;
struct table;

/* Memory for a checkpoint that is coming (snapshot_ahead.c). */
struct snapshot_ahead {
    bool is_asked; /* how far the lane is: by `number`, and not answered yet */
    bool is_made;  /* the disk has been told what is coming */
    uint64_t number;
    uint64_t until_ns; /* so long the answer waits; then, so long the order is waited for */
};

/* A gradient in memory: received, not yet added. `data` has room for a power of two of bytes; a
 * gradient on loan, or none at all, needs none. */
struct slot {
    struct slot *next;
    uint8_t *data;
    const uint8_t *gradient; /* data, or where its worker has it */
    struct psi_loan *loan;   /* then; or NULL */
    uint32_t size_class;
    uint32_t rank;          /* whose it is; of a node of the tree: its first */
    uint32_t end;           /* the rank behind the last one of it */
    uint32_t sender;        /* who brought it: the rank itself, or another worker of its host */
    uint32_t leaves;        /* gradients in it; 0: present, adding nothing */
    bool is_sum;            /* in f32 (f64), whatever the table's type */
    struct store_rows rows; /* sparse tables: what data brings; gradient is this */
    bool wants_value;       /* its sender is answered with the result ... */
    bool holds;             /* ... and cannot show it when it has gone on: it holds it (hold.c) */
    uint32_t cost;          /* bytes as the window counts them */
    uint32_t copy_bytes;    /* on loan, and a copy that its sender made for us */
    struct slot *more;      /* sparse tables: parts of the gradient that came before this one */
    size_t alone_bytes;     /* data is not of the pool, which had no room for it */
};

/* What a lane keeps for a worker: copies that it has lent us, not for ever (struct psi_loan), and ids
 * of its requests that wait. */
struct sender {
    uint32_t copies;
    uint64_t copy_bytes;
    uint64_t asked_bytes;
};

enum {
    SLOT_CLASS_NONE = 0, /* without data */
    SLOT_CLASS_MIN = 12, /* 4 KiB */
    SLOT_CLASS_MAX = 24, /* 16 MiB, the largest payload */
    CHUNK_BYTES_MAX = PSD_CHUNK_ELEMENTS * 8,
};

/* Memory for slots: bounded, reused, by power of two. */
struct slot_pool {
    struct slot *free[SLOT_CLASS_MAX + 1];
    uint64_t bytes; /* allocated, free ones included */
    uint64_t bytes_max;
    uint64_t alone_bytes; /* beside these */
};

/* A request that cannot be answered yet. */
struct parked {
    struct parked *next;
    uint32_t rank;   /* who asks; of a push: whose gradient it is, as in struct slot */
    uint32_t sender; /* who is answered */
    uint32_t request;
    uint8_t type; /* PUSH, PULL, PUSH_PULL, STATE_PULL */
    uint16_t flags;
    uint64_t step;           /* of the push, or of the pull */
    uint64_t after;          /* tables without rounds: the version that has to be committed first */
    struct store_rows asked; /* sparse tables: which rows; once it is kept, the ids are its own */
    bool early; /* a push to a round that is not open yet: asked for again when it is */
};

/*
 * What has just changed a chunk: with the chunk's clock all that another lane needs to make the
 * same change, and to know its repetitions. Leaves and gradients are lent for the call alone.
 */
struct closed_round {
    uint64_t step;             /* its number; psi_clock_given() says who is in it */
    const struct leaf *leaves; /* by rising rank: their sum is what was applied */
    uint32_t leaf_count;
    uint32_t gradients;    /* in that sum: a mean divides by it */
    bool is_empty;         /* nobody is in it, not even with word that it adds nothing */
    bool has_holders;      /* some of its senders hold the result */
    struct parcel *parcel; /* for the copy, with the sum; NULL: there is no copy, or no sum */
    uint32_t rank;         /* tables without rounds: whose one gradient it is ... */
    struct psi_mark mark;  /* ... and which of its pushes */
};

/* The gradients of one step, from the first to the update. */
struct round {
    struct chunk *chunk; /* what it changes */
    struct slot *slots;  /* at most one per rank */
    struct round *next;  /* lane->open: rounds with slots */
    struct round *prev;
    bool open;
    uint64_t opened_ns;  /* when its first gradient came ... */
    uint64_t arrived_ns; /* ... and its last so far ... */
    uint64_t before_ns;  /* ... and the one before that */
    uint32_t last;       /* the rank that gave the last */
};

/* The result of a round that some workers hold until everybody has it (hold.c). */
struct held_result {
    uint64_t step;
    struct psi_ranks awaited; /* were sent the result, and have not said that it is there */
    struct psi_ranks holders; /* hear of it when nobody is awaited any more */
    bool is_asked_for;        /* who is awaited was asked, and is asked again when it is back */
};

/*
 * What a store keeps as one: the unit of placement, transfer, ownership and of exactly-once. All
 * that says what was applied is in here: clock, marks, updates. The numbers are the store's.
 */
struct chunk {
    struct table *table;
    uint32_t index;            /* in the table */
    uint32_t place;            /* among those on this lane: the store's name for it */
    uint32_t current;          /* the store's buffer with the value of clock.version */
    uint32_t pins[2];          /* replies that still borrow the value in that buffer */
    struct psi_clock clock;    /* next[] belongs to the table */
    struct psi_mark *marks;    /* asynchronous tables: one per rank */
    uint64_t updates;          /* applied so far */
    bool ready;                /* has its initial value */
    bool pushed;               /* has had a gradient: too late to load */
    bool blank;                /* the value of clock.version was lost with an earlier life */
    struct adopting *adopting; /* workers are telling where they are in it; NULL: it is open */
    struct held_result *held;  /* of the last round that closed; NULL: nobody holds its result */
    struct chunk_copy copy;    /* of a lane that has one (pair.c) */
    bool waits_for_slot; /* its round is full, and there is no room for its sum (pair_slots.c) */
    struct chunk *next_waiting;
    bool prepared;         /* of a copy: its memory was made ready before its turn */
    bool due;              /* for a checkpoint (snapshot.c) */
    bool is_ready_to_save; /* ... and in its list */
    struct chunk *next_ready;
    struct round round;    /* the open one */
    struct parked *parked; /* in order of arrival */
    struct parked **parked_end;
    uint32_t parked_count;
};

/* Backup workers: which ranks the coordinator let into a round. */
struct closing {
    bool known;
    uint64_t step;
    struct psi_ranks ranks;
};

enum {
    CLOSINGS_KEPT = 8
}; /* rounds that may be decided before the slowest chunk has closed them */

/* What a lane knows of the rounds of a table with backup workers. */
struct backup {
    uint64_t decided;                       /* behind the last step of which the set is known */
    struct closing closings[CLOSINGS_KEPT]; /* [step % CLOSINGS_KEPT] */
};

struct table {
    struct table *next;
    uint32_t id;
    uint8_t priority;
    struct psi_spec spec;
    struct psi_clock_rule rule;
    struct psi_members members;
    uint64_t promised;     /* while one is about to join: no round from this step on closes */
    struct backup *backup; /* owned; NULL: no backup workers */
    bool retain;           /* keep the last version beside the current one */
    bool is_remade;        /* workers make anew what a lost server had of it */
    struct store *store;   /* owned */
    uint64_t bytes;        /* of lane->memory_used */
    uint64_t *clocks;      /* next[] of all chunks */
    struct psi_mark *marks;
    struct chunk *chunks;
    uint64_t chunk_count;     /* of those on this lane */
    uint64_t chunks_in_all;   /* of the table */
    uint32_t *local;          /* index in the table -> index in chunks, or UINT32_MAX */
    uint64_t prepared;        /* chunks whose memory is ready */
    uint64_t rows_read;       /* sparse: of a checkpoint, so far (resume.c) */
    bool announced;           /* the master knows that the table is ready ... */
    struct psd_error refused; /* ... or that it cannot be; status PSD_OK: it can */
    uint64_t first_step;      /* that of the initial values */
    bool is_late;             /* it begins where others of its group are, not where the job began */
    struct held_result *held; /* one per chunk; NULL: the table does not outlive a server */
    bool again;               /* an earlier life of the server had it (adopt.c) ... */
    struct adoption *adoption; /* ... and not all of it has been opened yet; else NULL */
    uint64_t alone;            /* chunks that wait for a snapshot to be made (pair.c) ... */
    uint64_t alone_at;         /* ... where to look for the next */
    const struct psi_order_table *order; /* of a checkpoint that it is in; else NULL */
    struct saved_rows *saved; /* owned; sparse: what checkpoints have of it (snapshot_rows.c) */
    bool disk_is_full;        /* sparse: rows could not leave memory, and that was said */
};

/* Results that a worker hears of together. */
struct result_list {
    struct psi_result *result; /* owned; PSI_RESULTS_MAX of room, or NULL */
    uint32_t count;
};

/* A worker's connection. Strangers and readers have rank UINT32_MAX. */
struct session {
    struct psi_guest guest; /* first */
    struct lane *lane;
    uint32_t rank;
    struct slot *receiving;      /* a gradient on its way in */
    struct psi_rows rows;        /* of the frame that is being heard, if it is of a sparse table */
    struct row_parts parts;      /* that came before it */
    struct relay *relays;        /* SHARE_PULLs passed on to this worker */
    struct result_list releases; /* to be told of with the next turn, ... */
    struct result_list asks;     /* ... to be asked for */
    bool leaves;                 /* it has said BYE, and has not heard that it may go */
    bool is_owner;               /* not a worker, but the lane that this one is a copy of */
    struct reader *reader;       /* owned; not a worker, but somebody who looks (reading.c) */
};

/* A SHARE_PULL on its way through the lane. */
struct relay {
    struct relay *next;
    uint32_t request;  /* of the asker */
    uint32_t asker;    /* rank */
    uint32_t relay_id; /* our own number, as request to the worker asked */
};

/* One addition to the global step, for the request that comes twice. */
struct add {
    uint32_t incarnation; /* a replacement counts its requests from the start again */
    uint64_t sequence;
    uint64_t result;
};

/* What one rank added last. */
struct adder {
    struct psi_mark mark;
    struct add *adds; /* PSI_STEP_ADDS_MAX; NULL: it has added nothing yet */
    unsigned last;    /* in adds */
};

struct global_step {
    uint64_t value;
    struct adder *adders; /* per rank */
};

/* A chunk's place in the order in which open chunks are asked for (stall.c). */
struct turn {
    uint64_t step;
    uint32_t table;
    uint32_t chunk;
    uint8_t priority;
};

/*
 * What was decided, kept for a master that returns and knows nothing (journal.c). No decision is
 * acted on before all lanes have it here.
 */
struct journal {
    void *view; /* owned; body of the last VIEW_COMMIT that was taken; NULL: none */
    size_t view_bytes;
    struct known_table *tables; /* owned; by number, also those without a chunk here */
    uint32_t table_count;
    struct psi_ranks done;  /* have said BYE */
    uint64_t load_barriers; /* of loads, to which all workers have come */
    struct psi_crossed crossed;
};

/* Which lane of which server. */
struct lane_name {
    uint32_t server;
    uint32_t lane;
    uint32_t lanes;
};

/* It is asked to end. */
struct leaving {
    const char *reason; /* borrowed until it has ended; NULL: nobody has asked */
    int exit_code;
    uint64_t until_ns; /* so long it waits for the word that its place is another's */
    bool had_nothing;  /* of the job, when it ended */
};

struct lane {
    struct psi_env *env;
    struct psi_log log;
    struct lane_config config;
    struct lane_config born; /* ... as it was created with */
    char master_address[PSI_ADDRESS_BYTES];
    char address[PSI_ADDRESS_BYTES]; /* where workers reach this lane */
    struct psi_listener *listener;
    struct psi_master_link master;
    uint64_t life;
    uint64_t started_ns;
    uint64_t waiting_line_ns;    /* when to say again that the master is missing */
    struct psi_metrics *metrics; /* owned */
    struct psi_telling *telling; /* owned; NULL before the first one */
    struct psi_spans *spans;     /* owned; rounds that are to be told; NULL: nobody watches */
    uint64_t *waited_ns;         /* owned; by rank: how long rounds waited for it alone */
    uint64_t applied_ns;         /* how long the last change took; 0: it was small */
    uint64_t turn_ns;            /* when this turn of the loop began; 0: nobody asked yet */
    struct psi_welcome job;      /* what the master said; workers == 0: not yet */
    bool joined;
    bool takes_place; /* stood by until now: lane_took_place() */
    bool stands_by;   /* its place is taken: it stands by from the next tick on ... */
    bool stood_down;  /* ... and does: lane_stands_by_now() */

    /* Copies. */
    struct lane_name standby; /* who it is while it has no place: its own server */
    struct pair *pair;        /* owned; NULL: it has no copy */
    bool goes_alone;          /* ... from the next tick on */
    bool shares_cores;        /* no core is left for lanes alone: lane_share_cores() */
    struct mirror *mirror;    /* owned; NULL: it is no copy */
    uint64_t promoted;        /* by this number it was one, and has been given the place; 0: no */
    uint32_t copied_view;     /* ... the view that its owner had */
    uint32_t kept;            /* the first life of its place of which it has what was told */

    uint64_t furthest;         /* behind the last step that was pushed to a table without rounds */
    struct snapshot *snapshot; /* owned; its part of a checkpoint; NULL: none was ordered */
    struct snapshot_ahead ahead;
    struct psi_ranks begun; /* numbers of backup workers: a table with so many is here, or was */

    struct journal journal;
    uint32_t rows;        /* ranks that there is room for: entries of every array per rank */
    struct psi_view view; /* the one it has; id 0: none yet */
    uint32_t since;       /* the view from which on it has what it has; 0: the first */
    uint64_t told_by_ns;  /* who has not told this life by then what it has is dead */
    int64_t frozen_rank;  /* a proposal is open: rounds do not close; -1: none ... */
    int64_t joining_rank; /* ... of one that joins: those promised do not; -1: none */
    uint32_t proposed;    /* the view that it is for */
    uint64_t report_ns;   /* when to report at the latest what the rank gave; UINT64_MAX: done */

    struct table *tables;    /* newest first */
    struct table **table_of; /* by number, NULL where there is none; table_capacity of them */
    uint32_t table_capacity;
    bool tables_unready; /* one has to be prepared, or its master be told that it is */
    uint32_t segments;   /* with tables' values, or what else they have */
    uint64_t memory_used;
    uint64_t copied_ns; /* spent with copying large tensors */
    struct slot_pool pool;
    uint32_t window_bytes;
    struct psi_pool parked;      /* memory for requests that wait */
    uint64_t *used;              /* per rank: cost of its slots, against its window */
    struct sender *senders;      /* per rank */
    struct session **sessions;   /* per rank; NULL: not connected */
    struct psi_guests guests;    /* owned; struct session each, strangers too */
    struct psi_limiter warnings; /* about strangers */
    struct round *open;          /* those with slots, newest first */
    struct round *wanted;        /* the last one asked for; NULL: it has come */
    struct turn last_turn;       /* ... where it stood in the order of asking */
    uint64_t progress_ns;        /* when a round last closed or a chunk was asked for */
    bool progressed;             /* since the last tick, which knows the time */
    bool want_now;               /* the last one asked for came: ask for the next */
    uint32_t readers;            /* that are connected ... */
    uint32_t readers_asking;     /* ... of which so many wait for an answer */
    uint64_t reads_asked;        /* ever */
    bool readers_due;            /* one of them may be answered with the next turn */
    struct global_step global;
    uint32_t relay_next;
    bool results_due;          /* some session is to hear of results */
    bool leavers_due;          /* who leaves may have nothing left to hold */
    bool rounds_due;           /* waited for the disk, and its checkpoint was given up */
    void *scratch;             /* STORE_SCRATCH_BYTES */
    struct leaf *leaves;       /* one per rank: of the round that is being closed */
    const struct slot **given; /* rank -> its gradient, while leaves are collected; else NULL */

    /* Makes a change safe, and says so in clock.committed: now, or later with round_go_on(). */
    void (*replicate)(struct lane *lane, struct chunk *chunk, const struct closed_round *round);

    struct leaving leaving;
    bool finished;
    int exit_code;
    char text[PSI_TEXT_MAX];
};

/* lane_life.c */
/* Its place has been handed over: all that it had goes, and it stands by, in another life. */
void lane_begin_anew(struct lane *lane);

/* leave.c */
void leave_tick(struct lane *lane, uint64_t now_ns);
uint64_t leave_next_ns(const struct lane *lane);

/* lane.c */
void lane_finish(struct lane *lane, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void lane_fail_job(struct lane *lane, psd_status status, int exit_code, const char *text);

/* Looks for the master, as if for the first time. */
void lane_find_master(struct lane *lane);

/* Room for so many ranks, if there is none yet. PSD_ERR_NO_MEMORY. */
psd_status lane_grow(struct lane *lane, uint32_t workers);

/* It is, or copies, that lane of that server. Its share of what the process may use is that of a lane
 * of the other one. */
void lane_take_name(struct lane *lane, uint32_t server, uint32_t index, uint32_t lanes);

/* slots.c */
struct slot *slot_take(struct slot_pool *pool, size_t bytes);
/* Beyond the pool, as long as all of these take `room` bytes at most. NULL: they would take more, or there
 * is no memory. */
struct slot *slot_take_alone(struct slot_pool *pool, size_t bytes, uint64_t room);
void slot_give(struct slot_pool *pool, struct slot *slot);
void slot_pool_fini(struct slot_pool *pool);

/* tables.c */
struct table *table_find(const struct lane *lane, uint32_t id);
struct chunk *table_chunk(const struct table *table, uint32_t index);
struct store_piece chunk_part(const struct chunk *chunk, unsigned part); /* as it is now */
struct store_piece chunk_last_value(const struct chunk *chunk); /* before it; none: not kept */
psd_status table_open(struct lane *lane, const struct psi_table_info *info, struct psd_error *err);
void table_drop(struct lane *lane, uint32_t id);
void tables_destroy(struct lane *lane);
void tables_prepare(struct lane *lane);           /* does some of the work, if there is any */
bool tables_want_a_turn(const struct lane *lane); /* there is more that can be done now */

/* table_room.c */
void lane_count_memory(struct lane *lane, uint64_t more); /* less, too */
bool lane_has_room_for_copy(const struct lane *lane, uint64_t bytes);
bool table_outlives_servers(const struct lane *lane, const struct table *table);
uint64_t table_bookkeeping_bytes(const struct lane *lane, const struct table *table);
/* False: it has taken more memory than the lane may use, and the job has failed. */
bool table_may_stay(struct lane *lane, struct table *table);
/* Of a copy: then it is none. */
psd_status table_copy_may_stay(struct lane *lane, struct table *table, struct psd_error *err);

/* rows.c */
const struct store_ops *rows_kind(const struct psi_spec *spec); /* which store has its rows */
/* Looks through the payload of a frame about rows, and notes in the session what it is about. */
psd_status rows_look_through(struct session *session, const struct chunk *chunk,
                             const void *payload, size_t bytes, struct psd_error *err);
/* These rows as a SPARSE_VALUE, to be freed. NULL: no memory. */
uint8_t *rows_gather(const struct chunk *chunk, const struct store_rows *asked, uint32_t buffer,
                     size_t *bytes_p);
psd_status rows_target(const struct session *session, const struct chunk *chunk,
                       struct psd_error *err);
psd_status rows_pull_arrived(struct session *session, const void *payload, size_t bytes,
                             struct psd_error *err);
psd_status rows_push_arrived(struct session *session, const void *payload, size_t bytes,
                             struct psd_error *err);
void rows_answer(struct lane *lane, const struct chunk *chunk, const struct parked *parked,
                 uint32_t buffer);
/* A part of a sum, which a worker has and shows. */
psd_status rows_shown(struct session *session, const struct chunk *chunk, const void *payload,
                      size_t bytes, bool is_first, struct psd_error *err);

/* pushes.c */
psd_status push_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err);
psd_status push_arrived(struct session *session, struct psd_error *err);
uint32_t push_rank(const struct session *session);

/* rounds.c */
bool chunk_update(struct lane *lane, struct chunk *chunk, const struct closed_round *round);
void round_try_close(struct lane *lane, struct chunk *chunk);
void round_go_on(struct lane *lane, struct chunk *chunk); /* closes and answers what it can now */
void rounds_try_close_all(struct lane *lane);
bool round_take_back(struct lane *lane, struct chunk *chunk, uint32_t rank);
void round_drop(struct lane *lane, struct chunk *chunk, uint32_t rank);

/* waits.c */
void round_gradient_came(struct lane *lane, struct round *round, uint32_t rank);
void round_waited(struct lane *lane, struct chunk *chunk, uint64_t step);
void timed_copy(struct lane *lane, void *to, const void *from, size_t bytes);
int64_t timed_apply(struct lane *lane, const struct chunk *chunk,
                    const struct store_change *change);
void lane_tell(void *owner);
void lane_hush(void *owner);

/* backup.c */
/* Who is in the round of a table with backup workers; NULL: not decided. */
const struct psi_ranks *backup_closing(const struct table *table, uint64_t step);
/* The step itself; or the first later one with a known set, if others were decided without it. */
uint64_t backup_goes_on_at(const struct table *table, uint64_t step);
void backup_decide(struct lane *lane, struct table *table, const struct closing *closing);

/* hold.c */
void hold_round(struct lane *lane, struct chunk *chunk, const struct closed_round *round);
void hold_adopted(struct chunk *chunk, uint64_t step, const struct psi_ranks *awaited,
                  const struct psi_ranks *holders);
void hold_repeated(const struct session *session, struct chunk *chunk);
void hold_repeated_alone(const struct session *session, struct chunk *chunk);
void hold_passed(const struct session *session, struct chunk *chunk);
void hold_at_base(struct lane *lane, struct chunk *chunk, uint32_t rank, uint64_t base);
void hold_got(struct lane *lane, struct chunk *chunk, uint32_t rank, uint64_t step);
void hold_release(struct lane *lane, const struct chunk *chunk, uint32_t rank, uint64_t step);
void hold_rank_left(struct lane *lane, uint32_t rank);
void hold_flush(struct lane *lane);
void hold_opened(struct lane *lane, struct chunk *chunk);
void hold_let_go(struct lane *lane);
void hold_ask_again(struct lane *lane, uint32_t rank);
uint16_t hold_flag(const struct chunk *chunk, const struct parked *parked);
bool hold_describe(const struct chunk *chunk, uint64_t step, char *text, size_t size);
void name_workers(const struct psi_ranks *ranks, char *text, size_t size);
psd_status bye_arrived(struct session *session, struct psd_error *err);
psd_status got_arrived(struct session *session, const void *payload, size_t bytes,
                       struct psd_error *err);

/* adopt.c */
psd_status adopt_begin(struct lane *lane, struct table *table, struct psd_error *err);
uint64_t adopt_bytes(const struct lane *lane, uint64_t chunks);
void adopt_free(struct table *table);
psd_status adopt_arrived(struct session *session, const void *payload, size_t bytes,
                         struct psd_error *err);
psd_status result_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err);
psd_status result_arrived(struct session *session, const void *payload, size_t bytes,
                          struct psd_error *err);
void adopt_session_gone(const struct session *session);
void adopt_look(struct lane *lane); /* members have changed, or the lane is no longer frozen */

/* adopt_reports.c */
/* With which version will the chunk open, as far as workers other than `rank` have told? False:
 * none of them has told anything. */
bool adopt_version(const struct lane *lane, const struct chunk *chunk, uint32_t rank,
                   uint64_t *version_p);
/* Have all workers other than `rank` told of all chunks? */
bool adopt_knows_all(const struct lane *lane, uint32_t rank);
void adopt_describe(const struct lane *lane, const struct chunk *chunk, char *text, size_t size);

/* stall.c */
void want_look(struct lane *lane, uint64_t now_ns);
uint64_t want_next_ns(const struct lane *lane);
void want_session(struct session *session);
void want_make_room(struct lane *lane, uint32_t rank, const struct chunk *arriving, uint64_t cost);
void open_add(struct lane *lane, struct round *round);
void open_remove(struct lane *lane, struct round *round);

/* parked.c */
psd_status asked_chunk(const struct session *session, struct chunk **chunk_p,
                       struct psd_error *err);
psd_status pull_arrived(struct session *session, struct psd_error *err);
psd_status park(struct chunk *chunk, const struct session *session, struct psd_error *err);
psd_status answer_or_park(struct chunk *chunk, const struct session *session,
                          struct psd_error *err);
void parked_answer(struct lane *lane, struct chunk *chunk);
void parked_forget_push(struct lane *lane, struct chunk *chunk, uint32_t rank);
void parked_forget_sender(struct lane *lane, struct chunk *chunk, uint32_t sender);
void parked_free(struct lane *lane, struct chunk *chunk);
bool parked_push(const struct chunk *chunk, uint32_t rank);

/* answers.c */
bool request_answered(struct lane *lane, struct chunk *chunk, const struct parked *parked);
void answer_status(struct lane *lane, uint32_t rank, uint32_t request, const struct chunk *chunk,
                   psd_status status, const char *text);
struct psi_frame value_frame(const struct lane *lane, const struct chunk *chunk,
                             const struct parked *parked);
void answer_too_early(struct lane *lane, uint32_t rank, uint32_t request, const struct chunk *chunk,
                      uint64_t step);
void ask_again(struct lane *lane, const struct chunk *chunk, const struct parked *push);
void value_about_to_change(struct lane *lane, struct chunk *chunk, uint32_t buffer);

/* loads.c */
psd_status load_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err);
psd_status load_arrived(struct session *session, const void *payload, struct psd_error *err);

/* why.c */
psd_status why_arrived(struct session *session, struct psd_error *err);

/* reading.c */
psd_status reader_hello(struct session *session, const struct psi_hello *hello);
psd_status reader_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err);
psd_status reader_frame(struct session *session, const void *payload, size_t bytes,
                        struct psd_error *err);
void reader_gone(struct session *session);
void readers_tick(struct lane *lane); /* answers one of them, if it can */

/* sessions.c */
extern const struct psi_listener_events lane_listener_events;
extern const struct psi_guest_events lane_guest_events;
void session_end(struct session *session);

/* views.c */
psd_status view_arrived(struct lane *lane, const void *body, size_t bytes, struct psd_error *err);
void view_proposed(struct lane *lane, const struct psi_propose *propose);
void view_aborted(struct lane *lane);
/* Of a table that is opened now: while one is about to join, nothing of it closes. */
uint64_t view_promise(const struct lane *lane, uint64_t first_step);

/* ------------------------------------------------------------------------------ standby.c --- */

/* Its place has been taken by a copy: it stands by for others. */
void standby_begin(struct lane *lane);

/* It leaves a job that cannot do without a server, or has but one. */
void standby_welcomed(struct lane *lane, const struct psi_welcome *welcome);

/* TAKE_PLACE: which lane of which server it is from now on. */
psd_status standby_take_place(struct lane *lane, const struct psi_frame *order,
                              struct psd_error *err);
/* The lane that it is the copy of has given it the place. */
void standby_take_over(struct lane *lane);
void view_report_look(struct lane *lane, uint64_t now_ns); /* reports, if it can or must now */
uint64_t view_report_next_ns(const struct lane *lane);

/* A worker is done, or dead: nobody waits for it any more. */
void lane_tell_done(const struct lane *lane, uint32_t rank);

/* What could not be said now is asked for again on a new connection. */
void lane_renew_master(struct lane *lane);

/* journal.c */
psd_status journal_open(struct lane *lane, uint32_t id, const void *body, size_t bytes,
                        struct psd_error *err);
void journal_drop(struct lane *lane, uint32_t id);
psd_status journal_resume(struct lane *lane, const struct psi_view *view, struct psd_error *err);
psd_status journal_resume_table(struct lane *lane, uint32_t id, uint32_t rank, uint64_t step,
                                struct psd_error *err);
/* The index-th replacement that goes on with the table at some step. False: there are not so many. */
bool journal_resume_at(const struct lane *lane, uint32_t id, uint32_t index, uint32_t *rank_p,
                       uint64_t *step_p);
psd_status journal_done(struct lane *lane, const void *body, size_t bytes, struct psd_error *err);
void journal_tell(struct lane *lane);
/* The body of its TABLE_OPEN; NULL: not known. */
const void *journal_table(const struct lane *lane, uint32_t id, size_t *bytes_p);
void journal_free(struct lane *lane);

/* share.c */
psd_status share_pull_arrived(struct session *session, const void *payload, size_t bytes,
                              struct psd_error *err);
psd_status share_data_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err);
psd_status share_data_arrived(struct session *session, void *payload, size_t bytes,
                              struct psd_error *err);
void share_session_gone(struct session *session);
psd_status step_add_arrived(struct session *session, struct psd_error *err);
void global_step_fini(struct lane *lane);
void global_step_clear(struct lane *lane);

/* STEP_STATE, to a copy. */
psd_status global_step_take(struct lane *lane, const void *payload, size_t bytes,
                            struct psd_error *err);

/* snapshot.c */
psd_status snapshot_ordered(struct lane *lane, const void *payload, size_t bytes,
                            struct psd_error *err);
void snapshot_drop(struct lane *lane);
void snapshot_tick(struct lane *lane, uint64_t now_ns);
bool snapshot_wants_a_turn(const struct lane *lane);

/* snapshot_ahead.c */
void snapshot_ahead_tick(struct lane *lane, uint64_t now_ns);
uint64_t snapshot_ahead_next_ns(const struct lane *lane);

/* Of a chunk that is due. Its round is full: is there no room for a copy of it? It is about to go on
 * to version `next`; it has. */
bool snapshot_must_wait(struct lane *lane, const struct chunk *chunk);
void snapshot_overtaken(struct lane *lane, struct chunk *chunk, uint64_t next);
void snapshot_reached(struct lane *lane, struct chunk *chunk);

/* resume.c */
bool chunk_may_be_resumed(const struct lane *lane, const struct table *table);
psd_status chunk_resume(struct lane *lane, struct chunk *chunk, bool *more_p,
                        struct psd_error *err);

/* Opened as a copy, whose owner died before it had told what it read. */
bool table_was_not_resumed(const struct lane *lane, const struct table *table);

/* replicate.c */
void replicate_alone(struct lane *lane, struct chunk *chunk, const struct closed_round *round);
void replicate_to_copy(struct lane *lane, struct chunk *chunk, const struct closed_round *round);

#endif
