/*
 * timed_copy.h - memcpy() that counts how long it took, where that is worth two looks at the clock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_TIMED_COPY_H
#define PSI_BASE_TIMED_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/counter.h"

enum { PSI_TIMED_COPY_BYTES = 16 << 10 };

/* Not "cold": then the compiler copies in the shortest way, not in the fastest. */
__attribute__((noinline)) void psi_timed_copy_large(void *to, const void *from, size_t bytes,
                                                    uint64_t *spent_ns);

/* spent_ns NULL: nobody counts. */
static inline void
psi_timed_copy(void *to, const void *from, size_t bytes, uint64_t *spent_ns)
{
    if (PSI_COUNTS && bytes >= PSI_TIMED_COPY_BYTES) {
        psi_timed_copy_large(to, from, bytes, spent_ns);
    } else {
        memcpy(to, from, bytes);
    }
}

#endif
