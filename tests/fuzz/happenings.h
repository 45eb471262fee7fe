/*
 * happenings.h - a hostile world for one core (lane, master or client), told by the fuzzer.
 *
 * The input is read as a list of happenings in a struct world: somebody connects, hangs up, says a
 * frame or half of one, time passes, a connection takes no more bytes. Frames come in a short form,
 * world_frame, and get their header checksum here, so that the fuzzer spends its time behind the
 * decoder.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FUZZ_HAPPENINGS_H
#define FUZZ_HAPPENINGS_H

#include "world/world.h"

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

/* What the target itself adds. */
struct world_script {
    bool (*over)(const void *core); /* (optional) nothing more to do */
    void (*own)(void *core, const uint8_t args[WORLD_OWN_BYTES]);
};

/* Lets happen what the input says. The world must have been made for WORLD_CONNS connections. */
void world_run(struct world *world, const struct world_script *script, const uint8_t *data,
               size_t size);

#endif
