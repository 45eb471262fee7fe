/*
 * merge.h - what a process prints on stdout and stderr becomes one log, merged at line ends.
 *
 * Each stream has a pipe of its own, so a line that is written in several pieces (Python's print
 * with PYTHONUNBUFFERED=1: the text, then the line end) cannot be torn by one of the other stream.
 * The pieces are held until the line ends. The order within a stream is kept; between the two it is
 * the order in which the line ends were read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MERGE_H
#define LAUNCH_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/link/link.h"

enum {
    MERGE_HELD_BYTES = 1 << 20, /* lines up to this length are never torn */
    MERGE_HELD_MS = 1000,       /* a line that does not go on (a prompt) waits this long */
};

/*
 * Takes bytes of one stream. broken: what came last was the unfinished line of the other stream; in
 * a log of both, a line end belongs in between.
 */
typedef void (*merge_sink)(void *context, unsigned stream, bool broken, const char *bytes,
                           size_t count);

struct merge_stream {
    char *held; /* owned: the unfinished line */
    size_t bytes;
    size_t capacity;
    bool overwrites;   /* it has carriage returns: it may never end, however much comes */
    uint64_t since_ms; /* when the last of them came; when it overwrites, the first */
};

/* Thread: owned by the agent. */
struct merge {
    struct merge_stream streams[LINK_STREAMS];
    int unfinished; /* the stream of the line that was handed on without its end; -1: none */
};

void merge_init(struct merge *merge);
void merge_fini(struct merge *merge); /* what is held is lost: merge_end() first */

/* Takes what a stream brought, and hands its finished lines on. */
void merge_take(struct merge *merge, unsigned stream, const char *bytes, size_t count,
                uint64_t now_ms, merge_sink sink, void *context);

/* Hands on what has been held for MERGE_HELD_MS. To be called at merge_deadline(). */
void merge_tick(struct merge *merge, uint64_t now_ms, merge_sink sink, void *context);
uint64_t merge_deadline(const struct merge *merge); /* UINT64_MAX: none */

/* A stream has ended: hands on what is held of it. */
void merge_end(struct merge *merge, unsigned stream, merge_sink sink, void *context);

#endif
