/*
 * counted.h - what a process does that its steady state should not: allocate, fault, lock.
 *
 * Whoever links counted.c has every call of the allocator and every pthread_mutex_lock() of the
 * process counted, in all threads and libraries, while counting is on. Instrumented builds bring an
 * allocator of their own: there nothing is counted (COUNTED is 0).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef EMBEDDED_COUNTED_H
#define EMBEDDED_COUNTED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef PSI_INSTRUMENTED
#define COUNTED 0
#else
#define COUNTED 1
#endif

struct counted {
    uint64_t allocations; /* malloc, calloc, realloc, ..., and free */
    uint64_t page_faults; /* minor and major ones, of all threads */
    uint64_t known_locks; /* taken, of those named by counted_know_lock() */
    uint64_t other_locks; /* taken, of all others */
};

enum { COUNTED_LOCKS_MAX = 16 };

/* Before counting. */
void counted_know_lock(const pthread_mutex_t *lock);
void counted_forget_locks(void);

/* Locks that this thread takes for the test itself are not counted. */
void counted_ignore_locks(bool ignore);

void counted_start(void);
struct counted counted_stop(void);

#endif
