/*
 * merge.c - stdout and stderr of a process, merged at line ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/merge.h"

#include <stdlib.h>
#include <string.h>

void
merge_init(struct merge *merge)
{
    *merge = (struct merge){.unfinished = -1};
}

void
merge_fini(struct merge *merge)
{
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        free(merge->streams[i].held);
    }
    merge_init(merge);
}

static void
hand_on(struct merge *merge, unsigned stream, const char *bytes, size_t count, merge_sink sink,
        void *context)
{
    const bool broken = merge->unfinished >= 0 && (unsigned)merge->unfinished != stream;

    if (count > 0) {
        sink(context, stream, broken, bytes, count);
        merge->unfinished = bytes[count - 1] == '\n' ? -1 : (int)stream;
    }
}

/* Hands on the first `count` bytes that are held. */
static void
release(struct merge *merge, unsigned stream, size_t count, merge_sink sink, void *context)
{
    struct merge_stream *from = &merge->streams[stream];

    hand_on(merge, stream, from->held, count, sink, context);
    from->bytes -= count;
    if (from->bytes > 0) {
        memmove(from->held, from->held + count, from->bytes);
    }
}

/* Returns false when there is no room for it. */
static bool
hold(struct merge_stream *stream, const char *bytes, size_t count, uint64_t now_ms)
{
    const size_t needed = stream->bytes + count;

    if (needed > MERGE_HELD_BYTES) {
        return false;
    }
    if (needed > stream->capacity) {
        char *held = realloc(stream->held, 2 * needed);

        if (held == NULL) {
            return false;
        }
        stream->held = held;
        stream->capacity = 2 * needed;
    }
    stream->since_ms = stream->bytes == 0 || !stream->overwrites ? now_ms : stream->since_ms;
    if (count > 0) {
        memcpy(stream->held + stream->bytes, bytes, count);
        stream->overwrites =
            (stream->bytes > 0 && stream->overwrites) || memchr(bytes, '\r', count) != NULL;
    }
    stream->bytes = needed;
    return true;
}

void
merge_take(struct merge *merge, unsigned stream, const char *bytes, size_t count, uint64_t now_ms,
           merge_sink sink, void *context)
{
    struct merge_stream *into = &merge->streams[stream];
    const char *end = memrchr(bytes, '\n', count);
    const size_t finished = end != NULL ? (size_t)(end - bytes) + 1 : 0;

    if (finished > 0) {
        if (into->bytes > 0 && hold(into, bytes, finished, now_ms)) {
            release(merge, stream, into->bytes, sink, context);
        } else {
            release(merge, stream, into->bytes, sink, context);
            hand_on(merge, stream, bytes, finished, sink, context);
        }
    }
    if (!hold(into, bytes + finished, count - finished, now_ms)) {
        release(merge, stream, into->bytes, sink, context);
        hand_on(merge, stream, bytes + finished, count - finished, sink, context);
    }
}

/* Of a line that overwrites itself, all but its last state, which may be half written. */
static size_t
releasable(const struct merge_stream *stream)
{
    const char *last = memrchr(stream->held, '\r', stream->bytes);

    return last != NULL && last > stream->held ? (size_t)(last - stream->held) : stream->bytes;
}

void
merge_tick(struct merge *merge, uint64_t now_ms, merge_sink sink, void *context)
{
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        struct merge_stream *stream = &merge->streams[i];

        if (stream->bytes > 0 && now_ms >= stream->since_ms + MERGE_HELD_MS) {
            stream->since_ms = now_ms; /* of what stays */
            release(merge, i, releasable(stream), sink, context);
        }
    }
}

uint64_t
merge_deadline(const struct merge *merge)
{
    uint64_t until_ms = UINT64_MAX;

    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        const struct merge_stream *stream = &merge->streams[i];

        if (stream->bytes > 0 && stream->since_ms + MERGE_HELD_MS < until_ms) {
            until_ms = stream->since_ms + MERGE_HELD_MS;
        }
    }
    return until_ms;
}

void
merge_end(struct merge *merge, unsigned stream, merge_sink sink, void *context)
{
    release(merge, stream, merge->streams[stream].bytes, sink, context);
}
