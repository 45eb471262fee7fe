/*
 * ceiling_memory.c - the ceiling of one host: threads on memory that all of them share.
 *
 * As many threads as cores, each bound to one, do the work of all workers and of the server between
 * them: of a tensor of each worker, or, if there are more of them than workers, of a part of all; they wait for each other by spinning. Nothing is sent and nobody is asked:
 * what is left are the passes over memory that a parameter server cannot avoid.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/fail.h"
#include "ceiling.h"
#include "kernel.h"
#include "process.h"
#include "rounds.h"
#include "spin.h"
#include "tensor.h"
#include "timer.h"

enum {
    THREADS_MAX = 64,
    WORKERS_MAX = 16,
    BLOCK = 65536, /* elements: stays in the second-level cache with its gradients */
};

/* Thread: the counters are atomic; the rest is written before the threads start. */
struct memory_run {
    enum ceiling_memory kind;
    uint32_t workers;
    uint32_t threads;
    size_t count; /* elements */
    float *gradients[WORKERS_MAX];
    float *own_gradients[WORKERS_MAX]; /* private to a worker: the copying kinds */
    float *own_values[WORKERS_MAX];
    float *values;
    struct tensor_model model;

    const struct team_order *order;
    uint64_t *times_ns;           /* of each round, by the first thread */
    uint32_t *reads[THREADS_MAX]; /* of each round, by each thread */
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint turn;
};

/* Thread: owned by its thread. */
struct member {
    struct memory_run *run;
    uint32_t index;
    pthread_t thread;
};

static bool
touches(const struct memory_run *run)
{
    return run->kind == CEILING_FULL || run->kind == CEILING_BLOCKED;
}

static bool
copies(const struct memory_run *run)
{
    return run->kind == CEILING_COPY_NT || run->kind == CEILING_COPY_LIBC;
}

/* ---- One round ---- */

static void
wait_for_all(struct memory_run *run)
{
    const unsigned turn = atomic_load_explicit(&run->turn, memory_order_relaxed);

    if (atomic_fetch_add_explicit(&run->arrived, 1, memory_order_acq_rel) + 1 == run->threads) {
        atomic_store_explicit(&run->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&run->turn, turn + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&run->turn, memory_order_acquire) == turn) {
        spin_pause();
    }
}

/* The elements of the tensor that a thread adds and applies: whole lines, the rest for the last. */
static size_t
share_begin(const struct memory_run *run, uint32_t index)
{
    const size_t lines = run->count / TENSOR_LINE / run->threads;

    return index == run->threads ? run->count : lines * TENSOR_LINE * index;
}

/* What a thread writes and reads for workers: elements of each `step`th of them. */
struct portion {
    uint32_t rank;
    uint32_t step;
    size_t first;
    size_t count;
};

static struct portion
portion_of(const struct memory_run *run, uint32_t index)
{
    const size_t first = share_begin(run, index);

    if (run->threads <= run->workers) {
        return (struct portion){.rank = index, .step = run->threads, .count = run->count};
    }
    return (struct portion){
        .step = 1, .first = first, .count = share_begin(run, index + 1) - first};
}

static void
copy(const struct memory_run *run, float *to, const float *from, size_t count)
{
    if (run->kind == CEILING_COPY_NT) {
        kernel_copy_past_cache(to, from, count);
    } else {
        memcpy(to, from, count * sizeof(*to));
    }
}

static void
give(struct memory_run *run, uint32_t index, uint32_t phase)
{
    const struct portion mine = portion_of(run, index);

    for (uint32_t rank = mine.rank; rank < run->workers; rank += mine.step) {
        float *gradient = run->gradients[rank] + mine.first;

        if (copies(run)) {
            copy(run, gradient, run->own_gradients[rank] + mine.first, mine.count);
        } else {
            tensor_write(gradient, mine.first, mine.count, rank, phase);
        }
    }
}

static uint32_t
take(struct memory_run *run, uint32_t index)
{
    const struct portion mine = portion_of(run, index);
    uint32_t read = 0;

    for (uint32_t rank = mine.rank; rank < run->workers; rank += mine.step) {
        if (copies(run)) {
            copy(run, run->own_values[rank] + mine.first, run->values + mine.first, mine.count);
        } else {
            read += tensor_read(run->values + mine.first, mine.count);
        }
    }
    return read;
}

static uint32_t
blocked_round(struct memory_run *run, uint32_t index, uint32_t phase)
{
    const size_t end = share_begin(run, index + 1);
    uint32_t read = 0;

    for (size_t first = share_begin(run, index); first < end; first += BLOCK) {
        const size_t here = end - first < BLOCK ? end - first : BLOCK;

        for (uint32_t rank = 0; rank < run->workers; rank++) {
            tensor_write(run->gradients[rank] + first, first, here, rank, phase);
        }
        kernel_apply(run->values, run->gradients, run->workers, (float)TENSOR_RATE, first, here);
        for (uint32_t rank = 0; rank < run->workers; rank++) {
            read += tensor_read(run->values + first, here);
        }
    }
    wait_for_all(run);
    return read;
}

static uint32_t
phased_round(struct memory_run *run, uint32_t index, uint32_t phase)
{
    const size_t first = share_begin(run, index);
    uint32_t read = 0;

    if (run->kind != CEILING_FUSED) {
        give(run, index, phase);
        wait_for_all(run);
    }
    kernel_apply(run->values, run->gradients, run->workers, (float)TENSOR_RATE, first,
                 share_begin(run, index + 1) - first);
    wait_for_all(run);
    if (run->kind != CEILING_FUSED) {
        read = take(run, index);
        wait_for_all(run);
    }
    return read;
}

/* ---- A run ---- */

static uint32_t
phase_of(const struct memory_run *run, uint64_t round)
{
    return touches(run) ? (uint32_t)(round % TENSOR_PHASES) : 0;
}

static void *
run_member(void *argument)
{
    const struct member *member = argument;
    struct memory_run *run = member->run;
    const uint32_t index = member->index;
    uint64_t last_ns;

    process_bind(index);
    wait_for_all(run);
    last_ns = timer_now_ns();
    for (uint64_t i = 0; i < run->order->rounds; i++) {
        const uint32_t phase = phase_of(run, i);

        run->reads[index][i] = run->kind == CEILING_BLOCKED ? blocked_round(run, index, phase)
                                                            : phased_round(run, index, phase);
        if (index == 0) {
            const uint64_t now_ns = timer_now_ns();

            run->times_ns[i] = now_ns - last_ns;
            last_ns = now_ns;
        }
    }
    return NULL;
}

/* All threads have to be there, or those that are would wait for ever. */
static void
run_members(struct memory_run *run)
{
    struct member members[THREADS_MAX];

    for (uint32_t i = 0; i < run->threads; i++) {
        members[i] = (struct member){.run = run, .index = i};
        if (pthread_create(&members[i].thread, NULL, run_member, &members[i]) != 0) {
            _exit(1);
        }
    }
    for (uint32_t i = 0; i < run->threads; i++) {
        (void)pthread_join(members[i].thread, NULL);
    }
}

static psd_status
check(struct memory_run *run, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (uint64_t i = 0; i < run->order->rounds; i++) {
        uint32_t read = 0;

        tensor_model_round(&run->model, phase_of(run, i));
        for (uint32_t index = 0; index < run->threads; index++) {
            read += run->reads[index][i];
        }
        if (touches(run) && read != run->workers * tensor_model_read(&run->model)) {
            return psi_fail(err, PSD_ERR_CORRUPT, "memory ceiling: round %llu gave wrong values",
                            (unsigned long long)i);
        }
    }
    for (uint32_t rank = 0; copies(run) && rank < run->workers && status == PSD_OK; rank++) {
        status = tensor_check(&run->model, run->own_values[rank], err);
    }
    return status == PSD_OK ? tensor_check(&run->model, run->values, err) : status;
}

static void
summarise(struct memory_run *run, uint64_t cpu_ns, struct team_times *times)
{
    const uint64_t rounds = run->order->rounds;

    for (uint64_t i = 0; i < rounds; i++) {
        times->elapsed_ns += run->times_ns[i];
    }
    rounds_summarise(run->times_ns, rounds, times);
    times->cpu_ns = cpu_ns;
}

static psd_status
follow(void *owner, const struct team_order *order, struct team_times *times, struct psd_error *err)
{
    struct memory_run *run = owner;
    const uint64_t cpu_ns = timer_cpu_ns();
    psd_status status;

    run->order = order;
    run->times_ns = calloc(order->rounds, sizeof(*run->times_ns));
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        run->reads[i] = calloc(order->rounds, sizeof(*run->reads[i]));
    }
    run_members(run);
    summarise(run, timer_cpu_ns() - cpu_ns, times);
    status = check(run, err);
    free(run->times_ns);
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        free(run->reads[i]);
    }
    return status;
}

/* ---- Start ---- */

/* As processes would share it. */
static float *
alloc_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

static bool
make_tensors(struct memory_run *run, uint64_t bytes)
{
    bool all = true;

    run->values = alloc_shared(bytes);
    for (uint32_t rank = 0; rank < run->workers; rank++) {
        run->gradients[rank] = alloc_shared(bytes);
        all = all && run->gradients[rank] != NULL;
        if (all && !touches(run)) {
            tensor_write(run->gradients[rank], 0, run->count, rank, 0);
        }
        if (copies(run)) {
            run->own_gradients[rank] = alloc_shared(bytes);
            run->own_values[rank] = alloc_shared(bytes);
            all = all && run->own_gradients[rank] != NULL && run->own_values[rank] != NULL;
        }
        if (all && copies(run)) {
            tensor_write(run->own_gradients[rank], 0, run->count, rank, 0);
        }
    }
    return all && run->values != NULL;
}

static int
run_team(enum ceiling_memory kind, uint32_t workers, uint64_t bytes, int control)
{
    struct memory_run *run = aligned_alloc(64, (sizeof(*run) + 63) / 64 * 64);
    struct psd_error err = {0};

    if (run == NULL) {
        return 1;
    }
    memset(run, 0, sizeof(*run));
    run->kind = kind;
    run->workers = workers;
    run->threads = psi_usable_cores() < THREADS_MAX ? psi_usable_cores() : THREADS_MAX;
    run->count = bytes / sizeof(float);
    if (!make_tensors(run, bytes)) {
        return 1;
    }
    tensor_model_init(&run->model, TENSOR_DESCENT, workers, run->count);
    return team_follow(control, follow, run, &err) == PSD_OK ? 0 : 1;
}

psd_status
ceiling_memory_start(enum ceiling_memory kind, uint32_t workers, uint64_t bytes,
                     struct ceiling *ceiling_p, struct psd_error *err)
{
    int control;
    pid_t pid;

    psi_assert(workers <= WORKERS_MAX);
    memset(ceiling_p, 0, sizeof(*ceiling_p));
    pid = ceiling_fork_worker(ceiling_p, &control);
    if (pid == 0) {
        _exit(run_team(kind, workers, bytes, control));
    }
    if (pid < 0) {
        psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a memory ceiling");
        ceiling_stop(ceiling_p);
        return err->status;
    }
    return PSD_OK;
}
