/*
 * carrier_shm_copies_test.c - large copies that a crew helps with: order, contents, and what happens when a
 * connection ends while they are under way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crew.h"
#include "base/fail.h"
#include "transport/conformance_bed.h"

enum { KIB = 1024, FRAMES = 24, LARGE = 256 * KIB, SMALL = 1000 };

static const struct bed_transport shared = {
    .name = "shared memory", .listen_at = "tcp://127.0.0.1:0", .lends = true};

/* Hears frames whose payloads may be brought home together. */
struct hearer {
    struct psi_conn *conn;
    struct psi_crew *crew;
    bool open;
    unsigned head;           /* frames whose head was heard ... */
    unsigned frames;         /* ... and that were heard */
    unsigned ahead;          /* most heads before their frames */
    unsigned closes;         /* on_close */
    unsigned close_at_frame; /* it closes itself there; 0: never */
    unsigned fail_at_frame;  /* it returns an error there */
    bool keeps;
    struct psi_loan *kept[FRAMES];
    uint8_t *into[FRAMES];
    struct psd_error reason;
};

static size_t
bytes_of(unsigned number)
{
    return number % 5 == 4 ? SMALL : LARGE + number * 100; /* small ones travel in the ring */
}

static void
on_open(void *owner, struct psi_conn *conn)
{
    struct hearer *hearer = owner;

    (void)conn;
    hearer->open = true;
}

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    uint64_t number;
    uint64_t payload_bytes;

    (void)owner;
    (void)conn;
    (void)err;
    memcpy(&payload_bytes, prefix + 8, sizeof(payload_bytes));
    memcpy(&number, prefix + 16, sizeof(number));
    psi_assert(payload_bytes == bytes_of((unsigned)number));
    size_p->payload_bytes = payload_bytes;
    return PSD_OK;
}

static psd_status
on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
        struct psi_sink *sink_p, struct psd_error *err)
{
    struct hearer *hearer = owner;
    const unsigned number = hearer->head++;

    (void)conn;
    (void)head;
    (void)head_bytes;
    (void)err;
    hearer->into[number] = calloc(1, bytes_of(number));
    psi_assert(hearer->into[number] != NULL);
    sink_p->into = hearer->into[number];
    sink_p->apart = true;
    if (hearer->keeps && sink_p->lent != NULL) {
        sink_p->keep = true;
        hearer->kept[number] = sink_p->loan;
    }
    if (hearer->head - hearer->frames > hearer->ahead) {
        hearer->ahead = hearer->head - hearer->frames;
    }
    return PSD_OK;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct hearer *hearer = owner;
    const unsigned number = hearer->frames++;
    uint8_t *expected = malloc(payload_bytes);

    (void)head;
    (void)head_bytes;
    psi_assert(expected != NULL && payload_bytes == bytes_of(number));
    bed_fill(expected, number, payload_bytes);
    psi_assert(memcmp(hearer->into[number], expected, payload_bytes) == 0);
    psi_assert(memcmp(payload, expected, payload_bytes) == 0); /* where it is kept, or as above */
    free(expected);
    if (hearer->frames == hearer->close_at_frame) {
        hearer->conn = NULL;
        conn->ops->close(conn);
    }
    if (hearer->frames == hearer->fail_at_frame) {
        return psi_fail(err, PSD_ERR_VERSION, "planted");
    }
    return PSD_OK;
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct hearer *hearer = owner;

    (void)conn;
    hearer->conn = NULL;
    hearer->closes++;
    hearer->reason = *reason;
}

static const struct psi_conn_events hearer_events = {
    .on_open = on_open,
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_close = on_close,
};

static struct bed *
connected(struct hearer *hearer)
{
    struct bed *bed = bed_create(&shared, NULL, NULL);
    struct psi_env *env = psi_loop_env(bed->client);

    hearer->crew = psi_crew_create(4, 20);
    assert_non_null(hearer->crew);
    psi_loop_take_crew(bed->client, hearer->crew);
    assert_int_equal(
        env->ops->connect(env, bed->address, NULL, &hearer_events, hearer, &hearer->conn, NULL),
        PSD_OK);
    BED_WAIT(bed, hearer->open && bed->accepted_count == 1);
    assert_true(hearer->conn->lends);
    return bed;
}

static void
end_bed(struct bed *bed, struct hearer *hearer)
{
    for (unsigned i = 0; i < FRAMES; i++) {
        if (hearer->kept[i] != NULL) {
            hearer->kept[i]->give_back(hearer->kept[i]);
        }
    }
    bed_destroy(bed);
    psi_crew_destroy(hearer->crew);
    for (unsigned i = 0; i < FRAMES; i++) {
        free(hearer->into[i]);
    }
}

/* The other end sends all frames: the client finds them together. */
static void
send_all(struct bed *bed)
{
    for (unsigned number = 0; number < FRAMES; number++) {
        uint8_t *payload = malloc(bytes_of(number));

        assert_non_null(payload);
        bed_fill(payload, number, bytes_of(number));
        assert_int_equal(bed_send(&bed->accepted[0], number, 0, payload, bytes_of(number)), PSD_OK);
        free(payload); /* it was copied: there is room for all */
        assert_int_equal(bed->accepted[0].releases, number + 1);
    }
}

/* If this fails, values that several threads bring home arrive damaged, out of order, or one at a time. */
static void
test_frames_are_heard_in_order(void **state)
{
    struct hearer hearer = {0};
    struct bed *bed = connected(&hearer);

    (void)state;
    send_all(bed);
    BED_WAIT(bed, hearer.frames == FRAMES);
    assert_in_range(hearer.ahead, 4, FRAMES); /* a small one ends such a run */
    end_bed(bed, &hearer);
}

/* If this fails, a payload that is kept and copied is given back while somebody still reads it. */
static void
test_what_is_kept_is_copied_too(void **state)
{
    struct hearer hearer = {.keeps = true};
    struct bed *bed = connected(&hearer);

    (void)state;
    send_all(bed);
    BED_WAIT(bed, hearer.frames == FRAMES);
    end_bed(bed, &hearer);
}

/* If this fails, memory is written after its owner closed the connection, or frames are heard after that. */
static void
test_the_owner_closes_while_copies_are_under_way(void **state)
{
    (void)state;
    for (unsigned at = 1; at <= 4; at++) {
        struct hearer hearer = {.close_at_frame = at};
        struct bed *bed = connected(&hearer);

        send_all(bed);
        BED_WAIT(bed, bed->accepted[0].closes == 1);
        assert_int_equal(hearer.frames, at);
        assert_int_equal(hearer.closes, 0);
        end_bed(bed, &hearer);
    }
}

/* If this fails, a bad frame among several that come together does not cost the connection. */
static void
test_an_error_ends_the_connection(void **state)
{
    struct hearer hearer = {.fail_at_frame = 2};
    struct bed *bed = connected(&hearer);

    (void)state;
    send_all(bed);
    BED_WAIT(bed, hearer.closes == 1);
    assert_int_equal(hearer.frames, 2);
    assert_int_equal(hearer.reason.status, PSD_ERR_VERSION);
    end_bed(bed, &hearer);
}

/* ---- Sending ---- */

static void
post(const struct hearer *hearer, unsigned number, const void *payload)
{
    uint8_t head[PSI_PREFIX_BYTES];
    const struct psi_outgoing frame = {
        .head = head,
        .head_bytes = bed_head(head, number, 0, bytes_of(number)),
        .buffers = {{payload, bytes_of(number)}},
        .buffer_count = 1,
    };

    assert_int_equal(hearer->conn->ops->send(hearer->conn, &frame), PSD_OK);
}

static uint8_t *
payload_of(unsigned number)
{
    uint8_t *payload = malloc(bytes_of(number));

    assert_non_null(payload);
    bed_fill(payload, number, bytes_of(number));
    return payload;
}

/* What ends the time during which payloads are borrowed. */
enum ending { BY_BELLS, BY_UNSHARE, BY_CLOSE };

static void
check_sending(enum ending ending)
{
    struct hearer hearer = {0};
    struct bed *bed = connected(&hearer);
    uint8_t *payloads[FRAMES];

    psi_loop_hold_bells(bed->client);
    for (unsigned number = 0; number < FRAMES; number++) {
        payloads[number] = payload_of(number);
        post(&hearer, number, payloads[number]);
        if (ending == BY_UNSHARE) {
            assert_int_equal(
                hearer.conn->ops->unshare(hearer.conn, payloads[number], bytes_of(number)), PSD_OK);
            memset(payloads[number], 0xee, bytes_of(number));
        }
    }
    if (ending == BY_CLOSE) {
        hearer.conn->ops->close(hearer.conn);
    }
    psi_loop_ring_bells(bed->client);
    for (unsigned number = 0; number < FRAMES; number++) {
        memset(payloads[number], 0xdd, bytes_of(number));
        free(payloads[number]);
    }
    BED_WAIT(bed, bed->accepted[0].frames == FRAMES);
    assert_int_equal(bed->accepted[0].bad, 0); /* contents and order */
    end_bed(bed, &hearer);
}

/* If this fails, gradients that several threads copy are shown before they are whole, or out of order. */
static void
test_frames_are_shown_in_order(void **state)
{
    (void)state;
    check_sending(BY_BELLS);
}

/* If this fails, a caller that has its gradient back changes what is being sent. */
static void
test_unshare_waits_for_copies(void **state)
{
    (void)state;
    check_sending(BY_UNSHARE);
}

/* If this fails, what was sent before a connection was closed is lost, or read when its memory is gone. */
static void
test_what_was_posted_counts(void **state)
{
    (void)state;
    check_sending(BY_CLOSE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_are_heard_in_order),
        cmocka_unit_test(test_what_is_kept_is_copied_too),
        cmocka_unit_test(test_the_owner_closes_while_copies_are_under_way),
        cmocka_unit_test(test_an_error_ends_the_connection),
        cmocka_unit_test(test_frames_are_shown_in_order),
        cmocka_unit_test(test_unshare_waits_for_copies),
        cmocka_unit_test(test_what_was_posted_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
