/*
 * conformance_test.c - what every transport must do. A new transport adds one row to `transports`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/conformance_bed.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

static const struct bed_transport transports[] = {
    {.name = "tcp", .listen_at = "tcp://127.0.0.1:0", .accept_takes_descriptor = true},
    {.name = "inproc", .listen_at = "inproc://conformance"},
    {.name = "tcp, authenticated",
     .listen_at = "tcp://127.0.0.1:0",
     .accept_takes_descriptor = true,
     .tls = true},
    {.name = "tcp, sealed",
     .listen_at = "tcp://127.0.0.1:0",
     .accept_takes_descriptor = true,
     .tls = true,
     .sealed = true},
    {.name = "tcp, helped",
     .listen_at = "tcp://127.0.0.1:0",
     .accept_takes_descriptor = true,
     .helped = true},
    {.name = "tcp, sealed, helped",
     .listen_at = "tcp://127.0.0.1:0",
     .accept_takes_descriptor = true,
     .tls = true,
     .sealed = true,
     .helped = true},
    {.name = "shared memory, helped",
     .listen_at = "tcp://127.0.0.1:0",
     .accept_takes_descriptor = true,
     .lends = true,
     .helped = true},
    {.name = "shared memory",
     .listen_at = "tcp://127.0.0.1:0",
     .accept_takes_descriptor = true,
     .lends = true},
    {.name = "shared memory, met over sealed tcp",
     .listen_at = "tcp://127.0.0.1:0",
     .accept_takes_descriptor = true,
     .tls = true,
     .sealed = true,
     .lends = true},
};

static struct bed *
plain_bed(void **state)
{
    return bed_create(*state, NULL, NULL);
}

/* A bed with one connection, open at both ends. */
static struct bed *
linked_bed(void **state, struct end *end)
{
    struct bed *bed = plain_bed(state);

    bed_connect(bed, end);
    BED_WAIT(bed, end->opens == 1 && bed->accepted_count == 1);
    assert_int_equal(end->conn->lends, bed->transport->lends);
    assert_int_equal(bed->accepted[0].conn->lends, bed->transport->lends);
    return bed;
}

static uint8_t *
filled(uint64_t number, size_t bytes)
{
    uint8_t *payload = malloc(bytes + 1);

    assert_non_null(payload);
    bed_fill(payload, number, bytes);
    return payload;
}

/* ---- Moving frames ---- */

/* If this fails, some size of frame is damaged, lost or out of order on its way. */
static void
test_echo_of_many_sizes(void **state)
{
    static const size_t payloads[] = {0,      1,       63,      64,     65,    4095,      4096,
                                      4097,   32767,   32768,   65407,  65408, 65409,     65471,
                                      65472,  65473,   65535,   65536,  65537, 256 * KIB, 512 * KIB,
                                      524289, MIB - 1, MIB + 1, 3 * MIB};
    static const size_t metas[] = {0, 64, 4096};
    struct bed *bed = plain_bed(state);
    struct end end = {0};
    unsigned sent = 0;

    bed->model.echo = true;
    bed_start_thread(bed);
    bed_connect(bed, &end);
    for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
        for (size_t j = 0; j < sizeof(metas) / sizeof(metas[0]); j++) {
            uint8_t *payload = filled(sent, payloads[i]);

            assert_int_equal(bed_send(&end, sent, metas[j], payload, payloads[i]), PSD_OK);
            sent++;
            BED_WAIT(bed, end.frames == sent || end.closes > 0);
            assert_int_equal(end.closes, 0);
            assert_int_equal(end.releases, sent);
            free(payload);
        }
    }
    bed_stop_thread(bed);
    assert_int_equal(end.bad + bed->accepted[0].bad, 0);
    assert_int_equal(end.opens, 1);
    bed_destroy(bed);
}

/* If this fails, frames overtake each other or run together when they are sent in one go. */
static void
test_order_of_mixed_frames(void **state)
{
    enum { COUNT = 400, LARGEST = 150 * KIB };
    struct bed *bed = plain_bed(state);
    struct end end = {0};
    uint8_t *payloads = malloc((size_t)COUNT * LARGEST);
    const unsigned seed = (unsigned)psi_monotonic_ms();

    print_message("seed %u\n", seed);
    srand(seed);
    assert_non_null(payloads);
    bed_start_thread(bed);
    bed_connect(bed, &end);
    for (unsigned i = 0; i < COUNT; i++) {
        const bool small = rand() % 4 != 0;
        const size_t bytes = (size_t)rand() % (small ? 2 * KIB : LARGEST);
        uint8_t *payload = payloads + (size_t)i * LARGEST;

        bed_fill(payload, i, bytes);
        assert_int_equal(bed_send(&end, i, (size_t)rand() % 300, payload, bytes), PSD_OK);
    }
    BED_WAIT(bed, end.releases == COUNT && end.conn->ops->queued_bytes(end.conn) == 0);
    end.conn->ops->close_after_send(end.conn, 60000);
    end.conn = NULL;
    bed_stop_thread(bed);
    BED_WAIT(bed, bed->accepted[0].closes == 1);
    assert_int_equal(bed->accepted[0].frames, COUNT);
    assert_int_equal(bed->accepted[0].bad, 0);
    bed_destroy(bed);
    free(payloads);
}

/* If this fails, many small requests in flight are lost, or answered in the wrong order. */
static void
test_ten_thousand_small_frames(void **state)
{
    enum { COUNT = 10000, BYTES = 8 };
    struct bed *bed = plain_bed(state);
    struct end end = {0};
    uint8_t *payloads = malloc((size_t)COUNT * BYTES);

    assert_non_null(payloads);
    bed->model.echo = true;
    bed_start_thread(bed);
    bed_connect(bed, &end);
    for (unsigned i = 0; i < COUNT; i++) {
        bed_fill(payloads + (size_t)i * BYTES, i, BYTES);
        assert_int_equal(bed_send(&end, i, 0, payloads + (size_t)i * BYTES, BYTES), PSD_OK);
    }
    BED_WAIT(bed, end.frames == COUNT);
    bed_stop_thread(bed);
    assert_int_equal(end.releases, COUNT);
    assert_int_equal(end.bad + bed->accepted[0].bad, 0);
    bed_destroy(bed);
    free(payloads);
}

static void
count_call(void *owner, uint64_t cookie)
{
    *(unsigned *)owner += (unsigned)cookie;
}

/* If this fails, a payload in several pieces arrives in the wrong order or with holes. */
static void
test_scatter_gather(void **state)
{
    enum { BYTES = 100000 };
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    uint8_t *payload = filled(0, BYTES);
    uint8_t head[PSI_PREFIX_BYTES + 10];
    unsigned released = 0;
    const struct psi_outgoing frame = {
        .head = head,
        .head_bytes = bed_head(head, 0, 10, BYTES),
        .buffers = {{payload, 1}, {NULL, 0}, {payload + 1, 70000}, {payload + 70001, 29999}},
        .buffer_count = 4,
        .release = count_call,
        .release_owner = &released,
        .release_cookie = 7,
    };

    assert_int_equal(end.conn->ops->send(end.conn, &frame), PSD_OK);
    BED_WAIT(bed, bed->accepted[0].frames == 1 && released > 0);
    assert_int_equal(released, 7);
    assert_int_equal(bed->accepted[0].bad, 0);
    assert_int_equal(bed->accepted[0].heads, 1);
    bed_destroy(bed);
    free(payload);
}

/* If this fails, an unwanted payload takes the connection with it, or memory. */
static void
test_payload_without_sink_is_discarded(void **state)
{
    struct bed *bed = plain_bed(state);
    struct end end = {0};
    uint8_t *payload = filled(0, 3 * MIB);

    bed->model.discard = true;
    bed_connect(bed, &end);
    assert_int_equal(bed_send(&end, 0, 5, payload, 3 * MIB), PSD_OK);
    assert_int_equal(bed_send(&end, 1, 0, payload, 100), PSD_OK);
    assert_int_equal(bed_send(&end, 2, 0, NULL, 0), PSD_OK);
    BED_WAIT(bed, bed->accepted_count == 1 && bed->accepted[0].frames == 3);
    assert_int_equal(bed->accepted[0].heads, 2); /* none for the empty payload */
    assert_int_equal(bed->accepted[0].payload_bytes, 3 * MIB + 100);
    assert_int_equal(bed->accepted[0].bad, 0);
    bed_destroy(bed);
    free(payload);
}

/* ---- Borrowed payloads and the queue ---- */

/* If this fails, a slow reader makes a sender's queue grow without end, or loses a refused frame's
 * payload. */
static void
test_full_queue_is_busy(void **state)
{
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    uint8_t *payload = filled(0, MIB);
    unsigned taken = 0;

    bed->accepted[0].discard = true;
    while (bed_send(&end, taken, 0, payload, MIB) == PSD_OK) {
        taken++;
        assert_true(taken < 1000);
    }
    assert_int_equal(bed_send(&end, taken, 0, payload, MIB), PSD_ERR_BUSY);
    assert_true(end.conn->ops->queued_bytes(end.conn) <= PSI_CONN_QUEUE_BYTES_MAX);
    assert_true(end.conn->ops->queued_bytes(end.conn) > PSI_CONN_QUEUE_BYTES_MAX - 2 * MIB);
    BED_WAIT(bed, bed->accepted[0].frames == taken);
    assert_int_equal(end.releases, taken);
    assert_int_equal(bed->accepted[0].bad, 0);
    assert_int_equal(end.conn->ops->queued_bytes(end.conn), 0);
    assert_int_equal(bed_send(&end, taken, 0, payload, 1), PSD_OK);
    BED_WAIT(bed, bed->accepted[0].frames == taken + 1);
    bed_destroy(bed);
    free(payload);
}

/* If this fails, a reply changes while it is being sent. */
static void
test_unshare_protects_unsent_bytes(void **state)
{
    enum { BYTES = 8 * MIB };
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    uint8_t *first = filled(0, BYTES);
    uint8_t *second;
    unsigned number = 0;
    size_t unsent = 0;

    /* The first of which not all was taken at once:
     * of a stream a part, of shared memory nothing. */
    while (unsent == 0) {
        bed_fill(first, number, BYTES);
        assert_int_equal(bed_send(&end, number, 0, first, BYTES), PSD_OK);
        unsent = end.conn->ops->queued_bytes(end.conn);
        number++;
    }
    assert_in_range(number, 1, bed->transport->lends ? 2 : 1);
    assert_int_equal(end.releases, number - 1);
    second = filled(number, BYTES);
    assert_int_equal(bed_send(&end, number, 0, second, BYTES), PSD_OK);

    /* Memory that is not borrowed, or no longer: nothing happens. */
    assert_int_equal(end.conn->ops->unshare(end.conn, first, 0), PSD_OK);
    assert_int_equal(end.conn->ops->unshare(end.conn, &end, sizeof(end)), PSD_OK);
    if (unsent < BYTES) {
        assert_int_equal(end.conn->ops->unshare(end.conn, first, BYTES - unsent), PSD_OK);
        memset(first, 0, BYTES - unsent);
    }
    assert_int_equal(end.releases, number - 1);

    /* The last byte of the first frame, and then all of the second. */
    assert_int_equal(end.conn->ops->unshare(end.conn, first + BYTES - 1, 1), PSD_OK);
    assert_int_equal(end.releases, number);
    memset(first, 0, BYTES);
    assert_int_equal(end.conn->ops->unshare(end.conn, second, BYTES), PSD_OK);
    assert_int_equal(end.releases, number + 1);
    memset(second, 0, BYTES);

    assert_int_equal(end.conn->ops->unshare(end.conn, second, BYTES), PSD_OK);
    BED_WAIT(bed, bed->accepted[0].frames == number + 1);
    assert_int_equal(bed->accepted[0].bad, 0);
    assert_int_equal(end.releases, number + 1);
    bed_destroy(bed);
    free(first);
    free(second);
}

/* If this fails, memory is given back twice, or never, when a connection ends early. */
static void
test_release_once_in_every_ending(void **state)
{
    enum { BY_US, BY_PEER, BY_LOOP, ENDINGS };
    uint8_t *payload = filled(0, 8 * MIB);

    for (int ending = 0; ending < ENDINGS; ending++) {
        struct end end = {0};
        struct bed *bed = linked_bed(state, &end);

        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(bed_send(&end, i, 0, payload, 8 * MIB), PSD_OK);
        }
        assert_int_equal(end.releases, bed->transport->lends ? 1 : 0);
        assert_int_equal(end.conn->ops->unshare(end.conn, payload + 8 * MIB - 1, 1), PSD_OK);
        assert_int_equal(end.releases, 3);
        assert_int_equal(bed_send(&end, 3, 0, payload, 8 * MIB), PSD_OK);
        assert_int_equal(bed_send(&end, 4, 0, NULL, 0), PSD_OK);
        if (ending == BY_US) {
            bed_hang_up(&end);
        } else if (ending == BY_PEER) {
            bed_hang_up(&bed->accepted[0]);
            BED_WAIT(bed, end.closes == 1);
        }
        assert_int_equal(end.releases, ending == BY_LOOP ? 3 : 5);
        bed_destroy(bed);
        assert_int_equal(end.releases, 5);
    }
    free(payload);
}

/* ---- Endings ---- */

/* If this fails, a peer that dies while sending makes half a payload count. */
static void
test_close_within_payload(void **state)
{
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    uint8_t *payload = filled(0, 8 * MIB);

    assert_int_equal(bed_send(&end, 0, 0, payload, 8 * MIB), PSD_OK);
    BED_WAIT(bed, bed->accepted[0].heads == 1);
    bed_hang_up(&end);
    assert_int_equal(end.releases, 1);
    BED_WAIT(bed, bed->accepted[0].closes == 1);
    assert_int_equal(bed->accepted[0].frames, 0);
    assert_int_equal(bed->accepted[0].reason.status, PSD_ERR_PEER_LOST);
    assert_int_equal(end.closes, 0); /* who closes hears nothing more */
    bed_destroy(bed);
    free(payload);
}

/* If this fails, a connection survives an error of its owner, or hides which one it was. */
static void
test_error_of_an_event_closes(void **state)
{
    static const enum bed_moment moments[] = {AT_PREFIX, AT_HEAD, AT_FRAME};
    uint8_t *payload = filled(0, 100 * KIB);

    for (unsigned i = 0; i < 3; i++) {
        struct bed *bed = plain_bed(state);
        struct end end = {0};
        char text[32];

        bed->model.fail_at = moments[i];
        bed_connect(bed, &end);
        assert_int_equal(bed_send(&end, 0, 8, payload, 100 * KIB), PSD_OK);
        assert_int_equal(bed_send(&end, 1, 8, payload, 100), PSD_OK);
        BED_WAIT(bed, bed->accepted_count == 1 && bed->accepted[0].closes == 1);
        BED_WAIT(bed, end.closes == 1);
        snprintf(text, sizeof(text), "planted at %d", (int)moments[i]);
        assert_int_equal(bed->accepted[0].reason.status, PSD_ERR_VERSION);
        assert_string_equal(bed->accepted[0].reason.text, text);
        assert_int_equal(bed->accepted[0].prefixes, 1);
        assert_int_equal(bed->accepted[0].frames, moments[i] == AT_FRAME ? 1 : 0);
        assert_int_equal(end.releases, 2);
        bed_destroy(bed);
    }
    free(payload);
}

/* If this fails, an owner that closes its connection in an event uses freed memory,
 * or hears more. */
static void
test_close_inside_every_event(void **state)
{
    uint8_t *payload = filled(0, 100 * KIB);

    for (enum bed_moment moment = AT_ACCEPT; moment <= AT_CLOSE; moment++) {
        struct bed *bed = plain_bed(state);
        struct end end = {.close_at = moment == AT_OPEN ? AT_OPEN : NEVER};
        struct end *accepted = &bed->accepted[0];

        bed->model.close_at = moment;
        bed_connect(bed, &end);
        assert_int_equal(bed_send(&end, 0, 8, payload, 100 * KIB), PSD_OK);
        assert_int_equal(bed_send(&end, 1, 8, payload, 100), PSD_OK);
        if (moment == AT_OPEN) {
            BED_WAIT(bed, end.opens == 1);
            BED_WAIT(bed, bed->accepted_count == 1 && accepted->closes == 1);
            assert_int_equal(end.closes, 0);
        } else {
            if (moment == AT_CLOSE) {
                BED_WAIT(bed, bed->accepted_count == 1 && accepted->frames == 2);
                bed_hang_up(&end);
            }
            BED_WAIT(bed, bed->accepted_count == 1 && accepted->conn == NULL);
            BED_WAIT(bed, moment == AT_CLOSE || end.closes == 1);
            assert_int_equal(accepted->closes, moment == AT_CLOSE ? 1 : 0);
            assert_int_equal(accepted->prefixes, moment == AT_CLOSE ? 2 : moment >= AT_PREFIX);
        }
        assert_int_equal(end.releases, 2);
        bed_destroy(bed);
    }
    free(payload);
}

/* If this fails, a connection closed by another one's event still hears what was found before. */
static void
test_close_of_another_in_an_event(void **state)
{
    struct bed *bed = plain_bed(state);
    struct end ends[2] = {{0}, {0}};

    for (unsigned i = 0; i < 2; i++) {
        bed_connect(bed, &ends[i]);
        BED_WAIT(bed, ends[i].opens == 1 && bed->accepted_count == i + 1);
    }
    bed->accepted[0].victim = &bed->accepted[1];
    bed->accepted[1].victim = &bed->accepted[0];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(bed_send(&ends[i], 0, 0, NULL, 0), PSD_OK);
    }
    BED_WAIT(bed, bed->accepted[0].frames + bed->accepted[1].frames > 0);
    BED_WAIT(bed, ends[0].closes + ends[1].closes == 1);
    assert_int_equal(bed->accepted[0].frames + bed->accepted[1].frames, 1);
    assert_int_equal(bed->accepted[0].closes + bed->accepted[1].closes, 0);
    bed_destroy(bed);
}

/* If this fails, the last words before a close get lost. */
static void
test_close_after_send_delivers(void **state)
{
    enum { BYTES = 8 * MIB };
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    struct psi_conn *conn = end.conn;
    uint8_t *payload = filled(0, BYTES);
    uint8_t *second = filled(1, BYTES);

    /* The peer's own words, still unread here, must not cut it short. */
    assert_int_equal(bed_send(&bed->accepted[0], 0, 0, payload, 1000), PSD_OK);
    assert_int_equal(bed_send(&end, 0, 0, payload, BYTES), PSD_OK);
    assert_int_equal(bed_send(&end, 1, 0, second, BYTES), PSD_OK);
    assert_true(conn->ops->queued_bytes(conn) > 0); /* so that it stays for a while */
    conn->ops->close_after_send(conn, 60000);
    assert_int_equal(conn->ops->send(conn, &(struct psi_outgoing){.head = payload,
                                                                  .head_bytes = PSI_PREFIX_BYTES}),
                     PSD_ERR_CLOSED);
    BED_WAIT(bed, bed->accepted[0].closes == 1);
    assert_int_equal(bed->accepted[0].frames, 2);
    assert_int_equal(bed->accepted[0].bad, 0);
    assert_int_equal(end.releases, 2);
    assert_int_equal(end.frames + end.closes, 0);
    bed_destroy(bed);
    free(payload);
    free(second);
}

/* If this fails, a reply sent before a close inside an event is lost, or the owner hears more. */
static void
test_goodbye_in_an_event(void **state)
{
    static const size_t sizes[] = {100, MIB};
    uint8_t *payload = filled(0, MIB);

    for (unsigned i = 0; i < 2; i++) {
        struct bed *bed = plain_bed(state);
        struct end end = {0};

        bed->model.echo = true;
        bed->model.goodbye = true;
        bed_connect(bed, &end);
        assert_int_equal(bed_send(&end, 0, 0, payload, sizes[i]), PSD_OK);
        assert_int_equal(bed_send(&end, 1, 0, payload, sizes[i]), PSD_OK);
        BED_WAIT(bed, end.closes == 1);
        assert_int_equal(end.frames, 1);
        assert_int_equal(end.bad, 0);
        assert_int_equal(bed->accepted[0].prefixes, 1);
        bed_destroy(bed);
    }
    free(payload);
}

/* If this fails, a peer that does not read keeps a closed connection for ever. */
static void
test_linger_is_bounded(void **state)
{
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    uint8_t *payload = filled(0, 8 * MIB);
    const uint64_t start_ms = psi_monotonic_ms();
    unsigned sent = 0;

    while (end.conn->ops->queued_bytes(end.conn) == 0) {
        assert_int_equal(bed_send(&end, sent++, 0, payload, 8 * MIB), PSD_OK);
    }
    end.conn->ops->close_after_send(end.conn, 30);
    end.conn = NULL;
    assert_true(psi_loop_next_ns(bed->client) != UINT64_MAX);
    while (end.releases < sent) {
        assert_true(psi_monotonic_ms() < start_ms + 5000);
        assert_int_equal(psi_loop_run_once(bed->client, -1, NULL), PSD_OK);
    }
    assert_true(psi_monotonic_ms() >= start_ms + 29);
    assert_true(psi_loop_next_ns(bed->client) == UINT64_MAX);
    assert_int_equal(end.closes, 0);
    BED_WAIT(bed, bed->accepted[0].closes == 1);
    assert_int_equal(bed->accepted[0].frames, sent - 1); /* what was taken at once, no more */
    bed_destroy(bed);
    free(payload);
}

/* If this fails, an owner hears on_close in the middle of its own send. */
static void
test_broken_send_is_reported_later(void **state)
{
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    struct psi_loop_ready ready;
    psd_status status = PSD_OK;
    unsigned taken = 0;

    bed_hang_up(&bed->accepted[0]);
    while ((status = bed_send(&end, 0, 0, NULL, 0)) == PSD_OK) {
        taken++;
        assert_true(taken < 100000);
    }
    assert_int_equal(status, PSD_ERR_PEER_LOST);
    assert_int_equal(bed_send(&end, 0, 0, NULL, 0), PSD_ERR_PEER_LOST);
    assert_int_equal(end.closes, 0);
    assert_int_equal(end.releases, taken);
    assert_true(psi_loop_next_ns(bed->client) <= psi_now_ns(psi_loop_env(bed->client)));
    assert_int_equal(psi_loop_wait(bed->client, -1, &ready, NULL), PSD_OK);
    psi_loop_dispatch(bed->client, &ready);
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(end.reason.status, PSD_ERR_PEER_LOST);
    bed_destroy(bed);
}

/* If this fails, what a peer said before it closed is lost to one who was just sending. */
static void
test_last_words_before_a_broken_send(void **state)
{
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    unsigned taken = 0;

    assert_int_equal(bed_send(&bed->accepted[0], 0, 0, NULL, 0), PSD_OK);
    bed_hang_up(&bed->accepted[0]);
    /* Memory takes words for somebody who is gone. */
    while (bed_send(&end, 0, 0, NULL, 0) == PSD_OK && !(bed->transport->lends && taken == 10000)) {
        taken++;
        assert_true(taken < 100000);
    }
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(end.frames, 1);
    assert_int_equal(end.bad, 0);
    bed_destroy(bed);
}

/* ---- Opening ---- */

/* If this fails, a missing server is reported in the middle of connect, or without its name. */
static void
test_connect_refused(void **state)
{
    struct bed *bed = plain_bed(state);
    struct psi_env *env = psi_loop_env(bed->server);
    struct psi_loop_ready ready;
    struct end end = {0};

    env->ops->unlisten(env, bed->listener);
    bed_connect(bed, &end);
    assert_int_equal(end.closes, 0);
    assert_int_equal(psi_loop_wait(bed->client, 5000, &ready, NULL), PSD_OK);
    assert_true(ready.count > 0);
    psi_loop_dispatch(bed->client, &ready);
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(end.opens, 0);
    assert_int_equal(end.reason.status, PSD_ERR_PEER_LOST);
    assert_non_null(strstr(end.reason.text, bed->address));
    bed_destroy(bed);
}

/* If this fails, a wrong address is found only after a time-out, or not named. */
static void
test_malformed_addresses(void **state)
{
    struct bed *bed = plain_bed(state);
    struct psi_env *env = psi_loop_env(bed->client);
    struct psi_listener *listener = NULL;
    struct psi_conn *conn = NULL;
    char bound[PSI_ADDRESS_BYTES];
    struct psd_error err = {0};

    assert_int_equal(env->ops->connect(env, "carrier://pigeon", NULL, NULL, NULL, &conn, &err),
                     PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "carrier://pigeon"));
    assert_int_equal(env->ops->listen(env, "tcp://1.2.3.4", NULL, NULL, &listener, bound, &err),
                     PSD_ERR_INVALID);
    assert_int_equal(env->ops->listen(env, bed->address, NULL, NULL, &listener, bound, &err),
                     PSD_ERR_BUSY);
    assert_null(conn);
    assert_null(listener);
    bed_destroy(bed);
}

/* If this fails, a listener cannot turn a peer away. */
static void
test_listener_refuses(void **state)
{
    struct bed *bed = plain_bed(state);
    struct end end = {0};

    bed->refuse = true;
    bed_connect(bed, &end);
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(bed->accepted_count, 0);
    bed->refuse = false;
    end = (struct end){0};
    bed_connect(bed, &end);
    BED_WAIT(bed, end.opens == 1 && bed->accepted_count == 1);
    bed_destroy(bed);
}

/* If this fails, a daemon that stops listening while peers arrive uses freed memory. */
static void
test_unlisten_inside_accept(void **state)
{
    struct bed *bed = plain_bed(state);
    struct end ends[3] = {{0}, {0}, {0}};

    bed->unlisten_in_accept = true;
    for (unsigned i = 0; i < 3; i++) {
        bed_connect(bed, &ends[i]);
    }
    BED_WAIT(bed, ends[0].closes + ends[1].closes + ends[2].closes == 2);
    assert_int_equal(bed->accepted_count, 1);
    assert_null(bed->listener);
    bed_destroy(bed);
}

/* If this fails, a peer can make the receiver buffer as much as it likes. */
static void
test_oversize_meta_is_refused(void **state)
{
    struct end end = {0};
    struct bed *bed = linked_bed(state, &end);
    uint8_t head[PSI_PREFIX_BYTES + 5000];
    const struct psi_outgoing frame = {.head = head, .head_bytes = PSI_PREFIX_BYTES};

    bed_head(head, 0, PSI_META_BYTES_MAX + 1, 0);
    assert_int_equal(end.conn->ops->send(end.conn, &frame), PSD_OK);
    BED_WAIT(bed, bed->accepted[0].closes == 1 && end.closes == 1);
    assert_int_equal(bed->accepted[0].reason.status, PSD_ERR_PROTOCOL);
    assert_int_equal(bed->accepted[0].frames, 0);
    bed_destroy(bed);
}

/* ---- Strangers and limits ---- */

/* If this fails, silent connections stay for ever, or known ones are thrown out. */
static void
test_silent_stranger_times_out(void **state)
{
    const struct psi_loop_config config = {.stranger_ms = 500};
    struct bed *bed = bed_create(*state, NULL, &config);
    struct end known = {0};
    struct end silent = {0};
    const uint64_t start_ms = psi_monotonic_ms();

    bed_connect(bed, &known);
    assert_int_equal(bed_send(&known, 0, 0, NULL, 0), PSD_OK);
    BED_WAIT(bed, bed->accepted_count == 1 && bed->accepted[0].frames == 1);
    bed_connect(bed, &silent);
    BED_WAIT(bed, silent.closes == 1);
    assert_true(psi_monotonic_ms() >= start_ms + 499);
    assert_int_equal(bed->accepted[1].closes, 1);
    assert_int_equal(bed->accepted[1].reason.status, PSD_ERR_TIMEOUT);
    assert_int_equal(known.closes, 0);
    assert_true(psi_loop_next_ns(bed->server) == UINT64_MAX);
    bed_destroy(bed);
}

/* If this fails, a flood of silent connections keeps members out. One that has proved to be a
 * member keeps its place, as long as anybody may: then the next one has to wait for that. */
static void
test_oldest_stranger_gives_way(void **state)
{
    const struct bed_transport *transport = *state;
    const struct psi_loop_config config = {.strangers_max = 2, .stranger_ms = 500};
    struct bed *bed = bed_create(*state, NULL, &config);
    struct end ends[4] = {{0}, {0}, {0}, {0}};

    bed_connect(bed, &ends[0]);
    assert_int_equal(bed_send(&ends[0], 0, 0, NULL, 0), PSD_OK);
    BED_WAIT(bed, bed->accepted_count == 1 && bed->accepted[0].frames == 1);
    for (unsigned i = 1; i < 4; i++) {
        bed_connect(bed, &ends[i]);
        BED_WAIT(bed, bed->accepted_count == i + 1);
    }
    BED_WAIT(bed, ends[1].closes == 1);
    assert_int_equal(bed->accepted[1].reason.status,
                     transport->tls ? PSD_ERR_TIMEOUT : PSD_ERR_BUSY);
    assert_int_equal(ends[0].closes + ends[3].closes, 0);
    bed_destroy(bed);
}

/* If this fails, connections grow without bound. */
static void
test_connection_limit(void **state)
{
    const struct psi_loop_config server_config = {.conns_max = 2};
    const struct psi_loop_config client_config = {.conns_max = 3};
    struct bed *bed = bed_create(*state, &client_config, &server_config);
    struct psi_env *env = psi_loop_env(bed->client);
    struct psd_error err = {0};
    struct psi_conn *conn = NULL;
    struct end ends[3] = {{0}, {0}, {0}};

    for (unsigned i = 0; i < 2; i++) {
        bed_connect(bed, &ends[i]);
        assert_int_equal(bed_send(&ends[i], 0, 0, NULL, 0), PSD_OK);
        BED_WAIT(bed, bed->accepted_count == i + 1 && bed->accepted[i].frames == 1);
    }
    bed_connect(bed, &ends[2]);
    assert_int_equal(env->ops->connect(env, bed->address, NULL, NULL, NULL, &conn, &err),
                     PSD_ERR_BUSY);
    assert_null(conn);
    BED_WAIT(bed, ends[2].closes == 1);
    assert_int_equal(bed->accepted_count, 2);
    bed_hang_up(&ends[0]);
    BED_WAIT(bed, bed->accepted[0].closes == 1);
    ends[2] = (struct end){0};
    bed_connect(bed, &ends[2]);
    BED_WAIT(bed, bed->accepted_count == 3 && ends[2].opens == 1);
    bed_destroy(bed);
}

/* If this fails, a server without descriptors spins, or never serves again. */
static void
test_no_descriptor_left(void **state)
{
    const struct bed_transport *transport = *state;
    struct bed *bed = plain_bed(state);
    struct end ends[2] = {{0}, {0}};
    struct rlimit old;
    struct rlimit low;
    int taken[64];
    int count = 0;

    if (!transport->accept_takes_descriptor) {
        bed_destroy(bed);
        return;
    }
    bed_connect(bed, &ends[0]);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 60;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (count < 64 && (taken[count] = dup(0)) >= 0) {
        count++;
    }
    assert_in_range(count, 1, 63);
    BED_WAIT(bed, ends[0].closes == 1);
    assert_int_equal(bed->accepted_count, 0);
    while (count > 0) {
        close(taken[--count]);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    bed_connect(bed, &ends[1]);
    BED_WAIT(bed, ends[1].opens == 1 && bed->accepted_count == 1);
    bed_destroy(bed);
}

/* If this fails, idle connections disturb a working one. */
static void
test_thousand_idle_connections(void **state)
{
    enum { IDLE = 1000, ROUNDS = 200 };
    const struct psi_loop_config config = {.strangers_max = 2000, .stranger_ms = 600000};
    struct bed *bed = bed_create(*state, NULL, &config);
    struct end *idle = calloc(IDLE, sizeof(*idle));
    struct end busy = {0};
    uint8_t *payload = filled(0, 10 * KIB);
    struct rlimit limit;

    assert_non_null(idle);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (unsigned i = 0; i < IDLE; i++) {
        bed_connect(bed, &idle[i]);
        BED_WAIT(bed, bed->accepted_count == i + 1 && idle[i].opens == 1);
    }
    bed->model.echo = true;
    bed_connect(bed, &busy);
    for (unsigned i = 0; i < ROUNDS; i++) {
        bed_fill(payload, i, 10 * KIB);
        assert_int_equal(bed_send(&busy, i, 0, payload, 10 * KIB), PSD_OK);
        BED_WAIT(bed, busy.frames == i + 1);
    }
    assert_int_equal(busy.bad, 0);
    for (unsigned i = 0; i < IDLE; i++) {
        assert_int_equal(idle[i].closes + bed->accepted[i].closes, 0);
    }
    bed_destroy(bed);
    free(idle);
    free(payload);
}

/* ---- The loop ---- */

/* If this fails, what was found for one connection is taken for another that has its place now. */
static void
test_stale_events_are_recognised(void **state)
{
    struct end first = {0};
    struct end second = {0};
    struct bed *bed = linked_bed(state, &first);
    struct psi_loop_ready ready;

    assert_int_equal(bed_send(&bed->accepted[0], 0, 0, NULL, 0), PSD_OK);
    assert_int_equal(psi_loop_wait(bed->client, 5000, &ready, NULL), PSD_OK);
    assert_int_equal(ready.count, bed->transport->lends ? 0 : 1); /* a ring is no descriptor */
    bed_hang_up(&first);
    bed_connect(bed, &second);
    psi_loop_dispatch(bed->client, &ready);
    assert_int_equal(first.frames + first.closes, 0);
    assert_int_equal(second.opens + second.closes, 0);
    BED_WAIT(bed, second.opens == 1 && bed->accepted_count == 2);
    bed_destroy(bed);
}

static void *
wake_loop(void *context)
{
    psi_loop_wake(context);
    return NULL;
}

/* If this fails, a thread that waits cannot be told anything. */
static void
test_wake_from_another_thread(void **state)
{
    struct bed *bed = plain_bed(state);
    struct psi_loop_ready ready;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, wake_loop, bed->client), 0);
    assert_int_equal(psi_loop_wait(bed->client, -1, &ready, NULL), PSD_OK);
    assert_int_equal(ready.count, 1);
    psi_loop_dispatch(bed->client, &ready);
    pthread_join(thread, NULL);
    assert_int_equal(psi_loop_wait(bed->client, 0, &ready, NULL), PSD_OK);
    assert_int_equal(ready.count, 0);
    bed_destroy(bed);
}

static void
read_one(void *owner)
{
    int *fds = owner;
    char byte;

    fds[2] += (int)read(fds[0], &byte, 1);
}

/* If this fails, a daemon does not hear its signals. */
static void
test_watched_descriptor(void **state)
{
    struct bed *bed = plain_bed(state);
    int fds[3] = {-1, -1, 0};

    assert_int_equal(pipe(fds), 0);
    assert_int_equal(psi_loop_watch(bed->client, fds[0], read_one, fds, NULL), PSD_OK);
    bed_pump(bed);
    assert_int_equal(fds[2], 0);
    assert_int_equal(write(fds[1], "ab", 2), 2);
    BED_WAIT(bed, fds[2] == 2);
    bed_destroy(bed);
    assert_int_equal(write(fds[1], "c", 1), 1); /* still ours, still open */
    close(fds[0]);
    close(fds[1]);
}

/* What several threads that wait on one loop share. */
struct crew {
    pthread_mutex_t lock; /* the owner's lock of loop.h: guards the client's half of bed */
    struct bed *bed;
    atomic_bool stop;
};

static void *
crew_member(void *context)
{
    struct crew *crew = context;
    struct psi_loop_ready ready;

    while (!atomic_load(&crew->stop)) {
        if (psi_loop_wait(crew->bed->client, 1000, &ready, NULL) != PSD_OK) {
            break;
        }
        pthread_mutex_lock(&crew->lock);
        if (!atomic_load(&crew->stop)) { /* leaves a last wake to the others */
            psi_loop_dispatch(crew->bed->client, &ready);
        }
        pthread_mutex_unlock(&crew->lock);
    }
    return NULL;
}

/* If this fails, threads that wait on one loop while another sends, connects and closes get into
 * each other's way. */
static void
test_many_waiters_on_one_loop(void **state)
{
    enum { MEMBERS = 3, ROUNDS = 150 };
    struct crew crew = {.lock = PTHREAD_MUTEX_INITIALIZER, .bed = plain_bed(state)};
    struct end *ends = calloc(ROUNDS, sizeof(*ends));
    uint8_t *payload = filled(0, 100 * KIB);
    const uint64_t deadline_ms = psi_monotonic_ms() + 10000;
    pthread_t members[MEMBERS];
    unsigned left = ROUNDS;

    assert_non_null(ends);
    crew.bed->model.echo = true;
    bed_start_thread(crew.bed);
    for (unsigned i = 0; i < MEMBERS; i++) {
        assert_int_equal(pthread_create(&members[i], NULL, crew_member, &crew), 0);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&crew.lock);
        bed_connect(crew.bed, &ends[i]);
        assert_int_equal(bed_send(&ends[i], 0, 0, payload, 100 * KIB), PSD_OK);
        if (i >= 20 && i % 3 == 0) {
            bed_hang_up(&ends[i - 20]);
        }
        pthread_mutex_unlock(&crew.lock);
    }
    while (left > 0 && psi_monotonic_ms() < deadline_ms) {
        pthread_mutex_lock(&crew.lock);
        left = 0;
        for (unsigned i = 0; i < ROUNDS; i++) {
            left += ends[i].conn != NULL && ends[i].frames == 0;
        }
        pthread_mutex_unlock(&crew.lock);
        sched_yield();
    }
    atomic_store(&crew.stop, true);
    psi_loop_wake(crew.bed->client);
    for (unsigned i = 0; i < MEMBERS; i++) {
        pthread_join(members[i], NULL);
    }
    assert_int_equal(left, 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        assert_int_equal(ends[i].bad + ends[i].closes, 0);
    }
    bed_destroy(crew.bed);
    free(ends);
    free(payload);
}

/* ---- Authentication: the acceptor sends a challenge, the connector answers, the acceptor nods
 * ---- */

enum { CHALLENGE_BYTES = 8, NOD = '+' };

static const uint8_t challenge[CHALLENGE_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8};

struct credentials {
    uint8_t token;
    bool flood; /* the connecting side never comes to an end */
};

struct session {
    const struct credentials *credentials;
    bool connecting;
    unsigned step;
};

static void *
session_create(void *credentials, const struct psi_auth_args *args)
{
    struct session *session = calloc(1, sizeof(*session));

    if (session != NULL) {
        session->credentials = credentials;
        session->connecting = args->connecting;
    }
    return session;
}

static psd_status
connector_step(struct session *session, const uint8_t *in, size_t in_bytes, size_t *consumed_p,
               uint8_t *out, size_t out_capacity, size_t *out_bytes_p)
{
    if (session->credentials->flood) {
        *consumed_p = in_bytes;
        memset(out, 0, out_capacity);
        *out_bytes_p = out_capacity;
        return PSD_PENDING;
    }
    if (session->step == 0 && in_bytes >= CHALLENGE_BYTES) {
        for (size_t i = 0; i < CHALLENGE_BYTES; i++) {
            out[i] = in[i] ^ session->credentials->token;
        }
        *out_bytes_p = CHALLENGE_BYTES;
        *consumed_p = CHALLENGE_BYTES;
        session->step = 1;
        return PSD_PENDING;
    }
    if (session->step == 1 && in_bytes >= 1) {
        *consumed_p = 1;
        return in[0] == NOD ? PSD_OK : PSD_ERR_REFUSED;
    }
    return PSD_PENDING;
}

static psd_status
acceptor_step(struct session *session, const uint8_t *in, size_t in_bytes, size_t *consumed_p,
              uint8_t *out, size_t *out_bytes_p, struct psd_error *err)
{
    if (session->step == 0) {
        memcpy(out, challenge, CHALLENGE_BYTES);
        *out_bytes_p = CHALLENGE_BYTES;
        session->step = 1;
    }
    if (in_bytes < CHALLENGE_BYTES || session->credentials->flood) {
        return PSD_PENDING;
    }
    *consumed_p = CHALLENGE_BYTES;
    for (size_t i = 0; i < CHALLENGE_BYTES; i++) {
        if (in[i] != (challenge[i] ^ session->credentials->token)) {
            err->status = PSD_ERR_REFUSED;
            snprintf(err->text, sizeof(err->text), "wrong token");
            return PSD_ERR_REFUSED;
        }
    }
    out[*out_bytes_p] = NOD;
    *out_bytes_p += 1;
    return PSD_OK;
}

static psd_status
session_step(void *context, const uint8_t *in, size_t in_bytes, size_t *consumed_p, uint8_t *out,
             size_t out_capacity, size_t *out_bytes_p, struct psd_error *err)
{
    struct session *session = context;

    if (session->connecting) {
        return connector_step(session, in, in_bytes, consumed_p, out, out_capacity, out_bytes_p);
    }
    return acceptor_step(session, in, in_bytes, consumed_p, out, out_bytes_p, err);
}

static void
session_destroy(void *session)
{
    free(session);
}

static const struct psi_auth_ops auth_ops = {
    .create = session_create,
    .step = session_step,
    .destroy = session_destroy,
};

/* If this fails, members cannot get in, or their first frames are lost behind authentication. */
static void
test_auth_right_token(void **state)
{
    struct credentials credentials = {.token = 42};
    const struct psi_loop_config config = {.auth = &auth_ops, .credentials = &credentials};
    struct bed *bed = bed_create(*state, &config, &config);
    struct end end = {0};
    uint8_t *payload = filled(0, MIB);

    bed->model.echo = true;
    bed_connect(bed, &end);
    for (unsigned i = 0; i < 50; i++) {
        bed_pump_loop(bed->client); /* connected, and the server has not said anything yet */
    }
    assert_int_equal(bed_send(&end, 0, 100, payload, MIB), PSD_OK); /* waits until it is open */
    assert_int_equal(bed_send(&end, 1, 0, NULL, 0), PSD_OK);
    assert_int_equal(end.releases, 0);
    BED_WAIT(bed, end.frames == 2);
    assert_int_equal(end.opens, 1);
    assert_int_equal(bed->accepted_count, 1);
    assert_int_equal(end.bad + bed->accepted[0].bad, 0);
    assert_int_equal(end.releases, 2);
    bed_destroy(bed);
    free(payload);
}

/* If this fails, somebody without the secret gets in. */
static void
test_auth_wrong_token(void **state)
{
    struct credentials right = {.token = 42};
    struct credentials wrong = {.token = 43};
    const struct psi_loop_config server_config = {.auth = &auth_ops, .credentials = &right};
    const struct psi_loop_config client_config = {.auth = &auth_ops, .credentials = &wrong};
    struct bed *bed = bed_create(*state, &client_config, &server_config);
    struct end end = {0};

    bed_connect(bed, &end);
    assert_int_equal(bed_send(&end, 0, 0, NULL, 0), PSD_OK);
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(end.opens, 0);
    assert_int_equal(end.releases, 1);
    assert_int_equal(end.reason.status, PSD_ERR_PEER_LOST);
    assert_int_equal(bed->accepted_count, 0);
    assert_true(psi_loop_next_ns(bed->server) == UINT64_MAX);
    bed_destroy(bed);
}

/* If this fails, a silent peer holds a place before it has proved anything. */
static void
test_auth_silence(void **state)
{
    struct credentials credentials = {.token = 42};
    const struct psi_loop_config plain = {0};
    const struct psi_loop_config config = {
        .auth = &auth_ops, .credentials = &credentials, .stranger_ms = 40, .auth_ms = 40};

    for (unsigned i = 0; i < 2; i++) {
        struct bed *bed = bed_create(*state, i == 0 ? &plain : &config, i == 0 ? &config : &plain);
        struct end end = {.discard = true};
        const uint64_t start_ms = psi_monotonic_ms();

        bed_connect(bed, &end);
        BED_WAIT(bed, end.closes == 1);
        assert_true(psi_monotonic_ms() >= start_ms + 39);
        assert_int_equal(end.opens, i == 0 ? 1 : 0);
        assert_int_equal(end.reason.status, i == 0 ? PSD_ERR_PEER_LOST : PSD_ERR_TIMEOUT);
        assert_int_equal(bed->accepted_count, i == 0 ? 0 : 1);
        bed_destroy(bed);
    }
}

/* If this fails, a stranger can make authentication go on, and grow, for ever. */
static void
test_auth_flood(void **state)
{
    struct credentials credentials = {.token = 42, .flood = true};
    const struct psi_loop_config config = {.auth = &auth_ops, .credentials = &credentials};
    struct bed *bed = bed_create(*state, &config, &config);
    struct end end = {0};
    const uint64_t start_ms = psi_monotonic_ms();

    bed_connect(bed, &end);
    BED_WAIT(bed, end.closes == 1);
    assert_true(psi_monotonic_ms() < start_ms + PSI_AUTH_TIMEOUT_MS); /* by size, not by time */
    assert_int_equal(end.opens + bed->accepted_count, 0);
    bed_destroy(bed);
}

/* If this fails, a listener that goes leaves peers half-way through authentication behind. */
static void
test_unlisten_during_auth(void **state)
{
    struct credentials credentials = {.token = 42};
    const struct psi_loop_config config = {.auth = &auth_ops, .credentials = &credentials};
    struct bed *bed = bed_create(*state, NULL, &config);
    struct psi_env *env = psi_loop_env(bed->server);
    struct end end = {.discard = true};

    bed_connect(bed, &end);
    BED_WAIT(bed, end.opens == 1 && psi_loop_next_ns(bed->server) != UINT64_MAX);
    env->ops->unlisten(env, bed->listener);
    assert_true(psi_loop_next_ns(bed->server) == UINT64_MAX);
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(bed->accepted_count, 0);
    bed_destroy(bed);
}

enum {
    WITHOUT_TLS = 1, /* brings its own authentication */
    BYTES_ONLY = 2,  /* about what happens where bytes come one after the other, and nothing else */
};

#define TEST(function, limits)                                                                     \
    {                                                                                              \
#function, function, limits                                                                \
    }

static const struct {
    const char *name;
    CMUnitTestFunction function;
    int limits;
} suite[] = {
    TEST(test_echo_of_many_sizes, 0),
    TEST(test_order_of_mixed_frames, 0),
    TEST(test_ten_thousand_small_frames, 0),
    TEST(test_scatter_gather, 0),
    TEST(test_payload_without_sink_is_discarded, 0),
    TEST(test_full_queue_is_busy, 0),
    TEST(test_unshare_protects_unsent_bytes, 0),
    TEST(test_release_once_in_every_ending, 0),
    TEST(test_close_within_payload, BYTES_ONLY),
    TEST(test_error_of_an_event_closes, 0),
    TEST(test_close_inside_every_event, 0),
    TEST(test_close_of_another_in_an_event, 0),
    TEST(test_close_after_send_delivers, 0),
    TEST(test_goodbye_in_an_event, 0),
    TEST(test_linger_is_bounded, 0),
    TEST(test_broken_send_is_reported_later, BYTES_ONLY),
    TEST(test_last_words_before_a_broken_send, 0),
    TEST(test_connect_refused, 0),
    TEST(test_malformed_addresses, 0),
    TEST(test_listener_refuses, 0),
    TEST(test_unlisten_inside_accept, 0),
    TEST(test_oversize_meta_is_refused, 0),
    TEST(test_silent_stranger_times_out, 0),
    TEST(test_oldest_stranger_gives_way, 0),
    TEST(test_connection_limit, 0),
    TEST(test_no_descriptor_left, 0),
    TEST(test_thousand_idle_connections, 0),
    TEST(test_stale_events_are_recognised, 0),
    TEST(test_wake_from_another_thread, 0),
    TEST(test_watched_descriptor, 0),
    TEST(test_many_waiters_on_one_loop, 0),
    TEST(test_auth_right_token, WITHOUT_TLS),
    TEST(test_auth_wrong_token, WITHOUT_TLS),
    TEST(test_auth_silence, WITHOUT_TLS | BYTES_ONLY),
    TEST(test_auth_flood, WITHOUT_TLS),
    TEST(test_unlisten_during_auth, WITHOUT_TLS | BYTES_ONLY),
};

enum {
    SUITE_COUNT = sizeof(suite) / sizeof(suite[0]),
    TRANSPORT_COUNT = sizeof(transports) / sizeof(transports[0]),
};

int
main(void)
{
    int failed = 0;

    for (unsigned t = 0; t < TRANSPORT_COUNT; t++) {
        struct CMUnitTest tests[SUITE_COUNT] = {{0}};
        size_t count = 0;

        for (unsigned i = 0; i < SUITE_COUNT; i++) {
            if (((suite[i].limits & WITHOUT_TLS) != 0 && transports[t].tls) ||
                ((suite[i].limits & BYTES_ONLY) != 0 && transports[t].lends)) {
                continue;
            }
            tests[count].name = suite[i].name;
            tests[count].test_func = suite[i].function;
            tests[count].initial_state = (void *)(uintptr_t)&transports[t];
            count++;
        }
        print_message("transport %s\n", transports[t].name);
        failed += _cmocka_run_group_tests(transports[t].name, tests, count, NULL, NULL);
    }
    return failed;
}
