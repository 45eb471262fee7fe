/*
 * trace_test.c - pushes, rounds and marks of all processes on one clock.
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

#define HOUR_US UINT64_C(3600000000)

enum { STEP_US = 5000 };

/* Two workers on machine 0, a server on machine 1, whose clock is an hour ahead. */
static struct feed *
begin(void)
{
    struct feed *feed = feed_create(&(struct feed_job){
        .name = "job", .id = "1", .command = "train", .workers = 2, .servers = 1});
    struct psi_table_info info = {.id = 3,
                                  .spec = {.count = 1, .dtype = PSD_F32, .name = "weights"},
                                  .loads = {.servers = 1, .first_place = {0, 1}}};

    assert_non_null(feed);
    for (uint32_t slot = 1; slot < 4; slot++) {
        feed_process(feed, slot,
                     &(struct feed_process){.name = slot == 1 ? "server 0" : "worker",
                                            .role = slot == 1 ? PSD_ROLE_SERVER : PSD_ROLE_WORKER,
                                            .index = slot == 1 ? 0 : slot - 2,
                                            .host = slot == 1 ? "node9" : "node1",
                                            .machine = slot == 1,
                                            .pid = 100 + slot,
                                            .state = FEED_RUNNING});
    }
    feed_table(feed, &info);
    return feed;
}

/* A step: worker 1 pushes 1 ms after worker 0, the round closes 200 us later, both have it 100 us after
 * that. */
static void
tell_step(struct feed *feed, uint64_t step, uint32_t way_us)
{
    static struct psi_telling telling;
    const uint64_t begin_us = HOUR_US + step * STEP_US;

    for (uint32_t rank = 0; rank < 2; rank++) {
        const uint32_t pushed_us = 2000 + 1000 * rank;
        const uint32_t ended_us = 3200 + 2 * way_us;

        memset(&telling, 0, sizeof(telling));
        telling.step = step;
        telling.steps = 1;
        telling.times[0] = (struct psi_step_times){.step = step,
                                                   .total_us = STEP_US,
                                                   .compute_us = pushed_us,
                                                   .wait_us = STEP_US - pushed_us,
                                                   .end_us = begin_us + STEP_US};
        telling.marks = 1;
        snprintf(telling.mark[0], sizeof(telling.mark[0]), "backward");
        telling.spans = 2;
        telling.span[0] = (struct psi_span){.kind = PSI_SPAN_PUSH,
                                            .what = 3,
                                            .step = step,
                                            .begin_us = begin_us + pushed_us,
                                            .us = ended_us - pushed_us};
        telling.span[1] = (struct psi_span){
            .kind = PSI_SPAN_MARK, .step = step, .begin_us = begin_us + 500, .us = 1500};
        feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
    }
    memset(&telling, 0, sizeof(telling));
    telling.spans = 1;
    telling.span[0] = (struct psi_span){.kind = PSI_SPAN_ROUND,
                                        .what = 3,
                                        .who = 1,
                                        .step = step,
                                        .begin_us = begin_us + HOUR_US + 2000 + way_us,
                                        .us = 1200,
                                        .apply_us = 200};
    telling.waited = 1;
    telling.wait[0] = (struct psi_waited){.rank = 1, .ns = step * 1000000};
    feed_told(feed, PSI_ROLE_SERVER, 0, 0, &telling);
}

static json_t *
trace_of(struct feed *feed, uint32_t steps)
{
    char *text = feed_trace(feed, steps);
    json_t *trace = json_loads(text, 0, NULL);

    assert_non_null(trace);
    free(text);
    return trace;
}

static json_int_t
told_of_clock(const json_t *trace, const char *what, const char *who)
{
    const json_t *value =
        json_object_get(json_object_get(json_object_get(trace, "otherData"), what), who);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* Where the span of a name begins, of a process and step; its details into *args_p. */
static json_int_t
begin_of(const json_t *trace, const char *name, int pid, json_int_t step, json_t **args_p)
{
    json_t *event;
    size_t i;

    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        json_t *args = json_object_get(event, "args");

        if (strcmp(json_string_value(json_object_get(event, "ph")), "b") == 0 &&
            strcmp(json_string_value(json_object_get(event, "name")), name) == 0 &&
            json_integer_value(json_object_get(event, "pid")) == pid &&
            json_integer_value(json_object_get(args, "step")) == step) {
            *args_p = args;
            return json_integer_value(json_object_get(event, "ts"));
        }
    }
    fail_msg("no %s of %d in step %d", name, pid, (int)step);
    return -1;
}

/* If this fails, the rounds of a server on a machine of its own stand hours beside the pushes that made
 * them, or before these. */
static void
test_a_server_on_its_own_machine_is_on_the_clock(void **state)
{
    struct feed *feed = begin();
    json_t *trace;
    json_t *args;
    json_int_t doubt_us;

    (void)state;
    for (uint64_t step = 1; step <= 20; step++) {
        tell_step(feed, step, step == 7 ? 20 : 300); /* most are slow: the fastest says most */
    }
    trace = trace_of(feed, 3);
    doubt_us = told_of_clock(trace, "clock_doubts_us", "server 0");
    assert_in_range(doubt_us, 1, 20);
    assert_in_range(told_of_clock(trace, "clock_offsets_us", "server 0"),
                    (json_int_t)HOUR_US - doubt_us, (json_int_t)HOUR_US + doubt_us);
    assert_int_equal(told_of_clock(trace, "clock_offsets_us", "worker 1"), 0);
    assert_int_equal(begin_of(trace, "push weights", 1, 19, &args), STEP_US + 2000);
    assert_int_equal(begin_of(trace, "push weights", 2, 19, &args), STEP_US + 3000);
    assert_int_equal(begin_of(trace, "backward", 2, 19, &args), STEP_US + 500);
    assert_in_range(begin_of(trace, "round weights", 10001, 19, &args), STEP_US + 2300 - doubt_us,
                    STEP_US + 2300 + doubt_us);
    assert_string_equal(json_string_value(json_object_get(args, "last")), "worker 1");
    assert_int_equal(json_integer_value(json_object_get(args, "apply_us")), 200);
    json_decref(trace);
    feed_destroy(feed);
}

/* If this fails, a job whose workers do not wait for each other gets clocks that nobody knows. */
static void
test_clocks_that_nobody_knows_are_not_told(void **state)
{
    struct feed *feed = begin();
    struct psi_table_info stale = {
        .id = 4,
        .spec = {.count = 1, .dtype = PSD_F32, .name = "stale", .staleness = 2},
        .loads = {.servers = 1, .first_place = {0, 1}}};
    json_t *trace;
    json_t *args;

    (void)state;
    feed_table(feed, &stale);
    for (uint64_t step = 1; step <= 20; step++) {
        tell_step(feed, step, 300);
    }
    trace = trace_of(feed, 3);
    assert_true(json_is_null(json_object_get(
        json_object_get(json_object_get(trace, "otherData"), "clock_offsets_us"), "server 0")));
    assert_int_equal(begin_of(trace, "round weights", 10001, 18, &args), 0); /* a line of its own */
    json_decref(trace);
    feed_destroy(feed);
}

/* If this fails, a trace that is asked for before the first step ends psd_run. */
static void
test_a_timeline_of_nothing(void **state)
{
    struct feed *feed = begin();
    json_t *trace = trace_of(feed, 20);
    json_t *event;
    size_t i;

    (void)state;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        assert_string_equal(json_string_value(json_object_get(event, "ph")), "M");
    }
    json_decref(trace);
    feed_destroy(feed);
}

/* If this fails, operators do not see for whom servers wait. */
static void
test_for_whom_rounds_waited_is_told(void **state)
{
    struct feed *feed = begin();
    char *text;

    (void)state;
    tell_step(feed, 5, 300);
    text = feed_metrics(feed);
    assert_non_null(strstr(text, "psd_round_wait_for_seconds_total{"));
    assert_non_null(strstr(text, "worker=\"1\"} 0.005"));
    free(text);
    feed_destroy(feed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_server_on_its_own_machine_is_on_the_clock),
        cmocka_unit_test(test_clocks_that_nobody_knows_are_not_told),
        cmocka_unit_test(test_a_timeline_of_nothing),
        cmocka_unit_test(test_for_whom_rounds_waited_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
