/*
 * completion_test.c - how operations end for the caller: wait, test, wait_any, descriptor,
 * callback, release, close.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bed.h"

#define ADD .rule = RULE(.rule = PSD_RULE_ADD)
#define SUM ADD, .reduce = PSD_REDUCE_SUM

enum { WAIT_MS = 15000 };

static bool
readable(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, timeout_ms) == 1 && (poll_fd.revents & POLLIN) != 0;
}

/* ---- wait and test ------------------------------------------------------------------------ */

static void
wait_and_test(struct worker *worker)
{
    const float one = 1;
    float value = 0;
    uint64_t begin_ms;
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    if (worker->rank == 1) {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, push(table, 0, &one));
        return;
    }
    CHECK_OK(worker, psd_push_pull(table, TRANSFER(0, .gradient = &one, .values = &value), &op));
    CHECK_STATUS(worker, psd_test(op), PSD_PENDING);
    CHECK_STATUS(worker, psd_wait(op, 0), PSD_PENDING);
    begin_ms = bed_now_ms();
    CHECK_STATUS(worker, psd_wait(op, 50), PSD_PENDING);
    CHECK(worker, bed_now_ms() - begin_ms >= 50);
    CHECK(worker, psd_op_outcome(op) == PSD_OUTCOME_PENDING);
    bed_next_turn(worker->bed);
    CHECK_OK(worker, psd_wait(op, WAIT_MS));
    CHECK(worker, value == 2);
    CHECK_OK(worker, psd_wait(op, 0)); /* as often as one likes */
    CHECK_OK(worker, psd_test(op));
    CHECK(worker, psd_op_outcome(op) == PSD_OUTCOME_DONE);
    CHECK(worker, psd_op_error(op)->status == PSD_OK);
    psd_op_release(op);
}

/* If this fails, waiting with a limit ends the operation, or does not see its end. */
static void
test_wait_and_test(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, wait_and_test, NULL);
    bed_finish(bed);
}

static uint64_t
cpu_ms(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

static void
do_nothing(struct worker *worker)
{
    const float one = 1;
    uint64_t begin_ms;
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    bed_meet(worker->bed);
    begin_ms = cpu_ms();
    if (worker->rank == 0) { /* waits; worker 1's library is idle */
        CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = &one), &op));
        CHECK_STATUS(worker, psd_wait(op, 800), PSD_PENDING);
        CHECK(worker, cpu_ms() - begin_ms < 200); /* of all threads, the daemons' included */
    }
    bed_meet(worker->bed);
    if (worker->rank == 1) {
        CHECK_OK(worker, push(table, 0, &one));
    } else {
        CHECK_OK(worker, psd_wait(op, WAIT_MS));
        psd_op_release(op);
    }
}

/* If this fails, a worker that waits, or computes without psd, loses a core to the library. */
static void
test_waiting_takes_no_cpu(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, do_nothing, NULL);
    bed_finish(bed);
}

/* ---- wait_any and the descriptor ---------------------------------------------------------- */

static void
wait_any(struct worker *worker)
{
    enum { OPS = 20 };
    const float one = 1;
    float values[OPS];
    int marks[OPS];
    bool seen[OPS] = {false};
    psd_table *table;
    psd_op *ops[OPS];
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    CHECK_STATUS(worker, psd_wait_any(worker->context, 0, &op), PSD_PENDING);
    for (size_t i = 0; i < OPS; i++) {
        CHECK_OK(worker,
                 psd_push_pull(
                     table, TRANSFER(i, .gradient = &one, .values = &values[i], .user = &marks[i]),
                     &ops[i]));
    }
    CHECK_OK(worker, psd_wait(ops[OPS - 1], WAIT_MS)); /* waited for: not handed out again */
    for (size_t i = 0; i < OPS - 1; i++) {
        size_t which;

        CHECK_OK(worker, psd_wait_any(worker->context, WAIT_MS, &op));
        which = (size_t)((int *)psd_op_user(op) - marks);
        CHECK(worker, which < OPS - 1 && op == ops[which] && !seen[which]);
        CHECK(worker, psd_op_error(op)->status == PSD_OK && values[which] == (float)(which + 1));
        seen[which] = true;
        psd_op_release(op);
    }
    CHECK_STATUS(worker, psd_wait_any(worker->context, 0, &op), PSD_PENDING);
    CHECK_STATUS(worker, psd_wait_any(worker->context, 0, NULL), PSD_ERR_INVALID);
    psd_op_release(ops[OPS - 1]);
}

/* If this fails, an event loop misses an operation, or gets one twice. */
static void
test_wait_any_hands_out_each_once(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, wait_any, NULL);
    bed_finish(bed);
}

static void
no_callback_needed(psd_op *op, psd_status status, void *user)
{
    (void)op;
    *(psd_status *)user = status;
}

static void
descriptor(struct worker *worker)
{
    const float one = 1;
    psd_status called = PSD_PENDING;
    psd_table *table;
    psd_op *ops[2];
    psd_op *op;
    int fd;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    fd = psd_fd(worker->context);
    CHECK(worker, fd >= 0 && fd == psd_fd(worker->context));
    CHECK(worker, !readable(fd, 0));

    CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = &one), &ops[0]));
    CHECK(worker, readable(fd, WAIT_MS)); /* nobody waits in psd: its own thread moves the bytes */
    CHECK_OK(worker, psd_push(table, TRANSFER(1, .gradient = &one), &ops[1]));
    while (psd_op_outcome(ops[1]) == PSD_OUTCOME_PENDING) {
        CHECK(worker, readable(fd, 0));
    }
    CHECK_OK(worker, psd_wait_any(worker->context, 0, &op));
    CHECK(worker, op == ops[0] && readable(fd, 0));
    CHECK_OK(worker, psd_wait_any(worker->context, 0, &op));
    CHECK(worker, op == ops[1] && !readable(fd, 0));
    psd_op_release(ops[0]);
    psd_op_release(ops[1]);

    CHECK_OK(worker, psd_push(table, TRANSFER(2, .gradient = &one), &op));
    CHECK(worker, readable(fd, WAIT_MS));
    CHECK_OK(worker, psd_wait(op, 0));
    CHECK(worker, !readable(fd, 0)); /* waited for */
    psd_op_release(op);

    CHECK_OK(worker, psd_push(table, TRANSFER(3, .gradient = &one), &op));
    CHECK(worker, readable(fd, WAIT_MS));
    psd_op_release(op);
    CHECK(worker, !readable(fd, 0)); /* released */

    CHECK_OK(worker,
             psd_push(table,
                      TRANSFER(4, .gradient = &one, .done = no_callback_needed, .user = &called),
                      &op));
    CHECK_OK(worker, psd_wait(op, WAIT_MS));
    CHECK(worker, !readable(fd, 0)); /* called back about */
    psd_op_release(op);
}

/* If this fails, poll and asyncio sleep although something ended, or spin although nothing did. */
static void
test_descriptor_is_readable_exactly_while(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, descriptor, NULL);
    bed_finish(bed);
}

static void
late_descriptor(struct worker *worker)
{
    const float one = 1;
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = &one), &op));
    CHECK_OK(worker, push(table, 1, &one)); /* the first one ended before this one did */
    CHECK(worker, readable(psd_fd(worker->context), 0));
    psd_op_release(op);
    CHECK(worker, !readable(psd_fd(worker->context), 0));
}

/* If this fails, asking for the descriptor late misses what ended before. */
static void
test_descriptor_asked_for_late(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, late_descriptor, NULL);
    bed_finish(bed);
}

/* ---- callbacks ---------------------------------------------------------------------------- */

enum { CHAIN = 50 };

struct chain {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    psd_table *table;
    float values[CHAIN];
    unsigned calls;
    unsigned failures;
};

/* Starts the next operation from inside the callback of the last, and releases itself. */
static void
next_in_chain(psd_op *op, psd_status status, void *user)
{
    static const float one = 1;
    struct chain *chain = user;
    unsigned calls;
    psd_op *next;

    pthread_mutex_lock(&chain->lock);
    calls = ++chain->calls;
    chain->failures += status != PSD_OK || psd_op_user(op) != user ||
                       psd_op_outcome(op) != PSD_OUTCOME_DONE ||
                       chain->values[calls - 1] != (float)calls;
    pthread_cond_signal(&chain->ended);
    pthread_mutex_unlock(&chain->lock);
    psd_op_release(op);
    if (calls < CHAIN &&
        psd_push_pull(chain->table,
                      TRANSFER(calls, .gradient = &one, .values = &chain->values[calls],
                               .done = next_in_chain, .user = chain),
                      &next) != PSD_OK) {
        pthread_mutex_lock(&chain->lock);
        chain->failures++;
        pthread_mutex_unlock(&chain->lock);
    }
}

static void
callbacks(struct worker *worker)
{
    static const float one = 1;
    struct chain chain = {.calls = 0};
    psd_op *op;

    pthread_mutex_init(&chain.lock, NULL);
    pthread_cond_init(&chain.ended, NULL);
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &chain.table));
    CHECK_OK(worker, psd_push_pull(chain.table,
                                   TRANSFER(0, .gradient = &one, .values = &chain.values[0],
                                            .done = next_in_chain, .user = &chain),
                                   &op));
    pthread_mutex_lock(&chain.lock);
    while (chain.calls < CHAIN && chain.failures == 0) {
        pthread_cond_wait(&chain.ended, &chain.lock);
    }
    pthread_mutex_unlock(&chain.lock);
    CHECK_OK(worker, psd_close(worker->context));
    worker->context = NULL;
    CHECK(worker, chain.calls == CHAIN && chain.failures == 0);
    pthread_mutex_destroy(&chain.lock);
    pthread_cond_destroy(&chain.ended);
}

/* If this fails, callbacks get lost or doubled, or must not start operations. */
static void
test_callbacks_start_operations(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1, .servers = 2});

    (void)state;
    bed_run(bed, callbacks, NULL);
    bed_finish(bed);
}

struct called {
    _Atomic unsigned times;
    _Atomic int status;
};

static void
note_call(psd_op *op, psd_status status, void *user)
{
    struct called *called = user;

    (void)op;
    called->status = (int)status;
    called->times++;
}

static void
callback_of_a_failure(struct worker *worker)
{
    struct called called = {0};
    float value;
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    CHECK_OK(worker, psd_pull(table,
                              TRANSFER(5, .values = &value, .timeout_ms = 50, .done = note_call,
                                       .user = &called),
                              &op));
    CHECK_STATUS(worker, psd_wait(op, WAIT_MS), PSD_ERR_TIMEOUT);
    psd_op_release(op);
    CHECK_OK(
        worker,
        psd_pull(table, TRANSFER(5, .values = &value, .done = note_call, .user = &called), &op));
    psd_abandon(worker->context); /* ends it: called back, too */
    worker->context = NULL;
    CHECK(worker, called.times == 2 && called.status == (int)PSD_ERR_CLOSED);
}

/* If this fails, an operation that failed, or was abandoned, never calls back. */
static void
test_callback_of_a_failure(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, callback_of_a_failure, NULL);
    bed_finish_failed(bed, 70);
}

/* ---- release, close, abandon -------------------------------------------------------------- */

static void
release_early(struct worker *worker)
{
    const float one = 1;
    float value = 0;
    struct called called = {0};
    psd_table *table;
    psd_op *ops[2];

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    if (worker->rank == 1) {
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, push(table, 0, &one));
        CHECK_OK(worker, push(table, 1, &one));
        return;
    }
    CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = &one), &ops[0]));
    CHECK_OK(worker,
             psd_push(table, TRANSFER(1, .gradient = &one, .done = note_call, .user = &called),
                      &ops[1]));
    psd_op_release(ops[0]);
    psd_op_release(ops[1]);
    bed_next_turn(worker->bed);
    CHECK_OK(worker, pull(table, 2, &value));
    CHECK(worker, value == 4);
    CHECK_OK(worker, psd_close(worker->context));
    worker->context = NULL;
    CHECK(worker, called.times == 1 && called.status == (int)PSD_OK);
}

/* If this fails, an operation released too early is lost, leaks, or is used after it is freed. */
static void
test_release_before_the_end(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, release_early, NULL);
    bed_finish(bed);
}

static void
close_early(struct worker *worker)
{
    enum { COUNT = 2 * PSD_CHUNK_ELEMENTS };
    float *gradient = malloc(COUNT * sizeof(float));
    float *values = calloc(COUNT, sizeof(float));
    psd_table *table;
    psd_op *ops[3];

    for (size_t i = 0; i < COUNT; i++) {
        gradient[i] = 1;
    }
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, COUNT, SUM), &table));
    for (uint64_t step = 0; step < 3; step++) {
        CHECK_OK(worker,
                 psd_push_pull(table, TRANSFER(step, .gradient = gradient, .values = values),
                               &ops[step]));
    }
    psd_op_release(ops[1]);
    CHECK_OK(worker, psd_close(worker->context));
    worker->context = NULL;
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(worker, values[i] == 6);
    }
    free(gradient);
    free(values);
}

/* If this fails, psd_close() loses what is under way, or touches an operation it has freed. */
static void
test_close_with_operations_in_flight(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, close_early, NULL);
    bed_finish(bed);
}

static void
close_with_failures(struct worker *worker)
{
    float value;
    psd_table *table;
    psd_op *ops[3];

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    for (unsigned i = 0; i < 3; i++) {
        CHECK_OK(worker, psd_pull(table, TRANSFER(9 + i, .values = &value, .timeout_ms = 100 + i),
                                  &ops[i]));
    }
    psd_op_release(ops[0]);
    CHECK_STATUS(worker, psd_close(worker->context), PSD_ERR_TIMEOUT);
    worker->context = NULL;
    CHECK_SAYS(worker, psd_last_error()->text, "step 9");
}

/* If this fails, psd_close() hides that something did not end well,
 * or waits beyond its deadline. */
static void
test_close_returns_the_first_error(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, close_with_failures, NULL);
    bed_finish(bed); /* it said goodbye all the same */
}

static void
abandon_early(struct worker *worker)
{
    const uint64_t count = 32 * (uint64_t)PSD_CHUNK_ELEMENTS;
    float *gradient = calloc(count, sizeof(float));
    float *values = malloc(count * sizeof(float));
    const uint64_t begin_ms = bed_now_ms();
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, count), &table));
    CHECK_OK(worker,
             psd_push_pull(table, TRANSFER(0, .gradient = gradient, .values = values), &op));
    bed_meet(worker->bed); /* the job ends with the first who goes: nobody before all have begun */
    psd_abandon(worker->context);
    worker->context = NULL;
    free(gradient);
    free(values);
    CHECK(worker, bed_now_ms() - begin_ms < 10000);
}

/* If this fails, the way out after a failure blocks, or goes on using the caller's memory. */
static void
test_abandon_with_operations_in_flight(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, abandon_early, NULL);
    bed_finish_failed(bed, 70);
}

/* ---- threads ------------------------------------------------------------------------------ */

struct task {
    psd_context *context;
    unsigned index;
    psd_status status;
    pthread_t thread;
};

static void *
use_own_table(void *argument)
{
    struct task *task = argument;
    const float one = 1;
    float value = 0;
    char name[16];
    psd_table *table;

    snprintf(name, sizeof(name), "t%u", task->index);
    task->status = psd_table_open(task->context, TABLE(name, PSD_F32, 1, SUM), &table);
    for (uint64_t step = 0; step < 100 && task->status == PSD_OK; step++) {
        task->status = push_pull(table, step, &one, &value);
        if (task->status == PSD_OK && value != 2 * (float)(step + 1)) {
            task->status = PSD_ERR_INTERNAL;
        }
    }
    return NULL;
}

static void
many_threads(struct worker *worker)
{
    enum { THREADS = 4 };
    struct task tasks[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        tasks[i] = (struct task){.context = worker->context, .index = i};
        CHECK(worker, pthread_create(&tasks[i].thread, NULL, use_own_table, &tasks[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(tasks[i].thread, NULL);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK_OK(worker, tasks[i].status);
    }
}

/* If this fails, threads cannot share a context: they block or confuse each other. */
static void
test_many_threads_one_context(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, many_threads, NULL);
    bed_finish(bed);
}

struct waiter {
    psd_op *op;
    psd_status status;
    pthread_t thread;
};

static void *
wait_for_it(void *argument)
{
    struct waiter *waiter = argument;

    waiter->status = psd_wait(waiter->op, WAIT_MS);
    return NULL;
}

static void
many_waiters(struct worker *worker)
{
    enum { WAITERS = 3 };
    const float one = 1;
    struct waiter waiters[WAITERS];
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, SUM), &table));
    for (uint64_t step = 0; step < 20; step++) {
        bed_wait_turn(worker->bed, 2 * step + worker->rank);
        if (worker->rank == 1) {
            CHECK_OK(worker, push(table, step, &one));
        } else {
            CHECK_OK(worker, psd_push(table, TRANSFER(step, .gradient = &one), &op));
            for (unsigned i = 0; i < WAITERS; i++) {
                waiters[i] = (struct waiter){.op = op};
                CHECK(worker,
                      pthread_create(&waiters[i].thread, NULL, wait_for_it, &waiters[i]) == 0);
            }
            bed_next_turn(worker->bed); /* worker 1's push lets all three go */
            for (unsigned i = 0; i < WAITERS; i++) {
                pthread_join(waiters[i].thread, NULL);
                CHECK_OK(worker, waiters[i].status);
            }
            psd_op_release(op);
        }
        if (worker->rank == 1) {
            bed_next_turn(worker->bed);
        }
    }
}

/* If this fails, only one of several threads that wait for one operation wakes up. */
static void
test_many_threads_one_operation(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, many_waiters, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_and_test),
        cmocka_unit_test(test_waiting_takes_no_cpu),
        cmocka_unit_test(test_wait_any_hands_out_each_once),
        cmocka_unit_test(test_descriptor_is_readable_exactly_while),
        cmocka_unit_test(test_descriptor_asked_for_late),
        cmocka_unit_test(test_callbacks_start_operations),
        cmocka_unit_test(test_callback_of_a_failure),
        cmocka_unit_test(test_release_before_the_end),
        cmocka_unit_test(test_close_with_operations_in_flight),
        cmocka_unit_test(test_close_returns_the_first_error),
        cmocka_unit_test(test_abandon_with_operations_in_flight),
        cmocka_unit_test(test_many_threads_one_context),
        cmocka_unit_test(test_many_threads_one_operation),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
