/*
 * copies.h - memory for the copies that wait for the disk, touched before it is needed.
 *
 * Whoever touches a page first waits while the kernel finds and clears it: that takes several times
 * as long as copying into it. So the thread that writes touches pages ahead of the lane.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_COPIES_H
#define SERVER_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct copy; /* memory that is not in use */

/* Thread: whoever uses it locks; the functions without it need no lock. */
struct copies {
    struct copy *ready; /* touched; each has copy_bytes */
    struct copy *idle;  /* of another size */
    uint64_t ready_bytes;
    uint64_t used_bytes; /* taken, and not given back */
    uint64_t room;       /* for both */
    uint64_t coming;     /* bytes that will be taken, as far as known */
    size_t copy_bytes;   /* of each */
};

/* So many bytes will be taken, in pieces of at most copy_bytes. */
void copies_expect(struct copies *copies, uint64_t bytes, uint64_t room, size_t copy_bytes);

/* Nothing more will be. */
void copies_expect_nothing(struct copies *copies);

/* Memory for so many bytes. NULL: none is ready, so the caller makes one of *made_bytes_p bytes, which counts as taken; if it
 * cannot, it says so. */
struct copy *copies_take(struct copies *copies, size_t bytes, size_t *made_bytes_p);
void copies_not_made(struct copies *copies, size_t made_bytes);

/* It is not needed any more. */
void copies_give(struct copies *copies, struct copy *copy);

/* The size of one that has to be made, with touch, and added; 0: enough is ready. */
size_t copies_wants(const struct copies *copies);

void copies_add(struct copies *copies, struct copy *copy);

/* One that nobody will take, for copy_free(); NULL: there is none. */
struct copy *copies_take_idle(struct copies *copies);

/* NULL: there is no memory. touch: all of its pages. */
struct copy *copy_make(size_t bytes, bool touch);
void copy_free(struct copy *copy);

/* Where the bytes of a piece go. */
void *copy_memory(struct copy *copy);

#endif
