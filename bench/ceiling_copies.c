/*
 * ceiling_copies.c - the least that two servers of one host have to do in a step, with copies and without.
 *
 *   ceiling_copies MIB WORKERS STEPS COPIES      COPIES: 0 or 1
 *
 * As many processes as a job has threads that work, on memory that all share: workers, an owner for each half
 * of the tensor and, with copies, one that copies the owner's values to a tensor of its own. They hand over to
 * each other once in a step, asleep meanwhile: a worker gives, the last one wakes the owners, each of them its
 * copy, which wakes it again, and the last owner the workers. Nothing is sent, and nobody is asked. (sgd,
 * gradients and values in place, no look for NaN.) The values are checked at the end.
 *
 * Prints the time of a step, the processor time in it of owners and copies, and of workers, in microseconds,
 * and how often owners and copies sleep in it and are pushed off their core: what bench/copies.py asks for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/monotonic.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define CLONES
#endif

enum { HALVES = 2, WORKERS_MAX = 16, WARM_STEPS = 300, CHUNK = 65536 };

static const float rate = 0.5f;
static const float gradient_value = 0.25f;

/* A count that others wait for, alone on its cache line. */
struct gate {
    _Alignas(64) _Atomic uint32_t count;
};

/* What the processes of one kind used between the first step that counts and the last. */
struct used {
    _Alignas(64) _Atomic uint64_t cpu_ns;
    _Atomic uint64_t sleeps;
    _Atomic uint64_t pushed_off;
};

/* Thread: shared by all processes; gates order what they write. */
struct shared {
    struct gate given;          /* by workers, in all steps */
    struct gate summed[HALVES]; /* steps that the owner has done its part of */
    struct gate copied[HALVES]; /* ... and its copy */
    struct gate done;           /* by owners, in all steps */
    struct used workers;
    struct used servers;
    _Atomic uint64_t elapsed_ns;
    float *gradient[WORKERS_MAX];
    float *values;
    float *copy;
};

struct shape {
    size_t count;
    uint32_t workers;
    uint32_t steps;
    bool copies;
};

/* ---- waiting ------------------------------------------------------------------------------------ */

static void
wait_for(struct gate *gate, uint32_t count)
{
    uint32_t now;

    while ((now = atomic_load(&gate->count)) < count) {
        (void)syscall(SYS_futex, &gate->count, FUTEX_WAIT, now, NULL, NULL, 0);
    }
}

/* Wakes those who wait if this makes the count that they wait for. */
static void
pass(struct gate *gate, uint32_t per_step)
{
    if ((atomic_fetch_add(&gate->count, 1) + 1) % per_step == 0) {
        (void)syscall(SYS_futex, &gate->count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

/* ---- the passes --------------------------------------------------------------------------------- */

CLONES static void
add_chunk(float *sum, const float *first, const float *second, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum[i] = first[i] + second[i];
    }
}

CLONES static void
apply_chunk(float *values, const float *sum, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] -= rate * sum[i];
    }
}

/* Sums of a chunk stay in cache. */
static void
own(struct shared *shared, const struct shape *shape, size_t first, size_t end)
{
    static float sum[CHUNK];

    for (size_t at = first; at < end; at += CHUNK) {
        const size_t count = end - at < CHUNK ? end - at : CHUNK;
        const float *so_far = shared->gradient[0] + at;

        for (uint32_t rank = 1; rank < shape->workers; rank++) {
            add_chunk(sum, so_far, shared->gradient[rank] + at, count);
            so_far = sum;
        }
        apply_chunk(shared->values + at, so_far, count);
    }
}

/* ---- the processes ------------------------------------------------------------------------------ */

static void
note(struct used *used, const struct rusage *before, uint64_t before_ns)
{
    struct rusage after;
    struct timespec cpu;

    getrusage(RUSAGE_SELF, &after);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    atomic_fetch_add(&used->cpu_ns,
                     (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec - before_ns);
    atomic_fetch_add(&used->sleeps, (uint64_t)(after.ru_nvcsw - before->ru_nvcsw));
    atomic_fetch_add(&used->pushed_off, (uint64_t)(after.ru_nivcsw - before->ru_nivcsw));
}

/* One step of the process that is `number` among those of its kind. */
typedef void (*step_fn)(struct shared *shared, const struct shape *shape, uint32_t number,
                        uint32_t step);

static void
work(struct shared *shared, const struct shape *shape, uint32_t number, uint32_t step)
{
    (void)number;
    pass(&shared->given, shape->workers);
    wait_for(&shared->done, (step + 1) * HALVES);
}

static void
serve(struct shared *shared, const struct shape *shape, uint32_t half, uint32_t step)
{
    const size_t middle = shape->count / HALVES;

    wait_for(&shared->given, (step + 1) * shape->workers);
    own(shared, shape, half * middle, (half + 1) * middle);
    if (shape->copies) {
        pass(&shared->summed[half], 1);
        wait_for(&shared->copied[half], step + 1);
    }
    pass(&shared->done, HALVES);
}

static void
keep_copy(struct shared *shared, const struct shape *shape, uint32_t half, uint32_t step)
{
    const size_t middle = shape->count / HALVES;

    wait_for(&shared->summed[half], step + 1);
    memcpy(shared->copy + half * middle, shared->values + half * middle, middle * sizeof(float));
    pass(&shared->copied[half], 1);
}

static void
start(struct shared *shared, const struct shape *shape, step_fn fn, uint32_t number,
      struct used *used)
{
    struct rusage before = {0};
    struct timespec cpu = {0};
    uint64_t began_ns = 0;

    if (fork() != 0) {
        return;
    }
    (void)setsid(); /* as psd_run does it: schedulers may share cores out by sessions */
    for (uint32_t step = 0; step < WARM_STEPS + shape->steps; step++) {
        if (step == WARM_STEPS) {
            getrusage(RUSAGE_SELF, &before);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
            began_ns = psi_monotonic_ns();
        }
        fn(shared, shape, number, step);
    }
    if (fn == work && number == 0) {
        atomic_store(&shared->elapsed_ns, psi_monotonic_ns() - began_ns);
    }
    note(used, &before, (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec);
    _exit(0);
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static void *
share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("ceiling_copies: memory");
        exit(1);
    }
    return memory;
}

static struct shared *
prepare(const struct shape *shape)
{
    struct shared *shared = share(sizeof(*shared));
    const size_t bytes = shape->count * sizeof(float);

    for (uint32_t rank = 0; rank < shape->workers; rank++) {
        shared->gradient[rank] = share(bytes);
        for (size_t i = 0; i < shape->count; i++) {
            shared->gradient[rank][i] = gradient_value;
        }
    }
    shared->values = share(bytes);
    shared->copy = share(bytes);
    return shared;
}

/* Every addition is exact, so the order of them does not matter. */
static bool
is_right(const struct shape *shape, const float *values)
{
    const float want =
        -rate * gradient_value * (float)shape->workers * (float)(WARM_STEPS + shape->steps);

    for (size_t i = 0; i < shape->count; i++) {
        if (values[i] != want) {
            fprintf(stderr, "ceiling_copies: element %zu is %g, not %g\n", i, (double)values[i],
                    (double)want);
            return false;
        }
    }
    return true;
}

int
main(int argc, char **argv)
{
    const struct shape shape = {.count = (size_t)(argc == 5 ? atoi(argv[1]) : 0) << 18,
                                .workers = (uint32_t)(argc == 5 ? atoi(argv[2]) : 0),
                                .steps = (uint32_t)(argc == 5 ? atoi(argv[3]) : 0),
                                .copies = argc == 5 && atoi(argv[4]) != 0};
    struct shared *shared;
    const double steps = shape.steps;

    if (shape.count == 0 || shape.workers < 2 || shape.workers > WORKERS_MAX || shape.steps == 0) {
        fprintf(stderr, "usage: ceiling_copies MIB WORKERS STEPS COPIES   (2 to 16 workers)\n");
        return 2;
    }
    shared = prepare(&shape);
    for (uint32_t half = 0; half < HALVES; half++) {
        start(shared, &shape, serve, half, &shared->servers);
        if (shape.copies) {
            start(shared, &shape, keep_copy, half, &shared->servers);
        }
    }
    for (uint32_t rank = 0; rank < shape.workers; rank++) {
        start(shared, &shape, work, rank, &shared->workers);
    }
    while (wait(NULL) > 0) {
    }
    if (!is_right(&shape, shared->values) || (shape.copies && !is_right(&shape, shared->copy))) {
        return 1;
    }
    printf("[%.3f, %.3f, %.3f, %.3f, %.3f]\n", (double)shared->elapsed_ns / 1e3 / steps,
           (double)shared->servers.cpu_ns / 1e3 / steps,
           (double)shared->workers.cpu_ns / 1e3 / steps, (double)shared->servers.sleeps / steps,
           (double)shared->servers.pushed_off / steps);
    return 0;
}
