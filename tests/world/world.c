/*
 * world.c - the world of one core under test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "world/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

enum { TICKS_MAX = 32 /* within one wait */ };

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

/* Sends (or forgets) the first one. What is sent must be what was lent. */
static void
queue_take(struct world_conn *conn, bool sent)
{
    struct lent *lent = conn->first;

    conn->first = lent->next;
    conn->last = conn->first != NULL ? conn->last : NULL;
    conn->queued_bytes -= lent->bytes;
    if (sent) {
        psi_assert(buffers_crc(lent->buffers, lent->buffer_count) == lent->crc);
    }
    give_back(lent);
    free(lent);
}

static void
queue_clear(struct world_conn *conn, bool sent)
{
    while (conn->first != NULL) {
        queue_take(conn, sent);
    }
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

/* Keeps a copy for the test to look at. */
static void
record(struct world_conn *conn, const struct psi_frame *frame, const struct psi_outgoing *outgoing)
{
    struct world_heard **grown =
        realloc((void *)conn->heard, (conn->heard_count + 1) * sizeof(*conn->heard));
    struct world_heard *heard = malloc(sizeof(*heard) + frame->payload_bytes);
    size_t used = 0;

    psi_assert(grown != NULL && heard != NULL);
    heard->frame = *frame;
    for (unsigned i = 0; i < outgoing->buffer_count; i++) {
        memcpy(heard->body + used, outgoing->buffers[i].base, outgoing->buffers[i].bytes);
        used += outgoing->buffers[i].bytes;
    }
    conn->heard = grown;
    conn->heard[conn->heard_count++] = heard;
}

static psd_status
world_send(struct psi_conn *psi_conn, const struct psi_outgoing *outgoing)
{
    struct world_conn *conn = (struct world_conn *)psi_conn;
    const struct psi_frame frame = check_outgoing(outgoing);
    const size_t bytes = outgoing->head_bytes + frame.payload_bytes;
    const struct world *world = conn->world;

    psi_assert(conn->state == WORLD_CONNECTING || conn->state == WORLD_OPEN);
    if (conn->broken || conn->flow == WORLD_FLOW_BROKEN) {
        conn->broken = true;
        return PSD_ERR_CLOSED;
    }
    if (conn->flow == WORLD_FLOW_FULL || bytes > PSI_CONN_QUEUE_BYTES_MAX - conn->queued_bytes) {
        return PSD_ERR_BUSY;
    }
    if (frame.request != 0) {
        conn->asked = frame;
    }
    if (world->records) {
        record(conn, &frame, outgoing);
    }
    if (world->core->sent != NULL && world->object != NULL) {
        world->core->sent(world->object, &frame, outgoing);
    }
    queue_add(conn, outgoing, bytes);
    if (conn->state == WORLD_OPEN && conn->flow == WORLD_FLOW_FAST) {
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

    psi_assert(conn->state == WORLD_CONNECTING || conn->state == WORLD_OPEN);
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

    psi_assert(conn->state == WORLD_CONNECTING || conn->state == WORLD_OPEN);
    conn->state = WORLD_CLOSED;
    conn->in.stopped = true;
    queue_clear(conn, false);
}

static void
world_close_after_send(struct psi_conn *psi_conn, uint32_t linger_ms)
{
    struct world_conn *conn = (struct world_conn *)psi_conn;

    if (conn->state != WORLD_OPEN || conn->broken || linger_ms == 0 || conn->first == NULL) {
        world_close(psi_conn);
    } else {
        conn->state = WORLD_LINGERING;
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
conn_create(struct world *world, enum world_conn_state state)
{
    for (unsigned i = 0; i < world->conns_max; i++) {
        if (world->conn[i] == NULL) {
            struct world_conn *conn = calloc(1, sizeof(*conn));

            psi_assert(conn != NULL);
            conn->conn.ops = &conn_ops;
            snprintf(conn->conn.peer, sizeof(conn->conn.peer), "test://%u", i);
            conn->world = world;
            conn->state = state;
            psi_stream_in_init(&conn->in, conn->buffer, NULL);
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
    struct world_conn *conn = conn_create((struct world *)env, WORLD_CONNECTING);

    if (conn == NULL) {
        return psi_fail(err, PSD_ERR_IO, "connect to %s: no descriptor left", address);
    }
    conn->conn.events = events;
    conn->conn.owner = owner;
    conn->conn.lends = strcmp(address, "test://near") == 0;
    snprintf(conn->address, sizeof(conn->address), "%s", address);
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

static psd_status
world_find_master(struct psi_env *env, struct psi_master_told *told_p, struct psd_error *err)
{
    const struct world *world = (struct world *)env;

    if (world->untrue != NULL) {
        return psi_fail(err, PSD_ERR_REFUSED, "%s", world->untrue);
    }
    *told_p = world->told;
    return PSD_OK;
}

static const struct psi_env_ops env_ops = {
    .now_ns = world_now,
    .random = world_random,
    .connect = world_connect,
    .listen = world_listen,
    .unlisten = world_unlisten,
    .find_master = world_find_master,
};

/* ------------------------------------------------------------------- what happens to it --- */

static void
end(struct world_conn *conn, const struct psd_error *reason)
{
    conn->state = WORLD_CLOSED;
    conn->in.stopped = true;
    queue_clear(conn, false);
    conn->conn.events->on_close(conn->conn.owner, &conn->conn, reason);
}

static void
end_by(struct world_conn *conn, psd_status status, const char *why)
{
    struct psd_error reason;

    if (conn->state == WORLD_LINGERING) {
        conn->state = WORLD_CLOSED;
        queue_clear(conn, false);
    } else if (conn->state != WORLD_CLOSED) {
        psi_fail(&reason, status, "%s", why);
        end(conn, &reason);
    }
}

void
world_hang_up(struct world_conn *conn, const char *why)
{
    end_by(conn, PSD_ERR_CLOSED, why);
}

void
world_refuse_proof(struct world_conn *conn, const char *why)
{
    end_by(conn, PSD_ERR_REFUSED, why);
}

void
world_cut_off(struct world_conn *conn)
{
    end_by(conn, PSD_ERR_TIMEOUT, "nothing comes back");
}

/* Bytes arrive; they go where the real transport puts them. */
void
world_feed(struct world_conn *conn, const uint8_t *bytes, size_t size)
{
    struct psd_error err = {0};

    while (size > 0 && conn->state == WORLD_OPEN) {
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
        if (psi_stream_in_run(&conn->in, &conn->conn, &err) != PSD_OK &&
            conn->state == WORLD_OPEN) {
            psi_assert(err.text[0] != '\0');
            end(conn, &err);
        }
    }
}

void
world_feed_rest(struct world_conn *conn)
{
    uint8_t *rest = conn->rest;

    conn->rest = NULL;
    if (rest != NULL) {
        world_feed(conn, rest, conn->rest_bytes);
        free(rest);
    }
}

/* What the real loop would report at its next turn. */
static void
report(struct world_conn *conn)
{
    struct psd_error reason;

    if (conn->state == WORLD_CONNECTING && conn->world->unreachable) {
        psi_fail(&reason, PSD_ERR_IO, "%s is unreachable", conn->address);
        end(conn, &reason);
    } else if (conn->state == WORLD_CONNECTING) {
        conn->state = WORLD_OPEN;
        conn->conn.events->on_open(conn->conn.owner, &conn->conn);
    }
    if (conn->broken && conn->state == WORLD_OPEN) {
        psi_fail(&reason, PSD_ERR_CLOSED, "%s is broken", conn->conn.peer);
        end(conn, &reason);
    }
}

/* Ended connections are gone between two happenings, not earlier: events end them. */
static void
bury(struct world *world)
{
    for (unsigned i = 0; i < world->conns_max; i++) {
        struct world_conn *conn = world->conn[i];

        if (conn != NULL && conn->state == WORLD_CLOSED) {
            for (size_t j = 0; j < conn->heard_count; j++) {
                free(conn->heard[j]);
            }
            free((void *)conn->heard);
            free(conn->rest);
            free(conn);
            world->conn[i] = NULL;
        }
    }
}

void
world_settle(struct world *world)
{
    for (unsigned i = 0; i < world->conns_max; i++) {
        if (world->conn[i] != NULL) {
            report(world->conn[i]);
        }
    }
    world->core->tick(world->object);
    if (!world->records) {
        bury(world);
    }
}

struct world_conn *
world_accept(struct world *world)
{
    struct world_conn *conn =
        world->listener_events != NULL ? conn_create(world, WORLD_OPEN) : NULL;

    if (conn != NULL) {
        conn->conn.lends = world->near;
    }
    if (conn != NULL &&
        world->listener_events->on_accept(world->listener_owner, &conn->conn, &conn->conn.events,
                                          &conn->conn.owner) != PSD_OK) {
        conn->state = WORLD_CLOSED;
    }
    return conn;
}

struct world_conn *
world_to(struct world *world, const char *address)
{
    for (unsigned i = world->conns_max; i > 0; i--) {
        struct world_conn *conn = world->conn[i - 1];

        if (conn != NULL && conn->state != WORLD_CLOSED && strcmp(conn->address, address) == 0) {
            return conn;
        }
    }
    return NULL;
}

bool
world_is_closed(const struct world_conn *conn)
{
    return conn->state == WORLD_CLOSED;
}

void
world_wait(struct world *world, uint64_t ms)
{
    const uint64_t until_ns = world->now_ns + ms * WORLD_MS_NS;

    for (unsigned i = 0; i < world->conns_max; i++) {
        if (world->conn[i] != NULL && world->conn[i]->state == WORLD_LINGERING) {
            queue_clear(world->conn[i], true);
            world->conn[i]->state = WORLD_CLOSED;
        }
    }
    for (unsigned i = 0; i < TICKS_MAX; i++) {
        const uint64_t next_ns =
            world->core->next_ns != NULL ? world->core->next_ns(world->object) : UINT64_MAX;

        if (next_ns > until_ns) {
            break;
        }
        world->now_ns = next_ns > world->now_ns ? next_ns : world->now_ns;
        world_settle(world);
    }
    world->now_ns = until_ns;
}

/* ---- what others say, and hear -------------------------------------------------------------- */

void
world_say_bytes(struct world *world, struct world_conn *conn, const struct psi_frame *frame,
                const struct psi_meta *meta, const void *payload, size_t bytes)
{
    struct psi_frame full = *frame;
    uint8_t head[PSI_FRAME_BYTES + PSI_META_ENCODED_MAX];

    psi_assert(conn != NULL && conn->state == WORLD_OPEN);
    full.meta_bytes = meta != NULL ? (uint16_t)psi_meta_encode(meta, head + PSI_FRAME_BYTES) : 0;
    full.payload_bytes = (uint32_t)bytes;
    psi_frame_encode(&full, head);
    world_feed(conn, head, PSI_FRAME_BYTES + (size_t)full.meta_bytes);
    if (bytes > 0) {
        world_feed(conn, payload, bytes);
    }
    world_settle(world);
}

void
world_say(struct world *world, struct world_conn *conn, const struct psi_frame *frame,
          const struct psi_pack *body)
{
    world_say_bytes(world, conn, frame, NULL, body != NULL ? body->bytes : NULL,
                    body != NULL ? body->used : 0);
}

const struct world_heard *
world_hear(struct world_conn *conn, uint8_t type)
{
    while (conn->heard_read < conn->heard_count) {
        const struct world_heard *heard = conn->heard[conn->heard_read++];

        if (heard->frame.type == type) {
            return heard;
        }
    }
    return NULL;
}

void
world_set_flow(struct world_conn *conn, enum world_flow flow)
{
    conn->flow = flow;
    if (flow == WORLD_FLOW_FAST && conn->state == WORLD_OPEN) {
        queue_clear(conn, true);
    }
}

void
world_drain(struct world_conn *conn, unsigned left)
{
    unsigned count = 0;

    for (const struct lent *lent = conn->first; lent != NULL; lent = lent->next) {
        count++;
    }
    for (; count > left; count--) {
        queue_take(conn, true);
    }
}

/* ---- its beginning and end ------------------------------------------------------------------ */

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
        .now_ns = WORLD_BEGIN_MS * WORLD_MS_NS,
        .conns_max = WORLD_CONNS_MAX,
        .core = core,
    };
}

void
world_fini(struct world *world)
{
    psi_assert(world->listener_events == NULL);
    for (unsigned i = 0; i < world->conns_max; i++) {
        struct world_conn *conn = world->conn[i];

        if (conn != NULL) {
            psi_assert(conn->state == WORLD_CLOSED || conn->state == WORLD_LINGERING);
            conn->state = WORLD_CLOSED;
            queue_clear(conn, false);
        }
    }
    bury(world);
}
