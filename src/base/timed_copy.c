/*
 * timed_copy.c - memcpy() that counts how long it took.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/timed_copy.h"

#include "base/monotonic.h"

/* Out of the way of the small ones, of which there are many. */
void
psi_timed_copy_large(void *to, const void *from, size_t bytes, uint64_t *spent_ns)
{
    const uint64_t begun_ns = spent_ns != NULL ? psi_monotonic_ns() : 0;

    memcpy(to, from, bytes);
    if (spent_ns != NULL) {
        *spent_ns += psi_monotonic_ns() - begun_ns;
    }
}
