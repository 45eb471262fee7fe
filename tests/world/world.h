/*
 * world.h - the world of one core under test (client, lane or master): its clock, and the other end
 * of every connection it has.
 *
 * The test is everybody else. It moves the clock, connects, says frames and bytes, cuts lines, and
 * decides how much of what the core sends a line takes. Bytes go through the frame reader of the
 * real transports. Nothing sleeps, nothing listens.
 *
 * What must hold whatever the test does, beside the core's own assertions: every frame the core
 * sends is one; what it lends to a connection does not change until it is given back; no connection
 * is used after its end, and none is left behind.
 *
 * A network between several cores is something else: tests/sim/net.h.
 *
 * Thread: all of it is owned by one thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef WORLD_WORLD_H
#define WORLD_WORLD_H

#include "base/fail.h"
#include "base/log.h"
#include "transport/stream/stream_in.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/message.h"

#define WORLD_MS_NS UINT64_C(1000000)

enum { WORLD_BEGIN_MS = 1000, WORLD_CONNS_MAX = 32, WORLD_MESSAGE_BYTES_MAX = 65536 };

/* What a line does with what the core sends. */
enum world_flow {
    WORLD_FLOW_FAST, /* it is gone at once */
    WORLD_FLOW_SLOW, /* nothing leaves the queue */
    WORLD_FLOW_FULL, /* the queue takes no more */
    WORLD_FLOW_BROKEN,
    WORLD_FLOWS,
};

enum world_conn_state { WORLD_CONNECTING, WORLD_OPEN, WORLD_LINGERING, WORLD_CLOSED };

/* A frame that the core has sent; valid as long as its world. */
struct world_heard {
    struct psi_frame frame;
    uint8_t body[]; /* frame.payload_bytes */
};

struct lent;
struct world;

/* A connection; `conn` is what the core holds, the test has the rest. */
struct world_conn {
    struct psi_conn conn; /* first */
    struct world *world;
    char address[PSI_ADDRESS_BYTES]; /* connected to; "": accepted */
    enum world_conn_state state;
    enum world_flow flow;
    bool broken; /* on_close is due */
    struct psi_stream_in in;
    uint8_t *rest; /* owned; the half of a frame that did not come */
    size_t rest_bytes;
    struct lent *first; /* sent by the core, not gone yet */
    struct lent *last;
    size_t queued_bytes;
    struct psi_frame asked;     /* the core's last frame that is a request or an answer */
    struct world_heard **heard; /* owned; world->records: all it has sent ... */
    size_t heard_count;
    size_t heard_read; /* ... of which the test has looked at so many */
    uint8_t buffer[PSI_STREAM_IN_BYTES];
};

/* The core under test. */
struct world_core {
    void (*tick)(void *core); /* after everything that happens to it */

    /* (optional) When it wants to be woken. */
    uint64_t (*next_ns)(const void *core);

    /* (optional) It has sent this. */
    void (*sent)(void *core, const struct psi_frame *frame, const struct psi_outgoing *outgoing);
};

struct world {
    struct psi_env env; /* first: the core's env is its world */
    struct psi_log log; /* writes nowhere, unless the test puts something else there */
    uint64_t now_ns;
    uint64_t drawn;
    bool unreachable;            /* connects fail */
    struct psi_master_told told; /* where the master is said to be ... */
    const char *untrue;          /* ... which is not believed, and why; NULL: it is */
    bool near;    /* who connects, and who is at test://near, shares memory with the core */
    bool records; /* keeps what the core sends, and ended connections to look at */
    const struct psi_listener_events *listener_events;
    void *listener_owner;
    unsigned conns_max;
    struct world_conn *conn[WORLD_CONNS_MAX]; /* in order of appearance; NULL: free */
    const struct world_core *core;
    void *object; /* handed to its functions; NULL: not made yet */
};

/* Before the core is made, in its env; object is set by the test when it is. */
void world_init(struct world *world, const struct world_core *core);

/* After it is destroyed: asserts that it left nothing behind. */
void world_fini(struct world *world);

/* What the real loop would report at its next turn; then the core's tick. */
void world_settle(struct world *world);

/* Time passes; the core is woken when it wants to be, but not without end. What lingers is over. */
void world_wait(struct world *world, uint64_t ms);

/* Somebody connects. NULL: nobody listens, or there is no room. */
struct world_conn *world_accept(struct world *world);

/* The newest connection that the core made to this address and that has not ended; NULL: none. */
struct world_conn *world_to(struct world *world, const char *address);

bool world_is_closed(const struct world_conn *conn);

/* The peer is gone, or the line is. */
void world_hang_up(struct world_conn *conn, const char *why);
/* Nothing has come back for too long: the kernel gives the line up. */
void world_refuse_proof(struct world_conn *conn, const char *why); /* by who is there now */
void world_cut_off(struct world_conn *conn);
void world_set_flow(struct world_conn *conn, enum world_flow flow);

/* Of what waits in a slow line, all but the last `left` frames go. */
void world_drain(struct world_conn *conn, unsigned left);

/* Bytes arrive. The rest of a half frame comes first where there is one. */
void world_feed(struct world_conn *conn, const uint8_t *bytes, size_t size);
void world_feed_rest(struct world_conn *conn);

/* The peer says a frame: its sizes are filled in. The core has ticked when these return. */
void world_say(struct world *world, struct world_conn *conn, const struct psi_frame *frame,
               const struct psi_pack *body);
void world_say_bytes(struct world *world, struct world_conn *conn, const struct psi_frame *frame,
                     const struct psi_meta *meta, const void *payload, size_t bytes);

/* The same with a message as its body: WORLD_SAY(world, conn, &frame, hello, &hello). */
#define WORLD_SAY(world, conn, frame, name, message)                                               \
    do {                                                                                           \
        static uint8_t bytes_[WORLD_MESSAGE_BYTES_MAX];                                            \
        struct psi_pack pack_;                                                                     \
                                                                                                   \
        psi_pack_init(&pack_, bytes_, sizeof(bytes_));                                             \
        psi_##name##_encode(&pack_, message);                                                      \
        psi_assert(!pack_.overflow);                                                               \
        world_say(world, conn, frame, &pack_);                                                     \
    } while (0)

/* The next frame of this type that the core has sent here; others before it are passed over. NULL:
 * there is none. */
const struct world_heard *world_hear(struct world_conn *conn, uint8_t type);

#endif
