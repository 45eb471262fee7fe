/*
 * timed_copy.h - memcpy() that counts how long it took, where that is worth two looks at the clock.
 */
#ifndef PSI_BASE_TIMED_COPY_H
#define PSI_BASE_TIMED_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/monotonic.h"

enum { PSI_TIMED_COPY_BYTES = 16 << 10 };

/* spent_ns NULL: nobody counts. */
static inline void
psi_timed_copy(void *to, const void *from, size_t bytes, uint64_t *spent_ns)
{
    const bool is_timed = bytes >= PSI_TIMED_COPY_BYTES && spent_ns != NULL;
    const uint64_t begun_ns = is_timed ? psi_monotonic_ns() : 0;

    memcpy(to, from, bytes);
    if (is_timed) {
        *spent_ns += psi_monotonic_ns() - begun_ns;
    }
}

#endif
