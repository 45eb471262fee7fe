/*
 * world.c - a hostile world for one core, told by the fuzzer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "transport/stream/stream_in.h"
#include "wire/bytes.h"

#define MS_NS UINT64_C(1000000)

enum {
    HAPPENINGS_MAX = 256,
    TICKS_MAX = 32, /* within one wait */
    WAIT_MS = 20,
    FILL_BYTES_MAX = 1 << 18,
    FRAME_BYTES_MAX = PSI_FRAME_BYTES + PSI_FRAME_META_MAX + FILL_BYTES_MAX,
    AT_VERSION = 4,
    AT_HEADER_CRC = 60,
};

enum conn_state { CONNECTING, OPEN, LINGERING, CLOSED };

/* A payload that a connection still borrows. */
struct lent {
    struct lent *next;
    struct psi_buffer buffers[PSI_BUFFERS_MAX];
    unsigned buffer_count;
    size_t bytes;
    uint32_t crc; /* when it was sent */
    void (*release)(void *owner, uint64_t cookie);
    void *release_owner;
    uint64_t release_cookie;
};

struct world_conn {
    struct psi_conn conn; /* first: what the core holds */
    struct world *world;
    enum conn_state state;
    enum world_flow flow;
    bool broken; /* on_close is due */
    struct psi_stream_in in;
    uint8_t *rest; /* owned; the half of a frame that did not come */
    size_t rest_bytes;
    struct lent *first;
    struct lent *last;
    size_t queued_bytes;
    struct psi_frame heard; /* the core's last frame that is a request or an answer */
    uint8_t buffer[PSI_STREAM_IN_BYTES];
};

/* What is left of the input; it reads as zeros when there is nothing left. */
struct input {
    const uint8_t *at;
    size_t left;
};

/* ---------------------------------------------------------------------- lending memory --- */

static uint32_t
buffers_crc(const struct psi_buffer *buffers, unsigned count)
{
    uint32_t crc = 0;

    for (unsigned i = 0; i < count; i++) {
        crc = psi_crc32c(crc, buffers[i].base, buffers[i].bytes);
    }
    return crc;
}

static void
give_back(struct lent *lent)
{
    if (lent->release != NULL) {
        lent->release(lent->release_owner, lent->release_cookie);
        lent->release = NULL;
    }
}

/* Sends (or forgets) everything. What is sent must be what was lent. */
static void
queue_clear(struct world_conn *conn, bool sent)
{
    while (conn->first != NULL) {
        struct lent *lent = conn->first;

        conn->first = lent->next;
        if (sent) {
            psi_assert(buffers_crc(lent->buffers, lent->buffer_count) == lent->crc);
        }
        give_back(lent);
        free(lent);
    }
    conn->last = NULL;
    conn->queued_bytes = 0;
}

static void
queue_add(struct world_conn *conn, const struct psi_outgoing *outgoing, size_t bytes)
{
    struct lent *lent = calloc(1, sizeof(*lent));

    psi_assert(lent != NULL);
    memcpy(lent->buffers, outgoing->buffers, sizeof(lent->buffers));
    lent->buffer_count = outgoing->buffer_count;
    lent->bytes = bytes;
    lent->crc = buffers_crc(outgoing->buffers, outgoing->buffer_count);
    lent->release = outgoing->release;
    lent->release_owner = outgoing->release_owner;
    lent->release_cookie = outgoing->release_cookie;
    if (conn->last != NULL) {
        conn->last->next = lent;
    } else {
        conn->first = lent;
    }
    conn->last = lent;
    conn->queued_bytes += bytes;
}

/* ------------------------------------------------------------ what the core may ask for --- */

/* Whatever the core sends is a frame. */
static struct psi_frame
check_outgoing(const struct psi_outgoing *outgoing)
{
    struct psi_frame frame;
    struct psd_error err;
    size_t bytes = 0;

    psi_assert(psi_frame_decode(outgoing->head, &frame, &err) == PSD_OK);
    psi_assert(outgoing->head_bytes == PSI_FRAME_BYTES + (size_t)frame.meta_bytes);
    psi_assert(outgoing->buffer_count <= PSI_BUFFERS_MAX);
    for (unsigned i = 0; i < outgoing->buffer_count; i++) {
        bytes += outgoing->buffers[i].bytes;
    }
    psi_assert(bytes == frame.payload_bytes);
    if (bytes > 0 && (frame.flags & PSI_FLAG_CHECKSUM) != 0) {
        psi_assert(buffers_crc(outgoing->buffers, outgoing->buffer_count) == frame.payload_crc);
    }
    return frame;
}

static psd_status
world_send(struct psi_conn *psi_conn, const struct psi_outgoing *outgoing)
{
    struct world_conn *conn = (struct world_conn *)psi_conn;
    const struct psi_frame frame = check_outgoing(outgoing);
    const size_t bytes = outgoing->head_bytes + frame.payload_bytes;
    const struct world *world = conn->world;

    psi_assert(conn->state == CONNECTING || conn->state == OPEN);
    if (conn->broken || conn->flow == WORLD_FLOW_BROKEN) {
        conn->broken = true;
        return PSD_ERR_CLOSED;
    }
    if (conn->flow == WORLD_FLOW_FULL || bytes > PSI_CONN_QUEUE_BYTES_MAX - conn->queued_bytes) {
        return PSD_ERR_BUSY;
    }
    if (frame.request != 0) {
        conn->heard = frame;
    }
    if (world->core->sent != NULL && world->object != NULL) {
        world->core->sent(world->object, &frame, outgoing);
    }
    queue_add(conn, outgoing, bytes);
    if (conn->state == OPEN && conn->flow == WORLD_FLOW_FAST) {
        queue_clear(conn, true);
    }
    return PSD_OK;
}

static bool
touches(const struct lent *lent, const void *base, size_t bytes)
{
    const uintptr_t from = (uintptr_t)base;

    for (unsigned i = 0; i < lent->buffer_count; i++) {
        const uintptr_t start = (uintptr_t)lent->buffers[i].base;

        if (start < from + bytes && from < start + lent->buffers[i].bytes) {
            return true;
        }
    }
    return false;
}

static psd_status
world_unshare(struct psi_conn *psi_conn, const void *base, size_t bytes)
{
    const struct world_conn *conn = (const struct world_conn *)psi_conn;

    psi_assert(conn->state == CONNECTING || conn->state == OPEN);
    for (struct lent *lent = conn->first; lent != NULL; lent = lent->next) {
        if (touches(lent, base, bytes)) {
            psi_assert(buffers_crc(lent->buffers, lent->buffer_count) == lent->crc);
            lent->buffer_count = 0; /* as good as copied: nobody looks at it any more */
            lent->crc = 0;
            give_back(lent);
        }
    }
    return PSD_OK;
}

static void
world_close(struct psi_conn *psi_conn)
{
    struct world_conn *conn = (struct world_conn *)psi_conn;

    psi_assert(conn->state == CONNECTING || conn->state == OPEN);
    conn->state = CLOSED;
    conn->in.stopped = true;
    queue_clear(conn, false);
}

static void
world_close_after_send(struct psi_conn *psi_conn, uint32_t linger_ms)
{
    struct world_conn *conn = (struct world_conn *)psi_conn;

    if (conn->state != OPEN || conn->broken || linger_ms == 0 || conn->first == NULL) {
        world_close(psi_conn);
    } else {
        conn->state = LINGERING;
        conn->in.stopped = true;
    }
}

static size_t
world_queued_bytes(const struct psi_conn *psi_conn)
{
    return ((const struct world_conn *)psi_conn)->queued_bytes;
}

static const struct psi_conn_ops conn_ops = {
    .send = world_send,
    .unshare = world_unshare,
    .close = world_close,
    .close_after_send = world_close_after_send,
    .queued_bytes = world_queued_bytes,
};

/* A new connection in the first free place; NULL: there is none. */
static struct world_conn *
conn_create(struct world *world, enum conn_state state)
{
    for (unsigned i = 0; i < WORLD_CONNS; i++) {
        if (world->conn[i] == NULL) {
            struct world_conn *conn = calloc(1, sizeof(*conn));

            psi_assert(conn != NULL);
            conn->conn.ops = &conn_ops;
            snprintf(conn->conn.peer, sizeof(conn->conn.peer), "test://%u", i);
            conn->world = world;
            conn->state = state;
            psi_stream_in_init(&conn->in, conn->buffer);
            world->conn[i] = conn;
            return conn;
        }
    }
    return NULL;
}

static uint64_t
world_now(struct psi_env *env)
{
    return ((const struct world *)env)->now_ns;
}

static uint64_t
world_random(struct psi_env *env)
{
    return ++((struct world *)env)->drawn;
}

static psd_status
world_connect(struct psi_env *env, const char *address, const char *identity,
              const struct psi_conn_events *events, void *owner, struct psi_conn **conn_p,
              struct psd_error *err)
{
    (void)identity;
    struct world_conn *conn = conn_create((struct world *)env, CONNECTING);

    if (conn == NULL) {
        return psi_fail(err, PSD_ERR_IO, "connect to %s: no descriptor left", address);
    }
    conn->conn.events = events;
    conn->conn.owner = owner;
    conn->conn.lends = strcmp(address, "test://near") == 0;
    *conn_p = &conn->conn;
    return PSD_OK;
}

static psd_status
world_listen(struct psi_env *env, const char *address, const struct psi_listener_events *events,
             void *owner, struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
             struct psd_error *err)
{
    struct world *world = (struct world *)env;

    (void)err;
    world->listener_events = events;
    world->listener_owner = owner;
    *listener_p = (struct psi_listener *)world;
    snprintf(bound_p, PSI_ADDRESS_BYTES, "%s", address);
    return PSD_OK;
}

static void
world_unlisten(struct psi_env *env, struct psi_listener *listener)
{
    struct world *world = (struct world *)env;

    psi_assert(listener == (struct psi_listener *)world);
    world->listener_events = NULL;
}

static const struct psi_env_ops env_ops = {
    .now_ns = world_now,
    .random = world_random,
    .connect = world_connect,
    .listen = world_listen,
    .unlisten = world_unlisten,
};

/* ------------------------------------------------------------------- what happens to it --- */

static void
end(struct world_conn *conn, const struct psd_error *reason)
{
    conn->state = CLOSED;
    conn->in.stopped = true;
    queue_clear(conn, false);
    conn->conn.events->on_close(conn->conn.owner, &conn->conn, reason);
}

static void
hang_up(struct world_conn *conn)
{
    struct psd_error reason;

    if (conn->state == LINGERING) {
        conn->state = CLOSED;
        queue_clear(conn, false);
    } else if (conn->state != CLOSED) {
        psi_fail(&reason, PSD_ERR_CLOSED, "%s hung up", conn->conn.peer);
        end(conn, &reason);
    }
}

/* Bytes arrive; they go where the real transport puts them. */
static void
feed(struct world_conn *conn, const uint8_t *bytes, size_t size)
{
    struct psd_error err = {0};

    while (size > 0 && conn->state == OPEN) {
        struct iovec iov[PSI_STREAM_IN_IOVECS];
        const int count = psi_stream_in_room(&conn->in, iov);
        size_t took = 0;

        for (int i = 0; i < count && took < size; i++) {
            const size_t left = size - took;
            const size_t piece = iov[i].iov_len < left ? iov[i].iov_len : left;

            memcpy(iov[i].iov_base, bytes + took, piece);
            took += piece;
        }
        bytes += took;
        size -= took;
        psi_stream_in_took(&conn->in, took);
        if (psi_stream_in_run(&conn->in, &conn->conn, &err) != PSD_OK && conn->state == OPEN) {
            psi_assert(err.text[0] != '\0');
            end(conn, &err);
        }
    }
}

static void
feed_rest(struct world_conn *conn)
{
    uint8_t *rest = conn->rest;

    conn->rest = NULL;
    if (rest != NULL) {
        feed(conn, rest, conn->rest_bytes);
        free(rest);
    }
}

/* What the real loop would report at its next turn. */
static void
report(struct world_conn *conn)
{
    struct psd_error reason;

    if (conn->state == CONNECTING && conn->world->unreachable) {
        psi_fail(&reason, PSD_ERR_IO, "%s is unreachable", conn->conn.peer);
        end(conn, &reason);
    } else if (conn->state == CONNECTING) {
        conn->state = OPEN;
        conn->conn.events->on_open(conn->conn.owner, &conn->conn);
    }
    if (conn->broken && conn->state == OPEN) {
        psi_fail(&reason, PSD_ERR_CLOSED, "%s is broken", conn->conn.peer);
        end(conn, &reason);
    }
}

/* Ended connections are gone between two happenings, not earlier: events end them. */
static void
bury(struct world *world)
{
    for (unsigned i = 0; i < WORLD_CONNS; i++) {
        struct world_conn *conn = world->conn[i];

        if (conn != NULL && conn->state == CLOSED) {
            free(conn->rest);
            free(conn);
            world->conn[i] = NULL;
        }
    }
}

void
world_settle(struct world *world)
{
    for (unsigned i = 0; i < WORLD_CONNS; i++) {
        if (world->conn[i] != NULL) {
            report(world->conn[i]);
        }
    }
    world->core->tick(world->object);
    bury(world);
}

void
world_accept(struct world *world)
{
    struct world_conn *conn = world->listener_events != NULL ? conn_create(world, OPEN) : NULL;

    if (conn != NULL) {
        conn->conn.lends = world->near;
    }
    if (conn != NULL &&
        world->listener_events->on_accept(world->listener_owner, &conn->conn, &conn->conn.events,
                                          &conn->conn.owner) != PSD_OK) {
        conn->state = CLOSED;
    }
}

static void
wait(struct world *world, uint64_t ms)
{
    const uint64_t until_ns = world->now_ns + ms * MS_NS;

    for (unsigned i = 0; i < WORLD_CONNS; i++) {
        if (world->conn[i] != NULL && world->conn[i]->state == LINGERING) {
            queue_clear(world->conn[i], true);
            world->conn[i]->state = CLOSED;
        }
    }
    for (unsigned i = 0; i < TICKS_MAX; i++) {
        const uint64_t next_ns = world->core->next_ns(world->object);

        if (next_ns > until_ns) {
            break;
        }
        world->now_ns = next_ns > world->now_ns ? next_ns : world->now_ns;
        world_settle(world);
    }
    world->now_ns = until_ns;
}

/* ------------------------------------------------------------------------- reading frames --- */

static const uint8_t *
take(struct input *input, size_t *bytes)
{
    const uint8_t *at = input->at;

    *bytes = *bytes < input->left ? *bytes : input->left;
    input->at += *bytes;
    input->left -= *bytes;
    return at;
}

/* Copies as many as there are; returns how many that is. */
static size_t
take_bytes(struct input *input, size_t bytes, uint8_t *to)
{
    const uint8_t *at = take(input, &bytes);

    memcpy(to, at, bytes);
    return bytes;
}

static uint8_t
take_byte(struct input *input)
{
    size_t bytes = 1;
    const uint8_t *at = take(input, &bytes);

    return bytes == 1 ? *at : 0;
}

uint64_t
world_number(uint8_t byte)
{
    static const uint64_t special[16] = {
        UINT16_MAX,  UINT64_C(1) << 16, UINT64_C(1) << 31, UINT32_MAX - 1,
        UINT32_MAX,  UINT64_C(1) << 40, INT64_MAX,         UINT64_MAX - 1,
        0x80000001u, 0x80000002u,       0x80000003u,       0x80000004u,
        0x80000005u, 0x80000006u,       0x80000007u,       UINT64_MAX,
    };

    return byte < 240 ? byte : special[byte - 240];
}

/* A byte that is no type stands for one of those that are. */
static uint8_t
frame_type(uint8_t byte)
{
    static const uint8_t types[] = {
#define TYPE(name, code, traits, text) code,
        PSI_FRAME_MAP(TYPE)
#undef TYPE
    };

    for (size_t i = 0; i < sizeof(types); i++) {
        if (types[i] == byte) {
            return byte;
        }
    }
    return types[byte % sizeof(types)];
}

static struct psi_frame
expand(const struct world_frame *from, const struct psi_frame *heard)
{
    struct psi_frame frame = {
        .type = frame_type(from->type),
        .flags = from->flags,
        .dtype = from->dtype,
        .seq = world_number(from->seq),
        .step = world_number(from->step),
        .view = (uint32_t)world_number(from->view),
        .request = (uint32_t)world_number(from->request),
        .table = (uint32_t)world_number(from->table),
        .chunk = (uint32_t)world_number(from->chunk),
        .rank = (uint16_t)world_number(from->rank),
        .incarnation = (uint16_t)world_number(from->incarnation),
        .priority = from->priority,
        .status = from->status,
    };

    if ((from->twist & WORLD_ECHO) != 0) {
        frame.request = heard->request;
        frame.table = heard->table;
        frame.chunk = heard->chunk;
        frame.step = heard->step;
    }
    return frame;
}

static size_t
take_meta(struct input *input, uint8_t twist, uint8_t *to)
{
    size_t bytes = 0;

    if ((twist & WORLD_PART) != 0) {
        const struct psi_meta meta = {.has_part = true, .part = take_byte(input)};

        bytes = psi_meta_encode(&meta, to);
    } else if ((twist & WORLD_META) != 0) {
        bytes = take_bytes(input, take_byte(input), to);
    }
    return bytes;
}

static size_t
take_body(struct input *input, uint8_t kind, uint8_t *to)
{
    size_t bytes = 0;

    if (kind % WORLD_BODIES == WORLD_BYTES) {
        bytes = take_byte(input);
        bytes |= (size_t)take_byte(input) << 8;
        bytes = take_bytes(input, bytes, to);
    } else if (kind % WORLD_BODIES == WORLD_FILL) {
        bytes = take_byte(input);
        bytes |= (size_t)take_byte(input) << 8;
        bytes |= (size_t)take_byte(input) << 16;
        bytes = bytes < FILL_BYTES_MAX ? bytes : FILL_BYTES_MAX;
        memset(to, take_byte(input), bytes);
    }
    return bytes;
}

/* The bytes of the next frame of the input, in `to` (FRAME_BYTES_MAX of room). */
static size_t
take_frame(struct input *input, const struct psi_frame *heard, uint8_t *to)
{
    struct world_frame from = {0};
    size_t bytes = sizeof(from);
    const uint8_t *at = take(input, &bytes);
    struct psi_frame frame;
    uint8_t *body;

    memcpy(&from, at, bytes);
    frame = expand(&from, heard);
    if ((from.twist & WORLD_LEVEL) != 0) {
        frame.level = take_byte(input);
    }
    frame.meta_bytes = (uint16_t)take_meta(input, from.twist, to + PSI_FRAME_BYTES);
    body = to + PSI_FRAME_BYTES + frame.meta_bytes;
    frame.payload_bytes = (uint32_t)take_body(input, from.body, body);
    if ((from.twist & WORLD_WRONG) == 0) {
        frame.payload_crc = psi_crc32c(0, body, frame.payload_bytes);
    }
    psi_frame_encode(&frame, to);
    if ((from.twist & WORLD_VERSION) != 0) {
        to[AT_VERSION]++;
        psi_store_u32(to + AT_HEADER_CRC, psi_crc32c(0, to, AT_HEADER_CRC));
    }
    return PSI_FRAME_BYTES + (size_t)frame.meta_bytes + frame.payload_bytes;
}

static void
hear_frame(struct world_conn *conn, struct input *input, bool half)
{
    uint8_t *bytes = conn->world->scratch;
    const size_t size = take_frame(input, &conn->heard, bytes);
    const size_t now = half ? size / 2 : size;

    feed_rest(conn);
    feed(conn, bytes, now);
    if (half) {
        conn->rest = malloc(size - now);
        psi_assert(conn->rest != NULL);
        memcpy(conn->rest, bytes + now, size - now);
        conn->rest_bytes = size - now;
    }
}

static void
hear_raw(struct world_conn *conn, struct input *input)
{
    size_t bytes = take_byte(input);
    const uint8_t *at = take(input, &bytes);

    feed_rest(conn);
    feed(conn, at, bytes);
}

void
world_say(struct world *world, unsigned index, const struct psi_frame *frame,
          const struct psi_pack *body)
{
    const struct psi_meta none = {0};

    world_say_meta(world, index, frame, &none, body);
}

void
world_say_meta(struct world *world, unsigned index, const struct psi_frame *frame,
               const struct psi_meta *meta, const struct psi_pack *body)
{
    struct world_conn *conn = world->conn[index];
    struct psi_frame full = *frame;
    uint8_t head[PSI_FRAME_BYTES + PSI_META_ENCODED_MAX];

    psi_assert(conn != NULL);
    full.meta_bytes = (uint16_t)psi_meta_encode(meta, head + PSI_FRAME_BYTES);
    full.payload_bytes = body != NULL ? (uint32_t)body->used : 0;
    psi_frame_encode(&full, head);
    feed(conn, head, PSI_FRAME_BYTES + (size_t)full.meta_bytes);
    if (body != NULL) {
        feed(conn, body->bytes, body->used);
    }
    world_settle(world);
}

/* ------------------------------------------------------------------------------ the input --- */

static void
set_flow(struct world *world, struct world_conn *conn, enum world_flow flow)
{
    if (conn == NULL) {
        world->unreachable = flow != WORLD_FLOW_FAST;
        return;
    }
    conn->flow = flow;
    if (flow == WORLD_FLOW_FAST && conn->state == OPEN) {
        queue_clear(conn, true);
    }
}

/* What happens on a connection, if it is there. */
static void
happen_to(struct world_conn *conn, enum world_happening what, struct input *input)
{
    if (conn == NULL) {
        return;
    }
    switch (what) {
    case WORLD_HANG_UP:
        hang_up(conn);
        break;
    case WORLD_FRAME:
    case WORLD_HALF:
        hear_frame(conn, input, what == WORLD_HALF);
        break;
    case WORLD_REST:
        feed_rest(conn);
        break;
    default:
        hear_raw(conn, input);
        break;
    }
}

static void
happen(struct world *world, struct input *input)
{
    const enum world_happening what = take_byte(input) % WORLD_HAPPENINGS;
    const uint8_t which = take_byte(input);
    struct world_conn *conn = world->conn[which % WORLD_CONNS];
    uint8_t args[WORLD_OWN_BYTES];

    switch (what) {
    case WORLD_ACCEPT:
        world_accept(world);
        break;
    case WORLD_WAIT:
        wait(world, which * (uint64_t)WAIT_MS);
        break;
    case WORLD_FLOW:
        set_flow(world, conn, take_byte(input) % WORLD_FLOWS);
        break;
    case WORLD_OWN:
        for (size_t i = 0; i < sizeof(args); i++) {
            args[i] = take_byte(input);
        }
        if (world->core->own != NULL) {
            world->core->own(world->object, args);
        }
        break;
    default:
        happen_to(conn, what, input);
        break;
    }
}

void
world_run(struct world *world, const uint8_t *data, size_t size)
{
    struct input input = {.at = data, .left = size};

    for (unsigned i = 0; i < HAPPENINGS_MAX && input.left > 0; i++) {
        if (world->core->over != NULL && world->core->over(world->object)) {
            break;
        }
        happen(world, &input);
        world_settle(world);
    }
}

/* A line nobody reads; still, it must be one. */
static void
log_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    (void)sink;
    (void)level;
    psi_assert(id[0] != '\0' && text != NULL);
}

void
world_init(struct world *world, const struct world_core *core)
{
    *world = (struct world){
        .env.ops = &env_ops,
        .log = {.write = log_line, .level = PSI_LOG_TRACE},
        .now_ns = 1000 * MS_NS,
        .core = core,
        .scratch = malloc(FRAME_BYTES_MAX),
    };
    psi_assert(world->scratch != NULL);
}

void
world_fini(struct world *world)
{
    psi_assert(world->listener_events == NULL);
    for (unsigned i = 0; i < WORLD_CONNS; i++) {
        struct world_conn *conn = world->conn[i];

        if (conn != NULL) {
            psi_assert(conn->state == CLOSED || conn->state == LINGERING);
            conn->state = CLOSED;
            queue_clear(conn, false);
        }
    }
    bury(world);
    free(world->scratch);
}
