/*
 * stream_test.c - frames in and out of streams of bytes, cut at every place a kernel may cut them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "transport/stream/stream_in.h"
#include "transport/stream/stream_out.h"

/* A small generator of our own, so that a printed seed means the same everywhere. */
struct dice {
    uint64_t state;
};

static size_t
roll(struct dice *dice, size_t sides)
{
    dice->state = dice->state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(dice->state >> 33) % sides;
}

static struct dice
new_dice(void)
{
    const struct dice dice = {(uint64_t)time(NULL)};

    print_message("seed %llu\n", (unsigned long long)dice.state);
    return dice;
}

/* ---- Incoming ---- */

enum { FRAMES = 300, STREAM_BYTES_MAX = 16 * 1024 * 1024 };

/* The bytes of all frames in a row, and where each part of them begins. */
struct script {
    uint8_t *bytes;
    size_t size;
    size_t at[FRAMES];
    size_t meta_bytes[FRAMES];
    size_t payload_bytes[FRAMES];
    bool discard[FRAMES];

    unsigned prefixes;
    unsigned heads;
    unsigned frames;
    unsigned bad;
    uint8_t *sink;
};

static size_t
any_size(struct dice *dice)
{
    static const size_t scales[] = {1, 100, 5000, 32768, 65536, 200000};

    return roll(dice, scales[roll(dice, 6)]);
}

static void
write_script(struct script *script, struct dice *dice)
{
    script->bytes = malloc(STREAM_BYTES_MAX);
    script->sink = malloc(200000);
    assert_non_null(script->bytes);
    assert_non_null(script->sink);
    for (unsigned i = 0; i < FRAMES; i++) {
        script->at[i] = script->size;
        script->meta_bytes[i] = roll(dice, 3) != 0 ? roll(dice, 100) : roll(dice, 4097);
        script->payload_bytes[i] = any_size(dice);
        script->discard[i] = roll(dice, 4) == 0;
        script->size += PSI_PREFIX_BYTES + script->meta_bytes[i] + script->payload_bytes[i];
    }
    assert_true(script->size <= STREAM_BYTES_MAX);
    for (size_t i = 0; i < script->size; i++) {
        script->bytes[i] = (uint8_t)(roll(dice, 256));
    }
}

static psd_status
script_on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix,
                 struct psi_frame_size *size_p, struct psd_error *err)
{
    struct script *script = owner;
    const unsigned i = script->prefixes++;

    (void)conn;
    (void)err;
    script->bad += memcmp(prefix, script->bytes + script->at[i], PSI_PREFIX_BYTES) != 0;
    *size_p = (struct psi_frame_size){script->meta_bytes[i], script->payload_bytes[i]};
    return PSD_OK;
}

static psd_status
script_on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
               struct psi_sink *sink_p, struct psd_error *err)
{
    struct script *script = owner;
    const unsigned i = script->prefixes - 1;

    (void)conn;
    (void)err;
    script->heads++;
    script->bad += head_bytes != PSI_PREFIX_BYTES + script->meta_bytes[i] ||
                   memcmp(head, script->bytes + script->at[i], head_bytes) != 0;
    sink_p->into = script->discard[i] ? NULL : script->sink;
    return PSD_OK;
}

static psd_status
script_on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
                void *payload, size_t payload_bytes, struct psd_error *err)
{
    struct script *script = owner;
    const unsigned i = script->frames++;

    (void)conn;
    (void)err;
    script->bad += memcmp(head, script->bytes + script->at[i], head_bytes) != 0;
    script->bad += payload_bytes != script->payload_bytes[i];
    script->bad += (payload == NULL) != (script->discard[i] || payload_bytes == 0);
    script->bad += payload != NULL &&
                   memcmp(payload, script->bytes + script->at[i] + head_bytes, payload_bytes) != 0;
    return PSD_OK;
}

static const struct psi_conn_events script_events = {
    .on_prefix = script_on_prefix,
    .on_head = script_on_head,
    .on_frame = script_on_frame,
};

/* Puts up to `bytes` where in wants them, as a kernel would; returns how many fitted. */
static size_t
deliver(struct psi_stream_in *in, const uint8_t *from, size_t bytes)
{
    struct iovec iov[PSI_STREAM_IN_IOVECS];
    const int count = psi_stream_in_room(in, iov);
    size_t given = 0;

    for (int i = 0; i < count && given < bytes; i++) {
        const size_t rest = bytes - given;
        const size_t piece = rest < iov[i].iov_len ? rest : iov[i].iov_len;

        memcpy(iov[i].iov_base, from + given, piece);
        given += piece;
    }
    psi_stream_in_took(in, given);
    return given;
}

/* If this fails, frames are damaged when the network cuts them at the wrong place. */
static void
test_frames_cut_anywhere(void **state)
{
    static const size_t cuts[] = {2, 70, 5000, 70000, 1000000};
    struct dice dice = new_dice();

    (void)state;
    for (unsigned c = 0; c < sizeof(cuts) / sizeof(cuts[0]); c++) {
        struct script script = {0};
        struct psi_conn conn = {.events = &script_events, .owner = &script};
        uint8_t *buffer = malloc(PSI_STREAM_IN_BYTES);
        struct psi_stream_in in;
        size_t done = 0;

        assert_non_null(buffer);
        write_script(&script, &dice);
        psi_stream_in_init(&in, buffer, NULL);
        while (done < script.size) {
            const size_t rest = script.size - done;
            const size_t cut = 1 + roll(&dice, cuts[c]);
            const size_t given = deliver(&in, script.bytes + done, cut < rest ? cut : rest);

            assert_true(given > 0);
            done += given;
            assert_int_equal(psi_stream_in_run(&in, &conn, NULL), PSD_OK);
            assert_int_equal(psi_stream_in_midway(&in),
                             script.frames < FRAMES && done > script.at[script.frames]);
        }
        assert_int_equal(script.frames, FRAMES);
        assert_int_equal(script.bad, 0);
        free(script.bytes);
        free(script.sink);
        free(buffer);
    }
}

/* If this fails, a large payload takes a detour through the buffer. */
static void
test_large_payload_goes_straight_to_its_sink(void **state)
{
    struct dice dice = new_dice();
    struct script script = {0};
    struct psi_conn conn = {.events = &script_events, .owner = &script};
    uint8_t *buffer = malloc(PSI_STREAM_IN_BYTES);
    struct iovec iov[PSI_STREAM_IN_IOVECS];
    struct psi_stream_in in;

    (void)state;
    assert_non_null(buffer);
    write_script(&script, &dice);
    script.meta_bytes[0] = 0;
    script.payload_bytes[0] = 150000;
    script.discard[0] = false;
    psi_stream_in_init(&in, buffer, NULL);
    assert_int_equal(deliver(&in, script.bytes, PSI_PREFIX_BYTES + 100), PSI_PREFIX_BYTES + 100);
    assert_int_equal(psi_stream_in_run(&in, &conn, NULL), PSD_OK);
    assert_int_equal(psi_stream_in_room(&in, iov), 2);
    assert_ptr_equal(iov[0].iov_base, script.sink + 100);
    assert_int_equal(iov[0].iov_len, 150000 - 100);
    assert_true(iov[1].iov_len >= PSI_PREFIX_BYTES + PSI_META_BYTES_MAX);
    assert_true(iov[1].iov_len < 8192); /* the next head, not the next payload */
    free(script.bytes);
    free(script.sink);
    free(buffer);
}

/* ---- Outgoing ---- */

enum { SENDS = 400, OUT_PAYLOAD_MAX = 3000 };

/* A payload in the owner's memory, which it overwrites as soon as it may. */
struct lent {
    uint8_t bytes[OUT_PAYLOAD_MAX];
    unsigned releases;
};

static void
take_back(void *owner, uint64_t cookie)
{
    struct lent *lent = owner;

    lent->releases++;
    memset(lent->bytes, (int)cookie, sizeof(lent->bytes));
}

struct pipe_end {
    struct psi_stream_out out;
    uint8_t *expected; /* every byte in the order it must come out */
    size_t expected_bytes;
    size_t got_bytes;
    unsigned bad;
};

static void
push_frame(struct pipe_end *end, struct lent *lent, struct dice *dice)
{
    uint8_t head[PSI_PREFIX_BYTES + PSI_META_BYTES_MAX];
    uint8_t *expected = end->expected + end->expected_bytes;
    struct psi_outgoing frame = {.head = head,
                                 .head_bytes = PSI_PREFIX_BYTES + roll(dice, 4097),
                                 .buffer_count = (unsigned)roll(dice, PSI_BUFFERS_MAX + 1),
                                 .release = take_back,
                                 .release_owner = lent,
                                 .release_cookie = 0xee};
    size_t used = 0;

    for (size_t i = 0; i < frame.head_bytes; i++) {
        head[i] = (uint8_t)roll(dice, 256);
    }
    for (size_t i = 0; i < sizeof(lent->bytes); i++) {
        lent->bytes[i] = (uint8_t)roll(dice, 256);
    }
    memcpy(expected, head, frame.head_bytes);
    for (unsigned i = 0; i < frame.buffer_count; i++) {
        frame.buffers[i] = (struct psi_buffer){lent->bytes + used, roll(dice, 700)};
        memcpy(expected + frame.head_bytes + used, frame.buffers[i].base, frame.buffers[i].bytes);
        used += frame.buffers[i].bytes;
    }
    assert_int_equal(psi_stream_out_add(&end->out, &frame, 0), PSD_OK);
    assert_int_equal(psi_stream_out_size(&frame), frame.head_bytes + used);
    end->expected_bytes += frame.head_bytes + used;
}

/* Sends at most `bytes`, as a kernel would, and compares. */
static void
drain_some(struct pipe_end *end, size_t bytes)
{
    struct iovec iov[16];
    const int count = psi_stream_out_gather(&end->out, iov, 16);
    size_t taken = 0;

    for (int i = 0; i < count && taken < bytes; i++) {
        const size_t rest = bytes - taken;
        const size_t piece = rest < iov[i].iov_len ? rest : iov[i].iov_len;

        end->bad += memcmp(iov[i].iov_base, end->expected + end->got_bytes + taken, piece) != 0;
        taken += piece;
    }
    end->got_bytes += taken;
    psi_stream_out_sent(&end->out, taken);
    end->bad += end->out.bytes != end->expected_bytes - end->got_bytes;
}

/* If this fails, partial sends or unshare change what the peer gets, or release a payload twice. */
static void
test_queue_under_partial_sends_and_unshare(void **state)
{
    struct dice dice = new_dice();
    struct pipe_end end = {0};
    struct lent *lent = calloc(SENDS, sizeof(*lent));

    (void)state;
    end.expected =
        malloc((size_t)SENDS * (PSI_PREFIX_BYTES + PSI_META_BYTES_MAX + OUT_PAYLOAD_MAX));
    assert_non_null(lent);
    assert_non_null(end.expected);
    for (unsigned i = 0; i < SENDS; i++) {
        push_frame(&end, &lent[i], &dice);
        if (roll(&dice, 3) == 0) {
            const struct lent *changed = &lent[roll(&dice, i + 1)];
            const size_t from = roll(&dice, OUT_PAYLOAD_MAX);

            assert_int_equal(psi_stream_out_unshare(&end.out, changed->bytes + from,
                                                    roll(&dice, OUT_PAYLOAD_MAX - from), NULL),
                             PSD_OK);
        }
        drain_some(&end, roll(&dice, 4500));
    }
    assert_true(end.out.bytes > 0); /* there was a backlog all the time */
    while (end.out.bytes > 0) {
        drain_some(&end, 1 + roll(&dice, 50000));
    }
    assert_int_equal(end.bad, 0);
    assert_int_equal(end.got_bytes, end.expected_bytes);
    for (unsigned i = 0; i < SENDS; i++) {
        assert_int_equal(lent[i].releases, 1);
    }
    psi_stream_out_clear(&end.out);
    free(end.expected);
    free(lent);
}

/* If this fails, memory that the owner is about to change is still being sent from. */
static void
test_unshare_touches_only_what_overlaps(void **state)
{
    static struct lent lent[3];
    struct psi_stream_out out = {0};
    const uint8_t head[PSI_PREFIX_BYTES] = {0};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        const struct psi_outgoing frame = {.head = head,
                                           .head_bytes = sizeof(head),
                                           .buffers = {{lent[i].bytes, 1000}},
                                           .buffer_count = 1,
                                           .release = take_back,
                                           .release_owner = &lent[i]};

        assert_int_equal(psi_stream_out_add(&out, &frame, 0), PSD_OK);
    }
    psi_stream_out_sent(&out, sizeof(head) + 400);
    assert_int_equal(psi_stream_out_unshare(&out, lent[0].bytes, 400, NULL), PSD_OK);
    assert_int_equal(psi_stream_out_unshare(&out, lent[0].bytes + 1000, 100, NULL), PSD_OK);
    assert_int_equal(lent[0].releases, 0);
    assert_int_equal(psi_stream_out_unshare(&out, lent[0].bytes + 999, 1, NULL), PSD_OK);
    assert_int_equal(lent[0].releases, 1);
    assert_int_equal(psi_stream_out_unshare(&out, lent[1].bytes, 1, NULL), PSD_OK);
    assert_int_equal(lent[1].releases, 1);
    assert_int_equal(lent[2].releases, 0);
    psi_stream_out_clear(&out);
    assert_int_equal(lent[0].releases + lent[1].releases + lent[2].releases, 3);
}

/* If this fails, a piece that is sent already counts as borrowed. */
static void
test_unshare_knows_which_pieces_are_sent(void **state)
{
    static struct lent lent;
    struct psi_stream_out out = {0};
    const uint8_t head[PSI_PREFIX_BYTES] = {0};
    const struct psi_outgoing frame = {.head = head,
                                       .head_bytes = sizeof(head),
                                       .buffers = {{lent.bytes, 1000}, {lent.bytes + 2000, 500}},
                                       .buffer_count = 2,
                                       .release = take_back,
                                       .release_owner = &lent};

    (void)state;
    assert_int_equal(psi_stream_out_add(&out, &frame, sizeof(head) + 1000), PSD_OK);
    assert_int_equal(out.bytes, 500);
    assert_int_equal(psi_stream_out_unshare(&out, lent.bytes, 2000, NULL), PSD_OK);
    assert_int_equal(lent.releases, 0);
    assert_int_equal(psi_stream_out_unshare(&out, lent.bytes, 2001, NULL), PSD_OK);
    assert_int_equal(lent.releases, 1);
    psi_stream_out_clear(&out);
    assert_int_equal(lent.releases, 1);
}

/* If this fails, looking through a long queue counts as copying, although nothing was copied. */
static void
test_unshare_counts_copies_alone(void **state)
{
    enum { LENT_BYTES = 1 << 20 };
    struct psi_stream_out out = {0};
    const uint8_t head[PSI_PREFIX_BYTES] = {0};
    uint8_t *lent = calloc(1, LENT_BYTES);
    const struct psi_outgoing frame = {.head = head,
                                       .head_bytes = sizeof(head),
                                       .buffers = {{lent, LENT_BYTES}},
                                       .buffer_count = 1};
    uint64_t copied_ns = 0;

    (void)state;
    assert_non_null(lent);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(psi_stream_out_add(&out, &frame, 0), PSD_OK);
    }
    assert_int_equal(psi_stream_out_unshare(&out, head, sizeof(head), &copied_ns), PSD_OK);
    assert_int_equal(copied_ns, 0);
    assert_int_equal(psi_stream_out_unshare(&out, lent, 1, &copied_ns), PSD_OK);
    assert_true(copied_ns > 0);
    psi_stream_out_clear(&out);
    free(lent);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_cut_anywhere),
        cmocka_unit_test(test_large_payload_goes_straight_to_its_sink),
        cmocka_unit_test(test_queue_under_partial_sends_and_unshare),
        cmocka_unit_test(test_unshare_touches_only_what_overlaps),
        cmocka_unit_test(test_unshare_knows_which_pieces_are_sent),
        cmocka_unit_test(test_unshare_counts_copies_alone),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
