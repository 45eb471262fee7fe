/*
 * counter.h - numbers that one thread counts and any thread reads, at any time, without a lock.
 *
 * The thread that counts pays an addition: it is the only writer, so no locked instruction is
 * needed. A reader gets each number as it was a moment ago; several of them may be a moment apart.
 * Give the counters of a thread cache lines of their own (PSI_COUNTER_LINE), or readers slow down
 * what lies beside them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_COUNTER_H
#define PSI_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PSI_COUNTER_LINE = 64 };

/* True in every build for users. tests/cluster/test_watch_cost.py compares it with a build that
 * neither counts nor times anything (meson option `counting`), to see what that costs. Code that
 * serves only to report asks this first. */
#ifdef PSI_UNCOUNTED
enum { PSI_COUNTS = false };
#else
enum { PSI_COUNTS = true };
#endif

/* Thread: written by one thread, read by any. */
struct psi_counter {
    _Atomic uint64_t value;
};

static inline void
psi_count(struct psi_counter *counter, uint64_t more)
{
    const uint64_t before = atomic_load_explicit(&counter->value, memory_order_relaxed);

    if (PSI_COUNTS) {
        atomic_store_explicit(&counter->value, before + more, memory_order_relaxed);
    }
}

static inline uint64_t
psi_counted(const struct psi_counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

#endif
