/*
 * stream_cork_test.c - small frames that leave together: how many calls they take, and that none is late or lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/conformance_bed.h"

enum { COUNT = 200, BYTES = 100 };

static const struct bed_transport plain = {.name = "tcp", .listen_at = "tcp://127.0.0.1:0"};

static unsigned calls; /* of sendmsg() */

ssize_t sendmsg(int fd, const struct msghdr *message, int flags);

ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
    calls++;
    return syscall(SYS_sendmsg, fd, message, flags);
}

static uint8_t payloads[COUNT][BYTES];

static void
send_burst(struct end *end)
{
    for (unsigned i = 0; i < COUNT; i++) {
        bed_fill(payloads[i], i, BYTES);
        assert_int_equal(bed_send(end, i, 0, payloads[i], BYTES), PSD_OK);
    }
}

/* If this fails, each answer to a burst of small requests takes a call of the kernel, and wakes the peer, by itself; or
 * answers are lost, damaged or out of order. */
static void
test_answers_to_a_burst_leave_together(void **state)
{
    struct bed *bed = bed_create(&plain, NULL, NULL);
    struct end end = {0};

    (void)state;
    bed->model.echo = true;
    bed_connect(bed, &end);
    BED_WAIT(bed, end.opens == 1 && bed->accepted_count == 1);
    send_burst(&end);
    calls = 0;
    BED_WAIT(bed, end.frames == COUNT);
    assert_in_range(calls, 1, COUNT / 8);
    assert_int_equal(end.bad + bed->accepted[0].bad, 0);
    bed_hang_up(&end);
    bed_destroy(bed);
}

static void
answer_and_close(struct end *end, void *context)
{
    (void)context;
    for (unsigned i = 0; i < 3; i++) {
        (void)bed_send(end, i, 0, payloads[i], BYTES);
    }
    end->conn->ops->close(end->conn);
    end->conn = NULL;
}

/* If this fails, what was said before a connection is closed is lost, because it waited for more. */
static void
test_what_was_said_before_a_close_leaves(void **state)
{
    struct bed *bed = bed_create(&plain, NULL, NULL);
    struct end end = {0};

    (void)state;
    bed->model.heard = answer_and_close;
    bed_connect(bed, &end);
    BED_WAIT(bed, end.opens == 1 && bed->accepted_count == 1);
    for (unsigned i = 0; i < 3; i++) {
        bed_fill(payloads[i], i, BYTES);
    }
    assert_int_equal(bed_send(&end, 0, 0, payloads[0], BYTES), PSD_OK);
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(end.frames, 3);
    assert_int_equal(end.bad, 0);
    bed_destroy(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_to_a_burst_leave_together),
        cmocka_unit_test(test_what_was_said_before_a_close_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
