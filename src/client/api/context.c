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
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "client/core/state.h"

#define MS_NS UINT64_C(1000000)

/* How long the context's thread stands aside before it looks whether somebody still waits. */
#define ASIDE_NS (20 * MS_NS)

/* Even without anything due, a waiting thread looks up that often. */
enum { WAIT_MS_MAX = 250 };

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
    op->marks.queued = true;
    op->marks.any_next = NULL;
    op->marks.any_prev = context->any_last;
    if (context->any_last != NULL) {
        context->any_last->marks.any_next = op;
    } else {
        context->any = op;
        signal_fd_locked(context, true);
    }
    context->any_last = op;
}

void
psi_context_any_remove_locked(psd_context *context, psd_op *op)
{
    if (!op->marks.queued) {
        return;
    }
    op->marks.queued = false;
    if (op->marks.any_prev != NULL) {
        op->marks.any_prev->marks.any_next = op->marks.any_next;
    } else {
        context->any = op->marks.any_next;
    }
    if (op->marks.any_next != NULL) {
        op->marks.any_next->marks.any_prev = op->marks.any_prev;
    } else {
        context->any_last = op->marks.any_prev;
    }
    if (context->any == NULL) {
        signal_fd_locked(context, false);
    }
}

void
psi_context_forget_locked(psd_context *context, psd_op *op)
{
    psi_context_any_remove_locked(context, op);
    if (op->marks.all_prev != NULL) {
        op->marks.all_prev->marks.all_next = op->marks.all_next;
    } else if (context->all == op) {
        context->all = op->marks.all_next;
    }
    if (op->marks.all_next != NULL) {
        op->marks.all_next->marks.all_prev = op->marks.all_prev;
    }
    psi_op_free(op);
}

void
psi_context_adopt_locked(psd_context *context, psd_op *op)
{
    op->marks.all_next = context->all;
    if (context->all != NULL) {
        context->all->marks.all_prev = op;
    }
    context->all = op;
}

/* The context whose callback this thread runs; NULL: none. */
static _Thread_local const psd_context *calling_back;

/* The lock is given up meanwhile. Whoever releases the operation now only marks it. */
static void
call_back_locked(psd_context *context, psd_op *op)
{
    const psd_done_fn done = op->done;
    const psd_status status = op->error.status;
    const psd_context *outer = calling_back;
    void *user = op->user;

    op->marks.calling = true;
    context->callbacks++;
    calling_back = context;
    pthread_mutex_unlock(&context->lock);
    done(op, status, user);
    pthread_mutex_lock(&context->lock);
    calling_back = outer;
    context->callbacks--;
    op->marks.calling = false;
    if (context->waiters > 0) {
        pthread_cond_broadcast(&context->waiters_turn);
    }
}

/* Sorts out what ended, and calls back. True when anything had ended. What ends while a callback
 * starts it waits until the callback has returned: or else a program that goes from step to step in
 * callbacks would need ever more of its stack. */
bool
psi_context_collect_locked(psd_context *context)
{
    bool some = false;
    psd_op *op;

    if (calling_back == context) {
        return false;
    }
    while ((op = psi_client_next_done(context->client)) != NULL) {
        some = true;
        if (context->failure != NULL && context->failure->status == PSD_OK) {
            *context->failure = op->error;
        }
        if (op->done != NULL) {
            call_back_locked(context, op);
        }
        if (op->marks.released) {
            psi_context_forget_locked(context, op);
        } else if (op->done == NULL && !op->marks.internal && !op->marks.waited) {
            any_append_locked(context, op);
        }
    }
    return some;
}

static void
tell_locked(psd_context *context)
{
    if (psi_context_collect_locked(context) && context->waiters > 0) {
        pthread_cond_broadcast(&context->waiters_turn);
        if (context->waiter.taken) {
            psi_loop_wake(context->loop);
        }
    }
    if (context->waiter.taken && context->client->lone != NULL) {
        psi_loop_wake(context->loop); /* whoever waits for other things goes on copying */
    }
    /* A deadline nearer than the thread's next look would be noticed late. */
    if (context->driver.taken && psi_client_next_ns(context->client) < context->thread_until_ns) {
        context->thread_until_ns = 0; /* once is enough */
        psi_loop_wake(context->loop);
    }
}

/* While the program sleeps. */
__attribute__((cold)) static void
others_tick_locked(psd_context *context)
{
    psi_step_clock_sleeps(&context->client->steps, true);
    psi_client_tick(context->client);
    psi_step_clock_sleeps(&context->client->steps, false);
}

/* What is said until the end leaves together, as far as it is small, and wakes nobody before. */
static inline void
begin_to_say_locked(psd_context *context)
{
    context->held_bytes = 0;
    psi_loop_hold_bells(context->loop);
    psi_loop_cork(context->loop);
}

static inline void
end_saying_locked(psd_context *context)
{
    psi_loop_uncork(context->loop);
    psi_loop_ring_bells(context->loop);
}

static inline void
settle_locked(psd_context *context)
{
    begin_to_say_locked(context);
    if (PSI_COUNTS && context->waiter.taken) {
        others_tick_locked(context);
    } else {
        psi_client_tick(context->client);
    }
    end_saying_locked(context);
    tell_locked(context);
}

void
psi_context_settle_locked(psd_context *context)
{
    settle_locked(context);
}

void
psi_context_send_locked(psd_context *context)
{
    begin_to_say_locked(context);
    psi_client_send(context->client);
    end_saying_locked(context);
    tell_locked(context);
}

/* Whoever is on the loop comes back, and sends it; if nobody is, the thread is about to look for it. */
void
psi_context_leave_to_thread_locked(psd_context *context, uint64_t bytes)
{
    const bool is_first = context->held_bytes == 0;

    context->held_bytes += bytes;
    if (is_first && (context->driver.taken || context->waiter.taken)) {
        psi_loop_wake(context->loop);
    } else if (is_first) {
        pthread_cond_signal(&context->thread_turn);
    }
}

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

/* A mutex is no queue: who copies, and comes back for the lock at once, would get it nearly always,
 * and the others' calls would take as long as the copy. They have this long to get up. */
static void
let_others_in(psd_context *context)
{
    enum { YIELDS_MAX = 200 };

    for (unsigned i = 0; i < YIELDS_MAX && atomic_load(&context->wanting) > 0; i++) {
        sched_yield();
    }
}

/* One turn on the loop. The lock is held before and after, not while waiting, which is while the
 * seat is taken. */
void
psi_context_drive_locked(psd_context *context, uint64_t deadline_ns, struct psi_seat *seat)
{
    const uint64_t now_ns = psi_now_ns(psi_loop_env(context->loop));
    const uint64_t until_ns = look_again_ns(context, now_ns, deadline_ns);
    const uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const bool copies = context->client->lone != NULL;
    const bool behind = seat == &context->driver && !context->has_cores; /* behind the program */
    const int wait_ms = (int)((wait_ns + MS_NS - 1) / MS_NS);
    psd_status status;

    seat->taken = true;
    if (seat == &context->driver) {
        context->thread_until_ns = until_ns;
    } else { /* the program waits */
        psi_step_clock_sleep(&context->client->steps, now_ns);
    }
    pthread_mutex_unlock(&context->lock);
    status = behind ? psi_loop_sleep(context->loop, wait_ms, &seat->ready, &seat->err)
                    : psi_loop_wait(context->loop, wait_ms, &seat->ready, &seat->err);
    if (copies) {
        let_others_in(context);
    }
    pthread_mutex_lock(&context->lock);
    seat->taken = false;
    if (psi_step_clock_is_large(&context->client->steps) && seat == &context->waiter) {
        psi_step_clock_woke(&context->client->steps, psi_now_ns(psi_loop_env(context->loop)));
    }
    if (status != PSD_OK) {
        psi_client_over(context->client, PSD_ERR_INTERNAL, "%s", seat->err.text);
    }
    psi_loop_dispatch(context->loop, &seat->ready);
    settle_locked(context);
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
    psi_context_drive_locked(context, deadline_ns, &context->waiter);
    if (context->waiters > 1) {
        pthread_cond_broadcast(&context->waiters_turn);
    }
}

static bool
has_passed(psd_context *context, uint64_t deadline_ns)
{
    return deadline_ns != UINT64_MAX && psi_now_ns(psi_loop_env(context->loop)) >= deadline_ns;
}

/* Who waits does not wait for what would follow. */
static void
enter_locked(psd_context *context)
{
    context->waiters++;
    if (context->held_bytes > 0) {
        psi_context_send_locked(context);
    }
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
    enter_locked(context);
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
    enter_locked(context);
    while (!psi_op_ended(op) && psi_op_value(op) == seen && !has_passed(context, deadline_ns)) {
        wait_turn_locked(context, deadline_ns);
    }
    leave_locked(context);
}

psd_status
psi_context_wait_any_locked(psd_context *context, uint64_t deadline_ns)
{
    enter_locked(context);
    while (context->any == NULL && psi_client_state(context->client) == PSI_CLIENT_RUNNING &&
           !has_passed(context, deadline_ns)) {
        wait_turn_locked(context, deadline_ns);
    }
    leave_locked(context);
    return context->any != NULL ? PSD_OK : PSD_PENDING;
}

void
psi_context_wait_roster_locked(psd_context *context, uint64_t deadline_ns)
{
    enter_locked(context);
    while (!psi_client_knows_roster(context->client) &&
           psi_client_state(context->client) == PSI_CLIENT_RUNNING &&
           !has_passed(context, deadline_ns)) {
        wait_turn_locked(context, deadline_ns);
    }
    leave_locked(context);
}

psd_status
psi_context_drain_locked(psd_context *context, struct psd_error *err)
{
    struct psd_error failure = {.status = PSD_OK};

    context->failure = &failure;
    enter_locked(context);
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

    op->marks.internal = true;
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

/* The first allocation of a thread makes an arena for it, which changes the process's mappings. That
 * waits while another thread has the kernel fill its memory, for seconds if there is much of it: a
 * worker would be silent for as long, and be given up. So it happens here, before anybody counts on
 * our heartbeats, and what they allocate later fits in. */
static void
make_arena(void)
{
    enum { ENOUGH_BYTES = 64 << 10 };
    void *volatile memory = malloc(ENOUGH_BYTES);

    free(memory);
}

/* The context's own thread: drives while nobody waits, stands aside while somebody does. */
void *
psi_context_run_thread(void *argument)
{
    psd_context *context = argument;

    make_arena();
    pthread_mutex_lock(&context->lock);
    while (!context->closing) {
        const uint64_t now_ns = psi_now_ns(psi_loop_env(context->loop));

        if (context->waiters > 0) {
            timed_wait(&context->thread_turn, &context->lock, now_ns + ASIDE_NS);
            psi_context_settle_locked(context); /* heartbeats, whatever the waiting threads do */
            continue;
        }
        psi_context_drive_locked(context, UINT64_MAX, &context->driver);
        if (context->waiter.taken) {
            psi_loop_wake(context->loop); /* we may have swallowed the one that was meant for it */
        }
    }
    pthread_mutex_unlock(&context->lock);
    return NULL;
}
