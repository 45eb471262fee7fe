/*
 * steady_test.c - after warm-up a step allocates nothing, faults no page and takes no lock but the
 * one of its own context.
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
#include <stdlib.h>

#include "bed.h"
#include "client/api/context.h"
#include "counted.h"

enum {
    LARGE = 4 * PSD_CHUNK_ELEMENTS, /* elements */
    SMALL = 16,
    SPARES = 3, /* tables that take part in the warm-up alone */
    WARM_UP_STEPS = 20,
    WINDOW_STEPS = 200,
    WINDOWS_MAX = 12,
};

/* Thread: written by rank 0 while the others wait at a meeting; all read it. */
struct steady {
    uint32_t staleness; /* immutable */
    bool routed;        /* immutable: pushes go through one worker of the host */
    bool clean;         /* the last window was */
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
    uint64_t step = 0;

    bed_wait_turn(worker->bed, worker->rank);
    counted_know_lock(&worker->context->lock);
    bed_next_turn(worker->bed);
    bed_wait_turn(worker->bed, psd_size(worker->context));
    CHECK_OK(worker, open_tables(worker, &tensors));
    CHECK(worker, !steady->routed || bed_await_route(worker, tensors.large));
    fill_lanes(worker, &tensors);
    while (step < WARM_UP_STEPS && worker->failure[0] == '\0') {
        make_step(worker, &tensors, step++);
    }
    CHECK(worker, bed_is_routed(worker, tensors.large) == steady->routed);
    for (unsigned i = 0; i < WINDOWS_MAX && !steady->clean && worker->failure[0] == '\0'; i++) {
        run_window(worker, &tensors, &step);
    }
    free(tensors.gradient);
    free(tensors.values);
}

static void
check_steady(uint32_t workers, uint32_t staleness, bool routed)
{
    struct steady steady = {.staleness = staleness, .routed = routed};
    struct bed *bed;

    if (!COUNTED) {
        skip();
    }
    /* Signs of life are not part of a step: none within the test. */
    bed = bed_start(&(struct bed_config){.workers = workers,
                                         .lanes = 2,
                                         .heartbeat_ms = 60000,
                                         .flat = !routed,
                                         .elsewhere = routed});
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
    check_steady(1, 0, false);
    check_steady(2, 0, false);
    if (bed_lends()) {
        check_steady(3, 0, true);
    }
}

/* If this fails, gradients that are applied one by one do. */
static void
test_stale_and_asynchronous(void **state)
{
    (void)state;
    check_steady(2, 1, false);
    check_steady(2, PSD_STALENESS_UNBOUNDED, false);
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
        cmocka_unit_test(test_stale_and_asynchronous),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
