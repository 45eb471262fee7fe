/*
 * mailbox.h - bytes in memory that two processes share, announced by a counter.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_MAILBOX_H
#define BENCH_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "ceiling_worker.h"

/* One direction. Thread: one process writes, the other reads. */
struct mailbox {
    _Alignas(64) atomic_uint letters; /* so far */
    _Alignas(64) char data[CEILING_PING_BYTES_MAX];
};

/* For processes that are forked after this; NULL: no memory. Destroying NULL is allowed. */
struct mailbox *mailboxes_create(size_t count);
void mailboxes_destroy(struct mailbox *mailboxes, size_t count);

/* wake: the reader may be asleep. */
void mailbox_post(struct mailbox *mailbox, const void *data, size_t bytes, bool wake);

/* Waits for letter number `wanted`. A spinner that fell asleep may miss the wake-up that is meant
 * for blockers, so it looks again by itself. */
void mailbox_fetch(struct mailbox *mailbox, unsigned wanted, void *data, size_t bytes,
                   enum ceiling_wait wait);

/* Of a worker: where it posts what it gives, and where it finds the answer. Thread: owned by the worker's. */
struct mailbox_pair {
    struct mailbox *out;
    struct mailbox *in;
    unsigned letters; /* sent, and as many received */
};

/* One letter there and one back. */
void mailbox_exchange(struct mailbox_pair *pair, const struct ceiling_worker *worker,
                      enum ceiling_wait wait);

#endif
