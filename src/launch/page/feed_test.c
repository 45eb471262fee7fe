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

#include "launch/page/feed_state.h"

static struct feed *
begin(uint32_t workers, uint32_t servers)
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
        snprintf(host, sizeof(host), "node%u", index);
        feed_process(feed, slot,
                     &(struct feed_process){.name = slot == 0 ? "master" : name,
                                            .role = slot == 0   ? PSD_ROLE_MASTER
                                                    : is_server ? PSD_ROLE_SERVER
                                                                : PSD_ROLE_WORKER,
                                            .index = index,
                                            .host = host,
                                            .pid = 100 + slot,
                                            .state = FEED_RUNNING});
    }
    return feed;
}

/* A step of a worker that computed so long and then waited to the end of it. */
static void
tell_step(struct feed *feed, uint32_t rank, uint64_t step, uint32_t compute_us, uint32_t total_us)
{
    static struct psi_telling telling;

    memset(&telling, 0, sizeof(telling));
    telling.step = step;
    telling.steps = 1;
    telling.times[0] = (struct psi_step_times){.step = step,
                                               .total_us = total_us,
                                               .compute_us = compute_us,
                                               .wait_us = total_us - compute_us,
                                               .alone_us = total_us - compute_us,
                                               .server = 1};
    feed_told(feed, PSI_ROLE_WORKER, rank, 0, &telling);
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

/* If this fails, a slow server is taken for a slow worker, or for nobody. */
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
    assert_non_null(
        strstr(text, "step 4: 75 % of the time everybody waited for server 1 on node1"));
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
    feed_cause(feed, "worker 0 died", "worker0", 70);
    feed_cause(feed, "so did others", "worker1", 71);
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

/* If this fails, watching a long job takes all memory, or its curves lose their beginning or end. */
static void
test_what_is_kept_is_bounded(void **state)
{
    struct feed *feed = begin(1, 1);
    static char line[FEED_LINE_BYTES_MAX * 2];
    const struct curve *curve;

    (void)state;
    memset(line, 'x', sizeof(line));
    for (unsigned i = 0; i < 3 * FEED_LOGS_MAX; i++) {
        feed_log(feed, "worker0", false, line, sizeof(line));
    }
    assert_true(feed->line_bytes <= FEED_LOG_BYTES_MAX);
    for (uint64_t step = 0; step < 100000; step++) {
        tell_point(feed, 0, "loss", step, (double)step);
    }
    curve = curves_find(&feed->curves, 0, "loss");
    assert_true(curve->count <= CURVES_POINTS_EACH_MAX && curve->count > 1000);
    assert_true(curve->points[0].step < 200);
    assert_true(curve->points[curve->count - 1].step > 99900);
    for (uint32_t i = 0; i < 20000; i++) {
        char name[32];

        snprintf(name, sizeof(name), "name%u", i);
        tell_point(feed, 0, name, i, 1);
    }
    assert_int_equal(feed->curves.count, CURVES_MAX);
    assert_true(feed->curves.lost > 0);
    curve = curves_find(&feed->curves, 0, "loss");
    assert_true(curve->count <= CURVES_POINTS_EACH_MIN);
    feed_destroy(feed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_slowest_worker_is_named),
        cmocka_unit_test(test_a_slow_server_is_named),
        cmocka_unit_test(test_steps_go_on_without_those_that_left),
        cmocka_unit_test(test_a_reader_gets_what_is_new),
        cmocka_unit_test(test_hostile_text_stays_text),
        cmocka_unit_test(test_what_is_kept_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
