/*
 * happenings.c - what happens to one core, as the input of a fuzzer tells it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "happenings.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "wire/bytes.h"

enum {
    HAPPENINGS_MAX = 256,
    WAIT_MS = 20,
    FILL_BYTES_MAX = 1 << 18,
    FRAME_BYTES_MAX = PSI_FRAME_BYTES + PSI_FRAME_META_MAX + FILL_BYTES_MAX,
    AT_VERSION = 4,
    AT_HEADER_CRC = 60,
};

/* What is left of the input; it reads as zeros when there is nothing left. */
struct input {
    const uint8_t *at;
    size_t left;
    uint8_t *scratch; /* the frame being said */
};

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
    uint8_t *bytes = input->scratch;
    const size_t size = take_frame(input, &conn->asked, bytes);
    const size_t now = half ? size / 2 : size;

    world_feed_rest(conn);
    world_feed(conn, bytes, now);
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

    world_feed_rest(conn);
    world_feed(conn, at, bytes);
}

/* ------------------------------------------------------------------------------ the input --- */

static void
set_flow(struct world *world, struct world_conn *conn, enum world_flow flow)
{
    if (conn == NULL) {
        world->unreachable = flow != WORLD_FLOW_FAST;
        return;
    }
    world_set_flow(conn, flow);
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
        world_hang_up(conn, "hung up");
        break;
    case WORLD_FRAME:
    case WORLD_HALF:
        hear_frame(conn, input, what == WORLD_HALF);
        break;
    case WORLD_REST:
        world_feed_rest(conn);
        break;
    default:
        hear_raw(conn, input);
        break;
    }
}

static void
happen(struct world *world, const struct world_script *script, struct input *input)
{
    const enum world_happening what = take_byte(input) % WORLD_HAPPENINGS;
    const uint8_t which = take_byte(input);
    struct world_conn *conn = world->conn[which % WORLD_CONNS];
    uint8_t args[WORLD_OWN_BYTES];

    switch (what) {
    case WORLD_ACCEPT:
        (void)world_accept(world);
        break;
    case WORLD_WAIT:
        world_wait(world, which * (uint64_t)WAIT_MS);
        break;
    case WORLD_FLOW:
        set_flow(world, conn, take_byte(input) % WORLD_FLOWS);
        break;
    case WORLD_OWN:
        for (size_t i = 0; i < sizeof(args); i++) {
            args[i] = take_byte(input);
        }
        script->own(world->object, args);
        break;
    default:
        happen_to(conn, what, input);
        break;
    }
}

void
world_run(struct world *world, const struct world_script *script, const uint8_t *data, size_t size)
{
    struct input input = {.at = data, .left = size, .scratch = malloc(FRAME_BYTES_MAX)};

    psi_assert(input.scratch != NULL && world->conns_max == WORLD_CONNS);
    for (unsigned i = 0; i < HAPPENINGS_MAX && input.left > 0; i++) {
        if (script->over != NULL && script->over(world->object)) {
            break;
        }
        happen(world, script, &input);
        world_settle(world);
    }
    free(input.scratch);
}
