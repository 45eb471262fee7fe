/*
 * steady_test.c - after warm-up a step allocates nothing, faults no page and takes no lock but the
 * one of its own context; nor does one whose times, pushes and rounds are kept for an observer.
 *
 * Counted in all threads of the process: workers, their contexts, lanes and master. The steady
 * state is there when a whole window of steps is clean; what still settles late (the first time
 * that a connection has to queue a frame) or happens outside (the kernel takes a page away) may
 * spoil some windows, but something that happens in every step spoils all.
 *
 * Not in this count: sealed connections, whose records OpenSSL makes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "bed.h"
#include "client/api/context.h"
#include "client/api/observer.h"
#include "client/core/state.h"
#include "counted.h"

enum {
    LANES = 2,
    LARGE = 4 * PSD_CHUNK_ELEMENTS, /* elements */
    SMALL = 16,
    SPARES = 3, /* tables that take part in the warm-up alone */
    WARM_UP_STEPS = 20,
    WINDOW_STEPS = 200,
    WINDOWS_MAX = 12,
    TOLD_MS = 10,      /* until everybody has told of itself */
    SELDOM_MS = 60000, /* from then on: tellings are not part of a step */
    HEARD_WITHIN_MS = 20000,
};

/* Thread: written by rank 0 while the others wait at a meeting; all read it. */
struct steady {
    uint32_t staleness; /* immutable */
    bool routed;        /* immutable: pushes go through one worker of the host */
    bool watched;       /* immutable: by an observer */
    _Atomic uint32_t
        heard;  /* a bit for each worker and lane that has told the observer of itself */
    bool clean; /* the last window was */
    struct counted last;
};

struct tensors {
    psd_table *large;
    psd_table *small;
    psd_table *spare[SPARES];
    float *gradient; /* LARGE of each */
    float *values;
};

static psd_status
open_tables(const struct worker *worker, struct tensors *tensors)
{
    static const char *const names[SPARES] = {"spare0", "spare1", "spare2"};
    const uint32_t staleness = ((const struct steady *)worker->user)->staleness;
    psd_status status = psd_table_open(
        worker->context, TABLE("large", PSD_F32, LARGE, .staleness = staleness), &tensors->large);

    if (status == PSD_OK) {
        status =
            psd_table_open(worker->context, TABLE("small", PSD_F32, SMALL, .staleness = staleness),
                           &tensors->small);
    }
    for (size_t i = 0; i < SPARES && status == PSD_OK; i++) {
        status =
            psd_table_open(worker->context, TABLE(names[i], PSD_F32, LARGE, .staleness = staleness),
                           &tensors->spare[i]);
    }
    return status;
}

/* Rank after rank, each with all it has: so many gradients never wait again at once. */
static void
fill_lanes(struct worker *worker, struct tensors *tensors)
{
    psd_op *ops[SPARES];

    bed_wait_turn(worker->bed, worker->rank);
    for (size_t i = 0; i < SPARES; i++) {
        CHECK_OK(worker, psd_push_pull(
                             tensors->spare[i],
                             TRANSFER(0, .gradient = tensors->gradient, .values = tensors->values),
                             &ops[i]));
    }
    bed_next_turn(worker->bed);
    for (size_t i = 0; i < SPARES; i++) {
        CHECK_OK(worker, psd_wait(ops[i], PSD_FOREVER));
        psd_op_release(ops[i]);
    }
}

/* Every kind of transfer, small and large, waited for one by one and together. */
static void
make_step(struct worker *worker, const struct tensors *tensors, uint64_t step)
{
    psd_op *pushes[2];
    psd_op *ended;

    CHECK_OK(worker, push_pull(tensors->large, 2 * step, tensors->gradient, tensors->values));
    CHECK_OK(worker, push_pull(tensors->small, 2 * step, tensors->gradient, tensors->values));
    CHECK_OK(worker, psd_push(tensors->large, TRANSFER(2 * step + 1, .gradient = tensors->gradient),
                              &pushes[0]));
    CHECK_OK(worker, psd_push(tensors->small, TRANSFER(2 * step + 1, .gradient = tensors->gradient),
                              &pushes[1]));
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(worker, psd_wait_any(worker->context, PSD_FOREVER, &ended));
        CHECK_OK(worker, psd_wait(ended, 0));
        psd_op_release(ended);
    }
    CHECK_OK(worker, pull(tensors->large, 2 * step + 2, tensors->values));
    CHECK_OK(worker, pull(tensors->small, 2 * step + 2, tensors->values));
}

static void
hear(void *context, uint8_t role, uint32_t rank, uint32_t lane, const struct psi_telling *telling)
{
    struct steady *steady = context;

    (void)telling;
    if (role == PSI_ROLE_WORKER) {
        atomic_fetch_or(&steady->heard, 1U << (LANES + rank));
    } else if (role == PSI_ROLE_SERVER) {
        atomic_fetch_or(&steady->heard, 1U << lane);
    }
}

static void
hear_table(void *context, const struct psi_table_info *info)
{
    (void)context;
    (void)info;
}

/* Whoever has told of itself once keeps what it does for the next time. */
static struct psi_observer *
watch(struct worker *worker, const struct psi_watcher *watcher)
{
    struct steady *steady = worker->user;
    const uint32_t all = (1U << (LANES + psd_size(worker->context))) - 1;
    const uint64_t deadline_ms = bed_now_ms() + HEARD_WITHIN_MS;
    struct psi_observer *observer = NULL;
    struct psd_error err;
    size_t count;

    if (psi_observer_create(bed_address(worker->bed), TOLD_MS, HEARD_WITHIN_MS, watcher, &observer,
                            &err) != PSD_OK) {
        worker_fail(worker, __FILE__, __LINE__, "observer: %s", err.text);
        return NULL;
    }
    while (atomic_load(&steady->heard) != all && bed_now_ms() < deadline_ms) {
        (void)psi_observer_next(observer, TOLD_MS, NULL, 0, &count, &err);
    }
    if (atomic_load(&steady->heard) != all) {
        worker_fail(worker, __FILE__, __LINE__, "told by %x, not by all of %x",
                    atomic_load(&steady->heard), all);
    }
    psi_observer_pace(observer, SELDOM_MS);
    return observer;
}

static bool
is_watched(const struct worker *worker)
{
    bool on;

    pthread_mutex_lock(&worker->context->lock);
    on = worker->context->client->steps.on;
    pthread_mutex_unlock(&worker->context->lock);
    return on;
}

/* One window, seen by all workers at once. */
static void
run_window(struct worker *worker, const struct tensors *tensors, uint64_t *step)
{
    struct steady *steady = worker->user;

    counted_ignore_locks(true);
    bed_meet(worker->bed);
    if (worker->rank == 0) {
        counted_start();
    }
    bed_meet(worker->bed);
    counted_ignore_locks(false);
    for (unsigned i = 0; i < WINDOW_STEPS && worker->failure[0] == '\0'; i++) {
        make_step(worker, tensors, (*step)++);
    }
    counted_ignore_locks(true);
    bed_meet(worker->bed);
    if (worker->rank == 0) {
        steady->last = counted_stop();
        steady->clean = steady->last.allocations == 0 && steady->last.page_faults == 0 &&
                        steady->last.other_locks == 0;
    }
    bed_meet(worker->bed);
}

static void
train(struct worker *worker)
{
    struct steady *steady = worker->user;
    struct tensors tensors = {.gradient = calloc(LARGE, sizeof(float)),
                              .values = calloc(LARGE, sizeof(float))};
    const struct psi_watcher watcher = {.context = steady, .told = hear, .table = hear_table};
    struct psi_observer *observer = NULL;
    uint64_t step = 0;

    bed_wait_turn(worker->bed, worker->rank);
    counted_know_lock(&worker->context->lock);
    bed_next_turn(worker->bed);
    bed_wait_turn(worker->bed, psd_size(worker->context));
    CHECK_OK(worker, open_tables(worker, &tensors));
    CHECK(worker, !steady->routed || bed_await_route(worker, tensors.large));
    if (steady->watched && worker->rank == 0) {
        observer = watch(worker, &watcher);
    }
    fill_lanes(worker, &tensors);
    while (step < WARM_UP_STEPS && worker->failure[0] == '\0') {
        make_step(worker, &tensors, step++);
    }
    CHECK(worker, bed_is_routed(worker, tensors.large) == steady->routed);
    for (unsigned i = 0; i < WINDOWS_MAX && !steady->clean && worker->failure[0] == '\0'; i++) {
        run_window(worker, &tensors, &step);
    }
    CHECK(worker, is_watched(worker) == steady->watched);
    bed_meet(worker->bed); /* all have looked: the observer may go */
    psi_observer_destroy(observer);
    free(tensors.gradient);
    free(tensors.values);
}

static void
check_steady(uint32_t workers, struct steady steady)
{
    struct bed *bed;

    if (!COUNTED) {
        skip();
    }
    /* Signs of life are not part of a step: none within the test. */
    bed = bed_start(&(struct bed_config){.workers = workers,
                                         .lanes = LANES,
                                         .heartbeat_ms = 60000,
                                         .flat = !steady.routed,
                                         .elsewhere = steady.routed});
    counted_forget_locks();
    bed_run(bed, train, &steady);
    bed_finish(bed);
    print_message("%u workers, last window of %d steps: %" PRIu64
                  " calls of the allocator, %" PRIu64 " page faults, %" PRIu64
                  " locks of contexts, %" PRIu64 " others\n",
                  workers, WINDOW_STEPS, steady.last.allocations, steady.last.page_faults,
                  steady.last.known_locks, steady.last.other_locks);
    assert_true(steady.clean);
    assert_true(steady.last.known_locks > 0);
}

/* If this fails, every step of a bulk-synchronous job pays for memory or locks. */
static void
test_rounds(void **state)
{
    (void)state;
    check_steady(1, (struct steady){0});
    check_steady(2, (struct steady){0});
    if (bed_lends()) {
        check_steady(3, (struct steady){.routed = true});
    }
}

/* If this fails, a job that somebody watches pays for memory or locks in every step. */
static void
test_watched_rounds(void **state)
{
    (void)state;
    check_steady(2, (struct steady){.watched = true});
}

/* If this fails, gradients that are applied one by one do. */
static void
test_stale_and_asynchronous(void **state)
{
    (void)state;
    check_steady(2, (struct steady){.staleness = 1});
    check_steady(2, (struct steady){.staleness = PSD_STALENESS_UNBOUNDED});
}

/* If this fails, the counters above see nothing, and prove nothing. */
static void
test_counters_count(void **state)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const size_t bytes = 64 << 20;
    struct counted counted;
    char *volatile memory;

    (void)state;
    if (!COUNTED) {
        skip();
    }
    counted_forget_locks();
    counted_start();
    memory = malloc(bytes);
    assert_non_null(memory);
    memory[bytes / 2] = 1;
    free(memory);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    counted_know_lock(&lock);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    counted = counted_stop();
    counted_forget_locks();
    assert_int_equal(counted.allocations, 2);
    assert_true(counted.page_faults > 0);
    assert_int_equal(counted.other_locks, 1);
    assert_int_equal(counted.known_locks, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_count),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_watched_rounds),
        cmocka_unit_test(test_stale_and_asynchronous),
    };

    setenv("PSD_COPY_THREADS", "1", 1); /* counted are the locks of one thread's way */
    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
