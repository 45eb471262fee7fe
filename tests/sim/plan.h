/*
 * plan.h - what happens in the job of one seed: its shape, its tables, its training program, and
 * how unkind the world is. All drawn from the seed.
 *
 * The program of a worker is a pure function of (rank, step, values pulled), so that whoever takes
 * over a rank, and the oracle, compute the same gradients.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "clock/clock.h"
#include "net.h"
#include "table/spec.h"

enum {
    WORKERS_MAX = 1024, /* of a kept plan; of a drawn one ... */
    WORKERS_DRAWN_MAX = 32,
    SERVERS_MAX = 4,   /* from the start */
    PROCESSES_MAX = 6, /* of servers, at a time */
    LANES_MAX = 2,
    TABLES_MAX = 4,
    PLACES_MAX = 8,
    FLIGHTS_MAX = 4,     /* steps of one worker under way at once */
    LIVES_MAX = 8,       /* of a server */
    PLAN_HOT_ROWS = 512, /* in memory, of a table that spills: one in every other of its buckets */
};

/* How a table is used and judged. */
enum table_kind {
    KIND_ROUNDS, /* bulk-synchronous: every bit of every version follows from the program */
    KIND_SLOTS,  /* stale-synchronous: one slot per (rank, step), each pushed to once */
    KIND_LEDGER, /* asynchronous: one slot per push, and one that everybody adds to */
};

struct table_plan {
    enum table_kind kind;
    char name[16];
    psd_dtype dtype;
    uint64_t count;
    psd_use use;
    psd_reduce reduce;
    struct psd_rule_args rule;
    uint32_t staleness;
    uint32_t backup;
    psd_init init;
    uint8_t priority;
    uint64_t opened_at; /* the workers' step before which they open it */
    bool split;         /* push, then pull, as two operations */
    bool ranges;        /* one operation per chunk */
    bool skips;         /* some contributions are empty */
    bool ordinary;      /* gradients lie in memory that others on the host cannot read */
    uint32_t
        width; /* sparse: numbers of a row, and count is that of all rows that there ever are */
    uint32_t places; /* ... and lanes of all servers; else both 0 */
    uint32_t idle;   /* ... and rows that were not pushed for more steps go; 0: they stay */
    bool spills;     /* ... and memory does not hold all of them */
};

struct fault_plan {
    uint64_t from_ns;
    uint64_t until_ns;
    unsigned cuts;
    unsigned clogs;
    unsigned pauses;
    unsigned worker_kills;
    bool together; /* the kills */
    bool kill_server;
    bool kill_master;
    unsigned master_lives;   /* the master dies so often, and is started again */
    bool masters_overlap;    /* or is only thought dead: it goes on for a while, beside the next */
    bool masters_move;       /* it is started elsewhere, now and then */
    unsigned server_lives;   /* servers die so often, and are started again ... */
    unsigned exiles;         /* servers lose the master, and go on without knowing so often */
    unsigned blocks;         /* a server or its copy does not reach the other, but hears it */
    unsigned freezes;        /* servers sleep until others have their places, and wake up */
    unsigned rifts;          /* workers and a server, or it and its copy, do not reach each other */
    bool server_stays_away;  /* ... or are not: another one takes its part */
    unsigned target_kills;   /* of a server that is about to get its first place */
    unsigned neighbour_cuts; /* of connections between workers of one host */
    bool harsh; /* silence may last longer than the job's patience: live members may be given up */
};

struct plan {
    uint64_t seed;
    uint32_t workers;
    uint32_t readers; /* look at values from outside */
    uint32_t servers;
    uint32_t lanes[SERVERS_MAX];
    enum psi_death_policy policy;
    uint32_t heartbeat_ms;
    uint32_t dead_heartbeats;
    uint32_t grace_ms;
    uint32_t server_wait_ms; /* 0: a server's death ends the job */
    uint32_t server_return_ms;
    uint32_t replicas;
    uint32_t max_servers; /* they come and go, up to so many at a time; 0: they do not ... */
    uint32_t scales;      /* ... so often */
    uint64_t move_bytes_per_s;
    uint32_t master_grace_ms; /* 0: the master's death does */
    uint64_t steps;
    uint64_t pushes_max; /* of one rank, over all its lives: rows of a ledger */
    unsigned table_count;
    struct table_plan table[TABLES_MAX];
    uint32_t op_timeout_ms;
    uint32_t ledger_timeout_ms;
    uint64_t pool_bytes;
    uint32_t window_bytes;
    uint32_t rows_part_bytes; /* of rows in one frame; 0: as many as it holds */
    bool checksum;
    bool lone_sums;            /* with one worker, sums stay in it */
    uint32_t depth;            /* steps of a worker in flight; 0: one */
    uint32_t threads;          /* of a worker, in barriers and in the global step; 0: one */
    uint64_t barrier_every;    /* 0: never */
    uint32_t end_barriers;     /* behind the last step; of each thread */
    uint64_t save_every;       /* 0: never */
    uint64_t checkpoint_steps; /* servers save at every so many-th step; or ... */
    uint64_t checkpoint_ms;    /* ... so often; both 0: never */
    uint64_t snapshot_bytes;   /* for copies of it; 0: any */
    uint64_t load_step;        /* the job goes on from there; 0: it begins anew */
    bool resumes;              /* ... by a checkpoint that servers read, and no worker loads */
    bool step_adds;
    bool auto_rank;
    uint32_t start_workers; /* the job begins with so many; 0: with all */
    uint32_t
        join_ms[WORKERS_MAX]; /* when those that join begin; 0: they are there from the start */
    uint32_t join_step[WORKERS_MAX];   /* ... and the step that they ask for; 0: any */
    uint32_t leave_percent;            /* so many ranks leave before the last step */
    uint64_t think_max_ns;             /* a worker computes that long per step */
    uint32_t worker_host[WORKERS_MAX]; /* 0: one of its own; the same: they share memory */
    uint32_t server_host[SERVERS_MAX];
    struct net_weather weather;
    struct fault_plan faults;
};

void plan_make(struct plan *plan, uint64_t seed);
void plan_print(const struct plan *plan);

/* Steps of a worker that may be in flight at once: at least 1. */
unsigned plan_depth(const struct plan *plan);

/* Bytes of an element's parts, in the order in which a save brings them. */
struct plan_parts {
    size_t value;
    size_t master; /* 0: none */
    size_t state;  /* 0: none */
    size_t bytes;  /* of all */
};

struct plan_parts plan_parts(const struct table_plan *table);

void plan_spec(const struct plan *plan, unsigned table, struct psi_spec *spec_p);

/* Do the sums of the table stay in the only worker? */
bool plan_is_lone(const struct plan *plan, unsigned table);

uint64_t plan_chunk_count(const struct table_plan *table);
uint64_t plan_chunk_elements(const struct table_plan *table, uint64_t chunk);
uint64_t plan_chunk_first(const struct table_plan *table, uint64_t chunk);

/* Sparse tables: how many rows, and their ids; does the rank push that row in this step? Of others:
 * all. Initial values of whole rows. Makes some tables sparse, if the job may have such. */
uint64_t plan_rows(const struct table_plan *table);
void plan_row_ids(const struct table_plan *table, uint64_t *ids_p);
bool plan_touches(const struct plan *plan, unsigned table, uint32_t rank, uint64_t step,
                  uint64_t row);
void plan_initial_rows(const struct plan *plan, unsigned table, uint64_t first, uint64_t count,
                       void *values_p);
void plan_draw_rows(struct plan *plan, struct rng *rng);

/* Sparse sums: their values are what is answered, a number for each column of each row that there is.
 * Rows that nobody gave have PLAN_ABSENT, which adds nothing and is no gradient. */
#define PLAN_ABSENT (-0.0f)
struct plan_sums {
    const uint64_t *ids; /* in the order in which they travel */
    const float *rows;
    uint64_t count;
};
bool plan_is_sparse_sum(const struct table_plan *table);
void plan_spread_sums(const struct table_plan *table, const uint64_t *ids, uint64_t rows,
                      const struct plan_sums *sums, float *values_p);

/* Initial values of elements first .. first + count - 1. */
void plan_initial(const struct plan *plan, unsigned table, uint64_t first, uint64_t count,
                  void *values_p);

/* The same as a load of plan->load_step brings it; the parts as frames number them. */
enum { PLAN_PART_VALUE = 0, PLAN_PART_STATE = 2 };
void plan_loaded(const struct plan *plan, unsigned table, unsigned part, uint64_t first,
                 uint64_t count, void *values_p);

/* May workers join the job while it runs? */
bool plan_is_elastic(const struct plan *plan);

/* The first step without the rank: behind the last, or before it. */
uint64_t plan_leaves_at(const struct plan *plan, uint32_t rank);

/* Does the rank contribute nothing to this step? */
bool plan_is_empty(const struct plan *plan, unsigned table, uint32_t rank, uint64_t step);

/* KIND_ROUNDS: the gradient of elements first .. first + count - 1, given their values. */
void plan_gradient(const struct plan *plan, unsigned table, uint32_t rank, uint64_t step,
                   uint64_t first, uint64_t count, const void *values, void *gradient_p);

/* KIND_SLOTS and KIND_LEDGER: every chunk begins with the same slots. */
uint64_t plan_slot(const struct plan *plan, const struct table_plan *table, uint32_t rank,
                   uint64_t number);
uint64_t plan_hot_slot(const struct plan *plan, const struct table_plan *table);
float plan_hot_amount(uint32_t rank, uint64_t number);

#endif
