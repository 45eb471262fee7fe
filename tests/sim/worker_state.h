/*
 * worker_state.h - the inside of a simulated worker, for worker*.c only.
 *
 *   worker.c           a process: how it begins, its states, how it ends
 *   worker_ops.c       operations under way, their memory, and what came of them
 *   worker_train.c     steps: gradients, pushes, pulls, weights
 *   worker_together.c  barriers and the global step
 *   worker_save.c      saves and loads
 *
 * Several steps may be in flight. Each has memory of its own, its gradients independent of what the
 * others bring.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_WORKER_STATE_H
#define SIM_WORKER_STATE_H

#include "client/core/core.h"
#include "client/core/state.h"
#include "worker.h"

enum {
    RECORDS_MAX = 512,
    SPOILT_MAX = 1024, /* regions of one process */
    POISON = 0xb5,
    SEAL = 0x5a,
};

enum phase { JOIN, OPEN, INIT, FETCH, PULL, THINK, STEP, EXTRA, LEAVE, OVER };

enum what {
    WHAT_OPEN,
    WHAT_INIT,
    WHAT_FETCH,
    WHAT_PUSH,
    WHAT_PULL,
    WHAT_BOTH,
    WHAT_OTHER,
    WHAT_ADD,
    WHAT_BARRIER,
    WHAT_SAVE,
    WHAT_LOAD,
};

/* An operation under way. */
struct record {
    struct psd_op *op; /* NULL: free */
    enum what what;
    unsigned table;
    unsigned flight;  /* FLIGHTS_MAX: of none */
    uint64_t step;    /* of the table */
    uint64_t number;  /* KIND_LEDGER: of the push; a barrier: which; a fetch: its bytes */
    uint64_t addend;  /* WHAT_ADD: how much, ... */
    uint64_t at_call; /* ... and the global step when it began */
    uint64_t deadline_ns;
    bool viewed; /* what it brought into the view was copied when it was submitted */
};

/* One table's part of a step: its memory, and what is known of it. */
struct cargo {
    bool acted;  /* pushed in this step */
    bool valid;  /* the pull brought all of it */
    bool sealed; /* no operation may write the values: they are all SEAL */
    bool spoilt; /* a server may still read the gradient: not to be used again */
    uint64_t step;
    uint64_t read_step;
    uint64_t number; /* KIND_LEDGER: of the push */
    uint64_t own;    /* KIND_SLOTS, KIND_LEDGER: this rank's pushes up to this one */
    uint8_t *values;
    uint8_t *gradient;
    struct net_region *region; /* what the gradient lies in; NULL: ordinary memory */
};

/* A step that has begun and not ended. */
struct flight {
    bool busy;
    uint64_t step; /* the worker's */
    unsigned pending;
    uint64_t pushed_ns; /* when its pushes were started */
    struct cargo cargo[TABLES_MAX];
};

/* A table as the program holds it. */
struct held {
    struct psd_table *table; /* NULL: not open */
    bool ready;              /* its values are here */
    uint64_t step;           /* the next push */
    size_t fetched;          /* bytes of the weights a replacement has taken */
    size_t bytes;
    uint8_t *weights; /* PSD_USE_SUM */
    uint8_t *parts;   /* as last saved or loaded; NULL: never */
};

struct worker {
    struct job *job;
    uint32_t slot;
    uint32_t rank; /* UINT32_MAX: not known yet */
    unsigned starts;
    bool start_due;
    bool done;
    bool lost;
    bool came;
    bool left;              /* killed when it had only to say goodbye */
    struct psd_error error; /* why the last process ended */

    struct node *node; /* NULL: no process */
    struct psi_client *client;
    enum phase phase;
    uint64_t step;  /* the next to begin */
    uint64_t ended; /* all below have ended */
    uint64_t saved; /* the last step before which it saved */
    bool stepped;   /* `step` is known */
    uint64_t think_until_ns;
    unsigned load_stage;
    bool load_is_over; /* before it came */
    uint32_t fetch_from;
    unsigned pending;        /* operations of no flight */
    bool given_up;           /* by the master */
    uint64_t barrier_passed; /* by anybody, when the process began */
    uint64_t barrier_base;   /* those that it does not come to: they were over */
    uint64_t passed;         /* the last that this process has passed */
    struct record record[RECORDS_MAX];
    struct held held[TABLES_MAX];
    struct flight flight[FLIGHTS_MAX];
    struct net_region *spoilt[SPOILT_MAX];
    unsigned spoilt_count;
};

static inline const struct plan *
plan_of(const struct worker *worker)
{
    return &worker->job->plan;
}

/* worker_ops.c */
struct record *worker_remember(struct worker *worker, struct psd_op *op, enum what what,
                               unsigned table, unsigned flight);
bool worker_accepted(struct worker *worker, psd_status status, const struct psd_error *err,
                     const char *call); /* false: refused, because the context is over */
bool worker_collect(struct worker *worker);
void worker_abandon_records(struct worker *worker);
unsigned worker_in_flight(const struct worker *worker);

void cargo_create(struct worker *worker, unsigned index); /* in all flights, of an open table */
void cargo_destroy(struct worker *worker);                /* all of it */
void cargo_used(struct worker *worker, unsigned index, struct cargo *cargo);
void cargo_check_seal(struct worker *worker, unsigned index, struct cargo *cargo);

/* worker_train.c */
void train_open(struct worker *worker, unsigned index);
void train_opened(struct worker *worker, unsigned index, struct psd_table *table);
bool train_takes_part(const struct worker *worker, unsigned index);
void train_find_step(struct worker *worker);
void train_give_initial_values(struct worker *worker);
void train_viewed(struct worker *worker, const struct record *record, const struct psd_op *op);
bool train_fetch_weights(struct worker *worker); /* true: a piece was asked for */
void train_fetched(struct worker *worker, const struct record *record, psd_status status);
void train_pull(struct worker *worker);
void train_pulled(struct worker *worker);
void train_begin_step(struct worker *worker);
void train_end_step(struct worker *worker);

/* worker_rows.c */
void rows_transfer(struct worker *worker, unsigned flight, unsigned index,
                   struct psi_transfer *args);
void rows_summed(struct worker *worker, const struct record *record, const struct psd_op *op);

/* worker_save.c */
bool save_is_due(const struct worker *worker);
void save_begin(struct worker *worker);
void save_ended(struct worker *worker, const struct record *record, uint64_t updates);
bool load_goes_on(struct worker *worker);
void load_ended(struct worker *worker, const struct record *record, uint64_t step);

/* worker_together.c */
void together_add(struct worker *worker, unsigned flight);
void together_added(struct worker *worker, const struct record *record, uint64_t value);
void together_begin(struct worker *worker); /* it has joined */
void together_meet(struct worker *worker);
void together_met(struct worker *worker, const struct record *record);
bool together_meets_last(struct worker *worker); /* true: barriers behind the last step began */

#endif
