/*
 * world.h - a hostile world for one core (lane, master or client), told by the fuzzer.
 *
 * The core lives on a struct psi_env whose clock and connections belong to the input: it is read as
 * a list of happenings (somebody connects, hangs up, says a frame or half of one, time passes, a
 * connection takes no more bytes). Frames come in a short form, world_frame, and get their header
 * checksum here, so that the fuzzer spends its time behind the decoder.
 *
 * What must hold for any input, beside the core's own assertions and the sanitizers: every frame
 * the core sends is one; what it lends to a connection does not change until it is given back; no
 * connection is used after its end, and none is left behind.
 *
 * Thread: all of it is owned by one thread.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include "base/fail.h"
#include "base/log.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/message.h"

enum { WORLD_CONNS = 8, WORLD_OWN_BYTES = 4, WORLD_BODY_BYTES_MAX = 4096 };

/* What happens; the next byte says on which connection, where that matters. */
enum world_happening {
    WORLD_ACCEPT,  /* somebody connects */
    WORLD_HANG_UP, /* the peer is gone */
    WORLD_WAIT,    /* that many times 20 ms pass; what lingers is over */
    WORLD_FLOW,    /* enum world_flow follows */
    WORLD_FRAME,   /* a struct world_frame and its body follow */
    WORLD_HALF,    /* the same, but the second half of the frame does not come ... */
    WORLD_REST,    /* ... before this */
    WORLD_RAW,     /* a length and bytes follow */
    WORLD_OWN,     /* WORLD_OWN_BYTES follow, for the target itself */
    WORLD_HAPPENINGS,
};

enum world_flow {
    WORLD_FLOW_FAST, /* whatever is sent is gone at once */
    WORLD_FLOW_SLOW, /* nothing leaves the queue */
    WORLD_FLOW_FULL, /* the queue takes no more */
    WORLD_FLOW_BROKEN,
    WORLD_FLOWS,
};

/* How a frame differs from what its fields say. */
enum {
    WORLD_ECHO = 1,    /* request, table, chunk and step as in the last request of the core here */
    WORLD_WRONG = 2,   /* the checksum of the payload is */
    WORLD_VERSION = 4, /* of another version of the protocol */
    WORLD_PART = 8,    /* a byte follows: the option `part` */
    WORLD_META = 16,   /* a length and bytes follow: options as they are */
    WORLD_LEVEL = 32,  /* a byte follows, before these: the level in the tree over ranks */
};

/* Where the payload comes from. */
enum { WORLD_EMPTY, WORLD_BYTES, WORLD_FILL, WORLD_BODIES };

/*
 * A frame in the input. Numbers up to 239 stand for themselves, those above for ones that are hard
 * to guess (world_number). Behind it: options, then the length of the payload (BYTES: two bytes,
 * FILL: three), then its bytes (FILL: one for all).
 */
struct world_frame {
    uint8_t type; /* any byte will do: what is no type stands for one that is */
    uint8_t flags;
    uint8_t twist;
    uint8_t body;
    uint8_t dtype;
    uint8_t table;
    uint8_t chunk;
    uint8_t step;
    uint8_t seq;
    uint8_t view;
    uint8_t request;
    uint8_t rank;
    uint8_t incarnation;
    uint8_t priority;
    int8_t status;
};

uint64_t world_number(uint8_t byte);

/* The core under test. */
struct world_core {
    void (*tick)(void *core);
    uint64_t (*next_ns)(const void *core);
    bool (*over)(const void *core); /* (optional) nothing more to do */
    void (*own)(void *core, const uint8_t args[WORLD_OWN_BYTES]); /* (optional) */

    /* (optional) It has sent this. */
    void (*sent)(void *core, const struct psi_frame *frame, const struct psi_outgoing *outgoing);
};

struct world_conn;

struct world {
    struct psi_env env; /* first: the core's env is its world */
    struct psi_log log;
    uint64_t now_ns;
    uint64_t drawn;
    bool unreachable; /* connects fail */
    bool near;        /* who connects, and who is at test://near, shares memory with the core */
    const struct psi_listener_events *listener_events;
    void *listener_owner;
    struct world_conn *conn[WORLD_CONNS]; /* in order of appearance; NULL: free */
    const struct world_core *core;
    void *object;
    uint8_t *scratch; /* owned; the frame being said */
};

/* Before the core is made, in its env; object is set by the target when it is. */
void world_init(struct world *world, const struct world_core *core);

/* After it is destroyed: asserts that it left nothing behind. */
void world_fini(struct world *world);

/* For what comes before the input: connects, and lets the peer say a frame. */
void world_accept(struct world *world);
void world_settle(struct world *world);
void world_say(struct world *world, unsigned conn, const struct psi_frame *frame,
               const struct psi_pack *body);
void world_say_meta(struct world *world, unsigned conn, const struct psi_frame *frame,
                    const struct psi_meta *meta, const struct psi_pack *body);

/* The same with a message as its body: WORLD_SAY(world, 0, &frame, hello, &hello). */
#define WORLD_SAY(world, conn, frame, name, message)                                               \
    do {                                                                                           \
        uint8_t bytes_[WORLD_BODY_BYTES_MAX];                                                      \
        struct psi_pack pack_;                                                                     \
                                                                                                   \
        psi_pack_init(&pack_, bytes_, sizeof(bytes_));                                             \
        psi_##name##_encode(&pack_, message);                                                      \
        psi_assert(!pack_.overflow);                                                               \
        world_say(world, conn, frame, &pack_);                                                     \
    } while (0)

/* Lets happen what the input says. */
void world_run(struct world *world, const uint8_t *data, size_t size);

#endif
