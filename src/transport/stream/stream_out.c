/*
 * stream_out.c - frames that wait to be sent: heads copied, payloads borrowed.
 *
 * Frames lie one behind the other in blocks, so that a backlog of small ones costs one allocation
 * in a hundred or so. The newest block stays when it is empty.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/stream_out.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/timed_copy.h"

enum { BLOCK_BYTES = 16384, ALIGNMENT = 16 };

struct out_block {
    struct out_block *next;
    size_t used;
    size_t frame_count;
    _Alignas(ALIGNMENT) uint8_t bytes[BLOCK_BYTES];
};

/* One frame: head, then buffers; the first `sent` of these bytes are in the kernel. */
struct out_frame {
    struct out_frame *next;
    size_t bytes;
    size_t sent;
    size_t head_bytes;
    unsigned buffer_count;
    struct psi_buffer buffers[PSI_BUFFERS_MAX];
    bool stable;
    void *copy; /* owned; what buffers point to after unshare */
    void (*release)(void *owner, uint64_t cookie);
    void *release_owner;
    uint64_t release_cookie;
    uint8_t head[];
};

static_assert(sizeof(struct out_frame) + PSI_PREFIX_BYTES + PSI_META_BYTES_MAX <= BLOCK_BYTES,
              "any frame fits into an empty block");

static void
release_payload(struct out_frame *frame)
{
    if (frame->release != NULL) {
        frame->release(frame->release_owner, frame->release_cookie);
        frame->release = NULL;
    }
}

size_t
psi_stream_out_size(const struct psi_outgoing *frame)
{
    size_t bytes = frame->head_bytes;

    for (unsigned i = 0; i < frame->buffer_count; i++) {
        bytes += frame->buffers[i].bytes;
    }
    return bytes;
}

static void *
take_room(struct psi_stream_out *out, size_t bytes)
{
    struct out_block *block = out->last_block;
    void *room;

    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (block == NULL || BLOCK_BYTES - block->used < bytes) {
        block = malloc(sizeof(*block));
        if (block == NULL) {
            return NULL;
        }
        block->next = NULL;
        block->used = 0;
        block->frame_count = 0;
        if (out->last_block == NULL) {
            out->first_block = block;
        } else {
            out->last_block->next = block;
        }
        out->last_block = block;
    }
    room = block->bytes + block->used;
    block->used += bytes;
    block->frame_count++;
    return room;
}

/* The oldest frame is gone: so is its block when that was the last one in it. */
static void
give_room(struct psi_stream_out *out)
{
    struct out_block *block = out->first_block;

    block->frame_count--;
    if (block->frame_count > 0) {
        return;
    }
    if (block == out->last_block) {
        block->used = 0;
    } else {
        out->first_block = block->next;
        free(block);
    }
}

psd_status
psi_stream_out_add(struct psi_stream_out *out, const struct psi_outgoing *frame, size_t sent)
{
    struct out_frame *queued = take_room(out, sizeof(*queued) + frame->head_bytes);

    if (queued == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    *queued = (struct out_frame){
        .bytes = psi_stream_out_size(frame),
        .sent = sent,
        .head_bytes = frame->head_bytes,
        .buffer_count = frame->buffer_count,
        .stable = frame->stable,
        .release = frame->release,
        .release_owner = frame->release_owner,
        .release_cookie = frame->release_cookie,
    };
    memcpy(queued->head, frame->head, frame->head_bytes);
    memcpy(queued->buffers, frame->buffers, sizeof(queued->buffers));
    if (out->last == NULL) {
        out->first = queued;
    } else {
        out->last->next = queued;
    }
    out->last = queued;
    out->bytes += queued->bytes - sent;
    return PSD_OK;
}

/* Piece 0 is the head, piece i is buffer i - 1. */
static struct psi_buffer
piece_of(const struct out_frame *frame, unsigned index)
{
    if (index == 0) {
        return (struct psi_buffer){.base = frame->head, .bytes = frame->head_bytes};
    }
    return frame->buffers[index - 1];
}

int
psi_stream_out_gather(const struct psi_stream_out *out, struct iovec *iov_p, int max)
{
    int count = 0;

    for (const struct out_frame *frame = out->first; frame != NULL; frame = frame->next) {
        size_t skip = frame->sent;

        for (unsigned i = 0; i <= frame->buffer_count; i++) {
            const struct psi_buffer piece = piece_of(frame, i);

            if (skip >= piece.bytes) {
                skip -= piece.bytes;
                continue;
            }
            if (count == max) {
                return count;
            }
            iov_p[count++] = (struct iovec){.iov_base = (void *)((uintptr_t)piece.base + skip),
                                            .iov_len = piece.bytes - skip};
            skip = 0;
        }
    }
    return count;
}

static void
drop_first(struct psi_stream_out *out)
{
    struct out_frame *frame = out->first;

    out->bytes -= frame->bytes - frame->sent;
    out->first = frame->next;
    if (out->first == NULL) {
        out->last = NULL;
    }
    release_payload(frame);
    free(frame->copy);
    give_room(out);
}

void
psi_stream_out_sent(struct psi_stream_out *out, size_t bytes)
{
    while (bytes > 0) {
        struct out_frame *frame = out->first;
        const size_t rest = frame->bytes - frame->sent;

        if (bytes < rest) {
            frame->sent += bytes;
            out->bytes -= bytes;
            return;
        }
        bytes -= rest;
        drop_first(out);
    }
}

bool
psi_stream_out_first(const struct psi_stream_out *out, struct psi_outgoing *frame_p)
{
    const struct out_frame *frame = out->first;

    if (frame == NULL) {
        return false;
    }
    psi_assert(frame->sent == 0);
    *frame_p = (struct psi_outgoing){
        .head = frame->head,
        .head_bytes = frame->head_bytes,
        .buffer_count = frame->buffer_count,
        .stable = frame->stable,
    };
    memcpy(frame_p->buffers, frame->buffers, sizeof(frame_p->buffers));
    return true;
}

static bool
overlaps(const struct psi_buffer *buffer, size_t skip, const void *base, size_t bytes)
{
    const uintptr_t ours = (uintptr_t)buffer->base + skip;
    const uintptr_t theirs = (uintptr_t)base;

    return skip < buffer->bytes && ours < theirs + bytes &&
           theirs < (uintptr_t)buffer->base + buffer->bytes;
}

/* How much of the payload is sent already. */
static size_t
payload_sent(const struct out_frame *frame)
{
    return frame->sent > frame->head_bytes ? frame->sent - frame->head_bytes : 0;
}

static bool
borrows(const struct out_frame *frame, const void *base, size_t bytes)
{
    size_t skip = payload_sent(frame);

    for (unsigned i = 0; i < frame->buffer_count; i++) {
        const struct psi_buffer *buffer = &frame->buffers[i];

        if (overlaps(buffer, skip, base, bytes)) {
            return true;
        }
        skip -= skip < buffer->bytes ? skip : buffer->bytes;
    }
    return false;
}

/* The release covers the whole payload, so all that is unsent is copied, not only what overlaps. */
static psd_status
copy_payload(struct out_frame *frame, uint64_t *copied_ns)
{
    size_t skip = payload_sent(frame);
    const size_t rest = frame->bytes - frame->head_bytes - skip;
    uint8_t *copy = malloc(rest);
    size_t used = 0;

    if (copy == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    for (unsigned i = 0; i < frame->buffer_count; i++) {
        const struct psi_buffer *buffer = &frame->buffers[i];
        const size_t skipped = skip < buffer->bytes ? skip : buffer->bytes;

        if (skipped < buffer->bytes) {
            psi_timed_copy(copy + used, (const uint8_t *)buffer->base + skipped,
                           buffer->bytes - skipped, copied_ns);
        }
        used += buffer->bytes - skipped;
        skip -= skipped;
    }
    psi_assert(used == rest);
    if (frame->sent > frame->head_bytes) {
        frame->sent = frame->head_bytes;
    }
    frame->bytes = frame->head_bytes + rest;
    frame->copy = copy;
    frame->stable = false;
    frame->buffers[0] = (struct psi_buffer){.base = copy, .bytes = rest};
    frame->buffer_count = 1;
    return PSD_OK;
}

psd_status
psi_stream_out_unshare(struct psi_stream_out *out, const void *base, size_t bytes,
                       uint64_t *copied_ns)
{
    for (struct out_frame *frame = out->first; frame != NULL; frame = frame->next) {
        if (borrows(frame, base, bytes)) {
            if (copy_payload(frame, copied_ns) != PSD_OK) {
                return PSD_ERR_NO_MEMORY;
            }
            release_payload(frame);
        }
    }
    return PSD_OK;
}

void
psi_stream_out_clear(struct psi_stream_out *out)
{
    while (out->first != NULL) {
        drop_first(out);
    }
    free(out->last_block); /* at most the newest one is left */
    *out = (struct psi_stream_out){0};
}
