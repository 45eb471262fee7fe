/*
 * ceiling_memory.c - the ceiling of one host: threads on memory that all of them share.
 *
 * As many threads as cores, at most two, each bound to one, do the work of all workers and of the
 * server between them; they wait for each other by spinning. Nothing is sent and nobody is asked:
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
    THREADS_MAX = 2,
    WORKERS_MAX = 16,
    BLOCK = 65536, /* elements: stays in the second-level cache with its gradients */
};

/* Thread: the counters are atomic; the rest is written before the threads start. */
struct team {
    enum ceiling_memory kind;
    uint32_t workers;
    uint32_t threads;
    size_t count; /* elements */
    float *gradients[WORKERS_MAX];
    float *own_gradients[WORKERS_MAX]; /* private to a worker: the copying kinds */
    float *own_values[WORKERS_MAX];
    float *values;
    struct tensor_model model;

    const struct crew_order *order;
    uint64_t *times_ns;           /* of each round, by the first thread */
    uint32_t *reads[THREADS_MAX]; /* of each round, by each thread */
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint turn;
};

/* Thread: owned by its thread. */
struct member {
    struct team *team;
    uint32_t index;
    pthread_t thread;
};

static bool
touches(const struct team *team)
{
    return team->kind == CEILING_FULL || team->kind == CEILING_BLOCKED;
}

static bool
copies(const struct team *team)
{
    return team->kind == CEILING_COPY_NT || team->kind == CEILING_COPY_LIBC;
}

/* ---- One round ---- */

static void
wait_for_all(struct team *team)
{
    const unsigned turn = atomic_load_explicit(&team->turn, memory_order_relaxed);

    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->threads) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->turn, turn + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&team->turn, memory_order_acquire) == turn) {
        spin_pause();
    }
}

/* The elements of the tensor that a thread adds and applies: whole lines, the rest for the last. */
static size_t
share_begin(const struct team *team, uint32_t index)
{
    const size_t lines = team->count / TENSOR_LINE / team->threads;

    return index == team->threads ? team->count : lines * TENSOR_LINE * index;
}

static void
copy(const struct team *team, float *to, const float *from)
{
    if (team->kind == CEILING_COPY_NT) {
        kernel_copy_past_cache(to, from, team->count);
    } else {
        memcpy(to, from, team->count * sizeof(*to));
    }
}

static void
give(struct team *team, uint32_t index, uint32_t phase)
{
    for (uint32_t rank = index; rank < team->workers; rank += team->threads) {
        if (copies(team)) {
            copy(team, team->gradients[rank], team->own_gradients[rank]);
        } else {
            tensor_write(team->gradients[rank], 0, team->count, rank, phase);
        }
    }
}

static uint32_t
take(struct team *team, uint32_t index)
{
    uint32_t read = 0;

    for (uint32_t rank = index; rank < team->workers; rank += team->threads) {
        if (copies(team)) {
            copy(team, team->own_values[rank], team->values);
        } else {
            read += tensor_read(team->values, team->count);
        }
    }
    return read;
}

static uint32_t
blocked_round(struct team *team, uint32_t index, uint32_t phase)
{
    const size_t end = share_begin(team, index + 1);
    uint32_t read = 0;

    for (size_t first = share_begin(team, index); first < end; first += BLOCK) {
        const size_t here = end - first < BLOCK ? end - first : BLOCK;

        for (uint32_t rank = 0; rank < team->workers; rank++) {
            tensor_write(team->gradients[rank] + first, first, here, rank, phase);
        }
        kernel_apply(team->values, team->gradients, team->workers, (float)TENSOR_RATE, first, here);
        for (uint32_t rank = 0; rank < team->workers; rank++) {
            read += tensor_read(team->values + first, here);
        }
    }
    wait_for_all(team);
    return read;
}

static uint32_t
phased_round(struct team *team, uint32_t index, uint32_t phase)
{
    const size_t first = share_begin(team, index);
    uint32_t read = 0;

    if (team->kind != CEILING_FUSED) {
        give(team, index, phase);
        wait_for_all(team);
    }
    kernel_apply(team->values, team->gradients, team->workers, (float)TENSOR_RATE, first,
                 share_begin(team, index + 1) - first);
    wait_for_all(team);
    if (team->kind != CEILING_FUSED) {
        read = take(team, index);
        wait_for_all(team);
    }
    return read;
}

/* ---- A run ---- */

static uint32_t
phase_of(const struct team *team, uint64_t round)
{
    return touches(team) ? (uint32_t)(round % TENSOR_PHASES) : 0;
}

static void *
run_member(void *argument)
{
    const struct member *member = argument;
    struct team *team = member->team;
    const uint32_t index = member->index;
    uint64_t last_ns;

    process_bind(index);
    wait_for_all(team);
    last_ns = timer_now_ns();
    for (uint64_t i = 0; i < team->order->rounds; i++) {
        const uint32_t phase = phase_of(team, i);

        team->reads[index][i] = team->kind == CEILING_BLOCKED ? blocked_round(team, index, phase)
                                                              : phased_round(team, index, phase);
        if (index == 0) {
            const uint64_t now_ns = timer_now_ns();

            team->times_ns[i] = now_ns - last_ns;
            last_ns = now_ns;
        }
    }
    return NULL;
}

/* All threads have to be there, or those that are would wait for ever. */
static void
run_members(struct team *team)
{
    struct member members[THREADS_MAX];

    for (uint32_t i = 0; i < team->threads; i++) {
        members[i] = (struct member){.team = team, .index = i};
        if (pthread_create(&members[i].thread, NULL, run_member, &members[i]) != 0) {
            _exit(1);
        }
    }
    for (uint32_t i = 0; i < team->threads; i++) {
        (void)pthread_join(members[i].thread, NULL);
    }
}

static psd_status
check(struct team *team, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (uint64_t i = 0; i < team->order->rounds; i++) {
        uint32_t read = 0;

        tensor_model_round(&team->model, phase_of(team, i));
        for (uint32_t index = 0; index < team->threads; index++) {
            read += team->reads[index][i];
        }
        if (touches(team) && read != team->workers * tensor_model_read(&team->model)) {
            return psi_fail(err, PSD_ERR_CORRUPT, "memory ceiling: round %llu gave wrong values",
                            (unsigned long long)i);
        }
    }
    for (uint32_t rank = 0; copies(team) && rank < team->workers && status == PSD_OK; rank++) {
        status = tensor_check(&team->model, team->own_values[rank], err);
    }
    return status == PSD_OK ? tensor_check(&team->model, team->values, err) : status;
}

static void
summarise(struct team *team, uint64_t cpu_ns, struct crew_times *times)
{
    const uint64_t rounds = team->order->rounds;

    for (uint64_t i = 0; i < rounds; i++) {
        times->elapsed_ns += team->times_ns[i];
    }
    rounds_summarise(team->times_ns, rounds, times);
    times->cpu_ns = cpu_ns;
}

static psd_status
follow(void *owner, const struct crew_order *order, struct crew_times *times, struct psd_error *err)
{
    struct team *team = owner;
    const uint64_t cpu_ns = timer_cpu_ns();
    psd_status status;

    team->order = order;
    team->times_ns = calloc(order->rounds, sizeof(*team->times_ns));
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        team->reads[i] = calloc(order->rounds, sizeof(*team->reads[i]));
    }
    run_members(team);
    summarise(team, timer_cpu_ns() - cpu_ns, times);
    status = check(team, err);
    free(team->times_ns);
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        free(team->reads[i]);
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
make_tensors(struct team *team, uint64_t bytes)
{
    bool all = true;

    team->values = alloc_shared(bytes);
    for (uint32_t rank = 0; rank < team->workers; rank++) {
        team->gradients[rank] = alloc_shared(bytes);
        all = all && team->gradients[rank] != NULL;
        if (all && !touches(team)) {
            tensor_write(team->gradients[rank], 0, team->count, rank, 0);
        }
        if (copies(team)) {
            team->own_gradients[rank] = alloc_shared(bytes);
            team->own_values[rank] = alloc_shared(bytes);
            all = all && team->own_gradients[rank] != NULL && team->own_values[rank] != NULL;
        }
        if (all && copies(team)) {
            tensor_write(team->own_gradients[rank], 0, team->count, rank, 0);
        }
    }
    return all && team->values != NULL;
}

static int
run_team(enum ceiling_memory kind, uint32_t workers, uint64_t bytes, int control)
{
    struct team *team = aligned_alloc(64, (sizeof(*team) + 63) / 64 * 64);
    struct psd_error err = {0};

    if (team == NULL) {
        return 1;
    }
    memset(team, 0, sizeof(*team));
    team->kind = kind;
    team->workers = workers;
    team->threads = psi_usable_cores() < THREADS_MAX ? psi_usable_cores() : THREADS_MAX;
    team->count = bytes / sizeof(float);
    if (!make_tensors(team, bytes)) {
        return 1;
    }
    tensor_model_init(&team->model, TENSOR_DESCENT, workers, team->count);
    return crew_follow(control, follow, team, &err) == PSD_OK ? 0 : 1;
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
