/*
 * step_clock_test.c - where the time of a step goes, with times that are given.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/core/step_clock.h"

#define US UINT64_C(1000)

/* Everything has been answered by that server, in a turn that ends then. */
static void
answer_all(struct step_clock *clock, uint32_t server, uint64_t now_ns)
{
    psi_step_clock_answered(clock, server);
    clock->events |= STEP_DRAINED;
    psi_step_clock_turn(clock, now_ns);
}

static void
sleep_between(struct step_clock *clock, uint64_t from_ns, uint64_t woke_ns)
{
    clock->asleep_ns = from_ns;
    clock->woke_ns = woke_ns;
}

/* If this fails, a worker's step is told as longer or shorter than it was, or its parts do not add
 * up. */
static void
test_parts_add_up_to_the_step(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint64_t lost;

    (void)state;
    memset(&clock, 0, sizeof(clock));
    clock.on = true;
    psi_step_clock_push(&clock, 7, 1000 * US);
    answer_all(&clock, 0, 2000 * US); /* the end of the first, from which on they are told */
    psi_step_clock_push(&clock, 8, 5000 * US);
    clock.parts.encode_ns += 100 * US;
    clock.parts.send_ns += 200 * US;
    sleep_between(&clock, 5500 * US, 9000 * US);
    answer_all(&clock, 1, 9400 * US);
    assert_int_equal(psi_step_clock_take(&clock, times, &lost), 0); /* it may go on */
    psi_step_clock_push(&clock, 8, 9500 * US);                      /* another table */
    answer_all(&clock, 1, 9600 * US);
    psi_step_clock_push(&clock, 9, 20000 * US);

    assert_int_equal(psi_step_clock_take(&clock, times, &lost), 1);
    assert_int_equal(lost, 0);
    assert_int_equal(times[0].step, 8);
    assert_int_equal(times[0].total_us, 7600);
    assert_int_equal(times[0].encode_us, 100);
    assert_int_equal(times[0].send_us, 200);
    assert_int_equal(times[0].wait_us, 3500);
    assert_int_equal(times[0].receive_us, 400);
    assert_int_equal(times[0].compute_us, 3400);
    assert_int_equal(times[0].server, 1);
    assert_int_equal(psi_step_clock_take(&clock, times, &lost), 0); /* told once */
}

/* If this fails, the server that held up a step is not the one that is named. */
static void
test_the_last_server_was_alone(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint64_t lost;

    (void)state;
    memset(&clock, 0, sizeof(clock));
    clock.on = true;
    psi_step_clock_push(&clock, 0, 100 * US);
    answer_all(&clock, 0, 200 * US);
    psi_step_clock_push(&clock, 1, 1000 * US);
    sleep_between(&clock, 1000 * US, 1500 * US);
    psi_step_clock_answered(&clock, 2);
    psi_step_clock_turn(&clock, 1500 * US);
    sleep_between(&clock, 1500 * US, 4000 * US);
    answer_all(&clock, 0, 4000 * US);
    psi_step_clock_push(&clock, 2, 5000 * US);
    sleep_between(&clock, 5000 * US, 6000 * US);
    psi_step_clock_answered(&clock, 2); /* two in one turn: neither was alone */
    answer_all(&clock, 0, 6000 * US);
    psi_step_clock_push(&clock, 3, 7000 * US);

    assert_int_equal(psi_step_clock_take(&clock, times, &lost), 2);
    assert_int_equal(times[0].server, 0);
    assert_int_equal(times[0].alone_us, 2500);
    assert_int_equal(times[1].alone_us, 0);
}

/* If this fails, a worker that nobody asks for a while writes beyond its memory, or tells old steps
 * as new ones. */
static void
test_steps_beyond_its_memory_are_counted(void **state)
{
    enum { STEPS = 3 * PSI_STEPS_MAX + 5 };
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint64_t lost;

    (void)state;
    memset(&clock, 0, sizeof(clock));
    psi_step_clock_push(&clock, 0, US); /* nobody watches */
    assert_int_equal(psi_step_clock_take(&clock, times, &lost), 0);
    clock.on = true;
    for (uint64_t step = 1; step <= STEPS; step++) {
        psi_step_clock_push(&clock, step, step * 10 * US);
        answer_all(&clock, 0, (step * 10 + 5) * US);
        if (step == 3) {
            assert_int_equal(psi_step_clock_take(&clock, times, &lost), 1);
        }
    }
    assert_int_equal(psi_step_clock_take(&clock, times, &lost), PSI_STEPS_MAX);
    assert_int_equal(lost, STEPS - 3 - PSI_STEPS_MAX);
    for (unsigned i = 0; i < PSI_STEPS_MAX; i++) {
        assert_int_equal(times[i].step, STEPS - PSI_STEPS_MAX + i);
        assert_int_equal(times[i].total_us, 10);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_add_up_to_the_step),
        cmocka_unit_test(test_the_last_server_was_alone),
        cmocka_unit_test(test_steps_beyond_its_memory_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
