/*
 * state.h - the inside of the client core. For src/client only.
 *
 * Thread: guarded by the context's lock (the simulator: one thread).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_STATE_H
#define PSI_CLIENT_CORE_STATE_H

#include "base/pool.h"
#include "client/core/client_config.h"
#include "client/core/step_clock.h"
#include "client/core/watcher.h"
#include "clock/clock.h"
#include "codec/codec.h"
#include "rpc/master_link.h"
#include "shard/shard.h"
#include "table/spec.h"
#include "wire/message.h"

enum {
    REQUESTS_MAX = 32768, /* unanswered, per lane: a quarter reads, a quarter pushes ... */
    REQUESTS_FREE_MAX = REQUESTS_MAX / 2, /* ... and half for those that are asked for */
    READS_MAX = REQUESTS_MAX / 4,
    COPY_AT_ONCE = 4,             /* values that may wait to be copied */
    SEND_QUEUE_BYTES = 512 << 10, /* handed to the transport; more would spoil the priorities */
};

struct gathered_table;
struct gathering;
struct host;
struct lane_link;
struct result;
struct split;
struct table_view;

/*
 * How the chunks of a table spread over the lanes: as they are placed (`flat`); or with those of
 * other hosts on the host's own lane, that is, through the worker that sends for this host
 * (`by_host`). The parts of an operation have the same order in both.
 */
struct spread {
    uint16_t *places;       /* chunk -> lane */
    uint32_t **lane_chunks; /* lane -> its chunks, rising */
    uint32_t *lane_counts;
    uint32_t lanes_used;
    uint16_t *lanes;      /* those that have chunks of it: lanes_used of them */
    uint16_t *lane_parts; /* lane -> its index in lanes */
};

/* One request of one chunk, under way on one lane. */
struct request {
    struct psd_op *op;
    uint32_t chunk;
    uint32_t push_cost; /* against the lane's window */
    uint32_t pull_cost; /* against ours */
    uint64_t seq;
    uint32_t id;
    uint32_t parts;        /* of it have been sent, on this connection */
    bool receiving;        /* its value is coming in */
    struct psi_loan *loan; /* ... on loan, and is kept (keep.c) */
    struct request *next;  /* in order of sending */
    struct request *prev;
};

/* One lane's share of a transfer, in that lane's queue until all its requests are sent. */
struct part {
    struct psd_op *op;
    struct part *next;
    struct part *prev;
    bool queued;
    uint32_t cursor; /* into spread->lane_chunks[lane] */
    uint32_t end;
    uint32_t unanswered;
};

enum op_kind {
    OP_TRANSFER,
    OP_TABLE_OPEN,
    OP_BARRIER,
    OP_NODES,
    OP_SUBSCRIBE, /* answered again and again: it ends with the context */
    OP_STEP_ADD,
    OP_BYE,
    OP_SHARE,
};

enum chunk_state {
    CHUNK_UNSENT,
    CHUNK_SENT,
    CHUNK_HELD, /* answered, and not done before everybody has the result (hold.c) */
    CHUNK_DONE,
};

/* The context's own marks on an operation; the core does not look at them. */
struct op_marks {
    bool internal; /* made by a blocking call: never shown to the caller */
    bool released; /* freed as soon as it ends and its callback has returned */
    bool calling;  /* its callback runs, without the lock */
    bool waited;   /* somebody has its end already: not for psd_wait_any */
    bool queued;   /* in context->any */
    struct psd_op *any_next;
    struct psd_op *any_prev;
    struct psd_op *all_next; /* context->all */
    struct psd_op *all_prev;
};

/* What this worker sends for its host (gather.c): a node of the tree over ranks. */
struct op_node {
    struct gathering *gathering; /* NULL: an ordinary operation */
    struct psd_op *next;         /* of the gathering */
    uint32_t first;
    uint32_t level;
    uint32_t leaves;
    void *bytes;           /* transfer.from, if that is memory of our own */
    struct psi_pool *pool; /* which it goes back to */
};

/* A request to the master, or to another worker: one frame, and its answer. */
struct op_control {
    uint32_t request;
    uint64_t seq;
    struct psi_frame frame; /* as sent, and sent again after a cut */
    uint8_t *body;
    size_t body_bytes;
    struct psi_nodes nodes;  /* the last table that came whole */
    struct psi_nodes coming; /* room for the next */
    uint8_t priority_wanted; /* OP_TABLE_OPEN */
    void *to;                /* OP_SHARE */
    uint32_t to_bytes;
};

/* Everything that a worker asks for, and that ends once. */
struct psd_op {
    struct psi_client *client;
    struct psi_pool *pool; /* where its memory comes from and goes */
    struct psd_op *next;   /* client->pending, client->done */
    struct psd_op *prev;
    enum op_kind kind;
    uint64_t number; /* in order of submission */
    uint64_t started_ns;
    uint64_t deadline_ns;
    uint64_t why_ns; /* ask what it waits for */
    bool ended;
    bool taken;
    psd_outcome outcome;
    psd_done_fn done;
    void *user;

    uint64_t value; /* what it brought; OP_SUBSCRIBE: how many answers have come */

    struct op_marks marks;

    /* OP_TRANSFER */
    struct psd_table *table;
    struct psi_transfer transfer;
    uint8_t priority;
    uint64_t first_chunk;
    uint64_t chunk_count;
    uint64_t remaining; /* chunks not ended */
    uint64_t applied;   /* chunks that ended well */
    uint64_t touched;   /* chunks that were ever sent */
    uint64_t updates;   /* STATE_PULL: largest count seen */
    bool held;          /* waits for earlier operations: in client->held */
    struct psd_op *held_next;
    struct psd_op *held_prev;
    bool wanted; /* a server asks for it: other workers push the tables in another order */
    bool
        repeats; /* some of it may have been given before: by an earlier life of this worker, to one of the server, or
                     to another worker of this host. It may be in a round that has closed, which nobody asks for */
    struct psd_op *table_next; /* of the table's transfers that have not ended */
    struct psd_op *table_prev;
    bool exact;    /* a read of the very version of its step */
    bool in_place; /* the result comes where the gradient was; of tables with `results` */
    bool is_split; /* a push that brings its sum into table->split */
    bool is_local; /* no server hears of it: a pull that is answered from there, or of a table
                      that is_lone */
    bool copying;  /* in client->lone: of a table that is_lone */
    struct psd_op *copied_next;
    struct psd_op *copied_prev;
    uint8_t *chunks;    /* enum chunk_state each; lies behind the operation, as do its parts */
    struct part *parts; /* one per lane of spread->lanes */
    const struct spread *spread;

    struct op_node node;       /* OP_TRANSFER for this host */
    struct op_control control; /* the others */

    /* Long, and nearly always empty: of these a new operation has only the first bytes cleared. */
    struct psd_error error;
    char because[PSI_TEXT_MAX];
};

static inline bool
psi_op_is_push(const struct psd_op *op)
{
    return op->kind == OP_TRANSFER && psi_frame_has_gradient(op->transfer.type);
}

/* The earliest step of some pending pushes, and how many are of it. */
struct earliest {
    uint64_t step;
    size_t count;
};

/* The tables with the same number of backup workers: a step is closed for all of them at once. */
struct backup_group {
    struct backup_group *next; /* client->groups */
    uint32_t backup_workers;
    uint64_t reached; /* the furthest step that we were told of when a gradient was dropped */
    struct earliest earliest;
};

struct psd_table {
    struct psi_client *client;
    uint32_t id;
    uint8_t priority;
    struct psi_spec spec;
    void *info; /* owned; what the master said of it, as it came (recall.c) */
    size_t info_bytes;
    struct backup_group *group; /* NULL: no backup workers */
    size_t element_bytes;
    const struct psi_codec *codec; /* how its gradients travel */
    uint64_t chunk_count;
    struct spread flat;
    struct spread by_host;           /* lanes_used == 0: none */
    uint64_t route_from;             /* pushes of this step and later spread by host; or never */
    uint64_t *relayed;               /* by_host: chunk -> behind the last step that was wanted */
    struct gathered_table *gathered; /* this worker sends for its host */
    struct psi_pool ops;             /* transfers of it, each with its parts and chunks */
    struct psd_op *last_op;          /* the newest of those that have not ended */
    uint64_t *next_step;             /* chunk -> step to push next */
    uint64_t resume_step;            /* a replacement repeats from here */
    bool resuming;                   /* opened by a replacement */
    bool is_lone;                    /* its sums are this worker's gradients (lone.c) */
    struct split *split;             /* owned; NULL: no sum was pushed by itself (split.c) */
    struct result *results;          /* by chunk; NULL: the table does not outlive a server */
    struct table_view *view;         /* NULL: nobody asked for one */
    _Atomic uint64_t view_changes;   /* pages of it replaced by others */
    uint64_t blocked_turn;           /* the pump's turn in which a transfer of it was blocked ... */
    uint64_t passable;               /* ... by which only what belongs before this step passes */
    struct psi_traffic traffic;
};

/* What a worker reports under names, and has not told yet. */
struct scalars {
    bool reported;   /* ever */
    uint64_t points; /* since ever ... */
    uint64_t told;   /* ... of which so many were told, or lost */
    struct scalar {
        char name[PSI_SCALAR_NAME_MAX]; /* zeroes behind its end */
        uint64_t step;
        double value;
    } scalar[PSI_POINTS_MAX]; /* [number % PSI_POINTS_MAX], of the last */
};

/* For a timeline: what was pushed, and what the program marked. */
struct marked {
    struct psi_spans spans;
    uint32_t names;
    char name[PSI_MARKS_MAX][PSI_SCALAR_NAME_MAX];
};

/*
 * The connection to one lane of one server. Behind the last of them lies the host's own: to the
 * worker that sends for this host, or to ourselves.
 */
struct lane_link {
    struct psi_client *client;
    uint32_t index;
    bool is_self;    /* without a connection: what is sent is gathered here */
    bool lends;      /* the server was on this host when the connection last came up */
    bool is_new;     /* the server has another life, which has not heard of us yet */
    bool parting;    /* it is to say that everybody has what we keep of it, before we go */
    uint32_t server; /* which lane it is: of that server ... */
    uint32_t lane;   /* ... that one */
    uint32_t life;   /* the last that we have met; 0: none yet */
    struct psi_peer peer;
    struct request **requests; /* owned; [id % requests_capacity], which grows with use */
    uint32_t requests_capacity;
    uint32_t request_count;
    struct request *spare; /* owned; for the next one */
    uint32_t next_id;
    struct request *first; /* under way, in order of sending */
    struct request *last;
    struct part *queue; /* by priority, then age */
    struct part *queue_last;
    struct lane_link *busy_next; /* client->busy */
    bool busy;
    uint64_t window_bytes;
    uint64_t used;       /* unanswered gradient bytes */
    uint64_t reads;      /* unanswered value bytes */
    uint32_t read_count; /* requests that push nothing */
    uint64_t used_alone; /* of `used`: of tables without rounds */
    uint64_t pongs;      /* answers to our beats (reach.c) */
    uint64_t heard;      /* frames and pongs that had come by the last beat */
    uint32_t missed;     /* beats since then without any */
    bool is_unreached;   /* the master was told so */
    uint64_t frames_in;  /* counted here and added up when they are told, as are ... */
    struct psi_traffic traffic;
    uint64_t room_ns;       /* something waits for room: then it gets some; 0: nothing does */
    bool extra;             /* one that nobody asks for leaves whatever the window */
    bool apart;             /* rounds stand still: tables without have a window of their own */
    struct request *resend; /* after a cut: the next of these to be sent again; or one of which not
                               all parts have been sent */
    uint32_t receiving;     /* requests whose values are coming in */
    uint32_t ups;           /* how often it has come up: what was mapped before is old */
    void *coming_to;        /* where a value in `bounce` is copied when it is whole; or NULL */
    void *bounce;           /* owned; room for one value of those that come in place */
    size_t bounce_bytes;
    struct psi_result *got; /* owned; to be told (hold.c): PSI_RESULTS_MAX of room */
    uint32_t got_count;
    bool got_due;    /* with the next turn; ... */
    uint64_t got_ns; /* ... or then, if the rest has not come; 0: nothing waits for a rest */
};

struct published {
    bool valid;
    uint64_t step;
    struct psd_state *states;
    char (*names)[PSI_SHARE_NAME_MAX];
    size_t count;
    struct waiting_share *waiting; /* asked before we got there */
};

/* What the master wants of this worker for a checkpoint (part.c). */
struct own_part {
    bool offered; /* it can be asked */
    bool wanted;
    bool taken; /* it is being written */
    uint64_t number;
    uint64_t at; /* the step; PSD_CHECKPOINT_NONE: not settled, or an epoch's end */
    struct psi_part order;
};

struct psi_client {
    struct psi_env *env;
    struct psd_context *context; /* whose core this is; NULL in the simulator */
    struct psi_client_config config;
    char master_address[PSI_ADDRESS_BYTES];
    uint64_t life;
    uint64_t started_ns;
    enum psi_client_state state;
    struct psd_error error;

    struct psi_master_link master;
    struct psi_welcome job; /* workers == 0: not welcomed yet */
    uint64_t beat_ns;       /* lanes get no beat before (reach.c) */
    struct psi_ping ping;
    struct psi_metrics *metrics; /* owned */
    uint64_t copied_ns;          /* spent with copying large tensors */
    uint64_t kept_bytes;         /* results that are kept as copies: keep.c */
    struct step_clock steps;
    struct scalars scalars;
    struct psi_telling *telling;       /* owned; NULL before the first one */
    struct marked *marked;             /* owned; NULL: nobody watches */
    const struct psi_watcher *watcher; /* (optional) of an observer */

    struct psi_view view; /* the one it has; id 0: none yet */
    uint32_t heard_view;  /* the latest that a lane has answered by */
    uint32_t lane_count;
    uint32_t connect_from; /* the lane whose turn it is to be connected to */
    uint32_t lanes_up;
    struct lane_link **lanes; /* of the view's places, in their order; then the host's own */
    struct lane_link *busy;   /* lanes that may have something to send, in order */
    struct lane_link *busy_last;

    struct psd_table **tables;
    size_t table_count;
    size_t table_capacity;
    struct backup_group *groups; /* owned */

    struct psd_op *pending; /* oldest first */
    struct psd_op *pending_last;
    size_t pending_count;
    struct psd_op *done; /* ended, not handed out; oldest first */
    struct psd_op *done_last;
    struct psi_pool requests; /* operations that are not transfers */
    struct psi_pool lane_requests;
    uint64_t op_number;
    uint64_t seq;
    uint32_t control_id;
    uint64_t barrier[PSI_BARRIER_KINDS]; /* how many it has come to */
    uint64_t next_deadline_ns;
    struct psd_op *held; /* transfers that wait for earlier ones; oldest first */
    struct psd_op *held_last;
    bool hold_changed;   /* a transfer ended: some of these may be let go */
    struct psd_op *lone; /* transfers that are copied piece by piece (lone.c); in turn */
    struct psd_op *lone_last;
    struct earliest earliest; /* PSI_DEATH_WAIT, elastic: of all tables without backup workers */
    uint64_t pump_turn;
    uint64_t room_ns;     /* the earliest of the lanes */
    uint64_t got_ns;      /* likewise, or earlier; 0: none of them waits */
    uint32_t got_waiting; /* how many do */
    struct published published;
    uint32_t chunks_in_place; /* of the views of all tables */
    bool leaving;             /* BYE was said */
    bool step_used;           /* the global step, which lane 0 counts */
    struct own_part part;

    struct psi_listener *listener;        /* for other workers of this host */
    char host_address[PSI_ADDRESS_BYTES]; /* where they find it; "": they do not */
    struct host *host;                    /* this worker sends for its host */
    uint32_t sender;                      /* who does; UINT32_MAX: nobody */
    bool route_begun;                     /* it is known whether there is any use for that */
    struct psi_ranks offered_lanes;       /* another one does, to these lanes, ... */
    bool *offered;                        /* ... for these tables, by number */
    uint32_t offered_capacity;
};

/* core.c */
void psi_client_over(struct psi_client *client, psd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline void
psi_client_copy(struct psi_client *client, void *to, const void *from, size_t bytes)
{
    psi_env_copy(client->env, to, from, bytes, &client->copied_ns);
}

/* tell.c */
void psi_client_tell(void *owner);
void psi_client_hush(void *owner);
void psi_name_cut(char name_p[PSI_SCALAR_NAME_MAX], const char *name);

/* mark.c */
void psi_mark_pushed(const struct psd_op *op);
void psi_mark_tell(struct psi_client *client, struct psi_telling *telling);
void psi_mark_told(struct psi_client *client);

/* ops.c */
struct psd_op *psi_op_create(struct psi_client *client, struct psi_pool *pool, enum op_kind kind,
                             uint32_t timeout_ms);
void psi_op_discard(struct psd_op *op); /* one that was not submitted */
void psi_op_submit(struct psd_op *op);
void psi_op_submit_node(struct psd_op *op);
void psi_op_end(struct psd_op *op, psd_status status, psd_outcome outcome, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void psi_op_succeed(struct psd_op *op);
void psi_ops_check_deadlines(struct psi_client *client, uint64_t now_ns);
void psi_ops_end_all(struct psi_client *client, const struct psd_error *reason);

/* transfer.c */
psd_status psi_transfer_check_range(const struct psd_table *table, struct psi_transfer *transfer,
                                    struct psd_error *err);
void psi_transfer_describe(const struct psd_op *op, char *text, size_t size);
void psi_transfer_abort(struct psd_op *op, psd_status status, const char *reason);
void psi_transfer_finish(struct psd_op *op); /* nothing of it is left to be answered */
uint64_t psi_transfer_bytes(const struct psd_op *op, uint64_t chunk);
uint64_t psi_transfer_element_bytes(const struct psd_op *op);
uint64_t psi_transfer_push_bytes(const struct psd_op *op, uint64_t chunk);

/* Of the numbers that it pushes. A sum of several gradients is in what is computed in, not in the
 * table's type. */
static inline psd_dtype
psi_transfer_dtype(const struct psd_op *op)
{
    const psd_dtype dtype = op->table->spec.dtype;

    return op->node.level > 0 ? psi_dtype_real(dtype) : dtype;
}

void psi_transfer_clear_parts(struct psd_op *op);
void psi_transfers_init(struct psd_table *table);
bool psi_transfer_completes_step(const struct psd_op *op);

/* order.c */
void psi_order_enter(struct psd_op *op);          /* submitted: leaves now, or is held */
void psi_order_leave(struct psd_op *op);          /* ended */
void psi_order_let_go(struct psi_client *client); /* those that no longer have to wait */
void psi_order_want(struct psi_client *client, const struct psi_frame *wanted);

/* lanes.c */
psd_status psi_lanes_on_view(struct psi_client *client, const struct psi_view *old,
                             const struct psi_view *now, struct psd_error *err);
void psi_lanes_stop(struct psi_client *client);
void psi_lanes_tick(struct psi_client *client, uint64_t now_ns);

/* reach.c: with every heartbeat; a lane's connection ended; its server has another life. */
void psi_reach_beat(struct psi_client *client);
void psi_reach_down(struct lane_link *lane, const struct psd_error *reason);
void psi_reach_anew(struct lane_link *lane);
uint64_t psi_lanes_next_ns(const struct psi_client *client);
void psi_lanes_send(struct psi_client *client);
bool psi_lanes_up(const struct psi_client *client);
void psi_lane_enqueue(struct psd_op *op);
void psi_lane_forget(struct psd_op *op);
void psi_lane_ask_why(struct psd_op *op);
bool psi_lane_ask_why_node(const struct psd_op *op);
void psi_lane_want(struct lane_link *lane, const struct psi_frame *wanted);
void psi_lane_reroute(struct psd_op *op);
struct lane_link *psi_host_lane(const struct psi_client *client);
uint32_t psi_spread_index(const struct spread *spread, uint32_t lane, uint64_t chunk);
psd_status psi_lane_head(void *owner, struct psi_peer *peer, struct psi_sink *sink_p,
                         struct psd_error *err);
psd_status psi_lane_frame(void *owner, struct psi_peer *peer, void *payload, size_t bytes,
                          struct psd_error *err);
/* Says who we are; owner: a struct lane_link. */
void psi_lane_hello(void *owner, struct psi_peer *peer, struct psi_hello *hello_p);
void psi_lane_came_up(struct lane_link *lane, uint64_t window_bytes);

/* An answer to what this worker has given to itself. A value is copied from there. */
struct own_answer {
    uint32_t request;
    psd_status status;
    const char *text;
    const void *value; /* NULL: none */
    uint64_t step;
    uint64_t updates;
};
void psi_lane_answer_own(struct lane_link *lane, const struct own_answer *answer);
void psi_lane_tell_own(struct lane_link *lane, uint32_t request, const char *because);
const char *psi_lane_name(const struct lane_link *lane, char *text, size_t size);

/* control.c */
psd_status psi_control_frame(struct psi_client *client, struct psi_peer *peer, const void *payload,
                             size_t bytes, struct psd_error *err);
void psi_control_resend(struct psi_client *client);
void psi_control_tell_state(struct psi_client *client); /* to a master that may have returned */

/* part.c: the master has another life, or may have; and what it says. */
void psi_part_up(struct psi_client *client);
psd_status psi_part_arrived(struct psi_client *client, const void *payload, size_t bytes,
                            struct psd_error *err);

/* recall.c: keeps what a master may ask for that finds no server; PSD_ERR_NO_MEMORY. And tells it. */
psd_status psi_recall_keep(struct psd_table *table, const struct psi_table_info *info);
psd_status psi_recall_tell(void *owner, struct psd_error *err);
void psi_subscribe_pace(struct psd_op *op, uint32_t every_ms); /* of a subscribe */
void psi_control_send(struct psd_op *op);
void psi_control_barrier_again(const struct psd_op *failed);
void psi_control_have(const struct psd_op *op);

/* tables.c */
psd_status psi_table_create(struct psi_client *client, const struct psi_table_info *info,
                            uint8_t priority, struct psd_table **table_p, struct psd_error *err);
void psi_table_destroy(struct psd_table *table);
psd_status psi_table_spread_by_host(struct psd_table *table, const struct psi_ranks *lanes);
uint64_t psi_table_first_unsent_step(const struct psd_table *table);
struct psd_table *psi_table_find(const struct psi_client *client, uint32_t id);

/* backup.c */
psd_status psi_group_join(struct psd_table *table);
void psi_group_reached(const struct psd_table *table, uint64_t step);
void psi_groups_destroy(struct psi_client *client);

/* route.c */
void psi_route_open(struct psi_client *client);
void psi_route_start(struct psi_client *client);
void psi_route_begin(struct psi_client *client);
void psi_route_stop(struct psi_client *client);
void psi_route_tick(struct psi_client *client, uint64_t now_ns);
uint64_t psi_route_next_ns(const struct psi_client *client);
bool psi_route_settled(const struct psi_client *client);
void psi_route_table(struct psd_table *table);
psd_status psi_route_offered(struct lane_link *lane, const void *payload, size_t bytes,
                             struct psd_error *err);
bool psi_route_carries(const struct psd_table *table, uint32_t chunk, uint64_t step);
void psi_route_want(struct psi_client *client, const struct psi_frame *wanted);

/* host.c */
psd_status psi_host_start(struct psi_client *client, uint32_t workers);
void psi_host_stop(struct psi_client *client);
void psi_host_tick(struct psi_client *client, uint64_t now_ns);
uint64_t psi_host_next_ns(const struct psi_client *client);
void psi_host_offer(struct psd_table *table);

/* gather.c */
void psi_gather_own(struct psd_op *op, uint32_t chunk, uint32_t request);
void psi_gather_withdraw(const struct psd_op *op, uint32_t chunk);
bool psi_gather_fill(struct psd_op *op);
void psi_gather_wanted(const struct psd_table *table, const struct psi_frame *wanted);
void psi_gather_sent(struct psd_op *op);
void psi_gather_because(const struct psd_op *op, const char *text);
void psi_gather_send_again(const struct lane_link *lane);
const void *psi_gather_result(const struct psd_table *table, uint32_t chunk, uint64_t step);
const void *psi_gather_last(const struct psd_table *table, uint32_t chunk, uint64_t step);
bool psi_gather_lacks(const struct psd_table *table, uint32_t chunk, uint64_t step);
bool psi_gather_why(const struct psd_table *table, uint32_t chunk, char *text, size_t size);
void psi_gathered_destroy(struct psd_table *table);

/* share.c */
psd_status psi_share_asked(struct lane_link *lane, const void *payload, size_t bytes,
                           struct psd_error *err);
void psi_share_lane_down(struct lane_link *lane);
void psi_share_tick(struct psi_client *client, uint64_t now_ns);
uint64_t psi_share_next_ns(const struct psi_client *client);
void psi_share_fini(struct psi_client *client);

#endif
