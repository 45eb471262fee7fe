/*
 * counted.c - the allocator and the mutex of this process, with counters in front.
 *
 * The definitions here come before those of libc for everybody in the process. They hand on to
 * glibc's own names of the same functions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "counted.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>

static _Atomic bool counting;
static _Atomic uint64_t allocations;
static _Atomic uint64_t known_locks;
static _Atomic uint64_t other_locks;
static uint64_t faults_before;
static const pthread_mutex_t *known[COUNTED_LOCKS_MAX]; /* immutable while counting */
static size_t known_count;
static _Thread_local bool ignored;

void
counted_know_lock(const pthread_mutex_t *lock)
{
    if (known_count < COUNTED_LOCKS_MAX) {
        known[known_count++] = lock;
    }
}

void
counted_forget_locks(void)
{
    known_count = 0;
}

void
counted_ignore_locks(bool ignore)
{
    ignored = ignore;
}

static uint64_t
page_faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

void
counted_start(void)
{
    atomic_store(&allocations, 0);
    atomic_store(&known_locks, 0);
    atomic_store(&other_locks, 0);
    faults_before = page_faults();
    atomic_store(&counting, true);
}

struct counted
counted_stop(void)
{
    atomic_store(&counting, false);
    return (struct counted){
        .allocations = atomic_load(&allocations),
        .page_faults = page_faults() - faults_before,
        .known_locks = atomic_load(&known_locks),
        .other_locks = atomic_load(&other_locks),
    };
}

#if COUNTED

static void
count_allocation(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    }
}

static void
count_lock(const pthread_mutex_t *lock)
{
    size_t i = 0;

    if (ignored || !atomic_load_explicit(&counting, memory_order_relaxed)) {
        return;
    }
    while (i < known_count && known[i] != lock) {
        i++;
    }
    atomic_fetch_add_explicit(i < known_count ? &known_locks : &other_locks, 1,
                              memory_order_relaxed);
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *memory, size_t bytes);
void *memalign(size_t alignment, size_t bytes);
void *aligned_alloc(size_t alignment, size_t bytes);
int posix_memalign(void **memory_p, size_t alignment, size_t bytes);
void free(void *memory);

void *
malloc(size_t bytes)
{
    count_allocation();
    return __libc_malloc(bytes);
}

void *
calloc(size_t count, size_t bytes)
{
    count_allocation();
    return __libc_calloc(count, bytes);
}

void *
realloc(void *memory, size_t bytes)
{
    count_allocation();
    return __libc_realloc(memory, bytes);
}

void *
memalign(size_t alignment, size_t bytes)
{
    count_allocation();
    return __libc_memalign(alignment, bytes);
}

void *
aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int
posix_memalign(void **memory_p, size_t alignment, size_t bytes)
{
    void *memory = memalign(alignment, bytes);

    if (memory == NULL) {
        return ENOMEM;
    }
    *memory_p = memory;
    return 0;
}

void
free(void *memory)
{
    if (memory != NULL) {
        count_allocation();
    }
    __libc_free(memory);
}

typedef int (*lock_fn)(pthread_mutex_t *lock);

static _Atomic(lock_fn) real_lock;

int
pthread_mutex_lock(pthread_mutex_t *lock)
{
    lock_fn real = atomic_load_explicit(&real_lock, memory_order_relaxed);

    if (real == NULL) {
        real = (lock_fn)dlsym(RTLD_NEXT, "pthread_mutex_lock");
        atomic_store(&real_lock, real);
    }
    count_lock(lock);
    return real(lock);
}

#endif
