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
    psi_step_clock_drained(clock);
    psi_step_clock_turn(clock, now_ns);
}

static void
sleep_between(struct step_clock *clock, uint64_t from_ns, uint64_t woke_ns)
{
    psi_step_clock_sleep(clock, from_ns);
    psi_step_clock_woke(clock, woke_ns);
}

static uint32_t
take(struct step_clock *clock, struct psi_step_times *times_p)
{
    const uint32_t count = psi_step_clock_read(clock, times_p);

    psi_step_clock_told(clock);
    return count;
}

/* If this fails, a worker's step is told as longer or shorter than it was, or its parts do not add
 * up. */
static void
test_parts_add_up_to_the_step(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    psi_step_clock_push(&clock, 7, 1000 * US);
    answer_all(&clock, 0, 2000 * US); /* the end of the first, from which on they are told */
    psi_step_clock_push(&clock, 8, 5000 * US);
    clock.parts.encode_ns += 100 * US;
    clock.parts.send_ns += 200 * US;
    sleep_between(&clock, 5500 * US, 9000 * US);
    answer_all(&clock, 1, 9400 * US);
    assert_int_equal(take(&clock, times), 0);  /* it may go on */
    psi_step_clock_push(&clock, 8, 9500 * US); /* another table */
    answer_all(&clock, 1, 9600 * US);
    psi_step_clock_push(&clock, 9, 20000 * US);

    assert_int_equal(take(&clock, times), 1);
    assert_int_equal(clock.untold, 0);
    assert_int_equal(times[0].step, 8);
    assert_int_equal(times[0].total_us, 7600);
    assert_int_equal(times[0].encode_us, 100);
    assert_int_equal(times[0].send_us, 200);
    assert_int_equal(times[0].wait_us, 3500);
    assert_int_equal(times[0].receive_us, 400);
    assert_int_equal(times[0].compute_us, 3400);
    assert_int_equal(times[0].server, 1);
    assert_int_equal(take(&clock, times), 0); /* told once */
}

/* If this fails, the server that held up a step is not the one that is named. */
static void
test_the_last_server_was_alone(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
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

    assert_int_equal(take(&clock, times), 2);
    assert_int_equal(times[0].server, 0);
    assert_int_equal(times[0].alone_us, 2500);
    assert_int_equal(times[1].alone_us, 0);
}

/* If this fails, what a program waited for a step is charged to the next one, and to this one as
 * computing: the answer came in a turn of the library's own thread, while the program slept. */
static void
test_another_thread_ends_the_step(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    psi_step_clock_push(&clock, 0, 100 * US);
    answer_all(&clock, 0, 200 * US);
    psi_step_clock_push(&clock, 1, 1200 * US);
    psi_step_clock_sleep(&clock, 1300 * US);
    psi_step_clock_sleeps(&clock, true);
    psi_step_clock_turn(&clock, 2000 * US); /* a heartbeat */
    answer_all(&clock, 0, 4000 * US);
    psi_step_clock_turn(&clock, 4010 * US); /* another one, before the program runs again */
    psi_step_clock_sleeps(&clock, false);
    psi_step_clock_turn(&clock, 4050 * US);
    psi_step_clock_push(&clock, 2, 5050 * US);
    answer_all(&clock, 0, 5150 * US);
    psi_step_clock_push(&clock, 3, 6000 * US);

    assert_int_equal(take(&clock, times), 2);
    assert_int_equal(times[0].compute_us, 1100);
    assert_int_equal(times[0].wait_us, 2750);
    assert_int_equal(times[0].total_us, 3850);
    assert_int_equal(times[1].wait_us, 0);
    assert_int_equal(times[1].compute_us, 1100);
}

/* If this fails, a program that pushes its next step out of a callback is said to have waited in the
 * wrong one. */
static void
test_a_push_within_the_turn_that_ends_the_step(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    psi_step_clock_push(&clock, 0, 100 * US);
    answer_all(&clock, 0, 200 * US);
    for (uint64_t step = 1; step < 4; step++) {
        const uint64_t begun_ns = 1000 * step * US;

        psi_step_clock_push(&clock, step, begun_ns);
        sleep_between(&clock, begun_ns, begun_ns + 900 * US);
        psi_step_clock_answered(&clock, 0);
        psi_step_clock_drained(&clock);
    }

    assert_int_equal(take(&clock, times), 2);
    assert_int_equal(times[1].step, 2);
    assert_int_equal(times[1].wait_us, 900);
    assert_int_equal(times[1].receive_us, 100);
    assert_int_equal(times[1].total_us, 1000);
}

/* If this fails, what a program does after the first of a step's tensors has come back, and before
 * the last has left, is charged to the next step. */
static void
test_a_step_goes_on_after_it_drained(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    psi_step_clock_push(&clock, 0, 100 * US);
    answer_all(&clock, 0, 200 * US);
    psi_step_clock_push(&clock, 1, 1200 * US);
    answer_all(&clock, 0, 1300 * US);
    psi_step_clock_push(&clock, 1, 3200 * US); /* another tensor, which nobody waits for ... */
    psi_step_clock_push(&clock, 2, 3500 * US); /* ... before the next step */
    answer_all(&clock, 0, 3600 * US);
    psi_step_clock_push(&clock, 3, 4000 * US);

    assert_int_equal(take(&clock, times), 2);
    assert_int_equal(times[0].total_us, 3300);
    assert_int_equal(times[1].total_us, 100);
}

/* Steps of 10 us each, one after the other. */
static void
run_steps(struct step_clock *clock, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step < to; step++) {
        psi_step_clock_push(clock, step, step * 10 * US);
        answer_all(clock, 0, (step * 10 + 5) * US);
    }
}

/* If this fails, a worker that nobody asks for a while writes beyond its memory, or tells a part of
 * the time only, or too few steps. */
static void
test_of_many_steps_some_are_told(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint32_t count;

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_push(&clock, 0, US); /* nobody watches */
    assert_int_equal(take(&clock, times), 0);
    psi_step_clock_start(&clock);
    run_steps(&clock, 1, 10001); /* the first is never told, and the last still runs */
    count = take(&clock, times);
    assert_true(count > PSI_STEPS_MAX / 4 && count <= PSI_STEPS_MAX);
    assert_int_equal(clock.untold, 10000 - 2 - count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(times[i].step, 256 * (i + 1));
        assert_int_equal(times[i].total_us, 10);
    }
    assert_true(times[count - 1].step > 10000 - 256 - 1);
}

/* If this fails, workers that tell at other moments tell of other steps: nobody can put their times
 * side by side, and whoever is slowest is not found. */
static void
test_workers_tell_of_the_same_steps(void **state)
{
    static struct step_clock one;
    static struct step_clock other;
    struct psi_step_times ones[PSI_STEPS_MAX];
    struct psi_step_times others[PSI_STEPS_MAX];
    uint32_t count;

    (void)state;
    psi_step_clock_init(&one);
    psi_step_clock_init(&other);
    psi_step_clock_start(&one);
    psi_step_clock_start(&other);
    run_steps(&one, 0, 500);
    run_steps(&other, 0, 730);
    (void)take(&one, ones);
    (void)take(&other, others);
    run_steps(&one, 500, 1000);
    (void)take(&one, ones);
    run_steps(&other, 730, 1230);
    run_steps(&one, 1000, 1500);
    count = take(&other, others); /* 729 .. 1228 */
    assert_true(count > PSI_STEPS_MAX / 4);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(others[i].step % 8, 0);
    }
    count = take(&one, ones); /* 999 .. 1498 */
    assert_true(count > PSI_STEPS_MAX / 4);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(ones[i].step, 1000 + 8 * i);
    }
}

/* If this fails, programs that number their steps by tens are not told of once they are fast; or a step
 * after one that was not kept is told as if it had begun long ago. */
static void
test_steps_may_be_far_apart(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint32_t count;

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    for (uint64_t step = 0; step < 5000; step += 10) {
        psi_step_clock_push(&clock, step, (step + 1) * US);
        answer_all(&clock, 0, (step + 6) * US);
    }
    count = take(&clock, times);
    assert_true(count > PSI_STEPS_MAX / 4);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(times[i].total_us, 10);
    }
    psi_step_clock_push(&clock, 5003, 5004 * US); /* 8 steps make one, and it is no multiple of 8 */
    psi_step_clock_push(&clock, 5120, 5121 * US); /* it is one, but nobody expected it */
    answer_all(&clock, 0, 5126 * US);
    psi_step_clock_push(&clock, 5121, 5130 * US);
    assert_int_equal(take(&clock, times), 0);
}

/* If this fails, a job that was fast once is told of in too few steps for ever. */
static void
test_slower_steps_are_all_told_again(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint64_t step = 10000;

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    run_steps(&clock, 0, step);
    for (unsigned i = 0; i < 16; i++, step += 4) {
        (void)take(&clock, times);
        run_steps(&clock, step, step + 4);
    }
    assert_int_equal(take(&clock, times), 4);
}

/* If this fails, a worker that could not send what it had to tell has lost it; or one that nobody
 * watches any more goes on looking at the clock. */
static void
test_what_was_not_told_stays(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    run_steps(&clock, 0, 5);
    assert_int_equal(psi_step_clock_read(&clock, times), 3);
    assert_int_equal(psi_step_clock_read(&clock, times), 3); /* it was not sent */
    psi_step_clock_stop(&clock);
    run_steps(&clock, 5, 9);
    assert_int_equal(clock.count, 4);
    assert_int_equal(take(&clock, times), 3);
    psi_step_clock_start(&clock);
    run_steps(&clock, 20, 23);
    assert_int_equal(take(&clock, times), 1); /* when the first began is not known */
    assert_int_equal(times[0].step, 21);
}

/* If this fails, threads of a program that wait at a time give a step more time than it had. */
static void
test_parts_are_no_more_than_the_step(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    run_steps(&clock, 0, 1);
    psi_step_clock_push(&clock, 1, 10 * US);
    clock.parts.wait_ns += 70 * US;
    clock.parts.send_ns += 50 * US;
    answer_all(&clock, 0, 105 * US);
    psi_step_clock_push(&clock, 2, 200 * US);
    assert_int_equal(take(&clock, times), 1);
    assert_int_equal(times[0].total_us, 100);
    assert_int_equal(times[0].wait_us, 70);
    assert_int_equal(times[0].send_us, 30);
    assert_int_equal(times[0].compute_us, 0);
}

/* If this fails, a step that ran when it became one of those that are told is told with what is known of
 * another one: the server that held that up. */
static void
test_what_was_not_looked_at_is_not_told(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint64_t step = 0;

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    run_steps(&clock, 0, 200);
    (void)take(&clock, times);
    assert_true(clock.sparse > 0);
    for (step = 200; psi_step_clock_tells(&clock, step + 1) == 0; step++) {
        run_steps(&clock, step, step + 1);
    }
    run_steps(&clock, step, step + 1); /* not told, but kept: the next one is */
    while (clock.sparse > 0) {
        (void)take(&clock, times); /* now all are */
    }
    run_steps(&clock, step + 1, step + 3);
    assert_int_equal(take(&clock, times), 1);
    assert_int_equal(times[0].step, step + 1);
    assert_int_equal(times[0].server, 0);
}

/* Steps of 10 us each, of which the program sleeps 4. */
static void
run_and_sleep(struct step_clock *clock, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step < to; step++) {
        const uint64_t begun_ns = step * 10 * US;

        psi_step_clock_push(clock, step, begun_ns);
        psi_step_clock_sleep(clock, begun_ns + US);
        answer_all(clock, 0, begun_ns + 5 * US);
    }
}

/* If this fails, how long a program waits is counted in the few steps only that are told, or not
 * before somebody watches. */
static void
test_waiting_counts_whatever_is_told(void **state)
{
    static struct step_clock clock;
    struct psi_step_times times[PSI_STEPS_MAX];
    uint32_t count;

    (void)state;
    psi_step_clock_init(&clock);
    run_and_sleep(&clock, 1, 11);
    assert_int_equal(clock.parts.wait_ns, 40 * US);
    assert_int_equal(clock.count, 0); /* nobody knows what a step is yet */
    psi_step_clock_start(&clock);
    run_and_sleep(&clock, 11, 1011);
    assert_int_equal(clock.parts.wait_ns, 4040 * US);
    assert_int_equal(clock.parts.receive_ns, 0);
    assert_int_equal(clock.count, 999);
    count = take(&clock, times);
    assert_int_equal(clock.untold, 999 - 1 - count); /* the first is never told */
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(times[i].wait_us, 4);
        assert_int_equal(times[i].compute_us, 6);
    }
    psi_step_clock_stop(&clock);
    run_and_sleep(&clock, 1011, 1021);
    assert_int_equal(clock.parts.wait_ns, 4080 * US);
}

/* If this fails, a program that sleeps long counts as busy from the first heartbeat on, or from the
 * first push of another of its threads. */
static void
test_a_sleep_goes_on_while_others_work(void **state)
{
    static struct step_clock clock;

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    run_steps(&clock, 0, 1000); /* few of them are told: what follows is quiet */
    psi_step_clock_push(&clock, 1001, 10010 * US);
    psi_step_clock_sleep(&clock, 20000 * US);
    psi_step_clock_sleeps(&clock, true);
    psi_step_clock_turn(&clock, 21000 * US); /* a heartbeat */
    psi_step_clock_sleeps(&clock, false);
    assert_int_equal(clock.parts.wait_ns, 1000 * US);
    for (uint64_t step = 1002; step < 1102; step++) {
        psi_step_clock_push(&clock, step, (20000 + step) * US);
    }
    psi_step_clock_turn(&clock, 25000 * US); /* its own */
    assert_int_equal(clock.parts.wait_ns, 5000 * US);
    psi_step_clock_turn(&clock, 30000 * US);
    assert_int_equal(clock.parts.wait_ns, 5000 * US);
}

/* If this fails, the time at which something large came the last time is taken for that of now, and the
 * parts of a step are those of another one, or huge. */
static void
test_an_old_look_at_the_clock_says_nothing(void **state)
{
    static struct step_clock clock;

    (void)state;
    psi_step_clock_init(&clock);
    psi_step_clock_start(&clock);
    psi_step_clock_large(&clock);
    psi_step_clock_push(&clock, 1, 100 * US);
    sleep_between(&clock, 200 * US, 300 * US);
    answer_all(&clock, 0, 350 * US);
    assert_int_equal(clock.parts.wait_ns, 100 * US);
    assert_int_equal(clock.parts.receive_ns, 50 * US);
    psi_step_clock_sleep(&clock, 400 * US); /* nobody looks when it ends */
    psi_step_clock_turn(&clock, 500 * US);
    assert_int_equal(clock.parts.wait_ns, 200 * US);
    assert_int_equal(clock.parts.receive_ns, 50 * US);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_add_up_to_the_step),
        cmocka_unit_test(test_the_last_server_was_alone),
        cmocka_unit_test(test_another_thread_ends_the_step),
        cmocka_unit_test(test_a_push_within_the_turn_that_ends_the_step),
        cmocka_unit_test(test_a_step_goes_on_after_it_drained),
        cmocka_unit_test(test_of_many_steps_some_are_told),
        cmocka_unit_test(test_workers_tell_of_the_same_steps),
        cmocka_unit_test(test_steps_may_be_far_apart),
        cmocka_unit_test(test_slower_steps_are_all_told_again),
        cmocka_unit_test(test_what_was_not_told_stays),
        cmocka_unit_test(test_parts_are_no_more_than_the_step),
        cmocka_unit_test(test_what_was_not_looked_at_is_not_told),
        cmocka_unit_test(test_waiting_counts_whatever_is_told),
        cmocka_unit_test(test_a_sleep_goes_on_while_others_work),
        cmocka_unit_test(test_an_old_look_at_the_clock_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
