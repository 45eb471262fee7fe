/*
 * stream_in.c - frames out of a stream of bytes.
 *
 * Invariants
 *   - a head is contiguous in buffer and does not move from on_prefix until on_frame returns,
 *     except in room(), when no event is running;
 *   - whenever run() returns wanting more, buffer holds less than one head, or exactly one head and
 *     no byte of its payload: so there is always room.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/stream_in.h"

#include <assert.h>
#include <string.h>

#include "base/fail.h"
#include "base/timed_copy.h"

enum {
    HEAD_BYTES_MAX = PSI_PREFIX_BYTES + PSI_META_BYTES_MAX,
    LARGE_BYTES = 32768, /* from here on copying a payload costs more than one more system call */
};

static_assert((size_t)HEAD_BYTES_MAX < PSI_STREAM_IN_BYTES, "a head fits, and leaves room");
static_assert((size_t)PSI_AUTH_BYTES_MAX <= PSI_STREAM_IN_BYTES, "what authentication leaves fits");

static size_t
head_bytes(const struct psi_stream_in *in)
{
    return PSI_PREFIX_BYTES + in->size.meta_bytes;
}

void
psi_stream_in_init(struct psi_stream_in *in, uint8_t *buffer, uint64_t *copied_ns)
{
    *in = (struct psi_stream_in){.buffer = buffer, .phase = PSI_IN_PREFIX, .copied_ns = copied_ns};
}

/* Moves what must be kept to the front of the buffer. */
static void
compact(struct psi_stream_in *in)
{
    const size_t kept = in->phase == PSI_IN_PAYLOAD ? head_bytes(in) : in->end - in->frame;

    if (in->frame > 0) {
        memmove(in->buffer, in->buffer + in->frame, kept);
    }
    in->frame = 0;
    in->next = kept;
    in->end = kept;
}

int
psi_stream_in_room(struct psi_stream_in *in, struct iovec *iov_p)
{
    size_t room;
    int count = 0;
    bool discard = false;

    compact(in);
    room = PSI_STREAM_IN_BYTES - in->end;
    if (in->phase == PSI_IN_PAYLOAD) {
        discard = in->sink == NULL;
        if (!discard) {
            iov_p[count++] = (struct iovec){.iov_base = in->sink + in->payload_here,
                                            .iov_len = in->size.payload_bytes - in->payload_here};
        }
    }

    /* Behind a large payload probably comes another: read its head, and no more of it than that. */
    if (in->large && !discard && room > HEAD_BYTES_MAX) {
        room = HEAD_BYTES_MAX;
    }
    iov_p[count++] = (struct iovec){.iov_base = in->buffer + in->end, .iov_len = room};
    return count;
}

void
psi_stream_in_took(struct psi_stream_in *in, size_t bytes)
{
    if (in->phase == PSI_IN_PAYLOAD && in->sink != NULL) {
        const size_t rest = in->size.payload_bytes - in->payload_here;
        const size_t direct = bytes < rest ? bytes : rest;

        in->payload_here += direct;
        bytes -= direct;
    }
    in->end += bytes;
    psi_assert(in->end <= PSI_STREAM_IN_BYTES);
}

static psd_status
hear_prefix(struct psi_stream_in *in, struct psi_conn *conn, struct psd_error *err)
{
    psd_status status;

    in->size = (struct psi_frame_size){0};
    status = conn->events->on_prefix(conn->owner, conn, in->buffer + in->frame, &in->size, err);
    if (status == PSD_OK && in->size.meta_bytes > PSI_META_BYTES_MAX) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "frame from %s: %zu bytes of meta, at most %d",
                        conn->peer, in->size.meta_bytes, PSI_META_BYTES_MAX);
    }
    in->phase = PSI_IN_META;
    return status;
}

static psd_status
hear_head(struct psi_stream_in *in, struct psi_conn *conn, struct psd_error *err)
{
    struct psi_sink sink = {0};
    psd_status status = PSD_OK;

    if (in->size.payload_bytes > 0) {
        status = conn->events->on_head(conn->owner, conn, in->buffer + in->frame, head_bytes(in),
                                       &sink, err);
    }
    in->sink = sink.into;
    in->payload_here = 0;
    in->next = in->frame + head_bytes(in);
    in->large = in->size.payload_bytes >= LARGE_BYTES;
    in->phase = PSI_IN_PAYLOAD;
    return status;
}

/* Uses what the buffer has of the payload. */
static void
take_payload(struct psi_stream_in *in)
{
    const size_t rest = in->size.payload_bytes - in->payload_here;
    const size_t here = in->end - in->next;
    const size_t bytes = here < rest ? here : rest;

    if (in->sink != NULL && bytes > 0) {
        psi_timed_copy(in->sink + in->payload_here, in->buffer + in->next, bytes, in->copied_ns);
    }
    in->payload_here += bytes;
    in->next += bytes;
}

static psd_status
hear_frame(struct psi_stream_in *in, struct psi_conn *conn, struct psd_error *err)
{
    const uint8_t *head = in->buffer + in->frame;

    in->frame_count++;
    in->frame = in->next;
    in->phase = PSI_IN_PREFIX;
    return conn->events->on_frame(conn->owner, conn, head, head_bytes(in), in->sink,
                                  in->size.payload_bytes, err);
}

psd_status
psi_stream_in_run(struct psi_stream_in *in, struct psi_conn *conn, struct psd_error *err)
{
    psd_status status = PSD_OK;

    while (status == PSD_OK && !in->stopped) {
        const size_t here = in->end - in->frame;

        if (in->phase == PSI_IN_PREFIX) {
            if (here < PSI_PREFIX_BYTES) {
                break;
            }
            status = hear_prefix(in, conn, err);
        } else if (in->phase == PSI_IN_META) {
            if (here < head_bytes(in)) {
                break;
            }
            status = hear_head(in, conn, err);
        } else {
            take_payload(in);
            if (in->payload_here < in->size.payload_bytes) {
                break;
            }
            status = hear_frame(in, conn, err);
        }
    }
    return status;
}

const uint8_t *
psi_stream_in_peek(const struct psi_stream_in *in, size_t *bytes_p)
{
    psi_assert(in->phase == PSI_IN_PREFIX);
    *bytes_p = in->end - in->frame;
    return in->buffer + in->frame;
}

void
psi_stream_in_skip(struct psi_stream_in *in, size_t bytes)
{
    psi_assert(bytes <= in->end - in->frame);
    in->frame += bytes;
}

bool
psi_stream_in_midway(const struct psi_stream_in *in)
{
    return in->phase != PSI_IN_PREFIX || in->end > in->frame;
}
