/*
 * limiter.h - warnings that outsiders can provoke: a few lines a second, and none twice.
 *
 * Whoever reaches a port could otherwise fill the disk. What is not shown is counted, and the next
 * line that is tells how many there were.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_LIMITER_H
#define PSI_BASE_LIMITER_H

#include <stdint.h>

#include "base/log.h"

enum { PSI_LIMITER_LINES = 5 }; /* a second */

/* Starts as {.log = where to}. Thread: owned by whoever warns. */
struct psi_limiter {
    const struct psi_log *log;
    uint64_t second; /* that the next two are about */
    uint32_t lines;
    uint32_t shown[PSI_LIMITER_LINES]; /* checksums of who and what, of these lines */
    uint64_t hidden;                   /* since the last line */
};

/* "peer: text". The same of one host ("tcp://HOST:PORT", whatever the port)
 * is shown once a second. */
void psi_limiter_warn(struct psi_limiter *limiter, uint64_t now_ns, const char *id,
                      const char *peer, const char *text);

#endif
