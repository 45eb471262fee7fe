/*
 * context.h - a client core with a lock, a loop and threads around it.
 *
 * One lock guards the core. Whoever waits for an operation moves the bytes itself: it waits on the
 * loop without the lock and handles what came with it. The context's own thread does the same while
 * nobody waits (heartbeats, and operations under way behind the caller's computation), and stands
 * aside while somebody does. Submitting sends at once, on the caller's thread. docs/threads.md
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_API_CONTEXT_H
#define PSI_CLIENT_API_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/process.h"
#include "client/core/core.h"
#include "secure/source.h"
#include "transport/loop/loop.h"

/*
 * A thread's seat on the loop.
 *
 * Thread: `taken` is guarded by the context's lock, the rest is owned by whoever took it.
 */
struct psi_seat {
    bool taken;
    struct psi_loop_ready ready;
    struct psd_error err;
};

struct psd_context {
    struct psi_process process; /* immutable: whose context this is */
    struct psi_secret *secret;  /* owned, as is tls; NULL: insecure */
    struct psi_tls *tls;
    char *master_file; /* owned; NULL: nobody says where the master is */
    struct psi_loop *loop;
    struct psi_client *client; /* guarded by lock */
    bool has_cores;            /* immutable: more than this program computes on */
    struct psi_crew *crew;     /* owned, immutable: helps with large tensors; NULL: nobody does */

    pthread_mutex_t lock;
    atomic_uint wanting;         /* threads that wait for the lock (psi_context_lock) */
    pthread_cond_t waiters_turn; /* somebody's operation ended, or the loop is free */
    pthread_cond_t thread_turn;  /* the context's thread may drive again */
    pthread_t thread;
    bool thread_started;
    bool closing;             /* guarded by lock */
    bool left;                /* guarded by lock: psd_leave() has ended well */
    unsigned waiters;         /* guarded by lock: threads inside a wait */
    struct psi_seat waiter;   /* one of them is on the loop */
    struct psi_seat driver;   /* the context's own thread is */
    unsigned callbacks;       /* guarded by lock: running now, without it */
    uint64_t thread_until_ns; /* guarded by lock: when the thread looks at the deadlines again */
    uint64_t held_bytes;      /* guarded by lock: of transfers that are queued, and not sent yet */

    struct psi_region *regions; /* guarded by lock: of psd_alloc */

    struct psd_op *all; /* guarded by lock: operations the caller has */
    struct psd_op *any; /* guarded by lock: ended ones for psd_wait_any, oldest first */
    struct psd_op *any_last;
    int fd; /* guarded by lock: readable while `any` is not empty; -1: nobody asked */
    struct psd_error *failure; /* guarded by lock: psd_close() keeps the first error here */
};

/* Takes the lock: also from a thread that gives it up and takes it again all the time. */
static inline void
psi_context_lock(psd_context *context)
{
    if (pthread_mutex_trylock(&context->lock) != 0) {
        atomic_fetch_add(&context->wanting, 1);
        pthread_mutex_lock(&context->lock);
        atomic_fetch_sub(&context->wanting, 1);
    }
}

/* The error of this thread's last failed call (psd_last_error); ready to be written. */
struct psd_error *psi_error(void);

/* PSD_ERR_FORKED in a forked child, PSD_ERR_INVALID for NULL. */
psd_status psi_context_check(const psd_context *context, struct psd_error *err);

/* A context that has joined (or, as an observer, reached) its job. */
psd_status psi_context_create(const struct psi_client_config *config,
                              const struct psi_secret_source *source, psd_context **context_p,
                              struct psd_error *err);
/* One that only looks at the job, and waits so long for an answer. It has no thread of its own. */
psd_status psi_context_observe(const char *master_address, const struct psi_secret_source *source,
                               uint32_t timeout_ms, psd_context **context_p, struct psd_error *err);

/* Stops the thread, ends what is pending, frees everything. */
void psi_context_destroy(psd_context *context);

/* After a call into the core, with the lock held: sends, sorts out what ended, wakes who waits. */
void psi_context_settle_locked(psd_context *context);

/* The same after a transfer was queued, without a look at the clock. */
void psi_context_send_locked(psd_context *context);

/* The context's thread does that, or whoever waits: so many bytes more were queued. */
void psi_context_leave_to_thread_locked(psd_context *context, uint64_t bytes);

/* Drives until the operation ended, or until deadline_ns (monotonic). With the lock held. */
psd_status psi_context_wait_locked(psd_context *context, const psd_op *op, uint64_t deadline_ns);

/* Until the value of an operation that goes on is no longer `seen`, it ended, or deadline_ns. With
 * the lock held. */
void psi_context_wait_news_locked(psd_context *context, const psd_op *op, uint64_t seen,
                                  uint64_t deadline_ns);

/* Until some operation is in context->any. With the lock held. */
psd_status psi_context_wait_any_locked(psd_context *context, uint64_t deadline_ns);

/* Until it knows who counts, the client is over, or deadline_ns. With the lock held. */
void psi_context_wait_roster_locked(psd_context *context, uint64_t deadline_ns);

/* Until nothing is under way; the first error among what ended meanwhile. With the lock held. */
psd_status psi_context_drain_locked(psd_context *context, struct psd_error *err);

/* Waits for an operation of a blocking call, copies its error and, unless op_p is NULL, hands it
 * out for its result (free it with psi_op_free); else frees it. Takes the lock already held. */
psd_status psi_context_finish_locked(psd_context *context, psd_op *op, psd_op **op_p,
                                     struct psd_error *err);

void psi_context_any_remove_locked(psd_context *context, psd_op *op);
void psi_context_forget_locked(psd_context *context, psd_op *op);
void psi_context_adopt_locked(psd_context *context, psd_op *op); /* the caller has it */

uint64_t psi_context_deadline_ns(psd_context *context, uint32_t timeout_ms);

/* For the life of a context (context_life.c): its own thread, and the two steps that everybody who
 * waits repeats. With the lock held. */
void *psi_context_run_thread(void *argument);
void psi_context_drive_locked(psd_context *context, uint64_t deadline_ns, struct psi_seat *seat);
bool psi_context_collect_locked(psd_context *context);

/* Runs one transfer to its end. updates_p (optional): see psi_op_updates(). */
psd_status psi_context_transfer(psd_context *context, psd_table *table,
                                const struct psi_transfer *transfer, uint64_t *updates_p,
                                struct psd_error *err);

/* Starts one, which the caller gets. */
psd_status psi_context_start(psd_context *context, psd_table *table,
                             const struct psi_transfer *transfer, psd_op **op_p,
                             struct psd_error *err);

/* Creates a table, or joins it. */
psd_status psi_context_table_open(psd_context *context, const struct psi_spec *spec,
                                  uint8_t priority, psd_table **table_p, struct psd_error *err);

/* PSD_ERR_STATE: a table that cannot be saved or loaded is open. */
psd_status psi_context_check_saved(psd_context *context, struct psd_error *err);

/* Does a load move the table to the saved step? */
bool psi_context_loads(psd_context *context, const psd_table *table);

/* Asks the servers at which step each table is, and remembers it. */
psd_status psi_context_refresh_steps(psd_context *context, struct psd_error *err);

/* The smallest step of a table to push next. */
uint64_t psi_context_first_step(psd_context *context);

/* The index-th opened table, NULL after the last. */
psd_table *psi_context_table(psd_context *context, size_t index);

#endif
