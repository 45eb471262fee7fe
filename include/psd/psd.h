/*
 * psd.h - the worker's side of Poseidon: join a job, open tables, push gradients, pull values.
 *
 * A job has one master, S servers and W workers. The servers hold named *tables* of parameters.
 * Every worker opens the same tables, then, step by step, pushes a gradient and pulls the new
 * values:
 *
 *     psd_context *context;
 *     psd_table *weights;
 *     psd_op *op;
 *     uint64_t step;
 *
 *     psd_open(NULL, &context);                          join; the environment says where
 *     psd_table_open(context, &table_args, &weights);    the same on every worker
 *     step = psd_table_step(weights);                    0, unless loaded or a replacement
 *     psd_pull(weights, &(struct psd_transfer){.struct_size = sizeof(struct psd_transfer),
 *              .step = step, .values = values}, &op);    the first values
 *     psd_wait(op, PSD_FOREVER);
 *     psd_op_release(op);
 *     for (; step < steps; step++) {
 *         compute(values, gradient);
 *         psd_push_pull(weights, &(struct psd_transfer){.struct_size = sizeof(struct psd_transfer),
 *                       .step = step, .gradient = gradient, .values = values}, &op);
 *         psd_wait(op, PSD_FOREVER);
 *         psd_op_release(op);
 *     }
 *     psd_close(context);
 *
 * Rules that hold for every call
 *   - The library never prints, never exits, installs no signal handler and keeps no global state:
 *     two contexts can live in one process.
 *   - Any thread may use a context, its tables and its operations, unless the call says otherwise.
 *     Nothing may be used after psd_close() or psd_op_release() has ended it.
 *   - Outputs (last parameters, `_p`) are written on success only.
 *   - A failed call leaves its message in psd_last_error(); an operation keeps its own, see
 *     psd_op_error().
 *   - After fork() the child must not use the parent's context: every call returns PSD_ERR_FORKED
 *     and touches nothing. Data loaders may fork. Memory from psd_alloc() stays shared: parent and
 *     child write to the same bytes.
 *
 * Structs grow, programs stay
 *   - The program says how long its structs are. A struct that it fills in begins with
 *     struct_size = sizeof(the struct). A call that takes an array (struct psd_node, struct
 *     psd_state) also takes the size of one element. Any other size is PSD_ERR_INVALID.
 *   - A later version only appends fields, and 0 in a field means its default. A struct holds
 *     another one by pointer, never by value, so that both can grow.
 *   - An older program has shorter structs. It runs with a newer library as before, without being
 *     compiled again: fields that it does not know have their defaults, and nothing is written past
 *     the end of its structs.
 *   - A newer program has longer structs. It runs with an older library as long as it leaves the
 *     newer fields 0. In outputs, the library sets fields that it does not know to 0. A newer field
 *     that is not 0 is PSD_ERR_INVALID, and the message names the struct. No field is ignored.
 *   - struct psd_error belongs to the library: read it through the pointer, never declare one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSD_PSD_H
#define PSD_PSD_H

#include <stddef.h>
#include <stdint.h>

#include <psd/elastic.h>
#include <psd/reader.h>
#include <psd/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct psd_context psd_context;
typedef struct psd_table psd_table;
typedef struct psd_op psd_op;

/* A deadline that never passes. A job that fails still ends the wait. */
#define PSD_FOREVER UINT32_MAX

/* "0.1.0": the version of the library, not of the header. */
PSD_API const char *psd_version(void);

/* ---------------------------------------------------------------- joining and leaving a job --- */

/*
 * How to join. Fields left 0 or NULL are read from the environment that psd_run prepares:
 * PSD_MASTER_ADDRESS, PSD_RANK, PSD_OPEN_TIMEOUT_MS.
 */
struct psd_open_args {
    size_t struct_size;
    const char *master_address; /* "tcp://HOST:PORT" */
    const char *rank;           /* "0".."W-1"; "auto": the master chooses the lowest free rank */
    uint32_t open_timeout_ms;   /* for the whole job to gather; default 60,000 */
    uint32_t op_timeout_ms;     /* default deadline of every operation; default 60,000 */
    const char *secret_file;    /* default PSD_SECRET_FILE, or the descriptor from psd_run */
};

/*
 * psd_open - join the job and wait until every process of it is there.
 *
 *   args       copied; NULL: everything from the environment.
 *   context_p  out: end it with psd_close() or psd_abandon().
 *
 * Returns PSD_OK, or
 *   PSD_ERR_INVALID    there is no master address, no secret (PSD_INSECURE=1 allows that, on
 *                      loopback only), or an option makes no sense;
 *   PSD_ERR_TIMEOUT    the job did not gather in time: the message names who is missing;
 *   PSD_ERR_REFUSED    the rank is taken or not part of this job, the job is over, or the secret is
 *                      not the job's;
 *   PSD_ERR_VERSION    library and master speak different protocols: the message names both;
 *   PSD_ERR_NO_MEMORY.
 *
 * Blocks up to open_timeout_ms. Starts one thread for heartbeats and progress. The first large
 * tensor may start a few more that help with copies (PSD_COPY_THREADS, docs/threads.md). Another
 * thread looks up the name of the master's host. It may outlive the context.
 */
PSD_API psd_status psd_open(const struct psd_open_args *args, psd_context **context_p);

/*
 * psd_close - say "done" and leave. When every worker has left, servers and master end, too. If the
 * job survives the death of a server, psd_close() first waits until the other workers have the last
 * sums that this one has.
 *
 * Waits for operations in flight (up to their deadlines), then frees the context, its tables and
 * every operation not yet released. Returns PSD_OK, or the first error of an operation. The context
 * is gone either way. NULL is allowed.
 */
PSD_API psd_status psd_close(psd_context *context);

/*
 * psd_abandon - leave without saying "done", after a failure. The job then treats this worker as
 * dead, and its policy decides. Operations in flight end as PSD_OUTCOME_UNKNOWN. Never blocks on
 * the network.
 */
PSD_API void psd_abandon(psd_context *context);

/* psd/elastic.h: who counts while workers come and go, and how to leave while the others go on. */

PSD_API uint32_t psd_rank(const psd_context *context);    /* 0..W-1; W or more: it joined */
PSD_API uint32_t psd_size(const psd_context *context);    /* W: workers the job was started for */
PSD_API uint32_t psd_servers(const psd_context *context); /* S */
PSD_API uint32_t psd_incarnation(const psd_context *context); /* 1; more for a replacement */

/* ---------------------------------------------------------------------------------- tables --- */

typedef enum psd_dtype {
    PSD_F32 = 1,
    PSD_F64 = 2,
    PSD_F16 = 3,  /* IEEE half; servers add in f32 and keep f32 master values */
    PSD_BF16 = 4, /* as PSD_F16 */
} psd_dtype;

typedef enum psd_use {
    PSD_USE_UPDATE = 0, /* servers own the values and apply the rule */
    PSD_USE_SUM = 1,    /* servers add and return the mean; the caller applies it. In a job with one
                           worker, which nobody may join, that is its gradient. It stays in the
                           worker: its pushes end when they are copied, up to 1 MiB at once, more
                           of it while somebody waits or the context's thread runs. Later pulls are
                           answered from the table's view (psd_view). PSD_LONE_SUMS=off sends it to
                           the servers */
} psd_use;

typedef enum psd_reduce {
    PSD_REDUCE_MEAN = 0, /* gradients of one step are averaged over the workers that gave one */
    PSD_REDUCE_SUM = 1,  /* ... are added */
} psd_reduce;

typedef enum psd_rule {
    PSD_RULE_SGD = 0,      /* w -= lr * g                                        */
    PSD_RULE_ADD = 1,      /* w += g                                             */
    PSD_RULE_MOMENTUM = 2, /* m = momentum * m + g; w -= lr * m                  */
    PSD_RULE_NESTEROV = 3, /* m = momentum * m + g; w -= lr * (g + momentum * m) */
    PSD_RULE_ADAGRAD = 4,  /* n += g*g; w -= lr * g / (sqrt(n) + epsilon)        */
    PSD_RULE_RMSPROP = 5,  /* n = beta2*n + (1-beta2)*g*g; w -= lr * g / (sqrt(n) + epsilon) */
    PSD_RULE_ADAM = 6,     /* Kingma and Ba, with bias correction                */
    PSD_RULE_ADAMW = 7,    /* Adam with decoupled weight decay                   */
    PSD_RULE_FTRL = 8,     /* FTRL-Proximal, per coordinate                      */
} psd_rule;

typedef enum psd_schedule {
    PSD_SCHEDULE_CONSTANT = 0,
    PSD_SCHEDULE_STEP = 1,   /* times `decay` after every `period` updates        */
    PSD_SCHEDULE_COSINE = 2, /* from lr to lr * `floor` over `period` updates     */
} psd_schedule;

/* The update rule and its numbers. A zero means the default in brackets. */
struct psd_rule_args {
    size_t struct_size;
    psd_rule rule;
    double learning_rate; /* [0.01] */
    double momentum;      /* [0.9] momentum, nesterov */
    double beta1;         /* [0.9] adam, adamw */
    double beta2;         /* [0.999] adam, adamw; [0.99] rmsprop */
    double epsilon;       /* [1e-8] (adagrad 1e-10) */
    double l1;            /* [0] ftrl */
    double l2;            /* [0] ftrl */
    double ftrl_beta;     /* [1] ftrl */
    double weight_decay;  /* [0] g += weight_decay * w; adamw: w -= lr * weight_decay * w */
    double clip_value;    /* [0: off] each element of g is limited to +-clip_value */
    psd_schedule schedule;
    uint64_t warmup; /* [0] updates over which the rate rises linearly from 0 */
    uint64_t period; /* step, cosine */
    double decay;    /* [0.1] step */
    double floor;    /* [0] cosine: the last rate as a fraction of the first */
};

/* What the values are before the first push. The same `seed` gives the same values on any number
 * of servers. */
typedef enum psd_init {
    PSD_INIT_ZERO = 0,
    PSD_INIT_RANK0 = 1,    /* rank 0 gives `values`; everybody pulls them at step 0 */
    PSD_INIT_CONSTANT = 2, /* init_value everywhere */
    PSD_INIT_UNIFORM = 3,  /* in [-init_value, init_value), from `seed` */
    PSD_INIT_NORMAL = 4,   /* mean 0, standard deviation init_value, from `seed` */
} psd_init;

typedef enum psd_nan_policy {
    PSD_NAN_REJECT = 0, /* the push ends as PSD_ERR_NOT_FINITE; not one byte of it left */
    PSD_NAN_SKIP = 1,   /* the push counts as an empty contribution: present, adding nothing */
    PSD_NAN_ALLOW = 2,  /* not checked: NaN and infinity are added like any other number */
} psd_nan_policy;

#define PSD_DIMS_MAX            8
#define PSD_NAME_MAX            255
#define PSD_WIDTH_MAX           4096 /* numbers of a row of a sparse table */
#define PSD_STALENESS_UNBOUNDED UINT32_MAX

/* Operations cover whole chunks: a range starts at a multiple of this many elements. */
#define PSD_CHUNK_ELEMENTS 65536

struct psd_table_args {
    size_t struct_size;
    const char *name; /* 1..255 bytes of UTF-8, unique in the job */
    psd_dtype dtype;
    uint32_t dims; /* 1..8 */
    uint64_t shape[PSD_DIMS_MAX];
    psd_use use;
    psd_reduce reduce;
    const struct psd_rule_args *rule; /* PSD_USE_UPDATE: copied; NULL: PSD_RULE_SGD, defaults */

    /*
     * How far workers may drift apart, in steps. 0 is bulk-synchronous: all workers' gradients of a
     * step meet in one round. N is stale-synchronous, PSD_STALENESS_UNBOUNDED asynchronous. Unless
     * it is 0, every gradient is applied by itself as it arrives (PSD_USE_UPDATE only).
     */
    uint32_t staleness;

    /*
     * b backup workers: a step closes with the gradients of the first W - b workers. The others get
     * PSD_ERR_DROPPED. One decision says which workers are in a step, for all tables with the same
     * b. Push those tables together, all of them in every step (docs/consistency.md). In a job that
     * goes on without dead workers, all tables with b > 0 must have the same b. Bulk-synchronous
     * tables only.
     */
    uint32_t backup_workers;

    psd_nan_policy nan_policy;
    psd_init init;
    double init_value;
    uint64_t seed;
    const void *values; /* PSD_INIT_RANK0, rank 0 only: borrowed until the call returns */
    int32_t priority;   /* 0..255; higher ones overtake lower ones: give the first layers more */
};

/*
 * psd_table_open - create a table, or join the one another worker created.
 *
 * Every worker opens the same tables, in any order, with the same arguments (values, priority and
 * struct_size may differ). Returns when all servers have allocated the memory.
 *
 * Returns PSD_OK, or
 *   PSD_ERR_INVALID    an argument makes no sense (zero-sized shape, contradictory options);
 *   PSD_ERR_MISMATCH   another worker opened this name differently: the message shows both;
 *   PSD_ERR_TOO_BIG    a server lacks the memory: the message names need and limit;
 *   PSD_ERR_TIMEOUT, PSD_ERR_PEER_LOST, PSD_ERR_JOB_FAILED, PSD_ERR_FENCED.
 *
 * The table lives as long as the context. Blocks up to op_timeout_ms.
 */
PSD_API psd_status psd_table_open(psd_context *context, const struct psd_table_args *args,
                                  psd_table **table_p);

/* Elements in the table, and bytes of one element. */
PSD_API uint64_t psd_table_count(const psd_table *table);
PSD_API size_t psd_table_element_bytes(const psd_table *table);

/*
 * The step that this worker has to push next:
 *   - in a new job: 0;
 *   - after psd_load(): the saved step, for all open tables except PSD_USE_SUM tables that were
 *     already pushed;
 *   - in a job that goes on from a checkpoint (psd_run --resume): the saved step, from the start;
 *   - in a replacement: the step to repeat;
 *   - in a worker that joined a running job: its first step (docs/elastic.md);
 *   - after this table, or another one with as many backup workers, dropped this worker's gradient:
 *     the current step.
 * Tables that are pushed together have the same step when all their pushes have ended. Read it
 * then, once for all of them.
 */
PSD_API uint64_t psd_table_step(const psd_table *table);

/* ------------------------------------------------------------------------------- transfers --- */

/* Called once when the operation ends, on the thread that drives the library at that moment. It may
 * start new operations. It must not block, and must not wait for operations. */
typedef void (*psd_done_fn)(psd_op *op, psd_status status, void *user);

/* The caller has checked that the gradient is finite. PSD_NAN_REJECT and _SKIP need no scan. */
#define PSD_TRANSFER_CHECKED 1u

/* The values go into the table's view (psd_view); `values` is NULL. */
#define PSD_TRANSFER_VIEW 2u

/* Another transfer follows at once. A small one, of 64 KiB at most, may wait for it, so that many
 * small tensors leave together. They leave with the next transfer that does not say so, when 64 KiB
 * have gathered, and when anybody waits for an operation or asks whether one has ended. */
#define PSD_TRANSFER_MORE 4u

/* The library's own thread sends it, at once: the caller neither sends anything nor wakes servers,
 * which takes longer the more of them sleep. For threads that others wait for, such as one that
 * launches kernels on a GPU. */
#define PSD_TRANSFER_BEHIND 8u

struct psd_transfer {
    size_t struct_size;
    uint64_t step;        /* the worker's clock; see psd_push */
    const void *gradient; /* push: borrowed until the operation ends; any alignment */
    void *values;         /* pull: written by the time the operation ends; any alignment */
    uint64_t first;       /* range: first element, on the grid of PSD_CHUNK_ELEMENTS ... */
    uint64_t count;       /* ... and how many; 0: to the end. The end must lie on the grid, too */
    int32_t priority;     /* 0: the table's; otherwise 1..255 */
    uint32_t timeout_ms;  /* 0: the context's op_timeout_ms; PSD_FOREVER: none */
    uint32_t flags;       /* PSD_TRANSFER_* */
    psd_done_fn done;     /* (optional) */
    void *user;           /* for the caller: done gets it, psd_op_user() returns it */
};

/*
 * psd_push, psd_pull, psd_push_pull - start moving a table, or a range of it. They wait for nobody. A
 * push first looks its gradient through for NaN and infinity, which costs one pass over its memory
 * (not with PSD_NAN_ALLOW, nor with PSD_TRANSFER_CHECKED).
 *
 * Steps. A worker pushes each chunk of a table once per step, with the steps in order:
 * psd_table_step(), the next one, and so on (asynchronous tables accept any step). A push ends when
 * its round closes, that is, when every worker's gradient of that step has arrived. A pull at step
 * c is answered when every worker's gradients of all steps below c - staleness have arrived. A
 * push_pull at step c is a push at c and a pull at c + 1, in one message each way. A worker always
 * sees its own pushes.
 *
 * Order. Operations on one table take effect in the order in which they were started. One
 * exception: a pull that needs later pushes takes its place after them. Starting an operation never
 * blocks; parts that do not fit the window wait inside the operation. A server lets 256 pulls of
 * one worker wait for one chunk. Further ones end as PSD_ERR_BUSY.
 *
 * Memory. In a job whose sums survive their servers (docs/failures.md), a psd_push to a PSD_USE_SUM
 * table also brings the sum back, into memory of the library. A later psd_pull is answered from
 * there. From the first psd_push on, that costs the size of the table once more in this process.
 * psd_push_pull costs nothing.
 *
 * Returns PSD_OK, or
 *   PSD_ERR_INVALID     range not on the grid, missing pointer, unknown flag;
 *   PSD_ERR_STEP        not the next step of this table: the message names both;
 *   PSD_ERR_NOT_FINITE  policy PSD_NAN_REJECT: the message names worker, table and index; nothing
 *                       was sent;
 *   PSD_ERR_NO_MEMORY, PSD_ERR_FORKED, or a reason why the context is over.
 */
PSD_API psd_status psd_push(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p);
PSD_API psd_status psd_pull(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p);
PSD_API psd_status psd_push_pull(psd_table *table, const struct psd_transfer *transfer,
                                 psd_op **op_p);

/* --------------------------------------------------------------------------- sparse tables --- */

/*
 * A sparse table has rows by 64-bit id, such as the embeddings of words or users. It has no number
 * of rows: a row is created by its first gradient that counts. Looking at an id that has no row
 * gives its initial value and creates nothing. Only rows that are asked for or pushed travel.
 *
 *     psd_sparse_open(context, &sparse_args, &words);
 *     psd_sparse_lookup(words, &(struct psd_rows){.struct_size = sizeof(struct psd_rows),
 *                       .step = step, .lookup_count = n, .lookup_ids = ids, .values = values}, &op);
 *     ... psd_wait(op, PSD_FOREVER), compute ...
 *     psd_sparse_push(words, &(struct psd_rows){.struct_size = sizeof(struct psd_rows), .step = step,
 *                     .push_count = n, .push_ids = ids, .gradients = gradients}, &op);
 *
 * The clock is that of other tables (psd_table_step): every worker pushes once per step, also one
 * that has no gradient for any row in that step (push_count 0), because the others' round waits for
 * it. What other calls do with a sparse table, and what is not possible yet: docs/sparse.md.
 */
typedef enum psd_full {
    PSD_FULL_REFUSE = 0, /* the job fails: the message names table, rows, bytes and the setting */
    PSD_FULL_OLDEST = 1, /* the rows that were not touched for longest make room */
    PSD_FULL_SPILL = 2,  /* these go to the servers' disks, and come back when they are wanted:
                            capacity_rows is what memory holds (docs/sparse.md, "Larger than
                            memory") */
} psd_full;

struct psd_sparse_args {
    size_t struct_size;
    const char *name; /* 1..255 bytes of UTF-8, unique in the job */
    psd_dtype dtype;  /* of rows and gradients: PSD_F32, PSD_F16, PSD_BF16 */
    uint32_t width;   /* numbers of a row, 1..PSD_WIDTH_MAX */
    psd_use use; /* PSD_USE_SUM: gradients are added and answered, and no row is kept (below) */
    psd_reduce reduce;                /* PSD_REDUCE_MEAN divides by the workers that pushed in this
                                         step, not by those that had the row */
    const struct psd_rule_args *rule; /* copied; NULL: PSD_RULE_SGD, defaults */
    uint32_t staleness;               /* as of other tables */
    uint32_t backup_workers;          /* likewise */
    psd_nan_policy nan_policy;
    psd_init init; /* of rows; not PSD_INIT_RANK0. The value follows from seed, id and column */
    double init_value;
    uint64_t seed;
    int32_t priority; /* 0..255 */

    /*
     * Which rows come to be, and which go, by steps and ids alone: so two runs, and a run and its
     * repetition, keep the same rows. 0: off, or the default in brackets. A row that is not admitted
     * yet, or has gone, has its initial value.
     */
    uint32_t admit_after; /* [1] steps in which its id was pushed before a row is created, to 255 */
    uint32_t admit_window; /* [1024] steps after which half of what was counted is forgotten */
    double admit_share; /* below 1: an id's push creates its row with this probability, by hash */
    uint64_t capacity_rows; /* never more; shared by the servers' lanes alike (docs/sparse.md) */
    psd_full full;          /* what happens at capacity */
    uint32_t idle_steps;    /* rows that were not pushed for more steps go */
    double norm_min;        /* rows whose L2 norm is smaller go */
    uint32_t sweep_every;   /* [1024] steps: how often each row is looked at for these two */
    int32_t
        row_wise; /* not 0, PSD_RULE_ADAGRAD: one number of state per row, the mean of squares */
    double group_lasso; /* PSD_RULE_FTRL: rows whose norm stays below become 0 as a whole */
};

/*
 * psd_sparse_open - create a sparse table, or join the one another worker created.
 *
 * Every worker opens it with the same arguments (priority and struct_size may differ). Returns what
 * psd_table_open returns; PSD_ERR_INVALID also where sparse tables cannot do yet what the job or an
 * argument asks for: the message names it.
 */
PSD_API psd_status psd_sparse_open(psd_context *context, const struct psd_sparse_args *args,
                                   psd_table **table_p);

/* Numbers of a row; 0: the table is not sparse. */
PSD_API uint32_t psd_sparse_width(const psd_table *table);

struct psd_rows {
    size_t struct_size;
    uint64_t step; /* the worker's clock: see psd_push */

    /* What is pushed. Ids in any order; the gradients of an id that comes several times are added
     * in the order in which they stand here. */
    uint64_t push_count;
    const uint64_t *push_ids;
    const void *gradients; /* push_count rows */

    /* What is looked up. Ids in any order, also several times. */
    uint64_t lookup_count;
    const uint64_t *lookup_ids;
    void *values; /* lookup_count rows: written by the time the operation ends; any alignment */

    int32_t priority;    /* 0: the table's; otherwise 1..255 */
    uint32_t timeout_ms; /* 0: the context's op_timeout_ms; PSD_FOREVER: none */
    psd_done_fn done;    /* (optional) */
    void *user;          /* for the caller: done gets it, psd_op_user() returns it */
};

/*
 * psd_sparse_lookup, psd_sparse_push, psd_sparse_push_lookup - start looking rows up, pushing
 * gradients of rows, or both. They wait for nobody, and follow the rules of psd_pull, psd_push and
 * psd_push_pull: a push_lookup at step c is a push at c and a lookup at c + 1.
 *
 * Ids and gradients are copied before the call returns: they may change right after it. `values` is
 * written while the operation is under way. A lookup waits only for the lanes of servers that have
 * its ids. Both may be larger than a message: a push goes in parts, and counts with the last one.
 * The parts of a lookup come one after the other, and in a bulk-synchronous table without backup
 * workers all of them are of one step; so a push of this step that is started later leaves when
 * they are here.
 *
 * Returns PSD_OK, or
 *   PSD_ERR_INVALID     missing pointer, not a sparse table;
 *   PSD_ERR_TOO_BIG     more than 2^30 ids;
 *   PSD_ERR_STEP, PSD_ERR_NOT_FINITE (the message names the id), PSD_ERR_NO_MEMORY, PSD_ERR_FORKED,
 *   or a reason why the context is over.
 */
PSD_API psd_status psd_sparse_lookup(psd_table *table, const struct psd_rows *rows, psd_op **op_p);
PSD_API psd_status psd_sparse_push(psd_table *table, const struct psd_rows *rows, psd_op **op_p);
PSD_API psd_status psd_sparse_push_lookup(psd_table *table, const struct psd_rows *rows,
                                          psd_op **op_p);

/*
 * Sums of rows, for programs that make their steps themselves. In a sparse table with PSD_USE_SUM
 * nothing is kept: the answer to psd_sparse_push of step c is what all workers pushed in step c, the
 * rows of equal ids added along the tree over ranks (PSD_REDUCE_MEAN: divided by the workers of the
 * step, not by those that had the row). Every worker gets the same bits. Only psd_sparse_push is for
 * such tables. They take no rule, no staleness, no backup workers, and nothing about which rows come
 * to be. Where sums survive their servers (docs/failures.md), the library keeps the last sum of each
 * table until the next one has come, for workers that lack it: 8 bytes and the row for each id.
 *
 *     psd_sparse_push(sums, &rows, &op);
 *     ... psd_wait(op, PSD_FOREVER), room for psd_sparse_sum_count(op) ids and rows ...
 *     psd_sparse_sum_read(op, ids, rows);
 *     psd_op_release(op);
 *
 * psd_sparse_sum_count - rows of the answer; 0 also if op is no such push, or has not ended well.
 *
 * psd_sparse_sum_read - writes the ids, rising as unsigned numbers, each once, and their rows in the
 * table's type. `rows` has any alignment. It may be called again.
 *
 * Returns PSD_OK, or
 *   PSD_ERR_STATE       op is not a push to a sparse sum that has ended well;
 *   PSD_ERR_INVALID     missing pointer;
 *   PSD_ERR_NO_MEMORY.
 */
PSD_API uint64_t psd_sparse_sum_count(const psd_op *op);
PSD_API psd_status psd_sparse_sum_read(const psd_op *op, uint64_t *ids, void *rows);

/* -------------------------------------------------------------------- memory without copies --- */

/*
 * psd_alloc - memory for gradients. A server on the same host reads them in place instead of
 * getting a copy. To other servers it is memory like any other. The memory is zeroed and
 * page-aligned, and its pages are already touched. One region may hold the gradients of many
 * tables, and a push may begin at any offset. A server reads from up to 752 regions of a worker at
 * a time. Gradients in further regions are copied.
 *
 * The memory must not change before the push that borrows it has ended. If it ended without an
 * answer (PSD_OUTCOME_UNKNOWN), a server may still read the memory until the context is closed.
 *
 * Returns PSD_OK or PSD_ERR_INVALID (no bytes), PSD_ERR_NO_MEMORY, PSD_ERR_FORKED.
 */
PSD_API psd_status psd_alloc(psd_context *context, size_t bytes, void **memory_p);

/* Frees it; psd_close() frees what is left. PSD_ERR_INVALID: not from psd_alloc;
 * PSD_ERR_STATE: an operation that borrows it has not ended. */
PSD_API psd_status psd_free(psd_context *context, void *memory);

/*
 * psd_view - where the values of a table appear after a pull or push_pull with PSD_TRANSFER_VIEW.
 * It is one contiguous tensor, zero before the first pull. It is read-only, and valid until
 * psd_close(). If the server is on the same host and updates all workers together (staleness 0, no
 * backup workers), these are the server's own values, read in place. Otherwise, and in very small
 * tables, the values are copied here. If the job survives the death of servers, the view also keeps
 * its sums: when a server dies, its other life gets them from here, for workers that lack them.
 *
 * Values in the view may change as soon as this worker pushes the next step of the table. When the
 * job has gone on without a worker, that worker may see them change at any time. Its next call then
 * returns PSD_ERR_FENCED, and nothing that it computed counts.
 */
PSD_API psd_status psd_view(psd_table *table, const void **values_p);

/*
 * psd_view_changes - how often pages of the view were replaced by others at the same addresses: when
 * a server's values came into it, and when that server had died. Only an operation of this worker
 * replaces them, those of its own chunks, before it ends. A device that was given the pages
 * (cudaHostRegister) goes on reading the old ones: give them again when the number has changed.
 * It never waits. NULL is allowed: 0.
 */
PSD_API uint64_t psd_view_changes(const psd_table *table);

/* How an operation ended. The gradient of one chunk is applied as a whole or not at all; an
 * operation may have many chunks. */
typedef enum psd_outcome {
    PSD_OUTCOME_PENDING = 0,
    PSD_OUTCOME_DONE = 1,        /* all of it was applied / delivered */
    PSD_OUTCOME_NOT_APPLIED = 2, /* none of it was */
    PSD_OUTCOME_UNKNOWN = 3,     /* some may have been: the message names servers and chunks */
} psd_outcome;

/*
 * psd_wait - wait for an operation. Returns PSD_OK when it is done, PSD_PENDING when timeout_ms
 * passed first (the operation goes on), and otherwise the operation's error. The waiting thread
 * moves the bytes itself.
 */
PSD_API psd_status psd_wait(psd_op *op, uint32_t timeout_ms);

/* The same without waiting: PSD_PENDING, PSD_OK or the operation's error. */
PSD_API psd_status psd_test(psd_op *op);

/*
 * psd_wait_any - the next operation of the context that has ended. It skips operations that
 * somebody has waited for, and those with a `done`. PSD_OK: the operation is *op_p (its own error
 * is in psd_op_error()). PSD_PENDING: timeout_ms passed.
 */
PSD_API psd_status psd_wait_any(psd_context *context, uint32_t timeout_ms, psd_op **op_p);

PSD_API psd_outcome psd_op_outcome(const psd_op *op);
PSD_API const struct psd_error *psd_op_error(const psd_op *op); /* valid until psd_op_release() */
PSD_API void *psd_op_user(const psd_op *op);
PSD_API void psd_op_release(psd_op *op); /* only after it ended; NULL is allowed */

/*
 * psd_fd - a file descriptor that is readable while psd_wait_any() has something to return: for
 * poll, epoll or asyncio. The context owns it. -1 with psd_last_error() on failure.
 */
PSD_API int psd_fd(psd_context *context);

/* ---------------------------------------------------------------------------- all together --- */

/*
 * psd_barrier - wait until every live worker has reached the same barrier. A worker's calls count
 * in the order in which they began, on whatever thread. So two threads that call it at once wait
 * for two barriers. A call that timed out has not passed the barrier: the next call waits for the
 * same one. (The other workers may have passed, because they have seen this worker there.)
 *
 * The first barrier of a replacement is the first one that the others have not passed. If its
 * predecessor died in a barrier, it is that one. If workers meet at a barrier before they train, a
 * replacement (psd_incarnation() > 1) must skip it, or it would meet the others at their next one.
 *
 * PSD_ERR_TIMEOUT names the workers that have not come; PSD_ERR_BUSY: more than 4,096 threads wait.
 */
PSD_API psd_status psd_barrier(psd_context *context, uint32_t timeout_ms);

/*
 * psd_global_step - add to the job's global step, exactly once, and return the new value. add = 0
 * reads it. What a dead worker added stays, and its replacement adds to that. Server 0 keeps the
 * global step. If server 0 dies and has no copy, a job that has used the global step is over, even
 * one that only sums (docs/failures.md).
 *
 * PSD_ERR_BUSY: 256 threads of this worker are already in this call; nothing was added.
 */
PSD_API psd_status psd_global_step(psd_context *context, uint64_t add, uint64_t *step_p);

/*
 * psd_report - tell the job how this worker is doing: a named number (loss, accuracy, samples per
 * second) of a step. psd_run keeps a curve for each name, for up to 1,024 names of a worker.
 * psd_nodes() shows the last number, or the last loss once a "loss" was reported. Never blocks.
 * Numbers are sent every half second. If there are more than 256 in that time, the oldest are lost
 * (the metric points_untold counts them). A value may be NaN.
 *
 *   step  is 2^62 at most.
 *   name  is cut after 31 bytes, before a character that does not fit. "" or NULL: only the step
 *         counts. "steps_total": value is the step at which this worker expects to end, or 0 if it
 *         does not know; step is ignored, and there is no curve.
 *
 * PSD_ERR_INVALID: the step is larger; nothing was reported.
 */
PSD_API psd_status psd_report(psd_context *context, uint64_t step, const char *name, double value);

/*
 * psd_mark - tell the job what this worker's program did, and when. It becomes a bar of this name
 * in the timeline of psd_run trace. Never blocks, and costs little while nobody watches. If there
 * are more than 128 pushes and marks in half a second, only those of every second step are kept, or
 * of fewer steps. Marks beyond 32 names are lost (the metric spans_untold counts them).
 *
 *   step      is 2^62 at most: the one that was, or will be, pushed.
 *   name      is cut after 31 bytes, before a character that does not fit.
 *   begin_ns  and
 *   end_ns    are times of CLOCK_MONOTONIC.
 *
 * PSD_ERR_INVALID: the step is larger, there is no name, or it ends before it begins.
 */
PSD_API psd_status psd_mark(psd_context *context, uint64_t step, const char *name,
                            uint64_t begin_ns, uint64_t end_ns);

typedef enum psd_role {
    PSD_ROLE_MASTER = 1,
    PSD_ROLE_SERVER = 2,
    PSD_ROLE_WORKER = 3,
} psd_role;

typedef enum psd_node_state {
    PSD_NODE_MISSING = 0, /* expected, not seen yet */
    PSD_NODE_JOINED = 1,  /* here, waiting for the others */
    PSD_NODE_RUNNING = 2,
    PSD_NODE_DONE = 3, /* closed */
    PSD_NODE_LOST = 4, /* died, or silent for too long */
} psd_node_state;

struct psd_node {
    psd_role role;
    uint32_t rank; /* rank of a worker, index of a server, 0 for the master */
    psd_node_state state;
    uint32_t incarnation;
    uint64_t step;       /* last reported; not known if steps_per_s is NaN */
    double steps_per_s;  /* over the last reports; NaN: the master is new, and has not heard yet */
    double value;        /* last reported scalar ... */
    char value_name[32]; /* ... and its name, "" if none */
    char address[72];
};

/*
 * psd_nodes - the master's list of the job's processes. Writes at most `capacity` of them to nodes,
 * and the number that there are to *count_p. node_bytes is sizeof(struct psd_node). psd_nodes_at()
 * asks a master without joining its job.
 */
PSD_API psd_status psd_nodes(psd_context *context, struct psd_node *nodes, size_t node_bytes,
                             size_t capacity, size_t *count_p);
PSD_API psd_status psd_nodes_at(const char *master_address, uint32_t timeout_ms,
                                struct psd_node *nodes, size_t node_bytes, size_t capacity,
                                size_t *count_p);

/* --------------------------------------------------------------------------- save and load --- */

/*
 * psd_save - write all PSD_USE_UPDATE tables as of one step into a directory.
 *
 * One worker calls it between two steps, when it has pulled step c and has not pushed it.
 * Parameters go into one safetensors file, optimizer state into another; a manifest, renamed into
 * place last, commits both at once. The last two generations are kept. The bytes depend on the
 * tables and the step alone, not on the number of servers. Other workers keep training.
 *
 * Bulk-synchronous tables cannot pass step c meanwhile, so all of them are saved as of that step.
 * Only tables with backup workers may go on without this worker; if they do, the save ends as
 * PSD_ERR_STEP.
 *
 * Tables with staleness change while they are saved. Each of their chunks (PSD_CHUNK_ELEMENTS) is
 * saved as of one moment, with its optimizer state. But different chunks are saved at different
 * moments, so the table is not as of one step. The manifest says so ("moment":"chunk"). Learning
 * rates and Adam's correction depend on the number of updates. The saved number is the largest of
 * any chunk.
 *
 * To save everything as of one moment, and to save tables with backup workers, let the workers meet
 * (psd_barrier) before and after.
 *
 * PSD_ERR_STEP: the tables are not at `step`. PSD_ERR_IO: the message names the file and the
 * system's reason. PSD_ERR_BUSY: another save writes there. PSD_ERR_STATE: there is nothing to
 * save. After these errors the previous generation is intact.
 */
PSD_API psd_status psd_save(psd_context *context, const char *directory, uint64_t step);

/*
 * psd_load - load what psd_save wrote. Every worker calls it, after it opened the tables and before
 * its first push. Rank 0 reads the newest intact generation (an older one if the newest is damaged)
 * and sends it to the servers. All workers get the step to go on from. Tables must match the files
 * by name, type and shape. The call waits for all workers, at barriers of its own. A replacement
 * calls it, too. If the job has loaded already, the call returns at once, with the step to repeat.
 *
 * PSD_ERR_CORRUPT: no generation is intact. PSD_ERR_MISMATCH: the message names the table.
 * PSD_ERR_IO: there is no generation. Only rank 0 sees these errors. The others return the servers'
 * current step, so rank 0 should end the job (psd_abandon) rather than go on.
 */
PSD_API psd_status psd_load(psd_context *context, const char *directory, uint64_t *step_p);

/* ---------------------------------------------------------- a worker's part of checkpoints --- */

/*
 * Servers save update tables by themselves (docs/checkpoints.md). A worker can add a part of its
 * own to the same checkpoint, such as the weights of a job whose tables are sums. It becomes a
 * file:
 *
 *     at = psd_checkpoint_due(context, step);                   (before each step, with its number)
 *     if (at == step)
 *         psd_checkpoint_part(context, step, data, bytes);      (perhaps in another thread)
 *
 * Only rank 0 is asked for a part. Once it is asked, there is no checkpoint without the part.
 */
#define PSD_CHECKPOINT_NONE UINT64_MAX /* none is wanted */
#define PSD_CHECKPOINT_EPOCH                                                                       \
    (UINT64_MAX - 1) /* one is wanted at the end of the epoch, whatever its step */

/*
 * psd_checkpoint_due - the step at which this worker should give a part, after it has made `step`
 * steps. If the job has no update tables, that step is in the future when it is first returned, so
 * that ranks can agree. From the first call on, the master expects parts of this worker. Never
 * waits.
 */
PSD_API uint64_t psd_checkpoint_due(psd_context *context, uint64_t step);

/*
 * psd_checkpoint_part - write this worker's part, as of `step` steps, and wait until it is on the
 * disk. The caller chooses the format; psd_run checkpoint can show safetensors. The checkpoint is
 * committed when the servers have written their parts, too.
 *
 * PSD_ERR_STATE: no part of this step is wanted, or no longer. PSD_ERR_IO: the message names the
 * file and the reason. The master says so, too, and tries again later. Earlier checkpoints are
 * intact.
 */
PSD_API psd_status psd_checkpoint_part(psd_context *context, uint64_t step, const void *data,
                                       size_t bytes);

/*
 * psd_checkpoint_resumed - rank 0's part of the checkpoint from which this job goes on (psd_run
 * --resume; PSD_RESUME and PSD_RESUME_GENERATION in the environment). Every byte of it is checked.
 * Any rank may ask. Sets *bytes_p to its size and *step_p to its step, and writes at most
 * `capacity` bytes to data. So ask twice: first with capacity 0 (data may be NULL), then with
 * enough memory.
 *
 * PSD_ERR_STATE: the job did not resume, or no worker had given a part. PSD_ERR_CORRUPT,
 * PSD_ERR_IO: the message names the file and the reason.
 */
PSD_API psd_status psd_checkpoint_resumed(psd_context *context, void *data, size_t capacity,
                                          size_t *bytes_p, uint64_t *step_p);

/* --------------------------------------------- state of PSD_USE_SUM jobs, for replacements --- */

/* A piece of memory that every worker has: weights, optimizer state. */
struct psd_state {
    const char *name;
    void *data;
    size_t bytes;
};

/*
 * psd_state_publish - offer this worker's memory, as it is at the start of step `step`, to a
 * replacement that has to start there. The memory is borrowed and must not change until the offer
 * is withdrawn. To withdraw it, call this again with count 0, before the optimizer's step changes
 * the memory. Costs nothing until somebody asks. Never blocks. state_bytes is sizeof(struct
 * psd_state).
 */
PSD_API psd_status psd_state_publish(psd_context *context, uint64_t step,
                                     const struct psd_state *states, size_t state_bytes,
                                     size_t count);

/*
 * psd_state_fetch - fill the same memory from a live worker: the first one that has reached the
 * step that psd_table_step() returns. For a replacement (psd_incarnation() > 1), or for a worker
 * that joined a running job (psd_table_step() > 0 before its first push). PSD_ERR_MISMATCH when
 * names or sizes differ; PSD_ERR_TIMEOUT names the last worker asked.
 */
PSD_API psd_status psd_state_fetch(psd_context *context, uint64_t step,
                                   const struct psd_state *states, size_t state_bytes,
                                   size_t count);

#ifdef __cplusplus
}
#endif

#endif
