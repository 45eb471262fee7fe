/*
 * message.h - the bodies of control frames: bytes <-> structs.
 *
 * A body is its fields one after the other, little-endian; strings and lists carry their length
 * first. Fields are only ever appended: a decoder ignores what follows the last field it knows.
 * Every decoder checks every length against what is left and every number against its range, and
 * allocates nothing: lists land in arrays of the caller, strings in fixed arrays.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_WIRE_MESSAGE_H
#define PSI_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock/clock.h"
#include "metric/metric.h"
#include "metric/spans.h"
#include "shard/shard.h"
#include "table/spec.h"
#include "view/view.h"

/* A growing body. `bytes` is the caller's; a body that does not fit sets `overflow`. */
struct psi_pack {
    uint8_t *bytes;
    size_t capacity;
    size_t used;
    bool overflow;
};

enum psi_role {
    PSI_ROLE_MASTER = 1, /* never says HELLO; it tells observers its own metrics */
    PSI_ROLE_SERVER = 2, /* one lane of it */
    PSI_ROLE_WORKER = 3,
    PSI_ROLE_OBSERVER = 4, /* asks for the table of nodes, and is in no view */
    PSI_ROLE_STANDBY = 5,  /* a lane without a place: that of a lost server's, when it is wanted */
    PSI_ROLE_READER = 6,   /* looks at values, and is in no view */
};

enum {
    PSI_PROCESS_INDEX_BITS =
        16,             /* of a server's `host`: the index that its process was started with */
    PSI_TEXT_MAX = 480, /* with its NUL */
    PSI_TABLES_MAX = 16384,
    PSI_SHARE_NAME_MAX = 128,
    PSI_ADOPT_RUNS_MAX = 4096,
    PSI_RESULTS_MAX = 1024,
    PSI_STEP_ADDS_MAX = 256,    /* STEP_ADDs of one worker under way: so many answers are kept */
    PSI_METRICS_TOLD_MAX = 128, /* a later version may have more than we do */
    PSI_POINTS_MAX = 256,       /* numbers that a worker reported, in one METRICS, ... */
    PSI_SCALARS_MAX = 256,      /* ... each under a name of its own at most, ... */
    PSI_SCALAR_NAME_MAX = 32,   /* ... with its NUL */
    PSI_STEPS_MAX = 64,         /* steps of which one METRICS tells the times */
    PSI_TRAFFIC_MAX = 64,       /* servers, and tables, whose traffic a worker tells */
    PSI_WAITED_MAX = 64,        /* workers of whom a lane tells how long it waited for them */
};

#define PSI_RANK_AUTO UINT32_MAX

/* Steps that METRICS tell of: a number above it is nobody's, and no JSON has room for it. */
#define PSI_TOLD_STEP_MAX (UINT64_C(1) << 62)
#define PSI_TOLD_END_MAX  (UINT64_C(1) << 60) /* so that what is between two of them is a number */

/* HELLO: to the master by everybody, to a lane by a worker. */
struct psi_hello {
    uint8_t role;
    uint32_t rank; /* worker: rank or PSI_RANK_AUTO; server, stand-by: index of the server */
    uint32_t lane;
    uint32_t lanes;       /* server: lanes of that server; stand-by: how many there are in it */
    uint32_t incarnation; /* 0: a new process; else the one the master gave */
    uint64_t life;        /* drawn at random by the process: tells a reconnect from an impostor */
    uint32_t kernel_revision;
    uint64_t job;                  /* 0: not known yet; else the master's number of the job */
    char address[PSI_ADDRESS_MAX]; /* where workers reach this lane; a worker: others of its host */
    char build[64];
    uint64_t host; /* worker: those that may be on one host have the same; 0: not to be asked.
                      Lane, stand-by: a number that all lanes of its process have */
    uint32_t term; /* of the last master that it has met; 0: none yet */
    uint32_t view; /* the one it has; 0: none yet */
    bool tells;    /* to the master: it understands SUBSCRIBE, and answers with METRICS */
    uint64_t pair; /* to a copy: the number under which it is one; to the master, by a copy that was
                      told to take a place: under which it was; 0: neither */
    bool recalls;  /* to the master: it understands RECALL */
    bool in_time;  /* a worker: not in a job that has begun without it */
    uint64_t
        join_step; /* a worker that joins such a job: from which step on it wants to count; 0: as
                           early as it can */
};

/* WELCOME by the master. */
struct psi_welcome {
    uint32_t rank;
    uint32_t incarnation;
    uint32_t workers; /* ranks that there may be */
    uint32_t servers;
    uint32_t heartbeat_ms;
    uint32_t dead_ms; /* silent for that long: dead; never 0 */
    uint8_t policy;   /* enum psi_death_policy */
    uint64_t job;
    uint32_t window_bytes; /* WELCOME by a lane: unanswered gradient bytes this worker may have */
    uint32_t view;
    uint64_t load_barriers;   /* those of PSI_BARRIER_LOAD that are over */
    bool survives;            /* the job goes on when a server dies: results are kept for that */
    uint32_t term;            /* which life of the master this is; 0: it has no other */
    uint32_t master_grace_ms; /* how long members wait for another life of it; 0: not at all */
    uint64_t barriers;        /* those of PSI_BARRIER_CALLED that were over when this life came */
    bool elastic;             /* workers may join while the job runs ... */
    uint32_t size;            /* ... which is planned with so many of `workers` */
};

/* BARRIER: each kind is counted by itself. */
enum psi_barrier_kind {
    PSI_BARRIER_CALLED = 0, /* psd_barrier() */
    PSI_BARRIER_LOAD = 1,   /* psd_load(), two in each call */
    PSI_BARRIER_KINDS,
};

/* REFUSE, END, BECAUSE, an ACK with an error. */
struct psi_verdict {
    int32_t status;    /* psd_status */
    int32_t exit_code; /* END: what daemons exit with */
    char text[PSI_TEXT_MAX];
};

/* PING. */
struct psi_ping {
    uint64_t step;
    double value;
    char name[32];
};

/* VIEW_COMMIT is struct psi_view (view/view.h). When it is decoded its lists have room for
 * PSI_RANKS_MAX workers, PSI_PLACES_MAX places and PSI_TABLES_MAX tables. */

/* VIEW_PROPOSE. */
struct psi_propose {
    uint32_t id; /* of the view to come */
    uint32_t rank;
    bool leaves;
    bool joins; /* neither: it is replaced */
};

/* VIEW_ACK: what the rank has given of one table on this lane. */
struct psi_given {
    uint32_t table;
    uint64_t chunks;   /* of the table on this lane */
    uint64_t next_min; /* smallest and ... */
    uint64_t next_max; /* ... largest clock of the rank over them */
    uint64_t ahead;    /* chunks whose clock is above next_min */
    uint64_t closed;   /* ... of these, chunks whose round next_min has closed */
};

struct psi_view_ack {
    uint32_t id;
    uint32_t tables;
    struct psi_given *given; /* PSI_TABLES_MAX of room when decoding */
};

/* Of every place, as views number them, the last number of a copy that was crossed out: no copy takes the
 * place by it, or by one before it. */
struct psi_crossed {
    uint32_t places;
    uint64_t number[PSI_PLACES_MAX];
};

/*
 * LANE_STATE ends what a lane tells a master that has another life: VIEW_COMMIT, the last that it
 * took; then, for each table that it has heard of, the TABLE_OPEN or TABLE_DROP, and TABLE_RESUMEs.
 */
struct psi_lane_state {
    bool frozen;            /* by a proposal that came to no decision here */
    uint64_t load_barriers; /* of PSI_BARRIER_LOAD: to so many all workers have come */
    struct psi_ranks done;  /* have said BYE */
    uint64_t pair;          /* number of its copy; 0: it has none */
    bool is_eligible;       /* ... which has all that it has told anybody */
    struct psi_crossed crossed;
};

/* DONE. */
struct psi_done {
    struct psi_ranks ranks; /* have said BYE */
    struct psi_crossed crossed;
};

/* WORKER_STATE: its barriers, as it counts them. */
struct psi_worker_state {
    uint64_t before;                    /* of PSI_BARRIER_CALLED: over when its life began */
    uint64_t come[PSI_BARRIER_KINDS];   /* to so many it has come ... */
    uint64_t passed[PSI_BARRIER_KINDS]; /* ... of which it waits in none of the first */
};

/* TABLE_OPEN (worker to master: spec alone counts) and TABLE_INFO, TABLE_OPEN to a lane. */
struct psi_table_info {
    uint32_t id;
    uint32_t creator; /* rank that opened it first */
    uint64_t step;    /* where the asking worker has to go on */
    struct psi_spec spec;
    struct psi_loads loads; /* before this table */
    bool again;             /* to a lane: the server had it in another life, workers have gone on */
};

/* NODES_INFO: psd_node as in the API. */
struct psi_nodes {
    uint32_t count;
    struct psd_node *node; /* PSI_RANKS_MAX + PSI_SERVERS_MAX + 1 of room when decoding */
    uint32_t readers;      /* that are connected */
};

/* SUBSCRIBE; from the master to a member, when somebody wants METRICS. */
struct psi_subscribe {
    uint32_t every_ms; /* between two NODES_INFO, or two METRICS of a member; 0: no more of them */
    bool metrics;      /* METRICS as well, and a TABLE_INFO of each table */
};

/* A named number of a worker's, as it was at a step. */
struct psi_point {
    uint8_t name; /* which of the names */
    uint64_t step;
    double value;
};

/*
 * Where the time of a worker's step went, from the end of the step before to its own: its parts
 * add up to total_us. docs/waiting.md.
 */
struct psi_step_times {
    uint64_t step;
    uint32_t total_us;
    uint32_t compute_us; /* the program neither waited nor was in a call of ours */
    uint32_t encode_us;
    uint32_t send_us;
    uint32_t wait_us;    /* the program waited, and nothing came */
    uint32_t receive_us; /* the program waited, and something came */
    uint32_t alone_us;   /* of wait_us at most: all servers but `server` had answered */
    uint32_t server;     /* the last one that answered; UINT32_MAX: none did */
    uint64_t end_us;     /* when it ended, on the worker's clock; 0: not told */
};

struct psi_waited {
    uint32_t rank;
    uint64_t ns; /* ever: since the gradient before its own had come, it alone was missing */
};

struct psi_traffic {
    uint32_t id; /* of a server, or of a table */
    uint64_t bytes_out;
    uint64_t bytes_in;
    uint64_t frames_out; /* that these bytes are in */
    uint64_t frames_in;
};

struct psi_metric_value {
    uint16_t metric; /* enum psi_metric, or one that is not known here yet */
    uint64_t value;
};

/*
 * METRICS: what a member has counted since it began, and what is new since the last one. The frame
 * says who: rank (a worker's, or the index of a server), chunk: the lane, table: enum psi_role.
 */
struct psi_telling {
    uint64_t step;
    uint32_t metrics;
    struct psi_metric_value metric[PSI_METRICS_TOLD_MAX]; /* by rising number, without those at 0 */
    uint32_t names;
    char name[PSI_SCALARS_MAX][PSI_SCALAR_NAME_MAX];
    uint32_t points;
    struct psi_point point[PSI_POINTS_MAX];
    uint32_t steps;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint32_t servers;
    struct psi_traffic server[PSI_TRAFFIC_MAX];
    uint32_t tables;
    struct psi_traffic table[PSI_TRAFFIC_MAX];
    uint32_t marks; /* a worker: names of its spans */
    char mark[PSI_MARKS_MAX][PSI_SCALAR_NAME_MAX];
    uint32_t spans;
    struct psi_span span[PSI_SPANS_MAX];
    uint32_t waited; /* a lane: for whom its rounds waited, those it waited for longest */
    struct psi_waited wait[PSI_WAITED_MAX];
};

/* SHARE_PULL and, in front of the piece, SHARE_DATA (as meta it would not fit: it is the payload of
 * SHARE_PULL, and echoed by request number in SHARE_DATA). */
struct psi_share {
    uint32_t from; /* rank asked */
    uint64_t step;
    uint64_t offset;
    uint64_t total; /* bytes the asker believes the state has */
    uint32_t bytes; /* of this piece */
    char name[PSI_SHARE_NAME_MAX];
};

/* What a worker has of a chunk's result besides its own gradient. */
enum psi_has {
    PSI_HAS_NOTHING,
    PSI_HAS_HELD,   /* the result of step `base`, with which it is not through until RELEASE */
    PSI_HAS_KEPT,   /* that of the step before: it is through with it, and can show it */
    PSI_HAS_PASSED, /* it was released from the step before: everybody has its result */
    PSI_HAS_KINDS,
};

/* Chunks of a table, one behind the other, of which the same is true. */
struct psi_adopt_run {
    uint32_t first;
    uint32_t count;
    uint64_t base; /* the first step that the worker is not through with */
    enum psi_has has;
};

/* ADOPT: the table is that of the frame. A worker with many runs sends several. */
struct psi_adopt {
    uint32_t runs;
    struct psi_adopt_run *run; /* PSI_ADOPT_RUNS_MAX of room when decoding */
};

/* The result of a round. */
struct psi_result {
    uint32_t table;
    uint32_t chunk;
    uint64_t step;
};

/* GOT, RELEASE. */
struct psi_results {
    uint32_t count;
    struct psi_result *result; /* PSI_RESULTS_MAX of room when decoding */
};

/*
 * PAIR. To a lane that has a place: the lane that stands by and is to be its copy. To that one: the
 * place that it is to be a copy of, and the life of the lane that has it. The number is the frame's
 * seq.
 */
struct psi_pair {
    uint32_t server;
    uint32_t lane;
    uint32_t lanes; /* of that server */
    uint64_t life;
    char address[PSI_ADDRESS_MAX]; /* of the lane that stands by; to itself: none */
};

/*
 * REPLICATE: what has just changed a chunk. Behind it, from byte PSI_CHANGE_BYTES on, the numbers:
 * the sum of a round, or the one gradient of a table without rounds. None: it added nothing.
 */
struct psi_change {
    uint64_t version;     /* of the chunk, after it */
    uint64_t updates;     /* likewise */
    uint64_t step;        /* tables without rounds: of the push */
    uint32_t gradients;   /* in the sum: a mean divides by it */
    bool is_empty;        /* nobody was in the round: no update */
    bool is_real;         /* the numbers are f32 (f64), whatever the table's type */
    uint32_t rank;        /* tables without rounds: whose push it was ... */
    uint32_t incarnation; /* ... and which */
    uint64_t sequence;
    struct psi_ranks in; /* tables with rounds: who gave to it */
    uint32_t rows; /* sparse tables: the numbers are u64 ids[rows], then their rows in f32 ... */
    bool goes_on;  /* ... and the next REPLICATE has more of the same change */
    bool in_parts; /* no numbers: all parts of the chunk came before, each by a REPLICATE_PART */
};

enum { PSI_CHANGE_BYTES = 192 };

/* SNAPSHOT: a chunk as it is. Behind it, from byte psi_snapshot_bytes() on, its parts. */
struct psi_snapshot {
    uint64_t version;
    uint64_t updates;
    bool ready;
    bool pushed;
    uint32_t ranks;
    uint64_t *next;         /* per rank; PSI_RANKS_MAX of room when decoding */
    uint32_t marked;        /* 0, or ranks: tables that are asynchronous */
    struct psi_mark *marks; /* likewise */
};

size_t psi_snapshot_bytes(uint32_t ranks, uint32_t marked);

/* STEP_STATE: the last additions of a rank to the global step, the oldest first. */
struct psi_step_add {
    uint32_t incarnation;
    uint64_t sequence;
    uint64_t result;
};

struct psi_step_state {
    uint64_t value; /* of the global step, after them */
    uint32_t rank;
    uint32_t count;
    struct psi_step_add add[PSI_STEP_ADDS_MAX];
};

/*
 * CHECKPOINT. To a lane, the number of the order is the frame's seq, the step its step: of each chunk
 * of these tables, as it is at that step, all parts go to their places in the files. Without tables:
 * an order before it is given up, and the lane says how far it is.
 */
enum { PSI_SAVED_FILES = 2 }; /* values; the rest */

struct psi_order_table {
    uint32_t id;
    uint64_t begin[PSI_PARTS_MAX]; /* of its parts, in their files */
};

struct psi_order {
    uint64_t token;      /* which files */
    uint64_t generation; /* the number that they will have */
    uint64_t after;      /* the token of the newest generation; 0: all has to be written */
    uint64_t bytes[PSI_SAVED_FILES];
    uint32_t tables;
    struct psi_order_table *table; /* PSI_TABLES_MAX of room when decoding */
};

enum psi_written_news {
    PSI_WRITTEN_REACHED, /* no order: the step is the highest of any chunk here */
    PSI_WRITTEN_LATE,    /* a chunk is past the step of the order: the step is the highest */
    PSI_WRITTEN_FAILED,  /* because: */
    PSI_WRITTEN_ALL,     /* all parts here are on the disk */
    PSI_WRITTEN_NEWS,
};

struct psi_written_table {
    uint32_t id;
    uint64_t updates; /* of the chunk with the most */
};

/* WRITTEN: its seq is that of the order. ALL comes behind the BLOCKS of both files. */
struct psi_written {
    enum psi_written_news news;
    char text[PSI_TEXT_MAX];
    uint64_t bytes[PSI_SAVED_FILES];
    uint32_t checksum[PSI_SAVED_FILES]; /* what it adds to that of the file */
    uint32_t tables;
    struct psi_written_table *table; /* PSI_TABLES_MAX of room when decoding */
};

enum { PSI_BLOCKS_MAX = 1 << 16 };

/* BLOCKS: what the lane adds to the checksums of these blocks of a file. Its seq is that of the order. */
struct psi_blocks {
    uint8_t file;
    uint32_t first;
    uint32_t count;
    uint32_t *checksum; /* PSI_BLOCKS_MAX of room when decoding */
};

/*
 * PART. What a worker has itself becomes a file of the checkpoint. To a worker: wanted, at the frame's
 * step; without one, when it comes to a step that suits. The number of the order is the frame's seq.
 */
enum psi_part_news {
    PSI_PART_WANTED,
    PSI_PART_DROPPED, /* not any more */
    PSI_PART_OFFERED, /* from a worker, as the rest: it can be asked for one */
    PSI_PART_LATE,    /* it is past the step, at that of the frame */
    PSI_PART_FAILED,  /* because: */
    PSI_PART_WRITTEN, /* it is on the disk, as it was at the step of the frame */
    PSI_PART_NEWS,
};

enum { PSI_PART_TEXT_MAX = 1024 };

#define PSI_PART_EPOCH UINT64_MAX /* of psi_part.every */

struct psi_part {
    enum psi_part_news news;
    uint64_t token; /* which file */
    uint64_t
        every; /* WANTED without a step: at a multiple of it; 0: at the next; or an epoch's end */
    uint64_t bytes;               /* WRITTEN */
    uint32_t checksum;            /* likewise: of all bytes */
    char text[PSI_PART_TEXT_MAX]; /* WANTED: the directory; FAILED: why */
};

enum { PSI_EARLIER_MAX = 1 << 15 };

struct psi_earlier_bytes {
    uint64_t generation; /* in whose file they are */
    uint64_t begin;
    uint64_t end;
};

/* EARLIER: what of the lane's bytes need not be written again; before WRITTEN. Its seq is that of the order. */
struct psi_refers {
    uint8_t file;
    uint32_t first; /* so many were told before */
    uint32_t count;
    struct psi_earlier_bytes *bytes; /* PSI_EARLIER_MAX of room when decoding */
};

enum { PSI_ROWS_SAVED_MAX = 1 << 14 };

/* A file of rows (checkpoint/manifest.h). */
struct psi_saved_file {
    uint32_t table;
    uint64_t generation; /* that it was written for */
    uint32_t number;     /* among those that the lane wrote then */
    uint32_t first_bucket;
    uint32_t end_bucket;
    uint32_t rows;
    uint32_t cleared;
    uint32_t counted;
    uint64_t bytes;
    uint32_t checksum;
};

/* ROWS_SAVED: all files that have the lane's rows, those of earlier generations that still count
 * included; before WRITTEN. Its seq is that of the order. */
struct psi_rows_saved {
    uint32_t place;
    uint32_t first; /* so many were told before */
    uint32_t count;
    struct psi_saved_file *file; /* PSI_ROWS_SAVED_MAX of room when decoding */
};

void psi_pack_init(struct psi_pack *pack, void *bytes, size_t capacity);

#define PSI_MESSAGE_MAP(X)                                                                         \
    X(hello, struct psi_hello)                                                                     \
    X(welcome, struct psi_welcome)                                                                 \
    X(verdict, struct psi_verdict)                                                                 \
    X(ping, struct psi_ping)                                                                       \
    X(view, struct psi_view)                                                                       \
    X(propose, struct psi_propose)                                                                 \
    X(view_ack, struct psi_view_ack)                                                               \
    X(table_info, struct psi_table_info)                                                           \
    X(nodes, struct psi_nodes)                                                                     \
    X(share, struct psi_share)                                                                     \
    X(ranks, struct psi_ranks)                                                                     \
    X(subscribe, struct psi_subscribe)                                                             \
    X(adopt, struct psi_adopt)                                                                     \
    X(results, struct psi_results)                                                                 \
    X(lane_state, struct psi_lane_state)                                                           \
    X(worker_state, struct psi_worker_state)                                                       \
    X(telling, struct psi_telling)                                                                 \
    X(pair, struct psi_pair)                                                                       \
    X(change, struct psi_change)                                                                   \
    X(snapshot, struct psi_snapshot)                                                               \
    X(step_state, struct psi_step_state)                                                           \
    X(done, struct psi_done)                                                                       \
    X(order, struct psi_order)                                                                     \
    X(written, struct psi_written)                                                                 \
    X(blocks, struct psi_blocks)                                                                   \
    X(part, struct psi_part)                                                                       \
    X(refers, struct psi_refers)                                                                   \
    X(rows_saved, struct psi_rows_saved)

/*
 * psi_hello_encode(pack, &hello), psi_hello_decode(bytes, size, &hello, err), and so on. Decoding
 * gives PSD_ERR_PROTOCOL naming message and field when a body is short or a number out of range;
 * then *message_p holds nothing of use. A body has exactly one encoding: encoding what was decoded
 * gives the same bytes.
 *
 * The spec of a psi_table_info has passed psi_spec_check() for some job; a receiver that knows the
 * number of workers of its own job checks again.
 */
#define PSI_MESSAGE_DECLARE(name, type)                                                            \
    void psi_##name##_encode(struct psi_pack *pack, const type *message);                          \
    psd_status psi_##name##_decode(const uint8_t *bytes, size_t size, type *message_p,             \
                                   struct psd_error *err);
PSI_MESSAGE_MAP(PSI_MESSAGE_DECLARE)
#undef PSI_MESSAGE_DECLARE

/* The metrics that are not 0, into an empty telling. */
void psi_telling_count(struct psi_telling *telling, const struct psi_metrics *metrics);

/* A view with lists of its own, for psi_view_fini(). On an error there is nothing to free. */
psd_status psi_view_decode_new(const uint8_t *bytes, size_t size, struct psi_view *view_p,
                               struct psd_error *err);

#endif
