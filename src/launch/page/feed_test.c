/*
 * feed_test.c - what is kept of a job, who waits for whom, and how it is told.
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

#include "base/monotonic.h"
#include "launch/page/feed_state.h"

/* On so many machines in turn. */
static struct feed *
begin_on(uint32_t machines, uint32_t workers, uint32_t servers)
{
    struct feed *feed = feed_create(&(struct feed_job){
        .name = "job", .id = "1", .command = "train", .workers = workers, .servers = servers});

    assert_non_null(feed);
    for (uint32_t slot = 0; slot < 1 + servers + workers; slot++) {
        const bool is_server = slot >= 1 && slot <= servers;
        const uint32_t index = slot == 0 ? 0 : is_server ? slot - 1 : slot - 1 - servers;
        char name[32];
        char host[32];

        snprintf(name, sizeof(name), "%s %u", is_server ? "server" : "worker", index);
        snprintf(host, sizeof(host), "node%u", index % machines);
        feed_process(feed, slot,
                     &(struct feed_process){.name = slot == 0 ? "master" : name,
                                            .role = slot == 0   ? PSD_ROLE_MASTER
                                                    : is_server ? PSD_ROLE_SERVER
                                                                : PSD_ROLE_WORKER,
                                            .index = index,
                                            .host = host,
                                            .machine = index % machines,
                                            .pid = 100 + slot,
                                            .state = FEED_RUNNING});
    }
    return feed;
}

static struct feed *
begin(uint32_t workers, uint32_t servers)
{
    return begin_on(UINT32_MAX, workers, servers);
}

static void
tell_table(struct feed *feed, uint32_t id, uint32_t staleness, uint32_t backup_workers)
{
    struct psi_table_info info = {.id = id,
                                  .spec = {.count = 1,
                                           .dtype = PSD_F32,
                                           .staleness = staleness,
                                           .backup_workers = backup_workers},
                                  .loads = {.servers = 1, .first_place = {0, 1}}};

    snprintf(info.spec.name, sizeof(info.spec.name), "table %u", id);
    feed_table(feed, &info);
}

static void
tell_times(struct feed *feed, uint32_t rank, struct psi_step_times times)
{
    static struct psi_telling telling;

    memset(&telling, 0, sizeof(telling));
    telling.step = times.step;
    telling.steps = 1;
    telling.times[0] = times;
    feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
}

/* A step of a worker that computed so long and then waited to the end of it, in tenths of a millisecond:
 * each is long enough to be looked at by itself. */
static void
tell_step(struct feed *feed, uint32_t rank, uint64_t step, uint32_t compute, uint32_t total)
{
    tell_times(feed, rank,
               (struct psi_step_times){.step = step,
                                       .total_us = 100 * total,
                                       .compute_us = 100 * compute,
                                       .wait_us = 100 * (total - compute),
                                       .alone_us = 100 * (total - compute),
                                       .server = 1});
}

static void
tell_point(struct feed *feed, uint32_t rank, const char *name, uint64_t step, double value)
{
    static struct psi_telling telling;

    memset(&telling, 0, sizeof(telling));
    telling.step = step;
    telling.names = 1;
    snprintf(telling.name[0], sizeof(telling.name[0]), "%s", name);
    telling.points = 1;
    telling.point[0] = (struct psi_point){.step = step, .value = value};
    feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
}

static json_t *
snapshot(struct feed *feed, struct feed_since *since)
{
    char *text = feed_json(feed, since);
    json_t *value;

    assert_non_null(text);
    value = json_loads(text, 0, NULL);
    assert_non_null(value);
    free(text);
    return value;
}

/* If this fails, the slowest worker is not named, or somebody else is, or by a wrong share. */
static void
test_the_slowest_worker_is_named(void **state)
{
    struct feed *feed = begin(4, 2);
    char text[512];

    (void)state;
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "");
    for (uint64_t step = 5; step < 10; step++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            tell_step(feed, rank, step, rank == 3 ? 2100 : 1000, 2200);
        }
    }
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 9: 50 % of the time everybody waited for worker 3 on node3, "
                              "which computed 2.1x as long as the median");
    feed_waiting(feed, text, sizeof(text));
    assert_string_equal(text, "waiting for worker 3 (50 %)");
    feed_destroy(feed);
}

/* A step of a worker that ended then, on its own clock: it computed so long, and waited for the rest. */
static void
tell_end_of(struct feed *feed, uint32_t rank, uint64_t step, uint64_t end_us, uint32_t total_us,
            uint32_t compute_us)
{
    tell_times(feed, rank,
               (struct psi_step_times){.step = step,
                                       .total_us = total_us,
                                       .compute_us = compute_us,
                                       .wait_us = total_us - compute_us,
                                       .alone_us = total_us - compute_us,
                                       .server = 0,
                                       .end_us = end_us});
}

static void
tell_end(struct feed *feed, uint32_t rank, uint64_t step, uint64_t end_us, uint32_t total_us)
{
    tell_end_of(feed, rank, step, end_us, total_us, 1000);
}

/* If this fails, servers are blamed for a worker that was stopped while it waited: it takes that for
 * waiting, and those who wait for its next push do not see it compute. */
static void
test_a_worker_that_is_stopped_is_named(void **state)
{
    struct feed *feed = begin(3, 1);
    uint64_t ended_us = UINT64_C(1) << 40;
    uint64_t seen_us[3] = {ended_us, ended_us, ended_us}; /* the last end, as each saw it */
    char text[512];

    (void)state;
    for (uint64_t step = 8; step < 48; step++) {
        const bool stopped = step % 4 == 3; /* when the values of this step come */

        ended_us += step % 4 == 0 && step > 8 ? 320000 : 20000; /* all wait for its push */
        for (uint32_t rank = 0; rank < 3; rank++) {
            const uint64_t now_us = ended_us + (rank == 1 && stopped ? 300000 : 0);

            /* each machine has a clock of its own */
            tell_end_of(feed, rank, step, now_us + 100000000 * rank,
                        (uint32_t)(now_us - seen_us[rank]), 10000);
            seen_us[rank] = now_us;
        }
    }
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 47: 79 % of the time everybody waited for worker 1 on node1, "
                              "which went on late: it was stopped, had no core, or its values came "
                              "late");
    feed_destroy(feed);
}

/* If this fails, somebody who is slow now and then is missed in a job of fast steps, of which some are
 * told: the last few may well be those in which nothing happened. */
static void
test_of_fast_steps_many_are_looked_at(void **state)
{
    struct feed *feed = begin(2, 1);
    uint64_t at_us = UINT64_C(1) << 40;
    char text[512];

    (void)state;
    for (uint64_t step = 8; step < 8 + 300; step++) {
        const uint32_t slow_us = step % 50 == 20 ? 100000 : 1000;
        struct psi_telling telling = {.step = step, .steps = 1};

        at_us += slow_us + 100;
        for (uint32_t rank = 0; rank < 2; rank++) {
            const uint32_t compute_us = rank == 1 ? slow_us : 1000;

            telling.times[0] = (struct psi_step_times){.step = step,
                                                       .total_us = slow_us + 100,
                                                       .compute_us = compute_us,
                                                       .wait_us = slow_us + 100 - compute_us,
                                                       .end_us = at_us};
            feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
        }
    }
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 307: 64 % of the time the other waited for worker 1 on node1, "
                              "which computed 2.9x as long as the median");
    feed_destroy(feed);
}

/* A lane of server 1, a second after its last telling. */
static void
tell_lane(struct feed *feed, uint64_t sleep_ns, uint64_t bytes_in)
{
    static struct psi_telling telling;
    struct feed_member *member = &feed->members[2];

    memset(&telling, 0, sizeof(telling));
    telling.metrics = 2;
    telling.metric[0] =
        (struct psi_metric_value){.metric = PSI_METRIC_GRADIENT_BYTES_IN, .value = bytes_in};
    telling.metric[1] =
        (struct psi_metric_value){.metric = PSI_METRIC_SLEEP_TIME, .value = sleep_ns};
    if (member->count > 0) {
        member->counts[0].told_ms = psi_monotonic_ms() - 100000; /* so that nobody sees the rest */
    }
    feed_told(feed, PSI_ROLE_SERVER, 1, 0, &telling);
}

/* If this fails, a slow server is taken for a slow worker, or for nobody; or what is said of it is
 * made up. */
static void
test_a_slow_server_is_named(void **state)
{
    struct feed *feed = begin(4, 2);
    char text[512];

    (void)state;
    for (uint64_t step = 0; step < 5; step++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            tell_step(feed, rank, step, 1000 + rank, 4000);
        }
    }
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 4: 75 % of the time everybody waited for server 1 on node1");
    tell_lane(feed, 1000000000, 1000000);
    feed_sentence(feed, text, sizeof(text)); /* since when it slept so long is not known */
    assert_string_equal(text, "step 4: 75 % of the time everybody waited for server 1 on node1");
    tell_lane(feed, 91000000000, 501000000);
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 4: 75 % of the time everybody waited for server 1 on node1, "
                              "which slept 90 % of it: its link brought 5.0 MB/s");
    tell_lane(feed, 111000000000, 501000000);
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 4: 75 % of the time everybody waited for server 1 on node1, "
                              "which was busy 80 % of it");
    feed_waiting(feed, text, sizeof(text));
    assert_string_equal(text, "waiting for server 1 (75 %)");
    feed_destroy(feed);
}

/* If this fails, a report names who was slow at the end, and not who was slow most of the time; or a
 * step that stands for others counts as one. */
static void
test_the_whole_job_is_summed_up(void **state)
{
    struct feed *feed = begin(3, 2);
    struct feed_since since = {0};
    json_t *seen;

    (void)state;
    for (uint64_t step = 1; step <= 10; step++) { /* worker 1 is slow in all steps, ... */
        for (uint32_t rank = 0; rank < 3; rank++) {
            tell_step(feed, rank, step, rank == 1 ? 2000 : 1000, 2000);
        }
    }
    for (uint64_t step = 18; step <= 90; step += 8) { /* ... of these one in eight is told ... */
        for (uint32_t rank = 0; rank < 3; rank++) {
            tell_step(feed, rank, step, rank == 1 ? 2000 : 1000, 2000);
        }
    }
    for (uint64_t step = 91; step <= 110; step++) { /* ... and server 1 at the end */
        for (uint32_t rank = 0; rank < 3; rank++) {
            tell_step(feed, rank, step, 1000, 2000);
        }
    }
    seen = snapshot(feed, &since);
    assert_string_equal(
        json_string_value(json_object_get(seen, "whole")),
        "over 110 steps: 50 % of the time was computing, 41 % waiting for worker 1 on node1, "
        "9 % waiting for server 1 on node1");
    json_decref(seen);
    feed_again(feed, 2, 2);
    seen = snapshot(feed, &since);
    assert_non_null(strstr(json_string_value(json_object_get(seen, "whole")), "over 110 steps"));
    json_decref(seen);
    feed_destroy(feed);
}

/* If this fails, a timeline shows the steps of machines with other clocks hours apart, or hides that one
 * went on late. */
static void
test_a_timeline_has_one_clock(void **state)
{
    struct feed *feed = begin(2, 1);
    uint64_t ended_us[2] = {1000000, 1000000};
    json_t *trace;
    json_t *span;
    char *text;
    size_t i;
    int found = 0;

    (void)state;
    for (uint64_t step = 1; step <= 20; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            const uint64_t now_us = 1000000 + 5000 * step + (rank == 1 && step == 19 ? 3000 : 0);

            tell_end(feed, rank, step, now_us + UINT64_C(7200000000) * rank,
                     (uint32_t)(now_us - ended_us[rank]));
            ended_us[rank] = now_us;
        }
    }
    text = feed_trace(feed, 3);
    trace = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(trace);
    assert_int_equal(
        json_integer_value(json_object_get(
            json_object_get(json_object_get(trace, "otherData"), "clock_offsets_us"), "worker 1")),
        7200000000);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, span)
    {
        const json_int_t step =
            json_integer_value(json_object_get(json_object_get(span, "args"), "step"));
        const json_int_t worker = json_integer_value(json_object_get(span, "pid")) - 1;

        if (json_object_get(span, "ts") != NULL && /* computing comes first */
            strcmp(json_string_value(json_object_get(span, "name")), "compute") == 0) {
            const json_int_t at_us = json_integer_value(json_object_get(span, "ts"));

            assert_int_equal(at_us, 5000 * (step - 18) + (worker == 1 && step == 20 ? 3000 : 0));
            found++;
        }
    }
    assert_int_equal(found, 6);
    json_decref(trace);
    feed_destroy(feed);
}

/* Steps that each worker ends when it is done with them, on its own clock; worker 1 needs twice as long. */
static void
tell_apart(struct feed *feed, uint64_t clock_us)
{
    for (uint64_t step = 1; step <= 40; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            const uint32_t total_us = rank == 1 ? 200000 : 100000;

            tell_times(feed, rank,
                       (struct psi_step_times){.step = step,
                                               .total_us = total_us,
                                               .compute_us = rank == 1 ? 195000 : 50000,
                                               .wait_us = rank == 1 ? 5000 : 50000,
                                               .server = 0,
                                               .end_us = (UINT64_C(1) << 30) + step * total_us +
                                                         clock_us * rank});
        }
    }
}

static json_t *
offset_of_worker_1(struct feed *feed)
{
    char *text = feed_trace(feed, 3);
    json_t *trace = json_loads(text, 0, NULL);
    json_t *offset = json_incref(json_object_get(
        json_object_get(json_object_get(trace, "otherData"), "clock_offsets_us"), "worker 1"));

    free(text);
    json_decref(trace);
    return offset;
}

/* If this fails, a worker that lags behind, as it may, is said to have been stopped, or its lag is taken
 * for the difference of two clocks. */
static void
test_lag_is_not_taken_for_a_clock(void **state)
{
    static const struct {
        uint32_t staleness;
        uint32_t backup_workers;
        uint32_t machines;
        bool waits; /* for workers, at all */
    } cases[] = {
        {64, 0, 1, true},
        {64, 0, 2, true},
        {0, 1, 1, true},
        {0, 1, 2, true},
        {PSD_STALENESS_UNBOUNDED, 0, 1, false},
        {PSD_STALENESS_UNBOUNDED, 0, 2, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct feed *feed = begin_on(cases[i].machines, 2, 1);
        json_t *offset;
        char text[512];

        tell_table(feed, 1, cases[i].staleness, cases[i].backup_workers);
        tell_apart(feed, cases[i].machines == 1 ? 0 : 7200000000);
        feed_sentence(feed, text, sizeof(text));
        assert_null(strstr(text, "went on late"));
        assert_null(strstr(text, "worker 0"));
        assert_int_equal(strstr(text, "worker 1") != NULL, cases[i].waits);
        offset = offset_of_worker_1(feed);
        if (cases[i].machines == 1) {
            assert_true(json_is_integer(offset));
            assert_int_equal(json_integer_value(offset), 0);
        } else {
            assert_true(json_is_null(offset));
        }
        json_decref(offset);
        feed_destroy(feed);
    }
}

/* If this fails, a worker that always goes on late, as one that shares a core, is taken for one with
 * another clock, though it is on the same machine. */
static void
test_who_is_always_late_on_one_machine_is_named(void **state)
{
    struct feed *feed = begin_on(1, 3, 1);
    json_t *offset;
    char text[512];

    (void)state;
    tell_table(feed, 1, 0, 0);
    for (uint64_t step = 1; step <= 40; step++) {
        for (uint32_t rank = 0; rank < 3; rank++) {
            tell_end_of(feed, rank, step, 1000000 + 150000 * step + (rank == 1 ? 90000 : 0), 150000,
                        30000);
        }
    }
    feed_sentence(feed, text, sizeof(text));
    assert_non_null(strstr(text, "waited for worker 1 on node0, which went on late"));
    offset = offset_of_worker_1(feed);
    assert_int_equal(json_integer_value(offset), 0);
    json_decref(offset);
    feed_destroy(feed);
}

/* If this fails, a slow link is suspected where there is none: between processes of one machine; or a
 * server that gets no core is taken for one that sleeps. */
static void
test_there_is_no_link_within_a_machine(void **state)
{
    struct feed *feed = begin(2, 2);
    char text[512];

    (void)state;
    for (uint32_t slot = 0; slot < 5; slot++) {
        snprintf(feed->members[slot].host, sizeof(feed->members[slot].host), "node7");
    }
    for (uint64_t step = 0; step < 10; step++) { /* a crowded machine has to show more of them */
        tell_step(feed, 0, step, 1000, 4000);
        tell_step(feed, 1, step, 1000, 4000);
    }
    tell_lane(feed, 1000000000, 1000000);
    tell_lane(feed, 91000000000, 501000000);
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 9: 75 % of the time everybody waited for server 1 on node7, "
                              "which ran 10 % of it");
    feed_load(feed, "node8", 20, 2);
    feed_sentence(feed, text, sizeof(text));
    assert_null(strstr(text, "processes"));
    feed_load(feed, "node7", 2.9, 2);
    feed_sentence(feed, text, sizeof(text));
    assert_null(strstr(text, "processes"));
    feed_load(feed, "node7", 19.8, 2);
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text,
                        "step 9: 75 % of the time everybody waited for server 1 on node7, "
                        "which ran 10 % of it: 20 processes want to run on the 2 cores there");
    feed_destroy(feed);
}

/* If this fails, one of several servers is blamed for the time of all. */
static void
test_no_server_is_named_for_all(void **state)
{
    struct feed *feed = begin(2, 3);
    char text[512];

    (void)state;
    for (uint64_t step = 0; step < 12; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct psi_telling telling = {.step = step, .steps = 1};

            telling.times[0] = (struct psi_step_times){.step = step,
                                                       .total_us = 4000,
                                                       .compute_us = 1000,
                                                       .wait_us = 3000,
                                                       .alone_us = 3000,
                                                       .server = (uint32_t)(step % 3)};
            feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
        }
    }
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "step 11: 75 % of the time everybody waited for the servers");
    feed_waiting(feed, text, sizeof(text));
    assert_string_equal(text, "waiting for the servers (75 %)");
    feed_destroy(feed);
}

/* If this fails, a worker that left, or one that never tells, keeps everybody from seeing who is
 * waited for now. */
static void
test_steps_go_on_without_those_that_left(void **state)
{
    struct feed *feed = begin(3, 1);
    struct feed_since since = {0};
    json_t *seen;

    (void)state;
    tell_step(feed, 0, 1, 100, 200);
    tell_step(feed, 1, 1, 100, 200);
    seen = snapshot(feed, &since);
    assert_int_equal(json_array_size(json_object_get(seen, "waits")), 0); /* worker 2 may tell */
    json_decref(seen);
    feed_process(feed, 4,
                 &(struct feed_process){.name = "worker 2",
                                        .role = PSD_ROLE_WORKER,
                                        .index = 2,
                                        .host = "",
                                        .state = FEED_FAILED});
    tell_step(feed, 0, 2, 100, 200);
    tell_step(feed, 1, 2, 100, 200);
    seen = snapshot(feed, &since);
    assert_int_equal(json_array_size(json_object_get(seen, "waits")), 2);
    json_decref(seen);
    tell_step(feed, 0, 1000000, 100, 200); /* a job that was loaded */
    tell_step(feed, 1, 1000000, 100, 200);
    seen = snapshot(feed, &since);
    assert_int_equal(json_array_size(json_object_get(seen, "waits")), 1);
    json_decref(seen);
    feed_destroy(feed);
}

/* If this fails, a straggler of a fast job is not found: its workers tell of their last steps at
 * different moments, and the time that they wait for it is said to be the servers'. */
static void
test_nobody_is_blamed_before_all_have_told(void **state)
{
    struct feed *feed = begin(2, 1);
    char text[512];

    (void)state;
    for (uint64_t step = 0; step < 2000; step += 2) { /* one has told of even steps ... */
        tell_step(feed, 0, step, 1000, 2200);
        tell_step(feed, 1, step + 1, 2100, 2200); /* ... and the other of odd ones */
    }
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "");
    for (uint64_t step = 4000; step < 4200; step += 8) { /* one is far ahead, as it tells first */
        tell_step(feed, 0, step, 1000, 2200);
    }
    for (uint64_t step = 4000; step < 4200; step += 8) {
        tell_step(feed, 1, step, 2100, 2200);
    }
    feed_waiting(feed, text, sizeof(text));
    assert_string_equal(text, "waiting for worker 1 (50 %)");
    feed_destroy(feed);
}

/* If this fails, in a job of many workers the first that tell push each other's steps out before the
 * last have told. */
static void
test_a_thousand_workers_tell_one_after_the_other(void **state)
{
    enum { WORKERS = 1024 };
    struct feed *feed = begin(WORKERS, 1);
    char text[512];

    (void)state;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        for (uint64_t step = 0; step < PSI_STEPS_MAX; step++) {
            tell_step(feed, rank, 4 * step, rank == 500 ? 2100 : 1000, 2200);
        }
    }
    assert_int_equal(feed->waits.number, PSI_STEPS_MAX);
    feed_waiting(feed, text, sizeof(text));
    assert_string_equal(text, "waiting for worker 500 (50 %)");
    feed_destroy(feed);
}

/* If this fails, one worker that tells a wild number keeps everybody from seeing who is waited for,
 * for the rest of the job; or a job that goes back to a checkpoint does. */
static void
test_a_wild_step_stops_nothing(void **state)
{
    struct feed *feed = begin(3, 1);

    (void)state;
    for (uint64_t step = 0; step < 100; step++) {
        tell_step(feed, 0, step, 1000, 2200);
        tell_step(feed, 1, step, 2100, 2200);
        tell_step(feed, 2, step, 1000, 2200);
        tell_step(feed, 2, PSI_TOLD_STEP_MAX - step, 1000, 2200);
    }
    assert_int_equal(feed->waits.number, 100);
    for (uint64_t step = 50; step < 60; step++) { /* all go back */
        for (uint32_t rank = 0; rank < 3; rank++) {
            tell_step(feed, rank, step, 1000, 2200);
        }
    }
    assert_true(feed->waits.number >= 109); /* of the first step, two told too early */
    feed_destroy(feed);
}

static void
tell_added(struct feed *feed, uint64_t add_ns)
{
    static struct psi_telling telling;

    memset(&telling, 0, sizeof(telling));
    telling.metrics = 1;
    telling.metric[0] = (struct psi_metric_value){.metric = PSI_METRIC_ADD_TIME, .value = add_ns};
    if (feed->members[1].counts != NULL) {
        feed->members[1].counts[0].told_ms--; /* that was a while ago */
    }
    feed_told(feed, PSI_ROLE_SERVER, 0, 0, &telling);
}

/* If this fails, a server that was replaced seems to need ages for its arithmetic, or to have
 * counted what its predecessor did. */
static void
test_a_replaced_server_counts_from_0(void **state)
{
    struct feed *feed = begin(1, 1);

    (void)state;
    tell_added(feed, 50000000);
    tell_step(feed, 0, 1, 100, 200);
    tell_added(feed, 60000000);
    assert_true(feed->waits.apply_us > 0);
    tell_step(feed, 0, 2, 100, 200);
    tell_added(feed, 1000); /* it came back before psd_run heard that it had gone */
    assert_int_equal(feed->waits.apply_us, 0);
    feed_process(feed, 1,
                 &(struct feed_process){.name = "server 0",
                                        .role = PSD_ROLE_SERVER,
                                        .host = "",
                                        .pid = 999,
                                        .state = FEED_RUNNING});
    assert_int_equal(feed_metric(&feed->members[1], PSI_METRIC_ADD_TIME), 0);
    feed_destroy(feed);
}

/* If this fails, a page that looks twice a second is sent everything again, or misses something. */
static void
test_a_reader_gets_what_is_new(void **state)
{
    struct feed *feed = begin(1, 1);
    struct feed_since since = {0};
    json_t *seen;

    (void)state;
    feed_log(feed, "worker0", true, "one\nignored", 3);
    feed_event(feed, FEED_NOTE, "noted %d", 1);
    tell_point(feed, 0, "loss", 1, 0.5);
    seen = snapshot(feed, &since);
    assert_int_equal(json_array_size(json_object_get(seen, "logs")), 1);
    assert_int_equal(json_array_size(json_object_get(seen, "events")), 1);
    assert_int_equal(json_array_size(json_object_get(seen, "scalars")), 1);
    json_decref(seen);
    seen = snapshot(feed, &since);
    assert_int_equal(json_array_size(json_object_get(seen, "logs")), 0);
    assert_int_equal(json_array_size(json_object_get(seen, "events")), 0);
    assert_int_equal(json_array_size(json_object_get(seen, "scalars")), 0);
    json_decref(seen);
    tell_point(feed, 0, "loss", 2, 0.25);
    feed_cause(feed, "worker 0 died", "worker0", 70, false);
    feed_cause(feed, "so did others", "worker1", 71, false);
    seen = snapshot(feed, &since);
    assert_string_equal(json_string_value(json_object_get(json_object_get(seen, "cause"), "text")),
                        "worker 0 died");
    assert_int_equal(json_array_size(json_object_get(seen, "events")), 1);
    assert_int_equal(json_array_size(json_object_get(
                         json_array_get(json_object_get(seen, "scalars"), 0), "points")),
                     1);
    json_decref(seen);
    feed_destroy(feed);
}

/* If this fails, a name or a line that somebody made up breaks the document, or the text of
 * Prometheus. */
static void
test_hostile_text_stays_text(void **state)
{
    static const char nasty[] = "</script><script>\"\\\x1b[31m\xff\n";
    struct feed *feed = begin(1, 1);
    struct feed_since since = {0};
    json_t *seen;
    char *text;

    (void)state;
    feed_process(feed, 2,
                 &(struct feed_process){
                     .name = nasty, .role = PSD_ROLE_WORKER, .host = nasty, .state = FEED_RUNNING});
    feed_log(feed, nasty, false, nasty, sizeof(nasty) - 1);
    feed_event(feed, FEED_NOTE, "%s", nasty);
    tell_point(feed, 0, nasty, 1, 0.0 / 0.0);
    seen = snapshot(feed, &since);
    assert_int_equal(json_array_size(json_object_get(seen, "logs")), 1);
    json_decref(seen);
    text = feed_metrics(feed);
    assert_non_null(text);
    assert_non_null(strstr(text, "name=\"</script><script>\\\"\\\\?[31m?\\n\"} NaN\n"));
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        assert_true(line[0] == '#' || strncmp(line, "psd_", 4) == 0);
    }
    free(text);
    feed_destroy(feed);
}

static uint32_t
points_of_all(const struct curves *curves)
{
    uint32_t points = 0;

    for (uint32_t i = 0; i < curves->count; i++) {
        points += curves->curves[i].count;
    }
    return points;
}

/* If this fails, watching a long job takes all memory, or its curves lose their beginning or end. */
static void
test_what_is_kept_is_bounded(void **state)
{
    enum { WORKERS = 200, NAMES = 100 };
    struct feed *feed = begin(WORKERS, 1);
    static char line[FEED_LINE_BYTES_MAX * 2];
    const struct curve *curve;
    char name[32];

    (void)state;
    memset(line, 'x', sizeof(line));
    for (unsigned i = 0; i < 3 * FEED_LOGS_MAX; i++) {
        feed_log(feed, "worker0", false, line, sizeof(line));
    }
    assert_true(feed->line_bytes <= FEED_LOG_BYTES_MAX);
    for (uint64_t step = 0; step < 100000; step++) {
        tell_point(feed, 0, "loss", step, (double)step);
        curve = curves_find(&feed->curves, 0, "loss");
        assert_int_equal(curve->points[0].step, 0);
        assert_int_equal(curve->points[curve->count - 1].step, step);
    }
    assert_true(curve->count <= CURVES_POINTS_EACH_MAX && curve->count > 1000);
    for (uint32_t i = 1; i + 1 < curve->count; i++) { /* one as far from the next as the other */
        assert_int_equal(curve->points[i].step, i * curve->stride);
    }
    for (uint32_t i = 0; i < WORKERS * NAMES; i++) {
        snprintf(name, sizeof(name), "name%u", i / WORKERS);
        for (uint64_t step = 0; step < 40; step++) {
            tell_point(feed, i % WORKERS, name, step, 1);
        }
    }
    assert_int_equal(feed->curves.count, CURVES_MAX);
    assert_true(feed->curves.lost > 0);
    assert_true(points_of_all(&feed->curves) <= CURVES_POINTS_MAX);
    curve = curves_find(&feed->curves, 0, "loss");
    assert_int_equal(curve->points[0].step, 0);
    assert_int_equal(curve->points[curve->count - 1].step, 99999);
    feed_destroy(feed);
}

/* If this fails, one worker that makes names up takes the curves of all others. */
static void
test_a_worker_has_its_share_of_curves(void **state)
{
    struct feed *feed = begin(2, 1);
    char name[32];

    (void)state;
    for (uint32_t i = 0; i < 2 * CURVES_MAX; i++) {
        snprintf(name, sizeof(name), "name%u", i);
        tell_point(feed, 0, name, i, 1);
    }
    tell_point(feed, 1, "loss", 1, 1);
    assert_int_equal(feed->curves.count, CURVES_WORKER_MAX + 1);
    assert_non_null(curves_find(&feed->curves, 1, "loss"));
    feed_destroy(feed);
}

/* If this fails, a job that is begun anew with fewer workers is shown as it was, or loses its story, or
 * a worker is named that is not there any more. */
static void
test_a_job_is_begun_anew(void **state)
{
    struct feed *feed = begin(4, 2);
    struct feed_since since = {0};
    char text[512];
    char *metrics;
    json_t *told;

    (void)state;
    for (uint64_t step = 0; step < 5; step++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            tell_step(feed, rank, step, rank == 3 ? 2100 : 1000, 2200);
        }
    }
    tell_point(feed, 3, "loss", 4, 1);
    feed_cause(feed, "worker 3 failed", "worker3", 5, false);
    feed_phase(feed, FEED_PHASE_ENDED);
    json_decref(snapshot(feed, &since));
    feed_again(feed, 1, 1);
    feed_sentence(feed, text, sizeof(text));
    assert_string_equal(text, "");
    told = snapshot(feed, &(struct feed_since){0});
    assert_true(json_is_null(json_object_get(told, "cause")));
    assert_int_equal(json_array_size(json_object_get(told, "processes")), 0);
    assert_int_equal(json_array_size(json_object_get(told, "waits")), 5);
    assert_int_equal(json_array_size(json_object_get(told, "scalars")), 1);
    assert_int_equal(json_array_size(json_object_get(told, "events")), 1);
    json_decref(told);
    metrics = feed_metrics(feed); /* worker 3 is nobody now */
    assert_non_null(metrics);
    assert_null(strstr(metrics, "psd_scalar{"));
    free(metrics);
    tell_step(feed, 0, 2, 1000, 2200);
    told = snapshot(feed, &since);
    assert_int_equal(json_array_size(json_object_get(told, "waits")), 1);
    json_decref(told);
    feed_destroy(feed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_slowest_worker_is_named),
        cmocka_unit_test(test_a_worker_that_is_stopped_is_named),
        cmocka_unit_test(test_of_fast_steps_many_are_looked_at),
        cmocka_unit_test(test_a_slow_server_is_named),
        cmocka_unit_test(test_a_timeline_has_one_clock),
        cmocka_unit_test(test_lag_is_not_taken_for_a_clock),
        cmocka_unit_test(test_who_is_always_late_on_one_machine_is_named),
        cmocka_unit_test(test_there_is_no_link_within_a_machine),
        cmocka_unit_test(test_the_whole_job_is_summed_up),
        cmocka_unit_test(test_no_server_is_named_for_all),
        cmocka_unit_test(test_steps_go_on_without_those_that_left),
        cmocka_unit_test(test_nobody_is_blamed_before_all_have_told),
        cmocka_unit_test(test_a_thousand_workers_tell_one_after_the_other),
        cmocka_unit_test(test_a_wild_step_stops_nothing),
        cmocka_unit_test(test_a_replaced_server_counts_from_0),
        cmocka_unit_test(test_a_reader_gets_what_is_new),
        cmocka_unit_test(test_hostile_text_stays_text),
        cmocka_unit_test(test_what_is_kept_is_bounded),
        cmocka_unit_test(test_a_worker_has_its_share_of_curves),
        cmocka_unit_test(test_a_job_is_begun_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
