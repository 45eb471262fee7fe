/*
 * crew.c - a few threads that lend a hand to whoever has much to do at once.
 *
 * Tasks lie in a ring of places. A place says in one word which task it is (a number that grows), how
 * many parts that has, and which of them is next: whoever raises that, has the part. So a thread that
 * looked at a place too long ago takes nothing of a later task by mistake.
 *
 * Invariants
 *   - `run` and `object` of a place are written only while it has no part to take and none under way;
 *   - a place is used again only after its task was finished.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/crew.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/monotonic.h"

/* A part takes microseconds. One that takes so long, once its taker was seen at it, was interrupted ... */
#define INTERRUPTED_NS UINT64_C(500000)
/* ... and for so long nobody is asked. */
#define REST_NS UINT64_C(50000000)

enum { LOOKS = 64 }; /* between two looks at the clock */

struct place {
    _Alignas(64) _Atomic uint64_t next; /* number of the task << 16 | parts << 8 | next of them */
    _Atomic uint32_t unfinished;        /* parts */
    void (*run)(void *object, uint32_t part);
    void *object;
    bool used; /* guarded by lock */
};

/* Thread: `lock` guards what says so; the rest is atomic, or immutable. */
struct psi_crew {
    struct place places[PSI_CREW_TASKS_MAX];
    _Alignas(64) _Atomic uint64_t first; /* no earlier task has a part to take */
    _Alignas(64) _Atomic uint64_t end;   /* of the tasks: the number of the next; guarded by lock */
    _Atomic uint32_t sleepers;           /* guarded by lock */
    _Atomic uint32_t awaiting;           /* threads that sleep until a task is done */
    _Atomic uint32_t started;            /* guarded by lock */
    _Atomic bool closing;                /* guarded by lock */
    _Atomic uint64_t rests_until_ns;     /* 0: it does not rest */

    pthread_mutex_t lock;
    pthread_cond_t work; /* for sleepers */
    pthread_cond_t done; /* for those who await */
    uint64_t bytes;      /* guarded by lock: of tasks that are not finished */
    uint64_t spin_ns;
    uint32_t helpers; /* at most */
    cpu_set_t cores;  /* where they run: as the one who made the crew might, then */
    bool knows_cores;
    pthread_t thread[PSI_CREW_THREADS_MAX];
};

static inline void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

struct psi_crew *
psi_crew_create(uint32_t threads, uint32_t spin_us)
{
    struct psi_crew *crew = aligned_alloc(64, sizeof(*crew));

    psi_assert(threads >= 2 && threads <= PSI_CREW_THREADS_MAX);
    if (crew == NULL) {
        return NULL;
    }
    *crew = (struct psi_crew){.helpers = threads - 1, .spin_ns = spin_us * UINT64_C(1000)};
    crew->knows_cores = sched_getaffinity(0, sizeof(crew->cores), &crew->cores) == 0;
    if (pthread_mutex_init(&crew->lock, NULL) != 0) {
        goto err_free;
    }
    if (pthread_cond_init(&crew->work, NULL) != 0) {
        goto err_lock;
    }
    if (pthread_cond_init(&crew->done, NULL) != 0) {
        goto err_work;
    }
    return crew;

err_work:
    pthread_cond_destroy(&crew->work);
err_lock:
    pthread_mutex_destroy(&crew->lock);
err_free:
    free(crew);
    return NULL;
}

/* ---- Parts --------------------------------------------------------------------------------- */

/* Takes a part of what lies in a place and does it. False: there is none. */
static bool
do_part(struct psi_crew *crew, struct place *place)
{
    uint64_t next = atomic_load_explicit(&place->next, memory_order_acquire);

    do {
        if ((next & 0xff) == (next >> 8 & 0xff)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&place->next, &next, next + 1,
                                                    memory_order_acquire, memory_order_acquire));
    place->run(place->object, (uint32_t)(next & 0xff));
    if (atomic_fetch_sub(&place->unfinished, 1) == 1 && atomic_load(&crew->awaiting) > 0) {
        pthread_mutex_lock(&crew->lock);
        pthread_cond_broadcast(&crew->done);
        pthread_mutex_unlock(&crew->lock);
    }
    return true;
}

/* Takes a part of the oldest task that has one. */
static bool
do_any_part(struct psi_crew *crew)
{
    const uint64_t end = atomic_load_explicit(&crew->end, memory_order_acquire);
    uint64_t first = atomic_load_explicit(&crew->first, memory_order_relaxed);
    uint64_t i = end - first > PSI_CREW_TASKS_MAX ? end - PSI_CREW_TASKS_MAX : first;

    for (; i < end; i++) {
        if (do_part(crew, &crew->places[i % PSI_CREW_TASKS_MAX])) {
            return true;
        }
        if (i >= first) {
            (void)atomic_compare_exchange_strong_explicit(
                &crew->first, &first, i + 1, memory_order_relaxed, memory_order_relaxed);
            first = i + 1;
        }
    }
    return false;
}

/* ---- Who helps ----------------------------------------------------------------------------- */

/* Looks for more for a while. */
static bool
finds_more(struct psi_crew *crew)
{
    const uint64_t until_ns = psi_monotonic_ns() + crew->spin_ns;
    const uint64_t seen = atomic_load_explicit(&crew->end, memory_order_relaxed);

    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&crew->end, memory_order_relaxed) != seen) {
                return true;
            }
            relax();
        }
    } while (psi_monotonic_ns() < until_ns);
    return false;
}

static void *
help(void *argument)
{
    struct psi_crew *crew = argument;
    uint64_t seen;

    if (crew->knows_cores) { /* who started us may have settled on one core since */
        (void)sched_setaffinity(0, sizeof(crew->cores), &crew->cores);
    }
    for (;;) {
        while (do_any_part(crew) || finds_more(crew)) {
        }
        pthread_mutex_lock(&crew->lock);
        seen = atomic_load(&crew->end);
        atomic_fetch_add(&crew->sleepers, 1);
        while (atomic_load(&crew->end) == seen && !atomic_load(&crew->closing)) {
            pthread_cond_wait(&crew->work, &crew->lock);
        }
        atomic_fetch_sub(&crew->sleepers, 1);
        if (atomic_load(&crew->closing)) {
            break;
        }
        pthread_mutex_unlock(&crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* Signals are the program's business: these threads take none. Without one it goes on all the same. */
static void
start_locked(struct psi_crew *crew)
{
    sigset_t all;
    sigset_t old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (crew->started < crew->helpers) {
        if (pthread_create(&crew->thread[crew->started], NULL, help, crew) != 0) {
            crew->helpers = crew->started;
            break;
        }
        crew->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void
psi_crew_destroy(struct psi_crew *crew)
{
    if (crew == NULL) {
        return;
    }
    pthread_mutex_lock(&crew->lock);
    psi_assert(crew->bytes == 0);
    atomic_store(&crew->closing, true);
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->started; i++) {
        pthread_join(crew->thread[i], NULL);
    }
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->work);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

uint32_t
psi_crew_started(const struct psi_crew *crew)
{
    return atomic_load(&crew->started);
}

/* ---- Tasks --------------------------------------------------------------------------------- */

static bool
rests(struct psi_crew *crew)
{
    const uint64_t until_ns = atomic_load_explicit(&crew->rests_until_ns, memory_order_relaxed);

    if (until_ns == 0) {
        return false;
    }
    if (psi_monotonic_ns() < until_ns) {
        return true;
    }
    atomic_store_explicit(&crew->rests_until_ns, 0, memory_order_relaxed);
    return false;
}

/* There is enough to do: those who sleep are called, as many as find a part. */
static void
call_locked(struct psi_crew *crew, uint32_t parts)
{
    if (crew->bytes <= PSI_CREW_WORTH_BYTES) {
        return;
    }
    if (crew->started < crew->helpers) {
        start_locked(crew);
    }
    for (uint32_t i = 0; i < parts && i < crew->sleepers; i++) {
        pthread_cond_signal(&crew->work);
    }
}

bool
psi_crew_begin(struct psi_crew *crew, struct psi_crew_task *task)
{
    struct place *place;
    uint64_t number;

    psi_assert(task->parts > 0 && task->parts <= PSI_CREW_PARTS_MAX);
    if (rests(crew)) {
        return false;
    }
    pthread_mutex_lock(&crew->lock);
    number = crew->end;
    place = &crew->places[number % PSI_CREW_TASKS_MAX];
    if (place->used) {
        pthread_mutex_unlock(&crew->lock);
        return false;
    }
    place->used = true;
    place->run = task->run;
    place->object = task->object;
    task->place = (uint32_t)(place - crew->places);
    crew->bytes += task->bytes;
    atomic_store_explicit(&place->unfinished, task->parts, memory_order_relaxed);
    atomic_store_explicit(&place->next, number << 16 | (uint64_t)task->parts << 8,
                          memory_order_release);
    atomic_store_explicit(&crew->end, number + 1, memory_order_release);
    call_locked(crew, task->parts);
    pthread_mutex_unlock(&crew->lock);
    return true;
}

static void
sleep_until_done(struct psi_crew *crew, struct place *place)
{
    pthread_mutex_lock(&crew->lock);
    atomic_fetch_add(&crew->awaiting, 1);
    while (atomic_load(&place->unfinished) > 0) {
        pthread_cond_wait(&crew->done, &crew->lock);
    }
    atomic_fetch_sub(&crew->awaiting, 1);
    pthread_mutex_unlock(&crew->lock);
}

/* Others have the last parts: does theirs meanwhile, as long as there is something. */
static void
await(struct psi_crew *crew, struct place *place)
{
    const uint64_t begun_ns = psi_monotonic_ns();
    unsigned looks = 0;

    while (atomic_load_explicit(&place->unfinished, memory_order_acquire) > 0) {
        if (++looks % LOOKS != 0) {
            relax();
        } else if (psi_monotonic_ns() - begun_ns > INTERRUPTED_NS) {
            sleep_until_done(crew, place);
            atomic_store_explicit(&crew->rests_until_ns, psi_monotonic_ns() + REST_NS,
                                  memory_order_relaxed);
            return;
        }
    }
}

void
psi_crew_finish(struct psi_crew *crew, const struct psi_crew_task *task)
{
    struct place *place = &crew->places[task->place];

    while (do_part(crew, place)) {
    }
    while (atomic_load_explicit(&place->unfinished, memory_order_acquire) > 0 &&
           do_any_part(crew)) {
    }
    await(crew, place);
    pthread_mutex_lock(&crew->lock);
    place->used = false;
    crew->bytes -= task->bytes;
    pthread_mutex_unlock(&crew->lock);
}

void
psi_crew_do(struct psi_crew *crew, struct psi_crew_task *task)
{
    if (crew != NULL && psi_crew_begin(crew, task)) {
        psi_crew_finish(crew, task);
        return;
    }
    for (uint32_t part = 0; part < task->parts; part++) {
        task->run(task->object, part);
    }
}
