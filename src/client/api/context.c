/*
 * context.c - who drives the core, and when: the lock, the waiting threads, the context's own
 * thread.
 *
 * Invariants
 *   - the core and the loop's connections are touched only with the lock held;
 *   - psi_loop_wait() runs without it; at most one waiting thread and the context's thread are
 *     in it;
 *   - an operation that ended wakes every waiting thread, also one on the loop.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/api/context.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "client/api/memory.h"
#include "client/core/state.h"
#include "config/environment.h"
#include "rpc/identity.h"

#define MS_NS UINT64_C(1000000)

/* How long the context's thread stands aside before it looks whether somebody still waits. */
#define ASIDE_NS (20 * MS_NS)

/* Even without anything due, a waiting thread looks up that often. */
enum { WAIT_MS_MAX = 250 };

/* For the master to say who is missing, after a job did not gather. */
enum { ASK_MISSING_MS = 500 };

struct psd_error *
psi_error(void)
{
    static _Thread_local struct psd_error error;

    return &error;
}

const struct psd_error *
psd_last_error(void)
{
    return psi_error();
}

psd_status
psi_context_check(const psd_context *context, struct psd_error *err)
{
    if (context == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "context is NULL");
    }
    if (!psi_process_is_this(&context->process)) {
        return psi_fail(err, PSD_ERR_FORKED,
                        "context of process %d used in its child %d: open one of its own there",
                        (int)context->process.pid, (int)getpid());
    }
    return PSD_OK;
}

uint64_t
psi_context_deadline_ns(psd_context *context, uint32_t timeout_ms)
{
    if (timeout_ms == PSD_FOREVER) {
        return UINT64_MAX;
    }
    return psi_now_ns(psi_loop_env(context->loop)) + timeout_ms * MS_NS;
}

/* ---- ended operations -------------------------------------------------------------------- */

static void
signal_fd_locked(const psd_context *context, bool readable)
{
    uint64_t count = 1;
    ssize_t moved = 0;

    if (context->fd >= 0) {
        moved = readable ? write(context->fd, &count, sizeof(count))
                         : read(context->fd, &count, sizeof(count));
    }
    (void)moved; /* already readable, or already not: as it should be */
}

static void
any_append_locked(psd_context *context, psd_op *op)
{
    op->queued = true;
    op->any_next = NULL;
    op->any_prev = context->any_last;
    if (context->any_last != NULL) {
        context->any_last->any_next = op;
    } else {
        context->any = op;
        signal_fd_locked(context, true);
    }
    context->any_last = op;
}

void
psi_context_any_remove_locked(psd_context *context, psd_op *op)
{
    if (!op->queued) {
        return;
    }
    op->queued = false;
    if (op->any_prev != NULL) {
        op->any_prev->any_next = op->any_next;
    } else {
        context->any = op->any_next;
    }
    if (op->any_next != NULL) {
        op->any_next->any_prev = op->any_prev;
    } else {
        context->any_last = op->any_prev;
    }
    if (context->any == NULL) {
        signal_fd_locked(context, false);
    }
}

void
psi_context_forget_locked(psd_context *context, psd_op *op)
{
    psi_context_any_remove_locked(context, op);
    if (op->all_prev != NULL) {
        op->all_prev->all_next = op->all_next;
    } else if (context->all == op) {
        context->all = op->all_next;
    }
    if (op->all_next != NULL) {
        op->all_next->all_prev = op->all_prev;
    }
    psi_op_free(op);
}

/* The lock is given up meanwhile. Whoever releases the operation now only marks it. */
static void
call_back_locked(psd_context *context, psd_op *op)
{
    const psd_done_fn done = op->done;
    const psd_status status = op->error.status;
    void *user = op->user;

    op->calling = true;
    context->callbacks++;
    pthread_mutex_unlock(&context->lock);
    done(op, status, user);
    pthread_mutex_lock(&context->lock);
    context->callbacks--;
    op->calling = false;
    if (context->waiters > 0) {
        pthread_cond_broadcast(&context->waiters_turn);
    }
}

/* Sorts out what ended, and calls back. True when anything had ended. */
static bool
collect_locked(psd_context *context)
{
    bool some = false;
    psd_op *op;

    while ((op = psi_client_next_done(context->client)) != NULL) {
        some = true;
        if (context->failure != NULL && context->failure->status == PSD_OK) {
            *context->failure = op->error;
        }
        if (op->done != NULL) {
            call_back_locked(context, op);
        }
        if (op->released) {
            psi_context_forget_locked(context, op);
        } else if (op->done == NULL && !op->internal && !op->waited) {
            any_append_locked(context, op);
        }
    }
    return some;
}

static void
tell_locked(psd_context *context)
{
    if (collect_locked(context) && context->waiters > 0) {
        pthread_cond_broadcast(&context->waiters_turn);
        if (context->waiter.taken) {
            psi_loop_wake(context->loop);
        }
    }
    /* A deadline nearer than the thread's next look would be noticed late. */
    if (context->driver.taken && psi_client_next_ns(context->client) < context->thread_until_ns) {
        context->thread_until_ns = 0; /* once is enough */
        psi_loop_wake(context->loop);
    }
}

void
psi_context_settle_locked(psd_context *context)
{
    psi_loop_hold_bells(context->loop);
    psi_client_tick(context->client);
    psi_loop_ring_bells(context->loop);
    tell_locked(context);
}

void
psi_context_send_locked(psd_context *context)
{
    psi_loop_hold_bells(context->loop);
    psi_client_send(context->client);
    psi_loop_ring_bells(context->loop);
    tell_locked(context);
}

/* ---- driving ----------------------------------------------------------------------------- */

/* When the core, the loop or the caller wants to look again; at the latest after WAIT_MS_MAX. */
static uint64_t
look_again_ns(psd_context *context, uint64_t now_ns, uint64_t deadline_ns)
{
    const uint64_t loop_ns = psi_loop_next_ns(context->loop);
    uint64_t until_ns = now_ns + WAIT_MS_MAX * MS_NS;
    const uint64_t client_ns = psi_client_next_ns(context->client);

    until_ns = client_ns < until_ns ? client_ns : until_ns;
    until_ns = loop_ns < until_ns ? loop_ns : until_ns;
    return deadline_ns < until_ns ? deadline_ns : until_ns;
}

/* One turn on the loop. The lock is held before and after, not while waiting, which is while the
 * seat is taken. */
static void
drive_locked(psd_context *context, uint64_t deadline_ns, struct psi_seat *seat)
{
    const uint64_t now_ns = psi_now_ns(psi_loop_env(context->loop));
    const uint64_t until_ns = look_again_ns(context, now_ns, deadline_ns);
    const uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    psd_status status;

    seat->taken = true;
    if (seat == &context->driver) {
        context->thread_until_ns = until_ns;
    }
    pthread_mutex_unlock(&context->lock);
    status = psi_loop_wait(context->loop, (int)((wait_ns + MS_NS - 1) / MS_NS), &seat->ready,
                           &seat->err);
    pthread_mutex_lock(&context->lock);
    seat->taken = false;
    if (status != PSD_OK) {
        psi_client_over(context->client, PSD_ERR_INTERNAL, "%s", seat->err.text);
    }
    psi_loop_dispatch(context->loop, &seat->ready);
    psi_context_settle_locked(context);
}

static void
timed_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / (1000 * MS_NS)),
        .tv_nsec = (long)(until_ns % (1000 * MS_NS)),
    };

    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(cond, lock);
    } else {
        pthread_cond_timedwait(cond, lock, &until);
    }
}

/* One waiting thread drives, the others sleep until something ended or the loop is free. */
static void
wait_turn_locked(psd_context *context, uint64_t deadline_ns)
{
    if (context->waiter.taken) {
        timed_wait(&context->waiters_turn, &context->lock, deadline_ns);
        return;
    }
    drive_locked(context, deadline_ns, &context->waiter);
    if (context->waiters > 1) {
        pthread_cond_broadcast(&context->waiters_turn);
    }
}

static bool
has_passed(psd_context *context, uint64_t deadline_ns)
{
    return deadline_ns != UINT64_MAX && psi_now_ns(psi_loop_env(context->loop)) >= deadline_ns;
}

static void
leave_locked(psd_context *context)
{
    context->waiters--;
    if (context->waiters == 0 &&
        (psi_client_pending(context->client) > 0 || psi_client_serves(context->client))) {
        pthread_cond_signal(&context->thread_turn);
    }
}

psd_status
psi_context_wait_locked(psd_context *context, const psd_op *op, uint64_t deadline_ns)
{
    context->waiters++;
    while (!psi_op_ended(op) && !has_passed(context, deadline_ns)) {
        wait_turn_locked(context, deadline_ns);
    }
    leave_locked(context);
    return psi_op_status(op);
}

void
psi_context_wait_news_locked(psd_context *context, const psd_op *op, uint64_t seen,
                             uint64_t deadline_ns)
{
    context->waiters++;
    while (!psi_op_ended(op) && psi_op_value(op) == seen && !has_passed(context, deadline_ns)) {
        wait_turn_locked(context, deadline_ns);
    }
    leave_locked(context);
}

psd_status
psi_context_wait_any_locked(psd_context *context, uint64_t deadline_ns)
{
    context->waiters++;
    while (context->any == NULL && psi_client_state(context->client) == PSI_CLIENT_RUNNING &&
           !has_passed(context, deadline_ns)) {
        wait_turn_locked(context, deadline_ns);
    }
    leave_locked(context);
    return context->any != NULL ? PSD_OK : PSD_PENDING;
}

psd_status
psi_context_drain_locked(psd_context *context, struct psd_error *err)
{
    struct psd_error failure = {.status = PSD_OK};

    context->failure = &failure;
    context->waiters++;
    while (psi_client_pending(context->client) > 0 || context->callbacks > 0) {
        wait_turn_locked(context, UINT64_MAX);
    }
    leave_locked(context);
    context->failure = NULL;
    if (failure.status != PSD_OK) {
        *err = failure;
    }
    return failure.status;
}

psd_status
psi_context_finish_locked(psd_context *context, psd_op *op, psd_op **op_p, struct psd_error *err)
{
    psd_status status;

    op->internal = true;
    psi_context_settle_locked(context);
    status = psi_context_wait_locked(context, op, UINT64_MAX);
    if (status != PSD_OK) {
        *err = op->error;
    }
    if (op_p != NULL && status == PSD_OK) {
        *op_p = op;
    } else {
        psi_context_forget_locked(context, op);
    }
    return status;
}

/* The context's own thread: drives while nobody waits, stands aside while somebody does. */
static void *
run_thread(void *argument)
{
    psd_context *context = argument;

    pthread_mutex_lock(&context->lock);
    while (!context->closing) {
        const uint64_t now_ns = psi_now_ns(psi_loop_env(context->loop));

        if (context->waiters > 0) {
            timed_wait(&context->thread_turn, &context->lock, now_ns + ASIDE_NS);
            psi_context_settle_locked(context); /* heartbeats, whatever the waiting threads do */
            continue;
        }
        drive_locked(context, UINT64_MAX, &context->driver);
        if (context->waiter.taken) {
            psi_loop_wake(context->loop); /* we may have swallowed the one that was meant for it */
        }
    }
    pthread_mutex_unlock(&context->lock);
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------- */

static psd_status
init_locks(psd_context *context, struct psd_error *err)
{
    pthread_condattr_t monotonic;

    if (pthread_mutex_init(&context->lock, NULL) != 0 || pthread_condattr_init(&monotonic) != 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a lock");
    }
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&context->waiters_turn, &monotonic);
    pthread_cond_init(&context->thread_turn, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return PSD_OK;
}

/* Signals are the program's business: the thread takes none. */
static psd_status
start_thread(psd_context *context, struct psd_error *err)
{
    sigset_t all;
    sigset_t old;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(&context->thread, NULL, run_thread, context);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0) {
        errno = code;
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start the thread of a context");
    }
    context->thread_started = true;
    return PSD_OK;
}

/* Adds who is missing to the error of a job that did not gather. The master answered before, so a
 * second question is a matter of milliseconds. */
static void
name_missing(const char *master_address, const struct psi_secret_source *source,
             struct psd_error *err)
{
    static const char *const roles[] = {
        [PSD_ROLE_MASTER] = "master", [PSD_ROLE_SERVER] = "server", [PSD_ROLE_WORKER] = "worker"};
    struct psd_error ignored;
    psd_context *context;
    psd_op *op;

    if (psi_context_observe(master_address, source, ASK_MISSING_MS, &context, &ignored) != PSD_OK) {
        return;
    }
    pthread_mutex_lock(&context->lock);
    if (psi_client_nodes(context->client, &op, &ignored) == PSD_OK &&
        psi_context_finish_locked(context, op, &op, &ignored) == PSD_OK) {
        const struct psi_nodes *nodes = psi_op_nodes(op);
        const char *separator = ": missing ";

        for (size_t i = 0; i < nodes->count; i++) {
            const size_t used = strlen(err->text);

            if (nodes->node[i].state == PSD_NODE_MISSING) {
                snprintf(err->text + used, sizeof(err->text) - used, "%s%s %u", separator,
                         roles[nodes->node[i].role], nodes->node[i].rank);
                separator = ", ";
            }
        }
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    psi_context_destroy(context);
}

/* Other workers of this host may knock as soon as they know the view. */
static void
name_ourselves(psd_context *context)
{
    const struct psi_welcome *job = psi_client_job(context->client);
    const struct psi_hello hello = {
        .role = PSI_ROLE_WORKER,
        .rank = job->rank,
        .incarnation = job->incarnation,
        .job = job->job,
    };
    char self[PSI_IDENTITY_BYTES];

    if (context->tls != NULL && job->workers != 0) {
        psi_identity_of(&hello, self);
        psi_tls_name(context->tls, self);
    }
}

static psd_status
join_job(psd_context *context, const struct psi_secret_source *source, struct psd_error *err)
{
    bool known;

    pthread_mutex_lock(&context->lock);
    psi_client_tick(context->client);
    while (psi_client_state(context->client) == PSI_CLIENT_JOINING) {
        drive_locked(context, UINT64_MAX, &context->waiter);
        name_ourselves(context);
    }
    *err = *psi_client_error(context->client);
    known = psi_client_job(context->client)->workers != 0;
    pthread_mutex_unlock(&context->lock);
    if (err->status == PSD_ERR_TIMEOUT && known) {
        name_missing(context->client->master_address, source, err);
    }
    return err->status;
}

/* Every connection proves the job's secret; only loopback may do without, and only when told to. */
static psd_status
init_security(psd_context *context, const struct psi_client_config *config,
              const struct psi_secret_source *source, struct psd_error *err)
{
    bool sealed_always = false;
    psd_status status = psi_environment_switch("PSD_FORCE_TLS", &sealed_always, err);

    if (status == PSD_OK) {
        status = psi_secret_find(source, &context->secret, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (context->secret != NULL) {
        status = psi_tls_create(context->secret, NULL, &context->tls, err);
        if (status == PSD_OK && sealed_always) {
            psi_tls_seal_always(context->tls);
        }
        return status;
    }
    if (source->insecure != NULL) {
        return psi_insecure_connect(source->insecure, config->master_address, err);
    }
    psi_fail(err, PSD_ERR_INVALID,
             "no secret for the job: run under psd_run, or set PSD_SECRET_FILE to its secret file "
             "(PSD_INSECURE=1 does without, on loopback only)");
    psi_environment_hint("PSD_SECRET_FILE", err);
    psi_environment_hint("PSD_SECRET_FD", err);
    psi_environment_hint("PSD_INSECURE", err);
    return PSD_ERR_INVALID;
}

psd_status
psi_context_create(const struct psi_client_config *config, const struct psi_secret_source *source,
                   psd_context **context_p, struct psd_error *err)
{
    struct psi_loop_config loop_config = {.lends = config->lends, .spin_us = config->spin_us};
    psd_context *context = calloc(1, sizeof(*context));
    psd_status status;

    if (context == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a context");
    }
    psi_process_init(&context->process);
    context->fd = -1;
    status = init_locks(context, err);
    if (status != PSD_OK) {
        psi_process_fini(&context->process);
        free(context);
        return status;
    }
    status = init_security(context, config, source, err);
    if (status == PSD_OK && context->tls != NULL) {
        loop_config.auth = &psi_tls_auth;
        loop_config.credentials = context->tls;
    }
    if (status == PSD_OK) {
        status = psi_loop_create(&loop_config, &context->loop, err);
    }
    if (status == PSD_OK) {
        status = psi_client_create(psi_loop_env(context->loop), config, &context->client, err);
    }
    if (status == PSD_OK) {
        context->client->context = context;
        status = config->observer ? PSD_OK : join_job(context, source, err);
    }
    if (status == PSD_OK && !config->observer) {
        status = start_thread(context, err);
    }
    if (status != PSD_OK) {
        psi_context_destroy(context);
        return status;
    }
    *context_p = context;
    return PSD_OK;
}

psd_status
psi_context_observe(const char *master_address, const struct psi_secret_source *source,
                    uint32_t timeout_ms, psd_context **context_p, struct psd_error *err)
{
    const struct psi_client_config config = {
        .master_address = master_address,
        .rank = PSI_RANK_AUTO,
        .op_timeout_ms = timeout_ms == 0 ? 1 : timeout_ms,
        .observer = true,
    };

    return psi_context_create(&config, source, context_p, err);
}

void
psi_context_destroy(psd_context *context)
{
    if (context->thread_started) {
        pthread_mutex_lock(&context->lock);
        context->closing = true;
        pthread_cond_broadcast(&context->thread_turn);
        pthread_mutex_unlock(&context->lock);
        psi_loop_wake(context->loop);
        pthread_join(context->thread, NULL);
    }
    if (context->client != NULL) {
        pthread_mutex_lock(&context->lock);
        psi_client_over(context->client, PSD_ERR_CLOSED, "context closed");
        collect_locked(context);
        while (context->all != NULL) {
            psi_context_forget_locked(context, context->all);
        }
        psi_client_destroy(context->client);
        pthread_mutex_unlock(&context->lock);
    }
    if (context->loop != NULL) {
        psi_loop_destroy(context->loop);
    }
    psi_regions_destroy(context);
    psi_tls_destroy(context->tls);
    psi_secret_destroy(context->secret);
    if (context->fd >= 0) {
        close(context->fd);
    }
    pthread_cond_destroy(&context->waiters_turn);
    pthread_cond_destroy(&context->thread_turn);
    pthread_mutex_destroy(&context->lock);
    psi_process_fini(&context->process);
    free(context);
}

psd_status
psi_context_transfer(psd_context *context, psd_table *table, const struct psi_transfer *transfer,
                     uint64_t *updates_p, struct psd_error *err)
{
    psd_op *op;
    psd_status status;

    pthread_mutex_lock(&context->lock);
    status = psi_client_transfer(context->client, table, transfer, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        if (updates_p != NULL) {
            *updates_p = psi_op_updates(op);
        }
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

/* An empty pull of the first chunk: its answer says at which step the table is. */
static psd_status
refresh_table(psd_context *context, psd_table *table, struct psd_error *err)
{
    const struct psi_transfer transfer = {
        .type = PSI_FRAME_PULL,
        .empty = true,
        .count = table->spec.count < PSD_CHUNK_ELEMENTS ? 0 : PSD_CHUNK_ELEMENTS,
    };
    psd_op *op;
    psd_status status;

    pthread_mutex_lock(&context->lock);
    status = psi_client_transfer(context->client, table, &transfer, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
            table->next_step[chunk] = psi_op_value(op);
        }
        psi_group_reached(table, psi_op_value(op));
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

bool
psi_context_loads(psd_context *context, const psd_table *table)
{
    bool loads;

    pthread_mutex_lock(&context->lock);
    loads = psi_table_is_loaded(table);
    pthread_mutex_unlock(&context->lock);
    return loads;
}

psd_status
psi_context_refresh_steps(psd_context *context, struct psd_error *err)
{
    psd_status status = PSD_OK;
    psd_table *table;

    for (size_t i = 0; (table = psi_context_table(context, i)) != NULL && status == PSD_OK; i++) {
        if (psi_context_loads(context, table)) {
            status = refresh_table(context, table, err);
        }
    }
    return status;
}

uint64_t
psi_context_first_step(psd_context *context)
{
    uint64_t step = UINT64_MAX;
    psd_table *table;

    pthread_mutex_lock(&context->lock);
    for (size_t i = 0; (table = psi_client_table(context->client, i)) != NULL; i++) {
        if (table->spec.use == PSD_USE_UPDATE && psi_table_step(table) < step) {
            step = psi_table_step(table);
        }
    }
    pthread_mutex_unlock(&context->lock);
    return step == UINT64_MAX ? 0 : step;
}

psd_table *
psi_context_table(psd_context *context, size_t index)
{
    psd_table *table;

    pthread_mutex_lock(&context->lock);
    table = psi_client_table(context->client, index);
    pthread_mutex_unlock(&context->lock);
    return table;
}
