/*
 * gather.h - what the workers of one host have given, until it is sent as one. For src/client only.
 *
 * Thread: guarded by the context's lock (the simulator: one thread).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_HOST_GATHER_H
#define PSI_CLIENT_HOST_GATHER_H

#include "base/segment.h"
#include "client/core/state.h"
#include "rpc/guest.h"
#include "store/sum.h"

/* A gradient of one chunk: on loan, in a copy, or a caller's own. */
struct contribution {
    struct contribution *next; /* by rising rank */
    uint32_t rank;
    uint32_t request; /* to be answered by */
    uint64_t step;
    uint8_t type; /* PUSH or PUSH_PULL */
    uint8_t priority;
    const void *data;  /* NULL: present, adding nothing */
    bool is_real;      /* decoded to f32 (f64); else in the table's type */
    bool is_withdrawn; /* its caller took it back: it is in the sums that were made, and nowhere
                          else */
    struct psi_loan *loan;
    uint32_t kept_bytes; /* on loan, and a copy that its worker made for us */
    void *copy;          /* of gathered->copies */
};

/* What a worker has lent us of copies. */
struct kept {
    uint32_t count;
    uint64_t bytes;
};

/* One chunk, and the step of which gradients are here or on their way. */
struct gathering {
    struct psd_table *table;
    uint32_t chunk;
    uint8_t priority;
    bool sent;             /* the sums are operations, in `nodes` ... */
    bool pulls;            /* ... one of which brings the value back */
    bool failed;           /* and one of them has ended badly: everybody was told */
    bool is_open;          /* waits for more: in host->open */
    uint64_t wanted_until; /* a server wants the steps below it, whatever the window */
    uint64_t step;
    uint64_t done;    /* steps below it have been answered */
    uint64_t version; /* of the value in gathered->values; 0: none */
    uint64_t updates; /* likewise */
    struct psi_ranks have;
    struct contribution *given;
    struct contribution *early; /* of the next step: of those that had their answer otherwise */
    struct psd_op *nodes;
    struct psd_op *answered; /* those that brought no value, of a table that outlives its server */
    struct gathering *open_next;
    struct gathering *open_prev;
};

/* A table that this worker sends for its host. */
struct gathered_table {
    uint64_t *from;               /* rank -> first step that comes through us; or never */
    struct gathering *gatherings; /* by their index in by_host.lane_chunks[host] */
    struct psi_segment values;    /* where the others read what came back, by the same index */
    struct psi_pool sums;
    struct psi_pool copies;
    struct psi_pool ops;
};

/* Another worker of this host. Strangers have rank UINT32_MAX. */
struct host_session {
    struct psi_guest guest; /* first */
    struct psi_client *client;
    uint32_t rank;          /* UINT32_MAX: it has not been let in */
    struct psi_ranks lanes; /* to which it pushes through us */
    struct contribution *receiving;
    struct gathered_table *receiving_for;
};

struct host {
    uint32_t workers;              /* that may be on this host, ourselves included */
    struct psi_guests guests;      /* struct host_session each */
    struct host_session **by_rank; /* job.workers of them */
    struct kept *kept;             /* likewise */
    struct psd_table **table_of;   /* by number */
    uint32_t table_capacity;
    struct psi_ranks lanes; /* of other hosts */
    bool lanes_known;
    struct psi_pool contributions;
    struct gathering *open; /* round and round: the next to be asked for first */
    struct gathering *open_last;
    uint64_t progress_ns;
    bool progressed;
    const struct kernels *kernels; /* that this CPU can run */
    void *scratch;                 /* SUM_SCRATCH_BYTES */
    struct leaf *leaves;           /* one per rank */
};

extern const struct psi_listener_events psi_host_listener_events;

/* How a gathering ended for those that gave to it. */
struct ending {
    psd_status status;
    const char *text;
};

/* ---- gathered.c: memory */

psd_status psi_gathered_create(struct psd_table *table);
struct gathering *psi_gathering_find(const struct psd_table *table, uint32_t chunk);
uint8_t *psi_gathering_value(const struct gathering *gathering);
struct contribution *psi_contribution_create(struct psi_client *client);
void psi_contribution_kept(struct psi_client *client, struct contribution *given, uint32_t bytes);
void psi_contribution_free(struct psi_client *client, struct gathered_table *gathered,
                           struct contribution *given);
void psi_contributions_free(struct psi_client *client, struct gathered_table *gathered,
                            struct contribution **list);

/* ---- gather.c: giving, and answers */

void psi_gather_give(struct psi_client *client, struct gathering *gathering,
                     struct contribution *given);
void psi_gather_answer_all(struct psi_client *client, const struct gathering *gathering,
                           struct ending ending);
void psi_gather_member_gone(struct psi_client *client);
void psi_gather_want(struct psi_client *client);

/* The first rank from `rank` on whose gradient has not come; UINT32_MAX: all are here. */
uint32_t psi_gather_lacking(const struct psi_client *client, const struct gathering *gathering,
                            uint32_t rank);

/* It waits for nobody any more. */
void psi_gather_open_remove(struct host *host, struct gathering *gathering);

/* ---- gather_send.c: what leaves */

void psi_gather_send_if_complete(struct psi_client *client, struct gathering *gathering);
void psi_gather_send_late(struct psi_client *client, struct gathering *gathering,
                          const struct contribution *given);
void psi_gather_send_wanted(struct psi_client *client, const struct gathering *gathering);
void psi_gather_no_memory(struct psi_client *client);

#endif
