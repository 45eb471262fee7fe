/*
 * fuzz_stream.c - frames out of a stream of bytes, however these are cut.
 *
 * The input: how many cuts, the size of each, then the stream. It is heard twice, once as cut and
 * once byte by byte: both must give the same frames. A payload that the input does not finish is
 * filled up with zeros, so that large ones need no large input.
 *
 * A prefix is, to these owners: bytes of meta (2), of payload (3), what to do (1), anything (58).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "fuzz.h"
#include "transport/stream/stream_in.h"

enum {
    PAYLOAD_BYTES_MAX = 1 << 17,
    CUTS_MAX = 16,
    CUT_STEP = 37,
    AT_WHAT = 5,
};

/* What an owner does with a frame: bits. */
enum { DISCARD = 1, REFUSE_PREFIX = 2, REFUSE_HEAD = 4, REFUSE_FRAME = 8, CLOSE = 16 };

/* One connection and what was heard on it. */
struct hearer {
    struct psi_conn conn;
    struct psi_stream_in in;
    uint8_t *buffer;
    uint8_t *sink;
    uint32_t crc; /* over everything heard so far */
    bool ended;
};

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    (void)owner;
    (void)conn;
    size_p->meta_bytes = (size_t)prefix[0] | (size_t)prefix[1] << 8;
    size_p->payload_bytes =
        ((size_t)prefix[2] | (size_t)prefix[3] << 8 | (size_t)prefix[4] << 16) % PAYLOAD_BYTES_MAX;
    return (prefix[AT_WHAT] & REFUSE_PREFIX) != 0 ? psi_fail(err, PSD_ERR_PROTOCOL, "prefix")
                                                  : PSD_OK;
}

static psd_status
on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
        struct psi_sink *sink_p, struct psd_error *err)
{
    struct hearer *hearer = owner;

    (void)conn;
    psi_assert(hearer->in.size.payload_bytes > 0);
    psi_assert(head_bytes == PSI_PREFIX_BYTES + hearer->in.size.meta_bytes);
    if ((head[AT_WHAT] & DISCARD) == 0) {
        free(hearer->sink);
        hearer->sink = malloc(hearer->in.size.payload_bytes);
        psi_assert(hearer->sink != NULL);
        sink_p->into = hearer->sink;
    }
    return (head[AT_WHAT] & REFUSE_HEAD) != 0 ? psi_fail(err, PSD_ERR_PROTOCOL, "head") : PSD_OK;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct hearer *hearer = owner;

    (void)conn;
    hearer->crc = psi_crc32c(hearer->crc, head, head_bytes);
    if (payload != NULL) {
        hearer->crc = psi_crc32c(hearer->crc, payload, payload_bytes);
    }
    hearer->in.stopped = (head[AT_WHAT] & CLOSE) != 0;
    return (head[AT_WHAT] & REFUSE_FRAME) != 0 ? psi_fail(err, PSD_ERR_PROTOCOL, "frame") : PSD_OK;
}

static const struct psi_conn_events events = {
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
};

static void
hearer_init(struct hearer *hearer)
{
    *hearer = (struct hearer){.conn.events = &events, .buffer = malloc(PSI_STREAM_IN_BYTES)};
    psi_assert(hearer->buffer != NULL);
    hearer->conn.owner = hearer;
    psi_stream_in_init(&hearer->in, hearer->buffer, NULL);
}

static void
hearer_fini(struct hearer *hearer)
{
    free(hearer->buffer);
    free(hearer->sink);
}

/* At most `size` bytes arrive (NULL: zeros). Returns how many there was room for. */
static size_t
arrive(struct hearer *hearer, const uint8_t *bytes, size_t size)
{
    struct iovec iov[PSI_STREAM_IN_IOVECS];
    const int count = psi_stream_in_room(&hearer->in, iov);
    struct psd_error err;
    size_t took = 0;

    psi_assert(count >= 1 && count <= PSI_STREAM_IN_IOVECS);
    for (int i = 0; i < count; i++) {
        const size_t left = size - took;
        const size_t piece = iov[i].iov_len < left ? iov[i].iov_len : left;

        if (bytes != NULL) {
            memcpy(iov[i].iov_base, bytes + took, piece);
        } else {
            memset(iov[i].iov_base, 0, piece);
        }
        took += piece;
    }
    psi_assert(took > 0);
    psi_stream_in_took(&hearer->in, took);
    hearer->ended =
        psi_stream_in_run(&hearer->in, &hearer->conn, &err) != PSD_OK || hearer->in.stopped;
    return took;
}

static void
fill_up(struct hearer *hearer)
{
    while (!hearer->ended && hearer->in.phase == PSI_IN_PAYLOAD) {
        arrive(hearer, NULL, hearer->in.size.payload_bytes - hearer->in.payload_here);
    }
}

/* Hears all of it in pieces of these sizes, over and over. */
static void
hear(struct hearer *hearer, const uint8_t *bytes, size_t size, const uint8_t *cuts, size_t count)
{
    for (size_t i = 0; size > 0 && !hearer->ended; i++) {
        const size_t wanted = 1 + cuts[i % count] * (size_t)CUT_STEP;
        const size_t took = arrive(hearer, bytes, wanted < size ? wanted : size);

        bytes += took;
        size -= took;
    }
    fill_up(hearer);
}

/* What authentication does: bytes are looked at and used up before the first frame. */
static void
check_peek(const uint8_t *bytes, size_t size)
{
    struct hearer hearer;
    struct iovec iov[PSI_STREAM_IN_IOVECS];
    const size_t here = size < PSI_PREFIX_BYTES ? size : PSI_PREFIX_BYTES - 1;
    size_t waiting;

    hearer_init(&hearer);
    psi_assert(psi_stream_in_room(&hearer.in, iov) == 1);
    memcpy(iov[0].iov_base, bytes, here);
    psi_stream_in_took(&hearer.in, here);
    psi_assert(memcmp(psi_stream_in_peek(&hearer.in, &waiting), bytes, here) == 0);
    psi_assert(waiting == here);
    psi_stream_in_skip(&hearer.in, here / 2);
    psi_assert(psi_stream_in_midway(&hearer.in) == (here > here / 2));
    hearer_fini(&hearer);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t one[1] = {0};
    const size_t count = size > 0 ? 1 + data[0] % CUTS_MAX : 0;
    struct hearer cut;
    struct hearer whole;

    if (size < 1 + count) {
        return 0;
    }
    hearer_init(&cut);
    hearer_init(&whole);
    hear(&cut, data + 1 + count, size - 1 - count, data + 1, count);
    hear(&whole, data + 1 + count, size - 1 - count, one, 1);
    psi_assert(cut.crc == whole.crc);
    psi_assert(cut.ended == whole.ended);
    psi_assert(cut.in.frame_count == whole.in.frame_count);
    psi_assert(cut.ended || psi_stream_in_midway(&cut.in) == psi_stream_in_midway(&whole.in));
    hearer_fini(&cut);
    hearer_fini(&whole);
    check_peek(data, size);
    return 0;
}
