/*
 * message.h - the bodies of control frames: bytes <-> structs.
 *
 * A body is its fields one after the other, little-endian; strings and lists carry their length
 * first. Fields are only ever appended: a decoder ignores what follows the last field it knows.
 * Every decoder checks every length against what is left and every number against its range, and
 * allocates nothing: lists land in arrays of the caller, strings in fixed arrays.
 */
#ifndef PSI_WIRE_MESSAGE_H
#define PSI_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock/clock.h"
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
    PSI_ROLE_SERVER = 2, /* one lane of it */
    PSI_ROLE_WORKER = 3,
    PSI_ROLE_OBSERVER = 4, /* asks for the table of nodes, and is in no view */
};

enum {
    PSI_TEXT_MAX = 480, /* with its NUL */
    PSI_TABLES_MAX = 16384,
    PSI_SHARE_NAME_MAX = 128,
    PSI_STEP_ADDS_MAX = 256, /* STEP_ADDs of one worker under way: so many answers are kept */
};

#define PSI_RANK_AUTO UINT32_MAX

/* HELLO: to the master by everybody, to a lane by a worker. */
struct psi_hello {
    uint8_t role;
    uint32_t rank; /* worker: rank or PSI_RANK_AUTO; server: index */
    uint32_t lane;
    uint32_t lanes;       /* server: lanes of that server */
    uint32_t incarnation; /* 0: a new process; else the one the master gave */
    uint64_t life;        /* drawn at random by the process: tells a reconnect from an impostor */
    uint32_t kernel_revision;
    uint64_t job;                  /* 0: not known yet; else the master's number of the job */
    char address[PSI_ADDRESS_MAX]; /* where workers reach this lane; a worker: others of its host */
    char build[64];
    uint64_t host; /* worker: those that may be on one host have the same; 0: not to be asked */
};

/* WELCOME by the master. */
struct psi_welcome {
    uint32_t rank;
    uint32_t incarnation;
    uint32_t workers;
    uint32_t servers;
    uint32_t heartbeat_ms;
    uint32_t dead_ms; /* silent for that long: dead */
    uint8_t policy;   /* enum psi_death_policy */
    uint64_t job;
    uint32_t window_bytes; /* WELCOME by a lane: unanswered gradient bytes this worker may have */
    uint32_t view;
    uint64_t load_barriers; /* those of PSI_BARRIER_LOAD that are over */
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

/* TABLE_OPEN (worker to master: spec alone counts) and TABLE_INFO, TABLE_OPEN to a lane. */
struct psi_table_info {
    uint32_t id;
    uint32_t creator; /* rank that opened it first */
    uint64_t step;    /* where the asking worker has to go on */
    struct psi_spec spec;
    struct psi_loads loads; /* before this table */
};

/* NODES_INFO: psd_node as in the API. */
struct psi_nodes {
    uint32_t count;
    struct psd_node *node; /* PSI_RANKS_MAX + PSI_SERVERS_MAX + 1 of room when decoding */
};

/* SUBSCRIBE. */
struct psi_subscribe {
    uint32_t every_ms; /* between two NODES_INFO; 0: no more of them */
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
    X(subscribe, struct psi_subscribe)

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

/* A view with lists of its own, for psi_view_fini(). On an error there is nothing to free. */
psd_status psi_view_decode_new(const uint8_t *bytes, size_t size, struct psi_view *view_p,
                               struct psd_error *err);

#endif
