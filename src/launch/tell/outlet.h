/*
 * outlet.h - a terminal, pipe or file on which psd_run shows something, and whose reader may stop
 * reading (Ctrl-S, a pager that waits).
 *
 * A reader that is slow is waited for, and slows the job down. One that reads nothing for a while
 * is not: what it does not take is kept up to a bound, lines that come then are left out, and
 * counted. Where they are missing, a line says so when it reads again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_OUTLET_H
#define LAUNCH_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OUTLET_KEPT_BYTES = 1 << 20, /* of lines; as much again for news */
    OUTLET_STUCK_MS = 2000,      /* without a byte: nobody reads */
};

/* What to do while we wait for a reader. */
struct outlet_waiter {
    int wake_fd;                      /* readable: nobody waits; -1: none */
    void (*meanwhile)(void *context); /* (optional) called now and then */
    void *context;
};

enum outlet_kind { OUTLET_PLAIN, OUTLET_FILE, OUTLET_OWN, OUTLET_SOCKET };

/* Thread: owned by the main thread of psd_run. */
struct outlet {
    int fd;
    enum outlet_kind kind;
    bool closed;      /* nobody will ever read */
    bool stuck;       /* nobody reads now */
    uint64_t missing; /* lines that were left out since the last one that was not */
    char *bytes;      /* owned: what was not taken so far */
    size_t first;
    size_t count;
    size_t capacity;
};

/* fd stays the caller's: terminals and pipes are opened once more, so that writing never waits and
 * nobody who shares the descriptor notices. */
void outlet_init(struct outlet *outlet, int fd);
void outlet_fini(struct outlet *outlet);

/* A whole line, or news that must not be missed. */
void outlet_put(struct outlet *outlet, const char *text, size_t bytes, bool news,
                const struct outlet_waiter *waiter);

/* Writes what is taken now. Returns whether nothing is left. */
bool outlet_flush(struct outlet *outlet);

/* Writes all of it, however long the reader takes, unless somebody wants attention. */
void outlet_finish(struct outlet *outlet, const struct outlet_waiter *waiter);

#endif
