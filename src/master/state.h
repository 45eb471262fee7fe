/*
 * state.h - what the files of the master share: its structs, and what they ask of each other.
 *
 *   master.c    life: create, tick, end            tables.c   names, numbers, refusals
 *   sessions.c  connections: meet, dispatch        barrier.c  the n-th barrier
 *   members.c   places: take, return, lose         quorum.c   rounds with backup workers
 *   workers.c   those of workers                   nodes.c    the table of nodes
 *   servers.c   those of servers                   done.c     who has said BYE, kept by lanes
 *   views.c     membership: propose, commit        standby.c  lanes that stand by
 *   given.c     what a rank gave of tables         metrics.c  what members count
 *   server_loss.c  servers that are lost: what goes with them
 *   seek.c      when other servers take the places of a lost one
 *   silence.c   who is not heard of, and for how long that is borne
 *   reach.c     who does not reach whom, although both are heard
 *   rebuild.h   another life of the master: what it knows, it hears from the lanes
 *   saving.c    checkpoints: when, at which step, whether all is there
 *   saving_tables.c  ... of which tables
 *   saving_part.c  ... and what worker 0 has itself
 *   new_tables.c  may a table be created in this job
 *   redundancy.h  who has which part, for who started the job
 *   moves.c     servers come and go: places move; move_plan.h says which
 *
 * All of it belongs to one thread, see master.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_STATE_H
#define MASTER_STATE_H

#include "base/fail_points.h"
#include "base/limiter.h"
#include "clock/clock.h"
#include "master/master_config.h"
#include "master/pairs_state.h"
#include "rpc/guest.h"
#include "rpc/post.h"
#include "shard/shard.h"

#define MASTER_MS_NS UINT64_C(1000000)

enum {
    MASTER_END_MS = 1000,        /* how long members have to leave after END */
    MASTER_STRANGER_MS = 5000,   /* to say HELLO */
    MASTER_GUEST_MS = 60000,     /* how long an observer may stay silent */
    MASTER_TAKEN_MS = 500,       /* until a replacement hears that its place is not free */
    MASTER_GUESTS_MAX = 256,     /* sessions beyond one per place */
    MASTER_TELL_MS_MIN = 50,     /* between two tables of nodes to a subscriber */
    MASTER_METRICS_MS_MIN = 500, /* between two METRICS of a member */
    MASTER_READERS_MAX = 64,
    MASTER_UNREAD_MAX = 1 << 18, /* an observer that has not read so many bytes gets no more */
    MASTER_MISSING_MS = 10000,   /* between two lines about who is missing */
    MASTER_ROUNDS_KEPT = 8,      /* decided, and perhaps not yet closed by the slowest chunk */
    MASTER_NAMES_MAX = 8,        /* members named in one message */
    MASTER_ATTEMPT_MS = 5000,    /* what one attempt to connect may take a member */
};

enum session_kind {
    SESSION_STRANGER, /* no HELLO yet */
    SESSION_WAITING,  /* its place is held by somebody who may be gone, or may not come back */
    SESSION_OBSERVER,
    SESSION_READER, /* readers.c */
    SESSION_MEMBER,
    SESSION_FENCED, /* of a worker declared dead: told so if it ever speaks */
};

/* An observer is told of the nodes again and again. */
struct subscription {
    uint32_t request;  /* echoed each time */
    uint64_t every_ns; /* 0: nobody asked for it */
    uint64_t due_ns;
    size_t behind;        /* bytes that were queued behind the last table of nodes */
    bool metrics;         /* also METRICS, ... */
    uint32_t tables_told; /* ... and so many tables, so far; to a reader, too */
};

/* One accepted connection. Closing leaves it in the list with conn NULL until the next tick frees
 * it: an event may end any session, also the one it came from. */
struct session {
    struct psi_guest guest; /* first */
    struct master *master;
    enum session_kind kind;
    struct psi_hello hello; /* from WAITING on */
    struct member *member;  /* MEMBER */
    struct subscription subscription;
    struct claim claim; /* stood by: whose copy it says that it is */
    bool hushed;        /* it is refused, and that is no news */
    bool is_asked;      /* a worker that waits: it has been asked what it knows of the job */
    bool placed;        /* stood by, and has been given a place: it comes again as a member */
    uint64_t heard_ns;
};

/* A place in the job and who holds it: a worker, or one lane of a server. */
struct member {
    uint8_t role;  /* enum psi_role */
    uint32_t rank; /* worker: rank; lane: index of its server */
    uint32_t lane;
    psd_node_state state;
    uint32_t incarnation; /* 0: nobody held it yet */
    uint64_t life;
    uint64_t process;        /* lane: in which it is; 0: not known */
    struct session *session; /* NULL: not connected ... */
    uint64_t cut_ns;         /* ... since then */
    bool is_cut_off;         /* ... because nothing came back: its process may well live */
    uint64_t heard_ns;       /* last frame of any kind */
    bool is_sure;            /* it has heard WELCOME: it has spoken since */
    bool quiet;              /* ... and that was a while ago, of which somebody was told */
    bool missed; /* lane: silent for too long, and waited for, because nobody can do without it */
    char address[PSI_ADDRESS_MAX];

    uint64_t hinted_ns; /* lane: somebody's connection to it was ended then; 0: never */
    uint64_t spared_ns; /* it may be on its way back to a master that returned; 0: it is not */

    /* lane: as the view has it that brings its server back, also if it is lost before all have that
     * view, and another life has the place: one number, one view. */
    struct psi_view_place returned;
    bool acked;            /* lane: has answered the current stage of the change of view */
    uint64_t done_acked;   /* lane: has in mind who was done by then (done.c) */
    struct report *report; /* lane, owned; what it has told a master that rebuilds; else NULL */

    uint64_t report_ns; /* last PING; 0: none */
    uint64_t step;
    double steps_per_s;
    double value;
    char value_name[32];
};

/* A thread of a worker waits in a barrier. */
struct arrival {
    uint32_t kind; /* enum psi_barrier_kind */
    uint64_t barrier;
    uint32_t request;
};

enum change_kind { CHANGE_NONE, CHANGE_LEAVE, CHANGE_REPLACE, CHANGE_JOIN };

struct worker {
    struct member member;
    uint64_t old_life; /* of the incarnation before; 0: none */
    uint64_t lost_ns;  /* PSD_NODE_LOST: since then */
    char lost_text[PSI_TEXT_MAX];
    char unreached_text[PSI_TEXT_MAX];   /* why it does not reach a server (reach.c) */
    enum psi_loss loss;                  /* likewise */
    enum change_kind wanted;             /* change of view that waits for its turn */
    uint64_t join_step;                  /* CHANGE_JOIN: with this step, or not at all; 0: any */
    bool is_untold;                      /* a master that returned waits for its state */
    uint64_t bye_mark;                   /* PSD_NODE_DONE: done.c; 0: its BYE was answered */
    uint32_t bye_request;                /* likewise */
    bool is_answered;                    /* ... by this life of the master */
    uint64_t barrier[PSI_BARRIER_KINDS]; /* the last one it came to; from 1 */
    uint64_t barrier_base[PSI_BARRIER_KINDS]; /* ... of which this life did not come to so many */
    struct arrival *arrival;                  /* owned; of its threads that wait in a barrier */
    uint32_t arrivals;
    uint32_t arrivals_capacity;
    uint64_t host;                      /* of its HELLO: who may be on its host ... */
    char host_address[PSI_ADDRESS_MAX]; /* ... and where those reach it */
};

struct server {
    uint32_t lanes;      /* 0: no lane of it has been seen */
    struct member *lane; /* owned; lanes entries */
    bool is_away; /* lanes of it are lost, and the job waits for others in their places ... */
    bool is_back; /* ... which are here: the next view has them */
    uint64_t lost_ns;
    uint64_t seek_ns; /* when to look for another server that takes its places */
    bool is_placed;   /* others have been told to, since it was lost */
    bool
        is_missed; /* who starts it was told to, or that others do, and hears what becomes of its part */
    enum psi_loss loss;
    char lost_text[PSI_TEXT_MAX];
    struct pair *pair; /* owned; lanes entries */
    uint64_t crossed
        [PSI_LANES_MAX]; /* by lane: no copy takes a place by this number, or one before it */
    uint64_t none_ns;    /* when to say that there is no place for a copy; 0: there was one */
    uint64_t awaited;    /* the process in whose stead another is awaited, by this index; 0: none */
    bool is_told;        /* who started the job knows of its part: */
    struct psi_tiding_place told;
    uint64_t leaving;     /* the process, by this index, that is to leave; 0: none */
    bool is_drained_told; /* ... and has nothing more, which was told */
    char held[256];       /* ... or cannot, for this reason, which was told */
    uint64_t stuck_ns;    /* ... when to say that; 0: something moves */
};

/* A place that is about to be in another server, or its copy (moves.c). */
struct moving {
    bool is_active;
    uint32_t place;
    uint32_t to;      /* by the index of its process ... */
    uint64_t process; /* ... and its number */
    bool is_copy;
    uint64_t began_ns;
    uint64_t
        passed_ns; /* a place that waits for a checkpoint waits no longer than that; 0: none did */
    uint64_t retry_ns; /* not active: the next one not before */
    bool is_stuck;     /* not active: what is to move cannot */
};

/* What a rank has given of one table, over the lanes that have answered. */
struct given {
    bool any;
    uint64_t next;   /* smallest clock of the rank on a chunk; of one that joins: the step before
                        which it may not begin */
    uint64_t chunks; /* seen so far */
    uint64_t ahead;  /* ... of these, chunks whose clock is above `next` */
    uint64_t closed; /* ... of these, chunks whose round `next` has closed */
    uint64_t closed_below; /* of the chunks at `next`, those whose round next - 1 has closed: what
                              `closed` becomes when another lane turns out to be one step behind */
};

enum table_state { TABLE_OPENING, TABLE_READY, TABLE_DROPPED };

struct waiter {
    uint32_t rank;
    uint32_t request;
};

/* The coordinator's side of the tables with the same number of backup workers: who is in a step is
 * decided once for all of them. */
struct backup_group {
    struct backup_group *next; /* master->groups */
    uint32_t backup_workers;
    struct psi_quorum quorum;
    struct psi_members members;
    uint64_t left_at[PSI_RANKS_MAX];              /* of the members */
    uint64_t rounds;                              /* decided so far */
    struct psi_ranks decided[MASTER_ROUNDS_KEPT]; /* [step % MASTER_ROUNDS_KEPT], of the last */
    uint64_t furthest[PSI_RANKS_MAX]; /* behind the last step of which a rank has any table */
    uint64_t resume;                  /* during a change of view: where the replacement goes on */
};

/* The same of one table: its rounds close with those who were chosen, one after the other. */
struct backup {
    struct backup_group *group;
    uint64_t next;   /* the round to be closed */
    uint64_t newest; /* behind the last step of which anybody has the table */
    uint64_t proven; /* rounds before it are closed on all lanes */
    uint64_t *given; /* owned; behind the last step of which a rank has the table */
    uint64_t rounds; /* closed so far */
    struct psi_ranks closed[MASTER_ROUNDS_KEPT]; /* [step % MASTER_ROUNDS_KEPT], of the last */
    uint64_t late_ns;                            /* when to close without the late; 0: nobody is */
};

struct table {
    enum table_state state;
    bool is_new; /* asked for in this life of the master, nobody knows it to be open: it is empty */
    uint32_t id;
    uint32_t creator;
    uint32_t name_crc; /* to skip most comparisons of names */
    struct psi_spec spec;
    uint64_t *load_before; /* owned; one per place */
    bool *acked;           /* owned; one per place: it has opened the table */
    uint32_t acks_left;
    struct waiter *waiter; /* owned; OPENING */
    uint32_t waiters;
    uint32_t waiters_capacity;
    uint64_t first_step;   /* where the group was when the table was opened; else 0 */
    uint64_t *resume;      /* owned; one per worker; NULL: first_step for all */
    struct backup *backup; /* owned; NULL: no backup workers */
    struct given given;    /* during a change of view */
};

/* One change of view at a time: PROPOSED (lanes freeze and report), COMMITTED (lanes switch), then
 * workers hear of it and it is over. */
enum change_stage { STAGE_IDLE, STAGE_PROPOSED, STAGE_COMMITTED };

struct change {
    enum change_stage stage;
    enum psi_view_change kind;
    uint32_t who;         /* rank, or server */
    uint32_t incarnation; /* PSI_VIEW_WORKER_REPLACED, _JOINED: of the one that comes */
    uint64_t counts; /* PSI_VIEW_WORKER_LEFT, _JOINED: the step from which the set is another */
    uint32_t acks_left;
    uint32_t tables; /* entries of master.view_table */
    bool renews;     /* nothing changes: what the last master had decided is said to all again */
};

/* A checkpoint on its way (saving.c). */
enum saving_stage {
    SAVING_IDLE,
    SAVING_BEGINNING, /* the files are being made */
    SAVING_ASKING,    /* lanes say how far they are */
    SAVING_ORDERED,   /* lanes write, and worker 0 */
    SAVING_COMMITTING,
};

struct saving_place {
    bool answered;
    uint32_t blocks[PSI_SAVED_FILES];  /* of which checksums have come */
    uint32_t earlier[PSI_SAVED_FILES]; /* so many of what lies in earlier generations */
    uint32_t rows;                     /* so many files of rows */
};

/* Of what worker 0 has itself (saving_part.c). */
enum saving_part { SAVING_PART_NONE, SAVING_PART_WANTED, SAVING_PART_WRITTEN };

struct master_generation;
struct psi_outline;

struct saving {
    enum saving_stage stage;
    uint64_t due_ns; /* IDLE: when to begin; 0: not said yet */
    uint64_t begun_ns;
    uint64_t waiting_line_ns;   /* ORDERED: when to say who has not written */
    uint64_t token;             /* of the files */
    uint64_t generation_number; /* if it is committed */
    uint64_t after;             /* the token of the newest one, if it may refer to that; 0 */
    uint64_t last;              /* the token of the newest one; 0: none of this life */
    uint32_t chain;             /* so many since all was written, that one included */
    uint32_t orders;            /* given so far ... */
    uint64_t number;            /* ... and what answers to the last say */
    uint64_t reached;           /* by the fastest lane */
    uint64_t margin;            /* how far ahead the step is chosen */
    uint64_t step;
    uint64_t asked_ns; /* the disk was asked by then */
    uint64_t rows;     /* bytes of files of rows */
    uint64_t referred; /* of all, those that lie in earlier generations */
    uint64_t saved;    /* the step of the last generation; 0: none */
    uint32_t left;     /* lanes that have not answered */
    bool any_tables;   /* that servers save */
    enum saving_part part;
    uint64_t part_bytes;
    bool part_offered; /* worker 0 can be asked, by this incarnation: */
    uint32_t part_incarnation;
    uint64_t nothing_since_ns; /* that there is nothing to save; 0: there is no table yet */
    bool nothing_told;         /* a line has said so */
    uint64_t absent_since_ns;  /* worker 0, which has offered a part; 0: it is here */
    bool absent_told;          /* likewise */
    bool is_failing;
    bool is_urgent;         /* the job is about to be stopped: now, whatever the step */
    struct psi_order order; /* ORDERED, COMMITTING; its list is owned */
    struct master_generation *generation; /* owned; ORDERED */
    struct saving_place place[PSI_PLACES_MAX];
};

enum phase { PHASE_REBUILDING, PHASE_GATHERING, PHASE_RUNNING, PHASE_ENDING, PHASE_OVER };

/* What workers have told a master that found no server (rebuild_recall.c). */
struct recall {
    struct psi_view view;  /* the highest; owned; id 0: nobody has told */
    struct psi_ranks told; /* who has told all that it knows */
};

struct master {
    struct psi_env *env;
    const struct psi_log *log;
    struct master_config config;
    struct psi_listener *listener;
    char address[PSI_ADDRESS_BYTES];
    uint64_t job;
    enum phase phase;
    uint64_t waiting_since_ns; /* for what has start_timeout_ms to come */
    uint64_t missing_line_ns;  /* when to say again who is missing */
    uint64_t due_ns;
    uint64_t planned_ns;        /* what due_ns was when the last tick ended: events lower it */
    struct psi_limiter limiter; /* of master_warn() */

    struct psi_guests guests; /* owned; struct session each */

    struct psi_metrics *metrics; /* owned; its own */
    struct psi_telling *telling; /* owned scratch */
    uint32_t watched_ms;         /* members tell that often; 0: they do not */

    struct worker *worker; /* owned; config.workers */
    struct server *server; /* owned; config.servers */
    uint32_t places;       /* lanes of all servers, once everybody is here */
    struct member *place[PSI_PLACES_MAX];
    struct psi_loads loads;

    uint32_t pairs; /* formed so far */
    struct moving moving;
    uint32_t staying;     /* servers that were here, and stay, when a move was last thought of */
    struct psi_view view; /* the current one; id 0: none yet */
    struct change change;
    uint32_t aborted_changes;            /* since the current view: each had a number */
    struct psi_view_worker *view_worker; /* owned scratch, as are the next three */
    struct psi_view_place *view_place;
    struct psi_view_table *view_table;
    struct psi_given *given;

    struct table **table; /* owned, and every one of them; index = id */
    uint32_t tables;
    uint32_t settled;            /* so many of them have been opened, or refused ... */
    bool is_frail;               /* ... and workers could not make one of them anew */
    struct backup_group *groups; /* owned */
    uint64_t late_ns;            /* when a table with backup workers closes without the late */

    uint64_t *unreached_ns; /* owned; reach.c; NULL: nobody has ever said so */
    uint64_t deposed; /* the last process whose server was deposed for that: it is about to leave */

    uint64_t barrier_released[PSI_BARRIER_KINDS];
    uint64_t
        begun_ns; /* ... or when the first came who knows the job, if that was later than anybody is waited for */
    uint32_t told_view;          /* REBUILDING: the highest that anybody said it has */
    struct psi_view copied_view; /* ... and of which a copy told; owned; id 0: none has */
    struct recall recall;        /* ... and what workers told, for want of servers */
    bool
        is_reminded; /* ... and whoever started this master has told what it knew of the last one */
    uint64_t gone[PSI_SERVERS_MAX]; /* ... and processes that ended, by their index; 0: none */
    bool is_new_job;                /* no lane knew which job this is */
    struct psi_ranks dead;          /* workers whom this life need not wait for */
    struct psi_ranks done;          /* have said BYE ... */
    uint64_t loaded;                /* to so many barriers of loads all workers have come ... */
    uint64_t loaded_mark;           /* ... which was told with this one: */
    uint64_t done_mark;             /* so often lanes had to hear of more */

    struct saving saving;

    uint64_t end_ns; /* ENDING: no waiting beyond */
    bool lingers;    /* ... and not before: there may be members who were not let in yet */
    psd_status end_status;
    uint32_t later_term; /* of the life that took over; 0: none did */
    int end_code;
    char end_text[PSI_TEXT_MAX];
    const struct member *blamed; /* (optional) whose fault that is; one of those above */
    enum psi_loss blamed_loss;
};

/* All of them, those that are over too. */
static inline struct session *
session_first(const struct master *master)
{
    return (struct session *)master->guests.first;
}

static inline struct session *
session_next(const struct session *session)
{
    return (struct session *)session->guest.next;
}

/* May workers join while the job runs? */
static inline bool
master_is_elastic(const struct master *master)
{
    return master->config.start_workers < master->config.workers;
}

/* May servers come and go? */
static inline bool
master_may_move(const struct master *master)
{
    return master->config.max_servers > 0;
}

/* May a lane have a copy: for good, or for as long as its place moves? */
static inline bool
master_may_pair(const struct master *master)
{
    return master->config.replicas > 0 || master_may_move(master);
}

/* Processes of servers are started with numbers below this. Those from config.servers on have no places of
 * their own. */
static inline uint32_t
master_indexes(const struct master *master)
{
    return master->config.max_servers > master->config.servers ? master->config.max_servers
                                                               : master->config.servers;
}

/* The number of a lane among those of all servers. */
static inline uint32_t
place_of(const struct master *master, const struct member *lane)
{
    return master->loads.first_place[lane->rank] + lane->lane;
}

/* ------------------------------------------------------------------------------- master.c --- */

/* Have master_tick() called at the latest then; 0: at once. */
void master_wake_at(struct master *master, uint64_t at_ns);

/* The job is over: END to every member. The first reason stays. */
void master_end(struct master *master, int exit_code, psd_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Another life of the master is at work: this one leaves, and tells nobody what to do. */
void master_leave(struct master *master, uint32_t term);

/* END, with the reason, to one member. */
void master_send_end(struct session *session);

/* A warning that outsiders can provoke: rate-limited. */
void master_warn(struct master *master, const char *id, const char *peer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A header with the current view. */
struct psi_frame master_frame(const struct master *master, uint8_t type);

/* An answer to the frame the session has just received. */
struct psi_frame master_answer(const struct session *session, uint8_t type);

/* ----------------------------------------------------------------------------- sessions.c --- */

extern const struct psi_listener_events master_listener_events;
extern const struct psi_guest_events master_guest_events;

void master_session_close(struct session *session);
void master_sessions_tick(struct master *master, uint64_t now_ns);
void master_sessions_reap(struct master *master, bool all);

/* REFUSE with a reason, a warning, and the end of the session. */
void master_refuse(struct session *session, psd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ... of one that was declared dead, and may not know. */
void master_refuse_the_dead(struct session *session);

/* Takes the result of psi_post_*(): what could not be queued breaks the session. */
void master_posted(struct session *session, psd_status status);

/* ------------------------------------------------------------------------------ members.c --- */

typedef psd_status (*master_handler)(struct session *session, const void *body, size_t bytes,
                                     struct psd_error *err);

/* What everybody is told about the job. */
struct psi_welcome master_welcome(const struct master *master);

/* Gives session the place its HELLO asks for, refuses it, or lets it wait. */
void master_admit(struct session *session);

/* Who holds a place: it gets it, is back, or has to wait until it is known whether its holder is. */
void master_take_place(struct session *session, struct member *member, const char *address);
void master_come_back(struct session *session, struct member *member);
void master_wait_for_place(struct session *session);
void master_admit_waiting(struct master *master); /* those for whom it is known by now */

/* Keeps the connection of a silent member, so that it hears its verdict should it wake up. */
void master_fence(struct member *member);

/* The index that the member's process was started with. */
uint32_t master_process_index(const struct master *master, const struct member *member);

/* Who started the master hears of it. */
void master_tell(const struct master *master, enum psi_tiding_kind kind,
                 const struct member *member, enum psi_loss loss, const char *text);

void master_members_tick(struct master *master, uint64_t now_ns);
/* It counts as dead. What follows depends on what it is. */
void master_member_lost(struct master *master, struct member *member, enum psi_loss loss,
                        const char *reason);
/* Its connection is gone; the reason tells whether somebody ended it, or nothing came back (optional). */
void master_member_cut(const struct master *master, struct member *member, uint64_t now_ns,
                       const struct psd_error *reason);
void master_member_heard(const struct master *master, struct member *member, uint64_t now_ns);

/* Whose fault the end of the job is that follows at once. */
void master_blame(struct master *master, const struct member *member, enum psi_loss loss);

psd_status master_on_ping(struct session *session, const void *body, size_t bytes,
                          struct psd_error *err);
psd_status master_on_lane_bye(struct session *session, const void *body, size_t bytes,
                              struct psd_error *err);
psd_status master_on_end(struct session *session, const void *body, size_t bytes,
                         struct psd_error *err);

/* ------------------------------------------------------------------------------ silence.c --- */

/* How long members may be silent; servers have a limit of their own. */
uint64_t master_dead_ms(const struct master *master);
uint64_t master_silence_ms(const struct master *master, const struct member *member);

/* Is it silent, or cut off, for longer than it may be? Then it is lost. */
void master_look_at_silence(struct master *master, struct member *member, uint64_t now_ns);

/* It was missed, and speaks. */
void master_no_longer_missed(const struct master *master, struct member *member, uint64_t now_ns);

/* The master has missed so much time: nobody was silent in it. */
void master_members_forgive(struct master *master, uint64_t late_ns, uint64_t now_ns);

/* -------------------------------------------------------------------------------- reach.c --- */

psd_status master_on_hint(struct session *session, const void *body, size_t bytes,
                          struct psd_error *err);

/* Deposes servers that too many workers do not reach, and loses workers that do not reach others. */
void master_reach_tick(struct master *master, uint64_t now_ns);

/* What was said by this worker, or of this lane, is over. */
void master_reach_forget_worker(struct master *master, uint32_t rank);
void master_reach_forget_lane(struct master *master, const struct member *lane);

/* ------------------------------------------------------------------------------ members.c --- */

/* "server 1, worker 0, worker 3 and 4 more". */
struct names {
    char text[256];
    uint32_t count;
    uint32_t workers; /* of them */
};

void master_names_add(struct names *names, const char *role, uint32_t rank);
void master_names_end(struct names *names);

/* ------------------------------------------------------------------------------ workers.c --- */

void master_admit_worker(struct session *session);

/* The job is over, and a worker that was cut off comes back: it hears so. False: no such one. */
bool master_admit_late_worker(struct session *session);

/* A worker of a running job is dead. What happens next is the policy's business. */
void master_worker_lost(struct master *master, struct worker *worker, enum psi_loss loss,
                        const char *reason);

/* It wants to join with a step that it cannot have: it is told so, with the first that it could have (0: none
 * yet), and the job goes on as if it had not come. */
void master_worker_turn_away(struct master *master, struct worker *worker, uint64_t first_step);

/* One that is lost has so long to be replaced. */
void master_worker_tick(struct master *master, const struct worker *worker, uint64_t now_ns);

/* It is dead, and too few would be left: it stays in the view, so that no step ends without it, until
 * another one has joined. */
bool master_worker_is_held(const struct master *master, const struct worker *worker);

/* Who is missing for the first view: rank 0, since it may give initial values, and as many as it takes. */
void master_missing_workers(const struct master *master, struct names *names);

/* Of those whose change of view waits, the first: who leaves or is replaced may be waited for by all, one
 * that joins is not. NULL: none. */
struct worker *master_next_to_change(const struct master *master);

/* Is the job still waiting for what this worker does? */
bool master_worker_expected(const struct master *master, const struct worker *worker);

/* Ends the job when no worker is left: well, if one of them was done; `lost` (NULL: nobody) is the
 * worker whose death brings us here. */
void master_check_done(struct master *master, const struct worker *lost);

psd_status master_on_bye(struct session *session, const void *body, size_t bytes,
                         struct psd_error *err);

/* ------------------------------------------------------------------------------ metrics.c --- */

psd_status master_on_metrics(struct session *session, const void *body, size_t bytes,
                             struct psd_error *err);

/* Members tell as often as somebody wants to know now; one that has come hears how often. */
void master_watch(struct master *master);
void master_watch_member(const struct master *master, struct session *session);

/* The master's own metrics, and tables that this observer has not heard of. */
void master_tell_metrics(struct session *session);

/* ------------------------------------------------------------------------------ servers.c --- */

/* Does the job go on when a server dies? Where it waits for workers' replacements, which may repeat a step
 * whose result is gone, only with copies. */
bool master_survives(const struct master *master);

/* ... and would it now do without this lane, with the tables that it has? */
bool master_outlives(const struct master *master, const struct member *lane);

/* ... and without all others that are in its process? A server that is deposed is killed and started
 * again, and whatever its process has taken over dies with it. */
bool master_outlives_process(const struct master *master, const struct member *lane);

/* Are both lanes of one server, and in one process? They are lost together. */
bool master_is_same_part(const struct member *one, const struct member *other);

/* Is it in a process that was started as another server? */
bool master_is_guest(const struct master *master, const struct member *lane);

/* A process that was started with that index, and talks to the master; 0: none does. */
uint64_t master_find_process(const struct master *master, uint32_t index);

void master_admit_lane(struct session *session);
bool master_lane_has_place(struct session *session);  /* or it is refused */
bool master_admit_late_lane(struct session *session); /* as master_admit_late_worker */

/* One lane of a server is lost, and so are all of that server in its process. */
void master_server_lost(struct master *master, struct member *member, enum psi_loss loss,
                        const char *reason);

/* Does a lane of a life that has met no master yet wait for the place? At how many of a server? */
bool master_is_knocking(const struct master *master, const struct member *lane);
uint32_t master_count_knocking(const struct master *master, const struct server *server);

/* So many of its lanes are in that state. */
uint32_t master_count_lanes(const struct server *server, psd_node_state state);

/* The job is over, because of that server. */
void master_end_by_server(struct master *master, const struct member *lane, enum psi_loss loss,
                          const char *reason);

void master_server_tick(struct master *master, struct server *server, uint64_t now_ns);

/* The next life in a place has a number that no life of an earlier master has. */
void master_leave_numbers(const struct master *master, struct member *lane);

/* Room for the lanes of a server. PSD_ERR_NO_MEMORY. */
psd_status master_server_prepare(struct server *server, uint32_t index, uint32_t lanes);

/* -------------------------------------------------------------------------------- views.c --- */

/* Everybody is here: view 1. */
void master_view_start(struct master *master);

/* The lanes of all servers are known: numbers them. */
void master_view_number_places(struct master *master);

/* Says to all lanes, then to all workers, what `view` decided, under a number of our own. */
void master_view_renew(struct master *master, const struct psi_view *view);

/* Begins the next change of view that is wanted, if none is under way. */
void master_view_advance(struct master *master);

/* The one that is about to join does not. */
void master_view_forget(struct master *master, uint32_t rank);

/* This lane of a server is lost: nothing more is awaited from it. */
void master_view_lose(struct master *master, struct member *lane);

/* Nobody is in a view for the first time who is cut off, or does not know which life of its place it
 * is: it could not tell another life of the master. */
bool master_may_begin(const struct master *master, const struct member *member);

/* Sends what the holder of a place may have missed. */
/* The current view, to somebody who is in no view. */
void master_view_tell(struct session *session);
void master_view_resend(struct master *master, struct member *member);

psd_status master_on_view_ack(struct session *session, const void *body, size_t bytes,
                              struct psd_error *err);

/* -------------------------------------------------------------------------------- given.c --- */

/* One lane's report of a table: adds it. */
void master_given_add(struct given *sum, const struct psi_given *lane);

/* ... while one joins. */
void master_given_add_promise(struct given *sum, const struct psi_given *lane);

/* All have reported: the view's tables, of a rank that leaves, is replaced, or joins.
 * PSD_ERR_NO_MEMORY. */
void master_given_leave(struct master *master);
psd_status master_given_resume(struct master *master);
psd_status master_given_join(struct master *master, uint64_t wanted); /* the step; 0: any */

/* The first step that one that joins can begin with; 0: none has been pushed. */
uint64_t master_given_first_step(const struct master *master);

/* --------------------------------------------------------------------------- new_tables.c --- */

/* Not: then why. */
psd_status master_may_open(const struct master *master, const struct psi_spec *spec,
                           struct psd_error *err);

/* ------------------------------------------------------------------------------- tables.c --- */

/* With room for one who waits; NULL: no memory. */
struct table *master_table_create(struct master *master, uint32_t id, const struct psi_spec *spec,
                                  uint32_t creator);
/* Adds the table's bytes to the loads, or takes them away again. */
void master_table_change_loads(struct master *master, const struct table *table, bool add);

void master_table_describe(struct session *session, const struct table *table, uint32_t request);
psd_status master_on_table_open(struct session *session, const void *body, size_t bytes,
                                struct psd_error *err);
/* The name of a table that workers could not make anew if a server died; NULL: there is none. */
const char *master_tables_frail(const struct master *master);

/* Tells workers of tables that all lanes have, if they would ask the right ones. */
void master_tables_look(struct master *master);

/* Lanes at these places have lost their tables; have all been opened there again? */
void master_tables_lose(struct master *master, uint32_t first_place, uint32_t places);
bool master_tables_are_open(const struct master *master, uint32_t first_place, uint32_t places);

psd_status master_on_table_ack(struct session *session, const void *body, size_t bytes,
                               struct psd_error *err);
void master_tables_resend(struct master *master, struct member *lane, uint32_t place);
void master_tables_forget(struct master *master, uint32_t rank); /* nobody there waits any more */
psd_status master_table_resume(struct master *master, struct table *table, uint32_t rank,
                               uint64_t step);
void master_table_destroy(struct table *table);

/* --------------------------------------------------------------------------------- gone.c --- */

/* The process with this number has ended, which was started as that server. Has it? And once more, for
 * a master that did not know its members when it heard of it. */
void master_process_gone(struct master *master, uint32_t rank, uint64_t process);
bool master_process_is_gone(const struct master *master, uint64_t process);
void master_gone_again(struct master *master);

/* --------------------------------------------------------------------------------- seek.c --- */

/* From now on another server is looked for, if nobody comes back. is_here: lanes of another life are
 * waiting for its places. */
void master_seek_begin(const struct master *master, struct server *server, bool is_here);

/* The next look: when whoever was found, or has begun to come, had time for it; or nobody was found. */
void master_seek_later(const struct master *master, struct server *server, uint64_t now_ns);
void master_seek_soon(struct server *server, uint64_t now_ns);

/* A process that was silent is dead: it can be started again. */
void master_seek_gone(struct master *master, uint64_t process);

/* Nothing shows that its process has ended. */
bool master_seek_is_cut_off(enum psi_loss loss);

/* ------------------------------------------------------------------------------ standby.c --- */

/* A lane of a server that stands by for the places of others. */
void master_admit_standby(struct session *session);

/* Is it one that is here, and has not been given a place? */
bool master_stands_by(const struct session *session, uint64_t now_ns);

/* TAKE_PLACE; number: as the copy of that number, 0: with nothing. */
void master_give_place(struct session *session, const struct member *lane, uint32_t lanes,
                       uint64_t number);

/* Has it a place that nobody has, nor a copy is about to have? */
bool master_has_free_place(const struct server *server);

/* Gives those places of a lost server that nobody has to lanes that stand by in others. False: there are
 * not enough of them. */
bool master_place_elsewhere(struct master *master, uint32_t lost, uint64_t now_ns);

/* -------------------------------------------------------------------------------- moves.c --- */

void master_moves_tick(struct master *master, uint64_t now_ns);

/* The process of a server is to leave, once it has nothing of the job. Is it? */
void master_move_leave(struct master *master, uint32_t index, uint64_t process);
bool master_is_leaving(const struct master *master, uint64_t process);

/* Says which servers may leave, and what keeps the others that are to. */
void master_leaves_tick(struct master *master, uint64_t now_ns);

/* A lane of that process which stands by, and is nobody's copy; NULL: there is none. */
struct session *master_move_spare(const struct master *master, uint64_t process, uint64_t now_ns);

/* No checkpoint begins meanwhile: it would be given up. */
bool master_place_moves(const struct master *master);

/* To a lane that was told to hand its place over, once more. */
void master_move_send(const struct master *master, const struct member *lane);

/* Is that the copy of the lane, which has got its place from it? It takes it. */
bool master_move_admits(const struct master *master, const struct member *lane,
                        const struct psi_hello *hello);
void master_move_take(struct session *session, struct member *lane);

/* Is that a lane whose place is another's by now? It stands by from now on. */
bool master_move_has_left(const struct master *master, const struct member *lane,
                          const struct psi_hello *hello);
void master_move_dismiss(struct session *session);

/* ------------------------------------------------------------------------------- saving.c --- */

void master_saving_tick(struct master *master, uint64_t now_ns);

/* What it is made of has changed: it begins anew. */
void master_saving_give_up(struct master *master, const char *reason);
void master_saving_resend(struct master *master, struct member *lane);

/* One now, if any are written. Who started the master hears what became of it. */
void master_saving_hurry(struct master *master);
void master_saving_free(struct master *master);
void master_saving_number(struct master *master); /* the next order has one of its own */
void master_saving_fail(struct master *master, const char *text);
void master_saving_later(struct master *master, uint64_t step);
psd_status master_saving_of_part(struct master *master, uint64_t step,
                                 struct psd_error *err); /* which has named the step */
void master_saving_commit(struct master *master);        /* if all have written */
psd_status master_on_written(struct session *session, const void *body, size_t bytes,
                             struct psd_error *err);
/* saving_tables.c. Those that servers save, by name; the caller frees the list. NULL: one is being opened, or no
 * memory. */
const struct table **master_saved_tables(const struct master *master, size_t *count_p);
bool master_has_saved_tables(const struct master *master); /* if not now */
psd_status master_saved_outline(const struct table **list, size_t count, uint64_t step,
                                struct psi_outline *outline_p, struct psd_error *err);
psd_status master_make_generation(struct saving *saving, const struct table **list, size_t count,
                                  struct psd_error *err);

/* saving_part.c. Is there nothing to save, or not without a worker that is not here? */
bool master_part_is_missing(struct master *master, size_t tables);
bool
master_part_is_lost(const struct master *master); /* it was wanted, and who was asked is gone */
void master_part_order(struct master *master);
void master_part_drop(struct master *master);
psd_status master_on_part(struct session *session, const void *body, size_t bytes,
                          struct psd_error *err);
psd_status master_on_earlier(struct session *session, const void *body, size_t bytes,
                             struct psd_error *err);
void master_saving_count_rows(struct saving *saving);
psd_status master_on_rows_saved(struct session *session, const void *body, size_t bytes,
                                struct psd_error *err);
psd_status master_on_blocks(struct session *session, const void *body, size_t bytes,
                            struct psd_error *err);

/* ------------------------------------------------------------------------------ barrier.c --- */

psd_status master_on_barrier(struct session *session, const void *body, size_t bytes,
                             struct psd_error *err);
psd_status master_on_why(struct session *session, const void *body, size_t bytes,
                         struct psd_error *err);
void master_barrier_check(struct master *master);

/* A worker is dead: it has not come to what was not released. Then, if there is one, its
 * replacement goes on from there. */
void master_barrier_left(const struct master *master, struct worker *worker);
void master_barrier_replaced(const struct master *master, struct worker *worker);

psd_status master_on_worker_state(struct session *session, const void *body, size_t bytes,
                                  struct psd_error *err);

/* --------------------------------------------------------------------------------- done.c --- */

/* A worker has said BYE. It is answered when all lanes have it in mind. */
void master_done_say(struct master *master, struct worker *worker, const struct psi_frame *ack);
void master_done_resend(struct master *master, struct member *lane);
void master_done_look(struct master *master); /* a lane was lost: perhaps all the others have it */
bool master_done_is_kept(const struct master *master);
bool master_done_is_heard(const struct master *master); /* by all who are done, from this life */

/* All workers have come to so many barriers of loads: have all lanes that in mind? */
bool master_done_keeps_load(struct master *master, uint64_t barriers);
psd_status master_on_done(struct session *session, const void *body, size_t bytes,
                          struct psd_error *err);

/* ------------------------------------------------------------------------------- quorum.c --- */

/* Gives a new table its group, if it needs one. */
psd_status master_quorum_join(struct master *master, struct table *table);

/* A table that this one cannot be in one job with; NULL: none. */
const struct table *master_quorum_rival(const struct master *master, const struct psi_spec *spec);
psd_status master_on_have(struct session *session, const void *body, size_t bytes,
                          struct psd_error *err);

/* A rank has left, as master->view_table says. */
void master_quorum_left(struct master *master, uint32_t rank);
/* A rank is replaced: finds out where each group goes on with it. */
void master_quorum_resume(struct master *master, uint32_t rank);
void master_quorum_resend(struct master *master, struct member *lane);
void master_quorum_tick(struct master *master, uint64_t now_ns);
void master_quorum_forget(struct table *table);
void master_quorum_destroy(struct master *master);

/* ------------------------------------------------------------------------------ readers.c --- */

/* WELCOME, and the view; or it is refused. An error: it is to come again. */
psd_status master_admit_reader(struct session *session, struct psd_error *err);
void master_readers_tell_view(const struct master *master);
void master_reader_tell_tables(struct session *session); /* those that it has not heard of */
uint32_t master_readers(const struct master *master);    /* that are connected */

/* -------------------------------------------------------------------------------- nodes.c --- */

psd_status master_on_nodes(struct session *session, const void *body, size_t bytes,
                           struct psd_error *err);
psd_status master_on_subscribe(struct session *session, const void *body, size_t bytes,
                               struct psd_error *err);
/* The table of nodes, if it is time. */
void master_tell_subscriber(struct session *session, uint64_t now_ns);
void master_node_report(struct member *member, const struct psi_ping *ping, uint64_t now_ns);

#endif
