/*
 * blame_test.c - who is named, and that nobody is by chance; lag, and what is said at the end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "launch/page/feed_state.h"

static struct feed *
begin(uint32_t workers)
{
    struct feed *feed = feed_create(&(struct feed_job){
        .name = "job", .id = "1", .command = "train", .workers = workers, .servers = 1});

    assert_non_null(feed);
    for (uint32_t rank = 0; rank < workers; rank++) {
        char name[32];

        snprintf(name, sizeof(name), "worker %u", rank);
        feed_process(feed, 2 + rank,
                     &(struct feed_process){.name = name,
                                            .role = PSD_ROLE_WORKER,
                                            .index = rank,
                                            .host = "node7",
                                            .machine = 7,
                                            .pid = 100 + rank,
                                            .state = FEED_RUNNING});
    }
    return feed;
}

/* The same numbers in every run. */
static uint32_t
draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % below);
}

/* A step of a job on a busy machine: each worker computes for 10 ms, is now and then without a core for
 * up to ten times as long, and one of them computes `slow` times as long. */
static void
tell_busy_step(struct feed *feed, uint64_t step, uint64_t *seed, uint64_t *at_us, uint32_t slow)
{
    static struct psi_telling telling;
    uint32_t compute_us[64];
    uint32_t longest_us = 0;

    for (uint32_t rank = 0; rank < feed->workers; rank++) {
        compute_us[rank] = 10000 * (rank == 1 ? slow : 1) + draw(seed, 1000);
        compute_us[rank] += draw(seed, 3) == 0 ? draw(seed, 100000 / 2) : 0;
        compute_us[rank] += draw(seed, 20) == 0 ? draw(seed, 100000) : 0;
        longest_us = compute_us[rank] > longest_us ? compute_us[rank] : longest_us;
    }
    *at_us += longest_us + 200;
    for (uint32_t rank = 0; rank < feed->workers; rank++) {
        memset(&telling, 0, sizeof(telling));
        telling.step = step;
        telling.steps = 1;
        telling.times[0] = (struct psi_step_times){.step = step,
                                                   .total_us = longest_us + 200,
                                                   .compute_us = compute_us[rank],
                                                   .wait_us = longest_us + 200 - compute_us[rank],
                                                   .end_us = *at_us};
        feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
    }
}

/* If this fails, a job of even workers on a machine with much else to do is said to wait for one of them, and for another one
 * whenever somebody looks. */
static void
test_nobody_is_named_by_chance(void **state)
{
    static const uint32_t sizes[] = {2, 3, 8, 64};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct feed *feed = begin(sizes[i]);
        uint64_t seed = 7;
        uint64_t at_us = 1000000;
        unsigned named = 0;
        unsigned said = 0;
        char text[512];

        feed_load(feed, "node7", 17, 2);
        for (uint64_t step = 1; step <= 4000; step++) {
            tell_busy_step(feed, step, &seed, &at_us, 1);
            if (step % 20 == 0) {
                feed_sentence(feed, text, sizeof(text));
                named += strstr(text, "waited for worker") != NULL;
                said += strstr(text, "workers waited for one another, and none of them stands out: "
                                     "17 processes want to run on the 2 cores there") != NULL;
            }
        }
        assert_in_range(named, 0, 200 / 20);
        assert_true(said >= 180);
        feed_waiting(feed, text, sizeof(text));
        assert_non_null(strstr(text, "workers wait for one another ("));
        feed_destroy(feed);
    }
}

/* If this fails, a worker that is slow on such a machine is hidden behind what happens to all of them. */
static void
test_a_slow_one_is_named_among_the_busy(void **state)
{
    static const uint32_t sizes[] = {2, 3, 8, 64};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct feed *feed = begin(sizes[i]);
        uint64_t seed = 7;
        uint64_t at_us = 1000000;
        unsigned named = 0;
        char text[512];

        feed_load(feed, "node7", 17, 2);
        for (uint64_t step = 1; step <= 4000; step++) {
            tell_busy_step(feed, step, &seed, &at_us, 12);
            if (step % 20 == 0) {
                feed_sentence(feed, text, sizeof(text));
                named += strstr(text, "waited for worker 1 on node7") != NULL;
            }
        }
        assert_true(named >= 190);
        feed_destroy(feed);
    }
}

/* If this fails, one that needs twice as long as each other is not named within 20 steps. */
static void
test_twice_as_long_is_named_within_20_steps(void **state)
{
    static const uint32_t sizes[] = {2, 3, 64};
    static struct psi_telling telling;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct feed *feed = begin(sizes[i]);
        uint64_t seed = 3;
        uint64_t at_us = 1000000;
        char text[512];

        for (uint64_t step = 1; step <= 20; step++) {
            at_us += 101000;
            for (uint32_t rank = 0; rank < sizes[i]; rank++) {
                const uint32_t compute_us = (rank == 1 ? 90000 : 45000) + draw(&seed, 10000);

                memset(&telling, 0, sizeof(telling));
                telling.step = step;
                telling.steps = 1;
                telling.times[0] = (struct psi_step_times){.step = step,
                                                           .total_us = 101000,
                                                           .compute_us = compute_us,
                                                           .wait_us = 101000 - compute_us,
                                                           .end_us = at_us};
                feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
            }
        }
        feed_sentence(feed, text, sizeof(text));
        assert_non_null(strstr(text, "waited for worker 1 on node7, which computed "));
        feed_destroy(feed);
    }
}

static json_t *
snapshot(struct feed *feed)
{
    struct feed_since since = {0};
    char *text = feed_json(feed, &since);
    json_t *value = json_loads(text, 0, NULL);

    free(text);
    assert_non_null(value);
    return value;
}

static json_int_t
lag_of(struct feed *feed, uint32_t rank)
{
    json_t *seen = snapshot(feed);
    const json_int_t lag = json_integer_value(
        json_object_get(json_array_get(json_object_get(seen, "processes"), rank), "lag"));

    json_decref(seen);
    return lag;
}

static void
tell_reached(struct feed *feed, uint32_t rank, uint64_t step)
{
    static struct psi_telling telling;

    memset(&telling, 0, sizeof(telling));
    telling.step = step;
    feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
}

/* If this fails, whoever told of itself first seems to lag behind those who told later, by as many steps as they made
 * meanwhile; or one that does lag is not seen to. */
static void
test_lag_is_not_when_somebody_told(void **state)
{
    struct feed *feed = begin(2);

    (void)state;
    for (uint64_t step = 100; step < 2000; step += 100) { /* they go together, and tell in turn */
        tell_reached(feed, 0, step);
        tell_reached(feed, 1, step + 50);
        assert_int_equal(lag_of(feed, 0), 0);
        assert_int_equal(lag_of(feed, 1), 0);
    }
    tell_reached(feed, 1, 3000);
    tell_reached(feed, 0, 2500); /* when it told, the other had been further already */
    assert_int_equal(lag_of(feed, 0), 500);
    feed->members[2].told_ms -= 3000; /* it has been silent since */
    tell_reached(feed, 1, 4000);
    assert_int_equal(lag_of(feed, 0), 1500);
    feed_destroy(feed);
}

/* If this fails, the first line of a report does not say who was waited for over the whole job, or blames somebody by chance. */
static void
test_the_verdict_at_the_end(void **state)
{
    static const struct {
        uint32_t slow;
        const char *text;
    } cases[] = {{1, NULL}, {12, " % of the time everybody waited for worker 1 on node7"}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct feed *feed = begin(3);
        uint64_t seed = 7;
        uint64_t at_us = 1000000;
        json_t *seen;
        const char *verdict;

        for (uint64_t step = 1; step <= 2000; step++) {
            tell_busy_step(feed, step, &seed, &at_us, cases[i].slow);
        }
        seen = snapshot(feed);
        verdict = json_string_value(json_object_get(seen, "verdict"));
        if (cases[i].text == NULL) {
            assert_string_equal(verdict, "");
            assert_true(json_is_null(json_object_get(seen, "waited_for")));
        } else {
            assert_int_equal(strncmp(verdict, "over all 2000 steps, ", 21), 0);
            assert_non_null(strstr(verdict, cases[i].text));
            assert_int_equal(
                json_integer_value(json_object_get(json_object_get(seen, "waited_for"), "index")),
                1);
        }
        json_decref(seen);
        feed_destroy(feed);
    }
}

/* If this fails, a job that somebody stopped is told to have failed. */
static void
test_a_stop_is_no_failure(void **state)
{
    struct feed *feed = begin(1);
    json_t *seen;

    (void)state;
    feed_cause(feed, "stopped by Ctrl-C (SIGINT)", "", 130, true);
    seen = snapshot(feed);
    assert_true(json_is_true(json_object_get(json_object_get(seen, "cause"), "stopped")));
    json_decref(seen);
    feed_destroy(feed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_named_by_chance),
        cmocka_unit_test(test_a_slow_one_is_named_among_the_busy),
        cmocka_unit_test(test_twice_as_long_is_named_within_20_steps),
        cmocka_unit_test(test_lag_is_not_when_somebody_told),
        cmocka_unit_test(test_the_verdict_at_the_end),
        cmocka_unit_test(test_a_stop_is_no_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
