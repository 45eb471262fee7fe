/*
 * stream_moves_test.c - bytes that a crew moves for several connections at once: order, contents, memory that is
 * given back, and connections that end meanwhile.
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
#include "transport/conformance_bed.h"

enum { KIB = 1024, ENDS = 6, FRAMES = 8, BYTES = 256 * KIB };

static const struct bed_transport kinds[] = {
    {.name = "tcp", .listen_at = "tcp://127.0.0.1:0", .helped = true},
    {.name = "sealed",
     .listen_at = "tcp://127.0.0.1:0",
     .tls = true,
     .sealed = true,
     .helped = true},
    {.name = "inproc", .listen_at = "inproc://moves", .helped = true},
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static bool
are_open(const struct end *ends)
{
    for (unsigned i = 0; i < ENDS; i++) {
        if (ends[i].opens != 1) {
            return false;
        }
    }
    return true;
}

static struct bed *
connected(const struct bed_transport *kind, struct end *ends)
{
    struct bed *bed = bed_create(kind, NULL, NULL);

    memset(ends, 0, ENDS * sizeof(*ends));
    for (unsigned i = 0; i < ENDS; i++) {
        bed_connect(bed, &ends[i]);
        BED_WAIT(bed, ends[i].opens == 1 && bed->accepted_count == i + 1);
    }
    BED_WAIT(bed, are_open(ends));
    return bed;
}

static void
end_bed(struct bed *bed, struct end *ends)
{
    for (unsigned i = 0; i < ENDS; i++) {
        bed_hang_up(&ends[i]);
    }
    bed_destroy(bed);
}

static bool
have_all(const struct end *ends, unsigned frames)
{
    for (unsigned i = 0; i < ENDS; i++) {
        if (ends[i].frames < frames) {
            return false;
        }
    }
    return true;
}

static void
check_all(const struct end *ends)
{
    for (unsigned i = 0; i < ENDS; i++) {
        assert_int_equal(ends[i].bad, 0);
    }
}

static uint8_t *
payload_of(unsigned number)
{
    uint8_t *payload = malloc(BYTES + number);

    assert_non_null(payload);
    bed_fill(payload, number, BYTES + number);
    return payload;
}

/* The same numbers to every peer, small ones in between. */
static void
post_all(struct end *ends, uint8_t *payloads[FRAMES])
{
    for (unsigned number = 0; number < FRAMES; number++) {
        payloads[number] = payload_of(number);
        for (unsigned i = 0; i < ENDS; i++) {
            assert_int_equal(bed_send(&ends[i], number, 10, payloads[number],
                                      number % 3 == 2 ? 100 : BYTES + number),
                             PSD_OK);
        }
    }
}

static void
free_all(uint8_t *payloads[FRAMES])
{
    for (unsigned number = 0; number < FRAMES; number++) {
        free(payloads[number]);
    }
}

/* If this fails, what several threads send or receive arrives damaged or out of order, or a payload is
 * released twice or never. */
static void
test_frames_arrive_in_order(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++) {
        struct end ends[ENDS];
        struct bed *bed = connected(&kinds[k], ends);
        uint8_t *there[FRAMES];
        uint8_t *back[FRAMES];

        psi_loop_hold_bells(bed->client);
        post_all(ends, there);
        psi_loop_ring_bells(bed->client);
        psi_loop_hold_bells(bed->server);
        post_all(bed->accepted, back);
        psi_loop_ring_bells(bed->server);
        BED_WAIT(bed, have_all(bed->accepted, FRAMES) && have_all(ends, FRAMES));
        check_all(bed->accepted);
        check_all(ends);
        for (unsigned i = 0; i < ENDS; i++) {
            assert_int_equal(ends[i].releases, FRAMES);
            assert_int_equal(bed->accepted[i].releases, FRAMES);
        }
        assert_int_equal(psi_crew_started(bed->crews[0]), 2);
        end_bed(bed, ends);
        free_all(there);
        free_all(back);
    }
}

/* If this fails, a caller that has its gradient back changes what is still being sent. */
static void
test_memory_is_given_back(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++) {
        struct end ends[ENDS];
        struct bed *bed = connected(&kinds[k], ends);
        uint8_t *payloads[FRAMES];

        psi_loop_hold_bells(bed->client);
        post_all(ends, payloads);
        for (unsigned turn = 0; turn < 2; turn++) { /* while it is queued, and when it was moved */
            for (unsigned i = 0; i < ENDS; i++) {
                assert_int_equal(ends[i].conn->ops->unshare(ends[i].conn, payloads[turn], BYTES),
                                 PSD_OK);
            }
            memset(payloads[turn], 0xee, BYTES);
            if (turn == 0) {
                psi_loop_ring_bells(bed->client);
            }
        }
        BED_WAIT(bed, have_all(bed->accepted, FRAMES));
        check_all(bed->accepted);
        end_bed(bed, ends);
        free_all(payloads);
    }
}

/* If this fails, a connection that another one's frame closes is still written into, or heard of. */
static void
test_connections_end_while_bytes_come(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++) {
        struct end ends[ENDS];
        struct bed *bed = connected(&kinds[k], ends);
        uint8_t *payloads[FRAMES];

        ends[0].victim = &ends[3];
        ends[1].close_at = AT_FRAME;
        ends[2].fail_at = AT_FRAME;
        post_all(bed->accepted, payloads);
        BED_WAIT(bed, ends[0].frames == FRAMES && ends[4].frames == FRAMES &&
                          ends[5].frames == FRAMES && ends[2].closes == 1);
        check_all(ends);
        assert_null(ends[1].conn);
        assert_null(ends[3].conn);
        assert_int_equal(ends[1].frames, 1);
        end_bed(bed, ends);
        free_all(payloads);
    }
}

/* If this fails, what was sent before a connection was closed is lost, though there was time for it. */
static void
test_what_is_queued_is_sent_before_the_end(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++) {
        struct end ends[ENDS];
        struct bed *bed = connected(&kinds[k], ends);
        uint8_t *payloads[FRAMES];

        psi_loop_hold_bells(bed->client);
        post_all(ends, payloads);
        for (unsigned i = 0; i < ENDS; i++) {
            ends[i].conn->ops->close_after_send(ends[i].conn, 60000);
            ends[i].conn = NULL;
        }
        psi_loop_ring_bells(bed->client);
        BED_WAIT(bed, have_all(bed->accepted, FRAMES));
        check_all(bed->accepted);
        end_bed(bed, ends);
        free_all(payloads);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_arrive_in_order),
        cmocka_unit_test(test_memory_is_given_back),
        cmocka_unit_test(test_connections_end_while_bytes_come),
        cmocka_unit_test(test_what_is_queued_is_sent_before_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
