/*
 * wire_test.c - bytes <-> structs: layout, round trips, boundaries, truncations.
 *
 * Bodies are decoded out of heap blocks of exactly their size, so that the address sanitizer sees
 * the first byte read too far. PSD_TEST_SEED repeats a run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/message.h"

enum {
    NODES_MAX = PSI_RANKS_MAX + PSI_SERVERS_MAX + 1,
    ROUNDS = 20, /* random contents per message */
    LIST = 5,    /* random lists are shorter than this: every truncation is tried */
};

/* splitmix64: enough to vary the contents, and a seed says it all. */
static uint64_t
draw(uint64_t *random)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t
draw_below(uint64_t *random, uint32_t limit)
{
    return (uint32_t)(draw(random) % limit);
}

static void
draw_text(uint64_t *random, char *text, size_t capacity)
{
    const size_t length = draw_below(random, (uint32_t)capacity);

    memset(text, 0, capacity);
    for (size_t i = 0; i < length; i++) {
        text[i] = (char)('!' + draw_below(random, 94));
    }
}

static double
draw_f64(uint64_t *random)
{
    return (double)(int64_t)draw(random) / 1024.0;
}

static int
start(void **state)
{
    const char *given = getenv("PSD_TEST_SEED");
    uint64_t *seed = malloc(sizeof(*seed));

    if (seed == NULL) {
        return -1;
    }
    *seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("seed %" PRIu64 " (PSD_TEST_SEED)\n", *seed);
    *state = seed;
    return 0;
}

static int
stop(void **state)
{
    free(*state);
    return 0;
}

/* A heap block of exactly `size` bytes. */
static uint8_t *
exact(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size);

    assert_true(copy != NULL || size == 0);
    if (size > 0) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

/* ------------------------------------------------------------------------------------ header */

static struct psi_frame
plain_frame(uint8_t type)
{
    return (struct psi_frame){.type = type};
}

static psd_status
frame_through(const struct psi_frame *in, struct psi_frame *out, struct psd_error *err)
{
    uint8_t bytes[PSI_FRAME_BYTES];

    psi_frame_encode(in, bytes);
    return psi_frame_decode(bytes, out, err);
}

/* If this fails, we and a client written from docs/protocol.md do not understand each other. */
static void
test_frame_layout(void **state)
{
    static const uint8_t expected[60] = {
        'P',  'S',  'D',  '1',                          /* 0 magic */
        1,    30,   0x05, 0x80,                         /* 4 version, type, flags */
        0x78, 0x56, 0x34, 0x00,                         /* 8 payload_bytes */
        0x0e, 0x0d, 3,    0,                            /* 12 meta_bytes, dtype, codec */
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, /* 16 seq */
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, /* 24 step */
        0x34, 0x33, 0x32, 0x31,                         /* 32 view */
        0x44, 0x43, 0x42, 0x41,                         /* 36 request */
        0x54, 0x53, 0x52, 0x51,                         /* 40 table */
        0x64, 0x63, 0x62, 0x61,                         /* 44 chunk */
        0x72, 0x71, 0x74, 0x73,                         /* 48 rank, incarnation */
        0x81, 0x82, 0xd3, 0xff,                         /* 52 level, priority, status */
        0x94, 0x93, 0x92, 0x91,                         /* 56 payload_crc */
    };
    const struct psi_frame frame = {
        .type = PSI_FRAME_PUSH,
        .flags = 0x8000 | PSI_FLAG_CHECKSUM | PSI_FLAG_EXACT,
        .payload_bytes = 0x345678,
        .meta_bytes = 0x0d0e,
        .dtype = PSD_F16,
        .seq = 0x1112131415161718,
        .step = 0x2122232425262728,
        .view = 0x31323334,
        .request = 0x41424344,
        .table = 0x51525354,
        .chunk = 0x61626364,
        .rank = 0x7172,
        .incarnation = 0x7374,
        .level = 0x81,
        .priority = 0x82,
        .status = PSD_ERR_PROTOCOL,
        .payload_crc = 0x91929394,
    };
    uint8_t bytes[PSI_FRAME_BYTES];

    psi_frame_encode(&frame, bytes);
    for (size_t i = 0; i < sizeof(expected); i++) {
        if (bytes[i] != expected[i]) {
            fail_msg("byte %zu: 0x%02x, expected 0x%02x", i, bytes[i], expected[i]);
        }
    }
    assert_int_equal(psi_load_u32(bytes + 60), psi_crc32c_portable(0, expected, sizeof(expected)));
}

/* If this fails, a field of some header arrives changed. */
static void
test_frame_round_trip(void **state)
{
    uint64_t random = *(uint64_t *)*state;

    for (int i = 0; i < 10000; i++) {
        const struct psi_frame in = {
            .type = PSI_FRAME_PUSH,
            .flags = (uint16_t)(draw(&random) & 0xff05),
            .payload_bytes = draw_below(&random, PSI_FRAME_CHUNK_MAX + 1),
            .meta_bytes = (uint16_t)draw_below(&random, PSI_FRAME_META_MAX + 1),
            .dtype = (uint8_t)draw_below(&random, PSD_BF16 + 1),
            .seq = draw(&random),
            .step = draw(&random),
            .view = (uint32_t)draw(&random),
            .request = (uint32_t)draw(&random),
            .table = (uint32_t)draw(&random),
            .chunk = (uint32_t)draw(&random),
            .rank = (uint16_t)draw(&random),
            .incarnation = (uint16_t)draw(&random),
            .level = (uint8_t)draw(&random),
            .priority = (uint8_t)draw(&random),
            .status = (int16_t)draw(&random),
            .payload_crc = (uint32_t)draw(&random),
        };
        struct psi_frame out;
        uint8_t bytes[PSI_FRAME_BYTES];
        uint8_t again[PSI_FRAME_BYTES];

        psi_frame_encode(&in, bytes);
        assert_int_equal(psi_frame_decode(bytes, &out, NULL), PSD_OK);
        psi_frame_encode(&out, again);
        assert_memory_equal(bytes, again, sizeof(bytes));
        assert_int_equal(out.seq, in.seq);
        assert_int_equal(out.step, in.step);
        assert_int_equal(out.status, in.status);
    }
}

/* If this fails, a stranger's bytes are taken for a frame, or a version mismatch is a riddle. */
static void
test_frame_refuses_strangers(void **state)
{
    const struct psi_frame frame = plain_frame(PSI_FRAME_HELLO);
    struct psi_frame out = plain_frame(0);
    struct psd_error err;
    uint8_t bytes[PSI_FRAME_BYTES];

    psi_frame_encode(&frame, bytes);
    bytes[0] ^= 1;
    assert_int_equal(psi_frame_decode(bytes, &out, &err), PSD_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "magic"));
    bytes[0] ^= 1;
    bytes[4] = 7;
    assert_int_equal(psi_frame_decode(bytes, &out, &err), PSD_ERR_VERSION);
    assert_non_null(strstr(err.text, "version 7"));
    assert_non_null(strstr(err.text, "we speak 1"));
    assert_int_equal(out.type, 0); /* nothing was written */
}

/* The contract of frame.h, once more and by hand: the payload a type may have, -1 for a reserved
 * one, -2 for none. */
static int64_t
limit_of(unsigned type)
{
    switch (type) {
    case 1:
    case 3:
        return 4096;
    case 30:
    case 32:
    case 34:
    case 35:
    case 36:
    case 37:
    case 45:
    case 46:
    case 47:
    case 77:
    case 78:
    case 50:
    case 52:
    case 65:
        return 16 << 20;
    case 44:
        return -1;
    default:
        break;
    }
    if ((type >= 2 && type <= 7) || (type >= 10 && type <= 22) || type == 24 ||
        (type >= 31 && type <= 43) || (type >= 48 && type <= 49) || (type >= 51 && type <= 64) ||
        (type >= 66 && type <= 76)) {
        return 1 << 20;
    }
    return -2;
}

/* What frame.h says about a type: "reserved..." for those that must not be sent yet. */
static const char *
text_of(unsigned type)
{
    switch (type) {
#define TYPE_TEXT(name, code, traits, text)                                                        \
    case code:                                                                                     \
        return text;
        PSI_FRAME_MAP(TYPE_TEXT)
#undef TYPE_TEXT
    default:
        return "";
    }
}

/* If this fails, a peer can make us reserve more memory than its kind of frame may take. */
static void
test_frame_limits_by_type(void **state)
{
    for (unsigned type = 0; type < 256; type++) {
        const int64_t limit = limit_of(type);
        struct psi_frame frame = plain_frame((uint8_t)type);
        struct psi_frame out;
        struct psd_error err;

        assert_int_equal(strncmp(text_of(type), "reserved", 8) == 0, limit == -1);
        if (limit < 0) {
            assert_int_equal(frame_through(&frame, &out, &err), PSD_ERR_PROTOCOL);
            assert_non_null(strstr(err.text, limit == -1 ? "reserved" : "not known"));
            assert_int_equal(strcmp(psi_frame_type_name((uint8_t)type), "?") == 0, limit == -2);
            continue;
        }
        frame.payload_bytes = (uint32_t)limit;
        frame.meta_bytes = PSI_FRAME_META_MAX;
        assert_int_equal(frame_through(&frame, &out, &err), PSD_OK);
        frame.payload_bytes++;
        assert_int_equal(frame_through(&frame, &out, &err), PSD_ERR_PROTOCOL);
        assert_non_null(strstr(err.text, psi_frame_type_name((uint8_t)type)));
        frame.payload_bytes = 0;
        frame.meta_bytes++;
        assert_int_equal(frame_through(&frame, &out, &err), PSD_ERR_PROTOCOL);
        assert_non_null(strstr(err.text, "meta"));
    }
}

/* If this fails, a frame that asks for something unknown is taken for one that does not. */
static void
test_frame_must_understand(void **state)
{
    struct psi_frame out;

    for (unsigned bit = 0; bit < 16; bit++) {
        struct psi_frame frame = plain_frame(PSI_FRAME_PUSH);
        const bool known = bit < 7 || bit >= 8;

        frame.flags = (uint16_t)(1u << bit);
        assert_int_equal(frame_through(&frame, &out, NULL), known ? PSD_OK : PSD_ERR_PROTOCOL);
    }
    for (unsigned dtype = 0; dtype < 256; dtype++) {
        struct psi_frame frame = plain_frame(PSI_FRAME_PUSH);

        frame.dtype = (uint8_t)dtype;
        assert_int_equal(frame_through(&frame, &out, NULL), dtype < 5 ? PSD_OK : PSD_ERR_PROTOCOL);
        frame.dtype = 0;
        frame.codec = (uint8_t)dtype;
        assert_int_equal(frame_through(&frame, &out, NULL), dtype < 1 ? PSD_OK : PSD_ERR_PROTOCOL);
    }
}

/* If this fails, an empty contribution can carry bytes that nobody looks at. */
static void
test_frame_empty_has_no_payload(void **state)
{
    struct psi_frame frame = plain_frame(PSI_FRAME_PUSH);
    struct psi_frame out;

    frame.flags = PSI_FLAG_EMPTY;
    assert_int_equal(frame_through(&frame, &out, NULL), PSD_OK);
    frame.payload_bytes = 4;
    assert_int_equal(frame_through(&frame, &out, NULL), PSD_ERR_PROTOCOL);
}

/* If this fails, a header damaged in one bit is believed. */
static void
test_frame_checksum_sees_every_bit(void **state)
{
    const struct psi_frame frame = {.type = PSI_FRAME_PULL, .step = 5, .chunk = 9, .request = 3};
    struct psi_frame out;
    struct psd_error err;
    uint8_t bytes[PSI_FRAME_BYTES];

    psi_frame_encode(&frame, bytes);
    for (unsigned bit = 0; bit < 8 * PSI_FRAME_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(psi_frame_decode(bytes, &out, &err), PSD_OK);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    bytes[24] ^= 1;
    assert_int_equal(psi_frame_decode(bytes, &out, &err), PSD_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "checksum"));
}

/* -------------------------------------------------------------------------------------- meta */

static struct psi_meta
some_meta(unsigned options)
{
    struct psi_meta meta = {0};

    if (options & 1) {
        meta.has_part = true;
        meta.part = 200;
    }
    if (options & 2) {
        meta.has_deadline = true;
        meta.deadline_ms = 0xfffffffe;
    }
    if (options & 4) {
        meta.has_weight = true;
        meta.weight = 1.0f;
    }
    if (options & 8) {
        meta.has_trace = true;
        meta.trace = 0x0102030405060708;
    }
    if (options & 16) {
        meta.has_node = true;
        meta.node_first = 768;
        meta.node_leaves = 255;
    }
    return meta;
}

static psd_status
meta_from(const uint8_t *bytes, size_t size, struct psi_meta *meta)
{
    uint8_t *copy = exact(bytes, size);
    struct psd_error err = {0};
    const psd_status status = psi_meta_decode(copy, size, meta, &err);

    assert_int_equal(status == PSD_OK, err.text[0] == '\0');
    free(copy);
    return status;
}

static bool
same_meta(const struct psi_meta *a, const struct psi_meta *b)
{
    return a->has_part == b->has_part && a->part == b->part && a->has_deadline == b->has_deadline &&
           a->deadline_ms == b->deadline_ms && a->has_weight == b->has_weight &&
           a->weight == b->weight && a->has_trace == b->has_trace && a->trace == b->trace &&
           a->has_node == b->has_node && a->node_first == b->node_first &&
           a->node_leaves == b->node_leaves;
}

/* If this fails, an option gets lost, or half an option is believed. */
static void
test_meta_round_trip_and_truncation(void **state)
{
    for (unsigned options = 0; options < 32; options++) {
        const struct psi_meta in = some_meta(options);
        struct psi_meta out;
        uint8_t bytes[PSI_FRAME_META_MAX];
        const size_t size = psi_meta_encode(&in, bytes);

        assert_int_equal(meta_from(bytes, size, &out), PSD_OK);
        assert_true(same_meta(&in, &out));
        for (size_t cut = 1; cut < size; cut++) {
            const psd_status status = meta_from(bytes, cut, &out);

            /* Options are self-contained: cut between two of them, the first ones are whole. */
            assert_true(status == PSD_ERR_PROTOCOL || psi_meta_encode(&out, bytes) == cut);
            psi_meta_encode(&in, bytes);
        }
    }
}

/* If this fails, options of a newer peer are misread, or ours are read twice. */
static void
test_meta_tags(void **state)
{
    static const struct {
        psd_status status;
        size_t size;
        uint8_t bytes[16];
    } cases[] = {
        {PSD_OK, 7, {0x64, 0, 3, 0, 1, 2, 3}},                  /* unknown, may be ignored */
        {PSD_ERR_PROTOCOL, 6, {0x64, 0, 3, 0, 1, 2}},           /* ... but not half of it */
        {PSD_ERR_PROTOCOL, 4, {0x65, 0, 0, 0}},                 /* unknown, must be understood */
        {PSD_ERR_PROTOCOL, 4, {7, 0, 0, 0}},                    /* kept for a range */
        {PSD_OK, 8, {5, 0, 4, 0, 0xff, 3, 0, 4}},               /* a node */
        {PSD_ERR_PROTOCOL, 8, {5, 0, 4, 0, 0, 4, 1, 0}},        /* of a rank beyond the last */
        {PSD_ERR_PROTOCOL, 8, {5, 0, 4, 0, 0, 0, 1, 4}},        /* of more gradients than ranks */
        {PSD_ERR_PROTOCOL, 4, {0, 0, 0, 0}},                    /* no tag is 0 */
        {PSD_OK, 5, {1, 0, 1, 0, 9}},                           /* part */
        {PSD_ERR_PROTOCOL, 5, {1, 0, 0, 0, 9}},                 /* part of no byte */
        {PSD_ERR_PROTOCOL, 6, {1, 0, 2, 0, 9, 9}},              /* part of two bytes */
        {PSD_ERR_PROTOCOL, 10, {1, 0, 1, 0, 9, 1, 0, 1, 0, 9}}, /* twice */
        {PSD_ERR_PROTOCOL, 9, {2, 0, 4, 0, 1, 1, 1, 1, 1}},     /* a byte behind the last */
        {PSD_ERR_PROTOCOL, 13, {2, 0, 4, 0, 1, 1, 1, 1, 1, 0, 1, 0, 9}}, /* falling tags */
        {PSD_OK, 8, {3, 0, 4, 0, 0, 0, 0x80, 0x3f}},                     /* weight 1 */
        {PSD_ERR_PROTOCOL, 8, {3, 0, 4, 0, 0, 0, 0, 0x40}},              /* weight 2 */
        {PSD_ERR_PROTOCOL, 8, {3, 0, 4, 0, 0, 0, 0xc0, 0x7f}},           /* weight NaN */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_meta meta;

        if (meta_from(cases[i].bytes, cases[i].size, &meta) != cases[i].status) {
            fail_msg("case %zu", i);
        }
    }
}

/* ---------------------------------------------------------------------------------- messages */

/* One message of any kind, with the arrays its lists need (one entry more than is legal). */
struct sample {
    union {
        struct psi_hello hello;
        struct psi_welcome welcome;
        struct psi_verdict verdict;
        struct psi_ping ping;
        struct psi_view view;
        struct psi_propose propose;
        struct psi_view_ack view_ack;
        struct psi_table_info table_info;
        struct psi_nodes nodes;
        struct psi_share share;
        struct psi_ranks ranks;
        struct psi_subscribe subscribe;
        struct psi_adopt adopt;
        struct psi_results results;
        struct psi_lane_state lane_state;
        struct psi_worker_state worker_state;
        struct psi_telling telling;
        struct psi_pair pair;
        struct psi_change change;
        struct psi_snapshot snapshot;
        struct psi_step_state step_state;
        struct psi_done done;
        struct psi_order order;
        struct psi_written written;
        struct psi_blocks blocks;
        struct psi_part part;
        struct psi_refers refers;
        struct psi_rows_saved rows_saved;
    };
    struct psi_view_worker worker[PSI_RANKS_MAX + 1];
    struct psi_view_place place[PSI_PLACES_MAX + 1];
    struct psi_view_table table[PSI_TABLES_MAX + 1];
    struct psi_given given[PSI_TABLES_MAX + 1];
    struct psd_node node[NODES_MAX + 1];
    struct psi_adopt_run run[PSI_ADOPT_RUNS_MAX + 1];
    struct psi_result result[PSI_RESULTS_MAX + 1];
    uint64_t next[PSI_RANKS_MAX + 1];
    struct psi_mark mark[PSI_RANKS_MAX + 1];
    struct psi_order_table order_table[PSI_TABLES_MAX + 1];
    struct psi_earlier_bytes earlier[PSI_EARLIER_MAX + 1];
    struct psi_saved_file saved_file[PSI_ROWS_SAVED_MAX + 1];
    struct psi_written_table written_table[PSI_TABLES_MAX + 1];
    uint32_t block[PSI_BLOCKS_MAX + 1];
};

/* What a decoder finds in front of it: zeros, and the arrays it may fill. */
static void
prepare_plain(struct sample *sample)
{
    _Static_assert(sizeof(sample->telling) >= sizeof(sample->table_info), "the largest");
    memset(&sample->telling, 0, sizeof(sample->telling));
}

static void
prepare_view(struct sample *sample)
{
    prepare_plain(sample);
    sample->view.worker = sample->worker;
    sample->view.place = sample->place;
    sample->view.table = sample->table;
}

static void
prepare_adopt(struct sample *sample)
{
    prepare_plain(sample);
    sample->adopt.run = sample->run;
}

static void
prepare_results(struct sample *sample)
{
    prepare_plain(sample);
    sample->results.result = sample->result;
}

static void
prepare_snapshot(struct sample *sample)
{
    prepare_plain(sample);
    sample->snapshot.next = sample->next;
    sample->snapshot.marks = sample->mark;
}

static void
prepare_order(struct sample *sample)
{
    prepare_plain(sample);
    sample->order.table = sample->order_table;
}

static void
prepare_written(struct sample *sample)
{
    prepare_plain(sample);
    sample->written.table = sample->written_table;
}

static void
prepare_refers(struct sample *sample)
{
    prepare_plain(sample);
    sample->refers.bytes = sample->earlier;
}

static void
prepare_rows_saved(struct sample *sample)
{
    prepare_plain(sample);
    sample->rows_saved.file = sample->saved_file;
}

static void
prepare_blocks(struct sample *sample)
{
    prepare_plain(sample);
    sample->blocks.checksum = sample->block;
}

static void
prepare_view_ack(struct sample *sample)
{
    prepare_plain(sample);
    sample->view_ack.given = sample->given;
}

static void
prepare_nodes(struct sample *sample)
{
    prepare_plain(sample);
    sample->nodes.node = sample->node;
}

static void
fill_hello(uint64_t *random, struct sample *sample)
{
    struct psi_hello *hello = &sample->hello;

    hello->role = (uint8_t)(PSI_ROLE_SERVER + draw_below(random, 4));
    hello->lanes = 1 + draw_below(random, PSI_LANES_MAX);
    hello->lane = draw_below(random, hello->lanes);
    hello->rank = draw_below(random, PSI_SERVERS_MAX);
    if ((hello->role == PSI_ROLE_WORKER || hello->role == PSI_ROLE_OBSERVER) &&
        draw_below(random, 2) == 0) {
        hello->rank = PSI_RANK_AUTO;
    }
    hello->incarnation = draw_below(random, UINT16_MAX + 1);
    hello->life = draw(random);
    hello->kernel_revision = (uint32_t)draw(random);
    hello->job = draw(random);
    draw_text(random, hello->address, sizeof(hello->address));
    draw_text(random, hello->build, sizeof(hello->build));
    hello->host = draw(random);
    hello->term = draw_below(random, PSI_TERM_MAX + 1);
    hello->view = (uint32_t)draw(random);
    hello->tells = draw_below(random, 2) == 0;
    hello->pair = draw(random);
    hello->recalls = draw_below(random, 2) == 0;
    hello->in_time = draw_below(random, 2) == 0;
    hello->join_step = draw(random);
}

static void
fill_welcome(uint64_t *random, struct sample *sample)
{
    struct psi_welcome *welcome = &sample->welcome;

    welcome->rank = draw_below(random, PSI_RANKS_MAX);
    welcome->incarnation = draw_below(random, UINT16_MAX + 1);
    welcome->workers = draw_below(random, PSI_RANKS_MAX + 1);
    welcome->servers = draw_below(random, PSI_SERVERS_MAX + 1);
    welcome->heartbeat_ms = (uint32_t)draw(random);
    welcome->dead_ms = (uint32_t)draw(random) | 1;
    welcome->survives = draw_below(random, 2) == 0;
    welcome->term = draw_below(random, PSI_TERM_MAX + 1);
    welcome->master_grace_ms = (uint32_t)draw(random);
    welcome->barriers = draw(random);
    welcome->policy = (uint8_t)draw_below(random, 3);
    welcome->job = draw(random);
    welcome->window_bytes = (uint32_t)draw(random);
    welcome->view = (uint32_t)draw(random);
    welcome->elastic = draw_below(random, 2) == 0;
    welcome->size = draw_below(random, PSI_RANKS_MAX + 1);
}

static void
fill_verdict(uint64_t *random, struct sample *sample)
{
    sample->verdict.status = -(int32_t)draw_below(random, 61);
    sample->verdict.exit_code = (int32_t)draw_below(random, 256);
    draw_text(random, sample->verdict.text, sizeof(sample->verdict.text));
}

static void
fill_ping(uint64_t *random, struct sample *sample)
{
    sample->ping.step = draw(random);
    sample->ping.value = draw_f64(random);
    draw_text(random, sample->ping.name, sizeof(sample->ping.name));
}

static void
fill_subscribe(uint64_t *random, struct sample *sample)
{
    sample->subscribe.every_ms = (uint32_t)draw(random);
    sample->subscribe.metrics = draw_below(random, 2) == 0;
}

static void
fill_traffic(uint64_t *random, uint32_t *count, struct psi_traffic *traffic)
{
    *count = draw_below(random, 4) == 0 ? PSI_TRAFFIC_MAX : draw_below(random, 3);
    for (uint32_t i = 0; i < *count; i++) {
        traffic[i] = (struct psi_traffic){.id = (uint32_t)draw(random),
                                          .bytes_out = draw(random),
                                          .bytes_in = draw(random),
                                          .frames_out = draw(random),
                                          .frames_in = draw(random)};
    }
}

static void
fill_points(uint64_t *random, struct psi_telling *telling)
{
    telling->names = 1 + draw_below(random, PSI_SCALARS_MAX);
    for (uint32_t i = 0; i < telling->names; i++) {
        draw_text(random, telling->name[i], sizeof(telling->name[i]));
    }
    telling->points = draw_below(random, PSI_POINTS_MAX + 1);
    for (uint32_t i = 0; i < telling->points; i++) {
        telling->point[i].name = (uint8_t)draw_below(random, telling->names);
        telling->point[i].step = draw(random) % (PSI_TOLD_STEP_MAX + 1);
        telling->point[i].value = draw_f64(random);
    }
}

static void
fill_spans(uint64_t *random, struct psi_telling *telling)
{
    telling->marks = 1 + draw_below(random, PSI_MARKS_MAX);
    for (uint32_t i = 0; i < telling->marks; i++) {
        draw_text(random, telling->mark[i], sizeof(telling->mark[i]));
    }
    telling->spans = draw_below(random, PSI_SPANS_MAX + 1);
    for (uint32_t i = 0; i < telling->spans; i++) {
        struct psi_span *span = &telling->span[i];

        span->kind = (uint8_t)(1 + draw_below(random, PSI_SPAN_MARK));
        span->what = draw_below(random, telling->marks);
        span->who = (uint32_t)draw(random);
        span->us = (uint32_t)draw(random);
        span->apply_us = (uint32_t)draw(random);
        span->step = draw(random) % (PSI_TOLD_STEP_MAX + 1);
        span->begin_us = 1 + draw(random) % PSI_TOLD_END_MAX;
    }
    telling->waited = draw_below(random, PSI_WAITED_MAX + 1);
    for (uint32_t i = 0; i < telling->waited; i++) {
        telling->wait[i].rank = draw_below(random, PSI_RANKS_MAX);
        telling->wait[i].ns = draw(random);
    }
}

static void
fill_telling(uint64_t *random, struct sample *sample)
{
    struct psi_telling *telling = &sample->telling;

    telling->step = draw(random) % (PSI_TOLD_STEP_MAX + 1);
    telling->metrics = draw_below(random, PSI_METRICS_TOLD_MAX + 1);
    for (uint16_t i = 0; i < telling->metrics; i++) {
        telling->metric[i] = (struct psi_metric_value){.metric = i, .value = draw(random)};
    }
    fill_points(random, telling);
    telling->steps = draw_below(random, PSI_STEPS_MAX + 1);
    for (uint32_t i = 0; i < telling->steps; i++) {
        telling->times[i] = (struct psi_step_times){.step = draw(random) % PSI_TOLD_STEP_MAX,
                                                    .total_us = (uint32_t)draw(random),
                                                    .compute_us = (uint32_t)draw(random),
                                                    .encode_us = (uint32_t)draw(random),
                                                    .send_us = (uint32_t)draw(random),
                                                    .wait_us = (uint32_t)draw(random),
                                                    .receive_us = (uint32_t)draw(random),
                                                    .alone_us = (uint32_t)draw(random),
                                                    .server = (uint32_t)draw(random),
                                                    .end_us = draw(random) % PSI_TOLD_END_MAX};
    }
    fill_traffic(random, &telling->servers, telling->server);
    fill_traffic(random, &telling->tables, telling->table);
    fill_spans(random, telling);
}

static void
fill_lane_state(uint64_t *random, struct sample *sample)
{
    sample->lane_state.load_barriers = draw(random);
    sample->lane_state.frozen = draw_below(random, 2) == 0;
    sample->lane_state.done.word[draw_below(random, PSI_RANKS_MAX / 64)] = draw(random);
    sample->lane_state.pair = draw(random);
    sample->lane_state.is_eligible = draw_below(random, 2) == 0;
    sample->lane_state.crossed.places = draw_below(random, LIST);
    for (uint32_t i = 0; i < sample->lane_state.crossed.places; i++) {
        sample->lane_state.crossed.number[i] = draw(random);
    }
}

static void
fill_done(uint64_t *random, struct sample *sample)
{
    sample->done.ranks.word[draw_below(random, PSI_RANKS_MAX / 64)] = draw(random);
    sample->done.crossed.places = draw_below(random, LIST);
    for (uint32_t i = 0; i < sample->done.crossed.places; i++) {
        sample->done.crossed.number[i] = draw(random);
    }
}

static void
fill_worker_state(uint64_t *random, struct sample *sample)
{
    sample->worker_state.before = draw(random);
    for (unsigned kind = 0; kind < PSI_BARRIER_KINDS; kind++) {
        sample->worker_state.passed[kind] = draw_below(random, 1000);
        sample->worker_state.come[kind] =
            sample->worker_state.passed[kind] + draw_below(random, 1000);
    }
}

static void
fill_pair(uint64_t *random, struct sample *sample)
{
    sample->pair.server = draw_below(random, PSI_SERVERS_MAX);
    sample->pair.lane = draw_below(random, PSI_LANES_MAX);
    sample->pair.lanes = 1 + draw_below(random, PSI_LANES_MAX);
    sample->pair.life = draw(random);
    draw_text(random, sample->pair.address, sizeof(sample->pair.address));
}

static void
fill_change(uint64_t *random, struct sample *sample)
{
    struct psi_change *change = &sample->change;

    change->version = draw(random);
    change->updates = draw(random);
    change->step = draw(random);
    change->gradients = draw_below(random, PSI_RANKS_MAX + 1);
    change->is_empty = draw_below(random, 2) == 0;
    change->is_real = draw_below(random, 2) == 0;
    change->rank = draw_below(random, PSI_RANKS_MAX);
    change->incarnation = draw_below(random, UINT16_MAX + 1);
    change->sequence = draw(random);
    change->in.word[draw_below(random, PSI_RANKS_MAX / 64)] = draw(random);
    change->rows = draw_below(random, UINT32_MAX);
    change->goes_on = draw_below(random, 2) == 0;
    change->in_parts = draw_below(random, 2) == 0;
}

static void
fill_snapshot(uint64_t *random, struct sample *sample)
{
    struct psi_snapshot *snapshot = &sample->snapshot;

    snapshot->version = draw(random);
    snapshot->updates = draw(random);
    snapshot->ready = draw_below(random, 2) == 0;
    snapshot->pushed = draw_below(random, 2) == 0;
    snapshot->ranks = draw_below(random, LIST);
    snapshot->marked = draw_below(random, LIST);
    for (uint32_t i = 0; i < snapshot->ranks; i++) {
        snapshot->next[i] = draw(random);
    }
    for (uint32_t i = 0; i < snapshot->marked; i++) {
        snapshot->marks[i].incarnation = draw_below(random, UINT16_MAX + 1);
        snapshot->marks[i].sequence = draw(random);
    }
}

static void
fill_order(uint64_t *random, struct sample *sample)
{
    struct psi_order *order = &sample->order;

    order->token = draw(random);
    order->generation = draw(random);
    order->after = draw(random);
    order->bytes[0] = draw(random);
    order->bytes[1] = draw(random);
    order->tables = draw_below(random, LIST);
    for (uint32_t i = 0; i < order->tables; i++) {
        order->table[i].id = draw_below(random, PSI_TABLES_MAX);
        for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
            order->table[i].begin[part] = draw(random);
        }
    }
}

static void
fill_written(uint64_t *random, struct sample *sample)
{
    struct psi_written *written = &sample->written;

    written->news = (enum psi_written_news)draw_below(random, PSI_WRITTEN_NEWS);
    draw_text(random, written->text, sizeof(written->text));
    for (unsigned file = 0; file < PSI_SAVED_FILES; file++) {
        written->bytes[file] = draw(random);
        written->checksum[file] = (uint32_t)draw(random);
    }
    written->tables = draw_below(random, LIST);
    for (uint32_t i = 0; i < written->tables; i++) {
        written->table[i].id = draw_below(random, PSI_TABLES_MAX);
        written->table[i].updates = draw(random);
    }
}

static void
fill_refers(uint64_t *random, struct sample *sample)
{
    struct psi_refers *refers = &sample->refers;

    refers->file = (uint8_t)draw_below(random, PSI_SAVED_FILES);
    refers->first = (uint32_t)draw(random);
    refers->count = draw_below(random, LIST);
    for (uint32_t i = 0; i < refers->count; i++) {
        refers->bytes[i] = (struct psi_earlier_bytes){draw(random), draw(random), draw(random)};
    }
}

static void
fill_rows_saved(uint64_t *random, struct sample *sample)
{
    struct psi_rows_saved *saved = &sample->rows_saved;

    saved->place = draw_below(random, PSI_PLACES_MAX);
    saved->first = (uint32_t)draw(random);
    saved->count = draw_below(random, LIST);
    for (uint32_t i = 0; i < saved->count; i++) {
        saved->file[i] = (struct psi_saved_file){.table = draw_below(random, PSI_TABLES_MAX),
                                                 .generation = draw(random),
                                                 .number = (uint32_t)draw(random),
                                                 .first_bucket = (uint32_t)draw(random),
                                                 .end_bucket = (uint32_t)draw(random),
                                                 .rows = (uint32_t)draw(random),
                                                 .cleared = (uint32_t)draw(random),
                                                 .counted = (uint32_t)draw(random),
                                                 .bytes = draw(random),
                                                 .checksum = (uint32_t)draw(random)};
    }
}

static void
fill_blocks(uint64_t *random, struct sample *sample)
{
    struct psi_blocks *blocks = &sample->blocks;

    blocks->file = (uint8_t)draw_below(random, PSI_SAVED_FILES);
    blocks->first = (uint32_t)draw(random);
    blocks->count = draw_below(random, LIST);
    for (uint32_t i = 0; i < blocks->count; i++) {
        blocks->checksum[i] = (uint32_t)draw(random);
    }
}

static void
fill_part(uint64_t *random, struct sample *sample)
{
    struct psi_part *part = &sample->part;

    part->news = (enum psi_part_news)draw_below(random, PSI_PART_NEWS);
    part->token = draw(random);
    part->every = draw(random);
    part->bytes = draw(random);
    part->checksum = (uint32_t)draw(random);
    draw_text(random, part->text, sizeof(part->text));
}

static void
fill_step_state(uint64_t *random, struct sample *sample)
{
    struct psi_step_state *state = &sample->step_state;

    state->value = draw(random);
    state->rank = draw_below(random, PSI_RANKS_MAX);
    state->count = draw_below(random, LIST);
    for (uint32_t i = 0; i < state->count; i++) {
        state->add[i].incarnation = draw_below(random, UINT16_MAX + 1);
        state->add[i].sequence = draw(random);
        state->add[i].result = draw(random);
    }
}

static void
fill_view(uint64_t *random, struct sample *sample)
{
    struct psi_view *view = &sample->view;

    view->id = (uint32_t)draw(random);
    view->workers = 1 + draw_below(random, LIST);
    view->changes = (uint32_t)draw(random);
    view->places = draw_below(random, LIST);
    view->change = draw_below(random, PSI_VIEW_CHANGES);
    view->who = view->change == PSI_VIEW_FIRST         ? 0
                : view->change == PSI_VIEW_SERVER_BACK ? draw_below(random, PSI_SERVERS_MAX)
                                                       : draw_below(random, view->workers);
    view->tables = view->change == PSI_VIEW_FIRST || view->change == PSI_VIEW_SERVER_BACK
                       ? 0
                       : draw_below(random, LIST);
    for (uint32_t i = 0; i < view->workers; i++) {
        view->worker[i].incarnation = draw_below(random, UINT16_MAX + 1);
        view->worker[i].member = draw_below(random, 2) == 0;
        view->worker[i].host = draw(random);
        view->worker[i].counts_from = draw(random);
        view->worker[i].counts_until = draw(random);
        draw_text(random, view->worker[i].address, sizeof(view->worker[i].address));
    }
    for (uint32_t i = 0; i < view->places; i++) {
        view->place[i].server = draw_below(random, PSI_SERVERS_MAX);
        view->place[i].lane = draw_below(random, PSI_LANES_MAX);
        view->place[i].incarnation = draw_below(random, UINT16_MAX + 1);
        draw_text(random, view->place[i].address, sizeof(view->place[i].address));
        view->place[i].process = draw(random);
    }
    for (uint32_t i = 0; i < view->tables; i++) {
        view->table[i].id = (uint32_t)draw(random);
        view->table[i].left_at = draw(random);
        view->table[i].drop = draw_below(random, 2) == 0;
    }
}

static void
fill_propose(uint64_t *random, struct sample *sample)
{
    sample->propose.id = (uint32_t)draw(random);
    sample->propose.rank = draw_below(random, PSI_RANKS_MAX);
    sample->propose.leaves = draw_below(random, 2) == 0;
    sample->propose.joins = !sample->propose.leaves && draw_below(random, 2) == 0;
}

static void
fill_adopt(uint64_t *random, struct sample *sample)
{
    sample->adopt.runs = draw_below(random, LIST);
    for (uint32_t i = 0; i < sample->adopt.runs; i++) {
        struct psi_adopt_run *run = &sample->run[i];

        run->first = draw_below(random, PSI_CHUNKS_MAX);
        run->count = 1 + draw_below(random, PSI_CHUNKS_MAX - run->first);
        run->base = draw(random);
        run->has = draw_below(random, PSI_HAS_KINDS);
    }
}

static void
fill_results(uint64_t *random, struct sample *sample)
{
    sample->results.count = draw_below(random, LIST);
    for (uint32_t i = 0; i < sample->results.count; i++) {
        sample->result[i] = (struct psi_result){.table = draw_below(random, PSI_TABLES_MAX),
                                                .chunk = draw_below(random, PSI_CHUNKS_MAX),
                                                .step = draw(random)};
    }
}

static void
fill_view_ack(uint64_t *random, struct sample *sample)
{
    sample->view_ack.id = (uint32_t)draw(random);
    sample->view_ack.tables = draw_below(random, LIST);
    for (uint32_t i = 0; i < sample->view_ack.tables; i++) {
        struct psi_given *given = &sample->given[i];

        given->table = (uint32_t)draw(random);
        given->chunks = draw(random);
        given->next_min = draw(random);
        given->next_max = draw(random);
        given->ahead = draw(random);
        given->closed = draw(random);
    }
}

static void
fill_spec(uint64_t *random, struct psi_spec *spec)
{
    struct psd_rule_args rule = {.struct_size = sizeof(rule)};
    struct psd_table_args args = {.struct_size = sizeof(args), .rule = &rule};
    char name[PSD_NAME_MAX + 1];
    struct psd_error err;

    draw_text(random, name + 1, sizeof(name) - 1);
    name[0] = 'n';
    args.name = name;
    args.dtype = (psd_dtype)(PSD_F32 + draw_below(random, 4));
    args.dims = 1 + draw_below(random, PSD_DIMS_MAX);
    for (uint32_t i = 0; i < args.dims; i++) {
        args.shape[i] = 1 + draw_below(random, 100);
    }
    args.reduce = (psd_reduce)draw_below(random, 2);
    args.nan_policy = (psd_nan_policy)draw_below(random, 3);
    if (draw_below(random, 4) == 0) {
        args.use = PSD_USE_SUM;
        args.backup_workers = draw_below(random, 4);
    } else {
        rule.rule = (psd_rule)draw_below(random, PSI_RULES);
        rule.clip_value = 1 + draw_below(random, 10);
        rule.weight_decay = 0.25;
        args.staleness = draw_below(random, 3);
        args.init = PSD_INIT_NORMAL;
        args.init_value = 0.5 + draw_below(random, 10);
        args.seed = draw(random);
    }
    if (args.use == PSD_USE_UPDATE && rule.rule != PSD_RULE_ADD && rule.rule != PSD_RULE_FTRL) {
        rule.schedule = (psd_schedule)(PSD_SCHEDULE_STEP + draw_below(random, 2));
        rule.warmup = draw_below(random, 1000);
        rule.period = 1 + draw_below(random, 1000);
    }
    if (psi_spec_init(spec, &args, PSI_RANKS_MAX, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
}

static void
fill_sparse_spec(uint64_t *random, struct psi_spec *spec)
{
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADAGRAD};
    const struct psd_sparse_args args = {
        .struct_size = sizeof(args),
        .name = "rows",
        .dtype = PSD_BF16,
        .width = 1 + draw_below(random, PSD_WIDTH_MAX),
        .rule = &rule,
        .staleness = draw_below(random, 3),
        .init = PSD_INIT_UNIFORM,
        .init_value = 0.5,
        .seed = draw(random),
        .admit_after = 1 + draw_below(random, 255),
        .capacity_rows = 100000 + draw_below(random, 100000),
        .full = (psd_full)draw_below(random, 3),
        .idle_steps = draw_below(random, 1000),
        .norm_min = draw_below(random, 2),
        .row_wise = (int32_t)draw_below(random, 2),
    };
    struct psd_error err;

    if (psi_spec_init_sparse(spec, &args, PSI_RANKS_MAX, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
}

static void
fill_table_info(uint64_t *random, struct sample *sample)
{
    struct psi_table_info *info = &sample->table_info;
    struct psi_loads *loads = &info->loads;

    info->id = (uint32_t)draw(random);
    info->creator = draw_below(random, PSI_RANKS_MAX);
    info->step = draw(random);
    if (draw_below(random, 4) == 0) {
        fill_sparse_spec(random, &info->spec);
    } else {
        fill_spec(random, &info->spec);
    }
    loads->servers = draw_below(random, LIST);
    for (uint32_t s = 0; s < loads->servers; s++) {
        loads->places += 1 + draw_below(random, 8);
        loads->first_place[s + 1] = loads->places;
    }
    for (uint32_t p = 0; p < loads->places; p++) {
        loads->bytes[p] = draw(random);
    }
}

static void
fill_nodes(uint64_t *random, struct sample *sample)
{
    sample->nodes.count = draw_below(random, LIST);
    sample->nodes.readers = (uint32_t)draw(random);
    for (uint32_t i = 0; i < sample->nodes.count; i++) {
        struct psd_node *node = &sample->node[i];

        node->role = (psd_role)(PSD_ROLE_MASTER + draw_below(random, 3));
        node->rank = draw_below(random, PSI_RANKS_MAX);
        node->state = (psd_node_state)draw_below(random, 5);
        node->incarnation = draw_below(random, UINT16_MAX + 1);
        node->step = draw(random);
        node->steps_per_s = draw_f64(random);
        node->value = draw_f64(random);
        draw_text(random, node->value_name, sizeof(node->value_name));
        draw_text(random, node->address, sizeof(node->address));
    }
}

static void
fill_share(uint64_t *random, struct sample *sample)
{
    sample->share.from = draw_below(random, PSI_RANKS_MAX);
    sample->share.step = draw(random);
    sample->share.bytes = draw_below(random, PSI_FRAME_CHUNK_MAX + 1);
    sample->share.offset = draw(random) >> 1;
    sample->share.total = sample->share.offset + sample->share.bytes + draw_below(random, 3);
    draw_text(random, sample->share.name, sizeof(sample->share.name));
}

static void
fill_ranks(uint64_t *random, struct sample *sample)
{
    const uint32_t words = draw_below(random, PSI_RANKS_MAX / 64 + 1);

    for (uint32_t i = 0; i < words; i++) {
        sample->ranks.word[i] = draw(random);
    }
}

/* Plain messages are compared byte by byte: both began as zeros. */
static bool
same_plain(const struct sample *a, const struct sample *b)
{
    return memcmp(&a->telling, &b->telling, sizeof(a->telling)) == 0;
}

static bool
same_view(const struct sample *a, const struct sample *b)
{
    const struct psi_view *x = &a->view;
    const struct psi_view *y = &b->view;

    return x->id == y->id && x->workers == y->workers && x->places == y->places &&
           x->change == y->change && x->who == y->who && x->tables == y->tables &&
           memcmp(a->worker, b->worker, x->workers * sizeof(a->worker[0])) == 0 &&
           memcmp(a->place, b->place, x->places * sizeof(a->place[0])) == 0 &&
           memcmp(a->table, b->table, x->tables * sizeof(a->table[0])) == 0;
}

static bool
same_adopt(const struct sample *a, const struct sample *b)
{
    bool same = a->adopt.runs == b->adopt.runs;

    for (uint32_t i = 0; same && i < a->adopt.runs; i++) {
        const struct psi_adopt_run *x = &a->run[i];
        const struct psi_adopt_run *y = &b->run[i];

        same =
            x->first == y->first && x->count == y->count && x->base == y->base && x->has == y->has;
    }
    return same;
}

static bool
same_results(const struct sample *a, const struct sample *b)
{
    return a->results.count == b->results.count &&
           memcmp(a->result, b->result, a->results.count * sizeof(a->result[0])) == 0;
}

static bool
same_view_ack(const struct sample *a, const struct sample *b)
{
    return a->view_ack.id == b->view_ack.id && a->view_ack.tables == b->view_ack.tables &&
           memcmp(a->given, b->given, a->view_ack.tables * sizeof(a->given[0])) == 0;
}

static bool
same_nodes(const struct sample *a, const struct sample *b)
{
    return a->nodes.count == b->nodes.count && a->nodes.readers == b->nodes.readers &&
           memcmp(a->node, b->node, a->nodes.count * sizeof(a->node[0])) == 0;
}

static bool
same_table_info(const struct sample *a, const struct sample *b)
{
    const struct psi_table_info *x = &a->table_info;
    const struct psi_table_info *y = &b->table_info;

    return x->id == y->id && x->creator == y->creator && x->step == y->step &&
           psi_spec_difference(&x->spec, &y->spec) == NULL && x->spec.count == y->spec.count &&
           memcmp(&x->loads, &y->loads, sizeof(x->loads)) == 0;
}

static bool
same_snapshot(const struct sample *a, const struct sample *b)
{
    const struct psi_snapshot *x = &a->snapshot;
    const struct psi_snapshot *y = &b->snapshot;

    for (uint32_t i = 0; i < x->marked && i < y->marked; i++) {
        if (x->marks[i].incarnation != y->marks[i].incarnation ||
            x->marks[i].sequence != y->marks[i].sequence) {
            return false;
        }
    }
    return x->version == y->version && x->updates == y->updates && x->ready == y->ready &&
           x->pushed == y->pushed && x->ranks == y->ranks && x->marked == y->marked &&
           memcmp(x->next, y->next, x->ranks * sizeof(*x->next)) == 0;
}

static bool
same_order(const struct sample *a, const struct sample *b)
{
    const struct psi_order *x = &a->order;
    const struct psi_order *y = &b->order;
    bool same = x->token == y->token && memcmp(x->bytes, y->bytes, sizeof(x->bytes)) == 0 &&
                x->tables == y->tables && x->generation == y->generation && x->after == y->after;

    for (uint32_t i = 0; same && i < x->tables; i++) {
        same = x->table[i].id == y->table[i].id &&
               memcmp(x->table[i].begin, y->table[i].begin, sizeof(x->table[i].begin)) == 0;
    }
    return same;
}

static bool
same_written(const struct sample *a, const struct sample *b)
{
    const struct psi_written *x = &a->written;
    const struct psi_written *y = &b->written;
    bool same = x->news == y->news && strcmp(x->text, y->text) == 0 &&
                memcmp(x->bytes, y->bytes, sizeof(x->bytes)) == 0 &&
                memcmp(x->checksum, y->checksum, sizeof(x->checksum)) == 0 &&
                x->tables == y->tables;

    for (uint32_t i = 0; same && i < x->tables; i++) {
        same = x->table[i].id == y->table[i].id && x->table[i].updates == y->table[i].updates;
    }
    return same;
}

static bool
same_refers(const struct sample *a, const struct sample *b)
{
    const struct psi_refers *x = &a->refers;
    const struct psi_refers *y = &b->refers;

    return x->file == y->file && x->first == y->first && x->count == y->count &&
           memcmp(x->bytes, y->bytes, x->count * sizeof(*x->bytes)) == 0;
}

static bool
same_rows_saved(const struct sample *a, const struct sample *b)
{
    const struct psi_rows_saved *x = &a->rows_saved;
    const struct psi_rows_saved *y = &b->rows_saved;
    bool same = x->place == y->place && x->first == y->first && x->count == y->count;

    for (uint32_t i = 0; same && i < x->count; i++) {
        const struct psi_saved_file *one = &x->file[i];
        const struct psi_saved_file *other = &y->file[i];

        same = one->table == other->table && one->generation == other->generation &&
               one->number == other->number && one->first_bucket == other->first_bucket &&
               one->end_bucket == other->end_bucket && one->rows == other->rows &&
               one->cleared == other->cleared && one->counted == other->counted &&
               one->bytes == other->bytes && one->checksum == other->checksum;
    }
    return same;
}

static bool
same_blocks(const struct sample *a, const struct sample *b)
{
    const struct psi_blocks *x = &a->blocks;
    const struct psi_blocks *y = &b->blocks;

    return x->file == y->file && x->first == y->first && x->count == y->count &&
           memcmp(x->checksum, y->checksum, x->count * sizeof(*x->checksum)) == 0;
}

/* A message as the harness sees it. */
struct kind {
    const char *name;
    void (*prepare)(struct sample *sample);
    void (*fill)(uint64_t *random, struct sample *sample);
    bool (*same)(const struct sample *a, const struct sample *b);
    void (*encode)(struct psi_pack *pack, const struct sample *sample);
    psd_status (*decode)(const uint8_t *bytes, size_t size, struct sample *sample,
                         struct psd_error *err);
};

#define KIND_CALLS(name, type)                                                                     \
    static void name##_encode(struct psi_pack *pack, const struct sample *sample)                  \
    {                                                                                              \
        psi_##name##_encode(pack, &sample->name);                                                  \
    }                                                                                              \
    static psd_status name##_decode(const uint8_t *bytes, size_t size, struct sample *sample,      \
                                    struct psd_error *err)                                         \
    {                                                                                              \
        return psi_##name##_decode(bytes, size, &sample->name, err);                               \
    }
PSI_MESSAGE_MAP(KIND_CALLS)
#undef KIND_CALLS

#define KIND(name, prepare, same)                                                                  \
    {                                                                                              \
#name, prepare, fill_##name, same, name##_encode, name##_decode                            \
    }

static const struct kind kinds[] = {
    KIND(hello, prepare_plain, same_plain),
    KIND(welcome, prepare_plain, same_plain),
    KIND(verdict, prepare_plain, same_plain),
    KIND(ping, prepare_plain, same_plain),
    KIND(view, prepare_view, same_view),
    KIND(propose, prepare_plain, same_plain),
    KIND(view_ack, prepare_view_ack, same_view_ack),
    KIND(table_info, prepare_plain, same_table_info),
    KIND(nodes, prepare_nodes, same_nodes),
    KIND(share, prepare_plain, same_plain),
    KIND(ranks, prepare_plain, same_plain),
    KIND(subscribe, prepare_plain, same_plain),
    KIND(adopt, prepare_adopt, same_adopt),
    KIND(results, prepare_results, same_results),
    KIND(lane_state, prepare_plain, same_plain),
    KIND(worker_state, prepare_plain, same_plain),
    KIND(telling, prepare_plain, same_plain),
    KIND(pair, prepare_plain, same_plain),
    KIND(change, prepare_plain, same_plain),
    KIND(snapshot, prepare_snapshot, same_snapshot),
    KIND(step_state, prepare_plain, same_plain),
    KIND(done, prepare_plain, same_plain),
    KIND(order, prepare_order, same_order),
    KIND(written, prepare_written, same_written),
    KIND(blocks, prepare_blocks, same_blocks),
    KIND(part, prepare_plain, same_plain),
    KIND(refers, prepare_refers, same_refers),
    KIND(rows_saved, prepare_rows_saved, same_rows_saved),
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* A body as bytes, and where it is decoded to. */
struct bench {
    struct sample in;
    struct sample out;
    uint8_t bytes[PSI_FRAME_CONTROL_MAX];
    size_t size;
};

static struct bench *
bench_create(void)
{
    struct bench *bench = calloc(1, sizeof(*bench));

    assert_non_null(bench);
    return bench;
}

static void
encode_in(struct bench *bench, const struct kind *kind)
{
    struct psi_pack pack;

    psi_pack_init(&pack, bench->bytes, sizeof(bench->bytes));
    kind->encode(&pack, &bench->in);
    assert_false(pack.overflow);
    bench->size = pack.used;
}

static psd_status
decode_out(struct bench *bench, const struct kind *kind, size_t size, struct psd_error *err)
{
    uint8_t *copy = exact(bench->bytes, size);
    psd_status status;

    *err = (struct psd_error){0};
    kind->prepare(&bench->out);
    status = kind->decode(copy, size, &bench->out, err);
    assert_int_equal(err->status, status);
    assert_int_equal(err->text[0] == '\0', status == PSD_OK);
    free(copy);
    return status;
}

/* Encodes bench->in, which may be wrong on purpose, and decodes it. */
static psd_status
through(struct bench *bench, const struct kind *kind)
{
    struct psd_error err;

    encode_in(bench, kind);
    return decode_out(bench, kind, bench->size, &err);
}

static void
encode_into_too_little(struct bench *bench, const struct kind *kind)
{
    for (size_t capacity = 0; capacity < bench->size; capacity++) {
        uint8_t *room = exact(bench->bytes, capacity);
        struct psi_pack pack;

        psi_pack_init(&pack, room, capacity);
        kind->encode(&pack, &bench->in);
        assert_true(pack.overflow);
        assert_true(pack.used <= capacity);
        assert_true(capacity == 0 || memcmp(room, bench->bytes, capacity) == 0);
        free(room);
    }
}

/* If this fails, what one side says is not what the other hears. */
static void
test_message_round_trips(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    for (size_t i = 0; i < ROUNDS * KINDS; i++) {
        const struct kind *kind = &kinds[i % KINDS];
        struct psd_error err;

        kind->prepare(&bench->in);
        kind->fill(&random, &bench->in);
        encode_in(bench, kind);
        if (decode_out(bench, kind, bench->size, &err) != PSD_OK) {
            fail_msg("%s: %s", kind->name, err.text);
        }
        if (!kind->same(&bench->in, &bench->out)) {
            fail_msg("%s: decoded to something else", kind->name);
        }
    }
    free(bench);
}

static const struct kind *
kind_named(const char *name)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    fail_msg("no message %s", name);
    return NULL;
}

/* How many frames, which was appended last of all. */
static size_t
frames_bytes(const struct psi_telling *telling)
{
    return 16 * ((size_t)telling->servers + telling->tables);
}

/* Spans, and what was appended since. */
static size_t
spans_bytes(const struct psi_telling *telling)
{
    size_t bytes =
        3 * 4 + 33 * (size_t)telling->spans + 12 * (size_t)telling->waited + frames_bytes(telling);

    for (uint32_t i = 0; i < telling->marks; i++) {
        bytes += 2 + strlen(telling->mark[i]);
    }
    return bytes;
}

/* Who counts from which step on, which was appended last of all. */
static size_t
counts_bytes(const struct psi_view *view)
{
    return 4 + 16 * (size_t)view->workers;
}

/* How many bytes were appended later. */
static size_t
tail_bytes(const struct sample *sample, const struct kind *kind)
{
    if (strcmp(kind->name, "telling") == 0) {
        return 4 + 8 * (size_t)sample->telling.steps + spans_bytes(&sample->telling);
    }
    if (strcmp(kind->name, "hello") == 0) {
        return 1 + 8 + 1 + 1 + 8; /* at five times */
    }
    if (strcmp(kind->name, "view") == 0) {
        return 8 * (size_t)sample->view.places + counts_bytes(&sample->view);
    }
    if (strcmp(kind->name, "welcome") == 0) {
        return 1 + 4;
    }
    return strcmp(kind->name, "subscribe") == 0 || strcmp(kind->name, "propose") == 0;
}

/* Does so much of it end where a message of an earlier version did? */
static bool
was_whole(const struct bench *bench, const struct kind *kind, size_t bytes)
{
    const size_t since = bench->size - bytes;

    return since == tail_bytes(&bench->in, kind) ||
           (strcmp(kind->name, "hello") == 0 &&
            (since == 8 || since == 8 + 1 || since == 8 + 2 || since == 8 + 2 + 8)) ||
           ((strcmp(kind->name, "welcome") == 0 || strcmp(kind->name, "nodes") == 0) &&
            since == 4) ||
           (strcmp(kind->name, "view") == 0 && since == counts_bytes(&bench->in.view)) ||
           (strcmp(kind->name, "telling") == 0 && (since == spans_bytes(&bench->in.telling) ||
                                                   since == frames_bytes(&bench->in.telling)));
}

static void
clear_frames(uint32_t count, struct psi_traffic *traffic)
{
    for (uint32_t i = 0; i < count; i++) {
        traffic[i].frames_out = 0;
        traffic[i].frames_in = 0;
    }
}

static void
clear_spans(struct psi_telling *telling)
{
    clear_frames(telling->servers, telling->server);
    clear_frames(telling->tables, telling->table);
    telling->marks = 0;
    memset(telling->mark, 0, sizeof(telling->mark));
    telling->spans = 0;
    memset(telling->span, 0, sizeof(telling->span));
    telling->waited = 0;
    memset(telling->wait, 0, sizeof(telling->wait));
}

static void
clear_counts(struct psi_view *view)
{
    view->changes = 0;
    for (uint32_t i = 0; i < view->workers; i++) {
        view->worker[i].counts_from = 0;
        view->worker[i].counts_until = 0;
    }
}

/* As who does not hear them takes them. */
static void
clear_tail(struct sample *sample, const struct kind *kind)
{
    if (strcmp(kind->name, "hello") == 0) {
        sample->hello.tells = false;
        sample->hello.pair = 0;
        sample->hello.recalls = false;
        sample->hello.in_time = false;
        sample->hello.join_step = 0;
    } else if (strcmp(kind->name, "welcome") == 0) {
        sample->welcome.elastic = false;
        sample->welcome.size = sample->welcome.workers;
    } else if (strcmp(kind->name, "propose") == 0) {
        sample->propose.joins = false;
    } else if (strcmp(kind->name, "view") == 0) {
        for (uint32_t i = 0; i < sample->view.places; i++) {
            sample->view.place[i].process = 0;
        }
        clear_counts(&sample->view);
    } else if (strcmp(kind->name, "subscribe") == 0) {
        sample->subscribe.metrics = false;
    } else {
        for (uint32_t i = 0; i < sample->telling.steps; i++) {
            sample->telling.times[i].end_us = 0;
        }
        clear_spans(&sample->telling);
    }
}

/* If this fails, a member or an observer of an earlier version is not understood: what it says ends
 * before the fields that were appended since. */
static void
test_message_of_an_earlier_version_is_understood(void **state)
{
    static const char *const grown[] = {"hello",   "propose", "subscribe",
                                        "telling", "view",    "welcome"};
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    for (size_t i = 0; i < sizeof(grown) / sizeof(grown[0]); i++) {
        const struct kind *kind = kind_named(grown[i]);
        struct psd_error err;

        kind->prepare(&bench->in);
        kind->fill(&random, &bench->in);
        encode_in(bench, kind);
        assert_int_equal(decode_out(bench, kind, bench->size - tail_bytes(&bench->in, kind), &err),
                         PSD_OK);
        clear_tail(&bench->in, kind);
        assert_true(kind->same(&bench->in, &bench->out));
    }
    free(bench);
}

/* If this fails, a worker that tells when its steps end, but no spans, is not understood. */
static void
test_telling_without_spans_is_understood(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    const struct kind *kind = kind_named("telling");
    struct bench *bench = bench_create();
    struct psd_error err;

    kind->prepare(&bench->in);
    kind->fill(&random, &bench->in);
    encode_in(bench, kind);
    assert_int_equal(decode_out(bench, kind, bench->size - spans_bytes(&bench->in.telling), &err),
                     PSD_OK);
    clear_spans(&bench->in.telling);
    assert_true(kind->same(&bench->in, &bench->out));
    free(bench);
}

/* If this fails, a short body is believed, or read past its end. */
static void
test_message_truncations_are_refused(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    for (size_t i = 0; i < 4 * KINDS; i++) {
        const struct kind *kind = &kinds[i % KINDS];
        struct psd_error err;

        kind->prepare(&bench->in);
        kind->fill(&random, &bench->in);
        encode_in(bench, kind);
        for (size_t cut = 0; cut < bench->size; cut++) {
            if (!was_whole(bench, kind, cut) &&
                decode_out(bench, kind, cut, &err) != PSD_ERR_PROTOCOL) {
                fail_msg("%s: %zu of %zu bytes taken", kind->name, cut, bench->size);
            }
        }
        encode_into_too_little(bench, kind);
    }
    free(bench);
}

/* If this fails, a later version cannot append a field without breaking this one. */
static void
test_message_ignores_what_follows(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    for (size_t i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[i];
        struct psd_error err;

        kind->prepare(&bench->in);
        kind->fill(&random, &bench->in);
        encode_in(bench, kind);
        memset(bench->bytes + bench->size, 0xff, 9);
        assert_int_equal(decode_out(bench, kind, bench->size + 9, &err), PSD_OK);
        assert_true(kind->same(&bench->in, &bench->out));
    }
    free(bench);
}

/* A random message with one field set, accepted or refused. `bench` and `random` are in scope. */
#define FIELD(name, field, value, expected)                                                        \
    do {                                                                                           \
        const struct kind *kind_ = kind_named(#name);                                              \
                                                                                                   \
        kind_->prepare(&bench->in);                                                                \
        kind_->fill(&random, &bench->in);                                                          \
        bench->in.name.field = (value);                                                            \
        if (through(bench, kind_) != (expected)) {                                                 \
            fail_msg(#name "." #field " = " #value ": expected " #expected);                       \
        }                                                                                          \
    } while (0)

/* If this fails, a number from a peer can index behind an array. */
static void
test_meet_boundaries(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    FIELD(hello, role, 1, PSD_ERR_PROTOCOL);
    FIELD(hello, role, PSI_ROLE_READER, PSD_OK);
    FIELD(hello, role, PSI_ROLE_READER + 1, PSD_ERR_PROTOCOL);
    FIELD(hello, lane, PSI_LANES_MAX, PSD_ERR_PROTOCOL);
    FIELD(hello, lanes, PSI_LANES_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(hello, incarnation, UINT16_MAX, PSD_OK);
    FIELD(hello, incarnation, UINT16_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(hello, term, PSI_TERM_MAX, PSD_OK);
    FIELD(hello, term, PSI_TERM_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(hello, rank, PSI_RANKS_MAX, PSD_ERR_PROTOCOL);
    FIELD(hello, rank, UINT32_MAX - 1, PSD_ERR_PROTOCOL);
    FIELD(welcome, rank, PSI_RANKS_MAX - 1, PSD_OK);
    FIELD(welcome, rank, PSI_RANKS_MAX, PSD_ERR_PROTOCOL);
    FIELD(welcome, incarnation, UINT16_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(welcome, workers, PSI_RANKS_MAX, PSD_OK);
    FIELD(welcome, workers, PSI_RANKS_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(welcome, servers, PSI_SERVERS_MAX, PSD_OK);
    FIELD(welcome, servers, PSI_SERVERS_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(welcome, size, PSI_RANKS_MAX, PSD_OK);
    FIELD(welcome, size, PSI_RANKS_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(welcome, policy, PSI_DEATH_WAIT, PSD_OK);
    FIELD(welcome, policy, PSI_DEATH_WAIT + 1, PSD_ERR_PROTOCOL);
    FIELD(verdict, status, 19, PSD_OK);
    FIELD(verdict, status, 20, PSD_ERR_PROTOCOL);
    FIELD(verdict, status, -999, PSD_OK);
    FIELD(verdict, status, INT16_MIN - 1, PSD_ERR_PROTOCOL);
    FIELD(verdict, exit_code, 255, PSD_OK);
    FIELD(verdict, exit_code, 256, PSD_ERR_PROTOCOL);
    FIELD(verdict, exit_code, -1, PSD_ERR_PROTOCOL);
    free(bench);
}

/* If this fails, a server can claim an index or a lane that no array has room for. */
static void
test_hello_server_boundaries(void **state)
{
    static const struct {
        uint32_t rank;
        uint32_t lane;
        uint32_t lanes;
        psd_status status;
    } cases[] = {
        {PSI_SERVERS_MAX - 1, 0, 1, PSD_OK},
        {PSI_SERVERS_MAX, 0, 1, PSD_ERR_PROTOCOL},
        {PSI_RANK_AUTO, 0, 1, PSD_ERR_PROTOCOL},
        {0, PSI_LANES_MAX - 1, PSI_LANES_MAX, PSD_OK},
        {0, 1, 1, PSD_ERR_PROTOCOL},
        {0, 0, 0, PSD_ERR_PROTOCOL},
    };
    struct bench *bench = bench_create();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bench->in.hello = (struct psi_hello){.role = PSI_ROLE_SERVER,
                                             .rank = cases[i].rank,
                                             .lane = cases[i].lane,
                                             .lanes = cases[i].lanes};
        assert_int_equal(through(bench, kind_named("hello")), cases[i].status);
    }
    free(bench);
}

/* If this fails, a view can name ranks, servers or lanes that no array has room for. */
static void
test_view_boundaries(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    FIELD(view, workers, PSI_RANKS_MAX, PSD_OK);
    FIELD(view, workers, PSI_RANKS_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(view, places, PSI_PLACES_MAX, PSD_OK);
    FIELD(view, places, PSI_PLACES_MAX + 1, PSD_ERR_PROTOCOL);
    bench->in.worker[0].incarnation = UINT16_MAX + 1;
    assert_int_equal(through(bench, kind_named("view")), PSD_ERR_PROTOCOL);
    FIELD(view, places, 1, PSD_OK);
    FIELD(view, place[0].server, PSI_SERVERS_MAX - 1, PSD_OK);
    bench->in.view.places = 1;
    bench->in.place[0].server = PSI_SERVERS_MAX;
    assert_int_equal(through(bench, kind_named("view")), PSD_ERR_PROTOCOL);
    bench->in.place[0].server = 0;
    bench->in.place[0].lane = PSI_LANES_MAX;
    assert_int_equal(through(bench, kind_named("view")), PSD_ERR_PROTOCOL);
    FIELD(propose, rank, PSI_RANKS_MAX - 1, PSD_OK);
    FIELD(propose, rank, PSI_RANKS_MAX, PSD_ERR_PROTOCOL);
    FIELD(adopt, runs, PSI_ADOPT_RUNS_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(results, count, PSI_RESULTS_MAX, PSD_OK);
    FIELD(results, count, PSI_RESULTS_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(view_ack, tables, PSI_TABLES_MAX, PSD_OK);
    FIELD(view_ack, tables, PSI_TABLES_MAX + 1, PSD_ERR_PROTOCOL);
    free(bench);
}

/* If this fails, a master that is silent for no time at all counts as dead. */
static void
test_welcome_says_when_silence_is_death(void **state)
{
    struct bench *bench = bench_create();

    (void)state;
    bench->in.welcome = (struct psi_welcome){.dead_ms = 1};
    assert_int_equal(through(bench, kind_named("welcome")), PSD_OK);
    bench->in.welcome.dead_ms = 0;
    assert_int_equal(through(bench, kind_named("welcome")), PSD_ERR_PROTOCOL);
    free(bench);
}

/* If this fails, a view can say that somebody leaves who is not there. */
static void
test_view_change_is_consistent(void **state)
{
    struct bench *bench = bench_create();
    const struct kind *kind = kind_named("view");
    struct psd_error err;
    size_t size;

    prepare_view(&bench->in);
    bench->in.view.workers = 2;
    bench->in.view.change = PSI_VIEW_WORKER_LEFT;
    bench->in.view.who = 1;
    bench->in.view.tables = PSI_TABLES_MAX;
    assert_int_equal(through(bench, kind), PSD_OK);
    bench->in.view.tables++;
    assert_int_equal(through(bench, kind), PSD_ERR_PROTOCOL);
    bench->in.view.tables = 0;
    bench->in.view.who = 2;
    assert_int_equal(through(bench, kind), PSD_ERR_PROTOCOL);
    bench->in.view.change = PSI_VIEW_SERVER_BACK; /* a server may have that number */
    assert_int_equal(through(bench, kind), PSD_OK);
    bench->in.view.change = PSI_VIEW_CHANGES;
    assert_int_equal(through(bench, kind), PSD_ERR_PROTOCOL);
    bench->in.view.change = PSI_VIEW_WORKER_LEFT;
    bench->in.view.who = 1;
    assert_int_equal(through(bench, kind), PSD_OK);

    /* change, who, tables are the last 1 + 4 + 4 bytes before what was appended. */
    size = bench->size - tail_bytes(&bench->in, kind);
    bench->bytes[size - 9] = PSI_VIEW_FIRST;
    assert_int_equal(decode_out(bench, kind, size, &err), PSD_ERR_PROTOCOL); /* who */
    bench->bytes[size - 8] = 0;
    assert_int_equal(decode_out(bench, kind, size, &err), PSD_OK);
    bench->bytes[size - 4] = 1; /* and 13 bytes for it: */
    memset(bench->bytes + size, 0, 13);
    assert_int_equal(decode_out(bench, kind, size + 13, &err), PSD_ERR_PROTOCOL);
    free(bench);
}

/* If this fails, a set of ranks can be larger than it is, or have two encodings. */
static void
test_ranks_boundaries(void **state)
{
    static const uint8_t too_many[4 + 17 * 8] = {17, [4 + 17 * 8 - 1] = 1};
    static const uint8_t padded[4 + 8] = {1};
    struct bench *bench = bench_create();
    const struct kind *kind = kind_named("ranks");
    struct psd_error err;

    assert_int_equal(through(bench, kind), PSD_OK); /* the empty set */
    assert_int_equal(bench->size, 4);
    bench->in.ranks.word[PSI_RANKS_MAX / 64 - 1] = UINT64_C(1) << 63;
    assert_int_equal(through(bench, kind), PSD_OK);
    assert_int_equal(bench->size, 4 + PSI_RANKS_MAX / 8);
    memcpy(bench->bytes, too_many, sizeof(too_many));
    assert_int_equal(decode_out(bench, kind, sizeof(too_many), &err), PSD_ERR_PROTOCOL);
    memcpy(bench->bytes, padded, sizeof(padded));
    assert_int_equal(decode_out(bench, kind, sizeof(padded), &err), PSD_ERR_PROTOCOL);
    free(bench);
}

/* If this fails, a table nobody could have opened reaches a server. */
static void
test_table_info_boundaries(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    FIELD(table_info, creator, PSI_RANKS_MAX - 1, PSD_OK);
    FIELD(table_info, creator, PSI_RANKS_MAX, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.name[0], '\0', PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.name[0], '\n', PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.dtype, (psd_dtype)0, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.dtype, (psd_dtype)(PSD_BF16 + 1), PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.dims, 0, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.shape[0], 0, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.shape[0], UINT64_MAX, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.use, (psd_use)(PSD_USE_SUM + 1), PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.reduce, (psd_reduce)(PSD_REDUCE_SUM + 1), PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.rule.rule, (psd_rule)PSI_RULES, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.rule.schedule, (psd_schedule)(PSD_SCHEDULE_COSINE + 1),
          PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.rule.learning_rate, -1.0, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.backup_workers, PSI_RANKS_MAX, PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.nan_policy, (psd_nan_policy)(PSD_NAN_ALLOW + 1), PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.init, (psd_init)(PSD_INIT_NORMAL + 1), PSD_ERR_PROTOCOL);
    FIELD(table_info, spec.init_value, -1.0, PSD_ERR_PROTOCOL);
    free(bench);
}

/* If this fails, two shapes can be told apart by one side only. */
static void
test_table_info_shape_overflow(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();
    struct psi_spec *spec = &bench->in.table_info.spec;
    const struct kind *kind = kind_named("table_info");
    struct psd_error err;

    fill_table_info(&random, &bench->in);
    memset(spec->name, 'n', PSD_NAME_MAX); /* the longest: the reason behind it must still fit */
    spec->name[PSD_NAME_MAX] = '\0';
    spec->dims = 2;
    spec->shape[0] = UINT64_C(1) << 32;
    spec->shape[1] = UINT64_C(1) << 32; /* their product is 0 in 64 bits */
    encode_in(bench, kind);
    assert_int_equal(decode_out(bench, kind, bench->size, &err), PSD_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "shape"));
    free(bench);
}

/* Gives every server the same lanes and tells the loads so. */
static void
set_lanes(struct psi_loads *loads, uint32_t servers, uint32_t lanes)
{
    loads->servers = servers;
    loads->places = 0;
    for (uint32_t s = 0; s < servers && s < PSI_SERVERS_MAX; s++) {
        loads->first_place[s] = loads->places;
        loads->places += lanes;
        loads->first_place[s + 1] = loads->places;
    }
}

/* If this fails, chunks are placed on lanes that do not exist. */
static void
test_table_info_loads_boundaries(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();
    const struct kind *kind = kind_named("table_info");
    struct psi_loads *loads = &bench->in.table_info.loads;
    struct psd_error err;

    fill_spec(&random,
              &bench->in.table_info.spec); /* a dense table: only "again" follows the loads */
    set_lanes(loads, 0, 0);
    assert_int_equal(through(bench, kind), PSD_OK);
    psi_store_u32(bench->bytes + bench->size - 5, PSI_SERVERS_MAX + 1);
    memset(bench->bytes + bench->size, 1, 8 * (PSI_SERVERS_MAX + PSI_PLACES_MAX));
    assert_int_equal(decode_out(bench, kind, bench->size + 8 * PSI_PLACES_MAX, &err),
                     PSD_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "servers"));

    set_lanes(loads, PSI_SERVERS_MAX, PSI_PLACES_MAX / PSI_SERVERS_MAX);
    assert_int_equal(through(bench, kind), PSD_OK);
    assert_int_equal(bench->out.table_info.loads.places, PSI_PLACES_MAX);
    assert_memory_equal(loads->first_place, bench->out.table_info.loads.first_place,
                        sizeof(loads->first_place));
    set_lanes(loads, 2, PSI_LANES_MAX);
    assert_int_equal(through(bench, kind), PSD_OK);
    set_lanes(loads, 2, PSI_LANES_MAX + 1);
    assert_int_equal(through(bench, kind), PSD_ERR_PROTOCOL);
    set_lanes(loads, 2, 0);
    assert_int_equal(through(bench, kind), PSD_ERR_PROTOCOL);
    set_lanes(loads, 17, PSI_LANES_MAX); /* 1088 places in all */
    loads->places = PSI_PLACES_MAX;
    encode_in(bench, kind);
    assert_int_equal(decode_out(bench, kind, bench->size, &err), PSD_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "1088"));
    free(bench);
}

/* If this fails, a table of nodes or a piece of state can reach behind its array. */
static void
test_job_boundaries(void **state)
{
    uint64_t random = *(uint64_t *)*state;
    struct bench *bench = bench_create();

    for (size_t i = 0; i <= NODES_MAX; i++) {
        bench->in.node[i].role = PSD_ROLE_WORKER;
    }
    FIELD(nodes, count, NODES_MAX, PSD_OK);
    FIELD(nodes, count, NODES_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(nodes, count, 1, PSD_OK);
    bench->in.node[0].role = (psd_role)(PSD_ROLE_WORKER + 1);
    assert_int_equal(through(bench, kind_named("nodes")), PSD_ERR_PROTOCOL);
    bench->in.node[0].role = PSD_ROLE_WORKER;
    bench->in.node[0].state = (psd_node_state)(PSD_NODE_LOST + 1);
    assert_int_equal(through(bench, kind_named("nodes")), PSD_ERR_PROTOCOL);
    bench->in.node[0].state = PSD_NODE_LOST;
    bench->in.node[0].rank = PSI_RANKS_MAX;
    assert_int_equal(through(bench, kind_named("nodes")), PSD_ERR_PROTOCOL);
    FIELD(share, from, PSI_RANKS_MAX - 1, PSD_OK);
    FIELD(share, from, PSI_RANKS_MAX, PSD_ERR_PROTOCOL);
    FIELD(share, bytes, PSI_FRAME_CHUNK_MAX + 1, PSD_ERR_PROTOCOL);
    FIELD(share, total, UINT64_MAX, PSD_OK);
    FIELD(share, offset, UINT64_MAX, PSD_ERR_PROTOCOL);
    FIELD(share, total, bench->in.share.offset + bench->in.share.bytes - 1, PSD_ERR_PROTOCOL);
    free(bench);
}

/* If this fails, a peer's text has no end, or hides what follows a NUL. */
static void
test_strings(void **state)
{
    struct bench *bench = bench_create();
    const struct kind *kind = kind_named("ping");
    struct psi_ping *ping = &bench->in.ping;
    const size_t text_at = 8 + 8 + 2;
    struct psd_error err;

    memset(ping->name, 'x', sizeof(ping->name) - 1);
    assert_int_equal(through(bench, kind), PSD_OK);
    assert_int_equal(bench->size, text_at + 31);
    assert_string_equal(bench->out.ping.name, ping->name);

    bench->bytes[text_at - 2] = 32; /* one more, and there is no room for the end */
    bench->bytes[text_at + 31] = 'x';
    assert_int_equal(decode_out(bench, kind, text_at + 32, &err), PSD_ERR_PROTOCOL);
    assert_string_equal(err.text, "PING: name: 32, expected 0..31");

    bench->bytes[text_at - 2] = 31;
    bench->bytes[text_at + 30] = 0;
    assert_int_equal(decode_out(bench, kind, text_at + 31, &err), PSD_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "NUL"));
    bench->bytes[text_at - 2] = 0;
    assert_int_equal(decode_out(bench, kind, text_at, &err), PSD_OK);
    assert_string_equal(bench->out.ping.name, "");
    free(bench);
}

/* If this fails, something other than 0 and 1 is taken for yes or no. */
static void
test_bools(void **state)
{
    static const uint8_t body[] = {1, 0, 0, 0, 2, 0, 0, 0, 2};
    struct psi_propose propose;
    struct psd_error err;

    assert_int_equal(psi_propose_decode(body, sizeof(body), &propose, &err), PSD_ERR_PROTOCOL);
    assert_string_equal(err.text, "VIEW_PROPOSE: leaves: 2, expected 0..1");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_layout),
        cmocka_unit_test(test_frame_round_trip),
        cmocka_unit_test(test_frame_refuses_strangers),
        cmocka_unit_test(test_frame_limits_by_type),
        cmocka_unit_test(test_frame_must_understand),
        cmocka_unit_test(test_frame_empty_has_no_payload),
        cmocka_unit_test(test_frame_checksum_sees_every_bit),
        cmocka_unit_test(test_meta_round_trip_and_truncation),
        cmocka_unit_test(test_meta_tags),
        cmocka_unit_test(test_message_round_trips),
        cmocka_unit_test(test_message_of_an_earlier_version_is_understood),
        cmocka_unit_test(test_telling_without_spans_is_understood),
        cmocka_unit_test(test_message_truncations_are_refused),
        cmocka_unit_test(test_message_ignores_what_follows),
        cmocka_unit_test(test_meet_boundaries),
        cmocka_unit_test(test_hello_server_boundaries),
        cmocka_unit_test(test_view_boundaries),
        cmocka_unit_test(test_welcome_says_when_silence_is_death),
        cmocka_unit_test(test_view_change_is_consistent),
        cmocka_unit_test(test_ranks_boundaries),
        cmocka_unit_test(test_table_info_boundaries),
        cmocka_unit_test(test_table_info_shape_overflow),
        cmocka_unit_test(test_table_info_loads_boundaries),
        cmocka_unit_test(test_job_boundaries),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_bools),
    };

    return cmocka_run_group_tests_name("wire", tests, start, stop);
}
