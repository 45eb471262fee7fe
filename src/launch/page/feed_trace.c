/*
 * feed_trace.c - the last steps of all workers as a timeline, in the JSON that Perfetto reads.
 *
 * Machines have clocks of their own, and workers tell how long, not when. But the workers of a step
 * end it together, when its rounds have closed: there their lines are joined. Within a step, parts
 * stand in the order compute, encode, send, wait, receive, each once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>

#include "launch/page/feed_state.h"

static json_t *
event(const char *kind, uint32_t worker, const char *name)
{
    json_t *value = json_object();

    json_object_set_new(value, "ph", json_string(kind));
    json_object_set_new(value, "pid", json_integer(worker + 1)); /* 0 is none to Perfetto */
    json_object_set_new(value, "tid", json_integer(1));
    json_object_set_new(value, "name", json_string(name));
    return value;
}

static void
add_names(json_t *events, const struct feed *feed)
{
    for (uint32_t rank = 0; rank < feed->workers; rank++) {
        json_t *value = event("M", rank, "process_name");
        json_t *args = json_object();
        char name[FEED_HOST_BYTES + 32];

        snprintf(name, sizeof(name), "worker %u", rank);
        json_object_set_new(args, "name", json_string(name));
        json_object_set_new(value, "args", args);
        json_array_append_new(events, value);
    }
}

static void
add_span(json_t *events, uint32_t worker, const char *name, uint64_t *at_us, uint32_t us,
         uint64_t step)
{
    json_t *value;

    if (us > 0) {
        value = event("X", worker, name);
        json_object_set_new(value, "ts", json_integer((json_int_t)*at_us));
        json_object_set_new(value, "dur", json_integer(us));
        json_object_set_new(value, "args", json_pack("{s:I}", "step", (json_int_t)step));
        json_array_append_new(events, value);
    }
    *at_us += us;
}

static void
add_step(json_t *events, uint32_t worker, const struct psi_step_times *times, uint64_t end_us)
{
    uint64_t at_us = end_us > times->total_us ? end_us - times->total_us : 0; /* far too long */

    add_span(events, worker, "compute", &at_us, times->compute_us, times->step);
    add_span(events, worker, "encode", &at_us, times->encode_us, times->step);
    add_span(events, worker, "send", &at_us, times->send_us, times->step);
    add_span(events, worker, "wait", &at_us, times->wait_us, times->step);
    add_span(events, worker, "receive", &at_us, times->receive_us, times->step);
}

/* The first of the steps that are shown begins at 0 for whoever took longest. */
static uint64_t
longest_us(const struct feed *feed, uint64_t step)
{
    uint64_t longest = 0;

    for (uint32_t rank = 0; rank < feed->workers; rank++) {
        const struct psi_step_times *times = waits_times(&feed->waits, step, rank);

        longest = times != NULL && times->total_us > longest ? times->total_us : longest;
    }
    return longest;
}

static void
add_steps(json_t *events, const struct feed *feed, uint32_t count)
{
    uint64_t end_us = 0;
    uint64_t first = feed->waits.number > count ? feed->waits.number - count : 0;

    if (feed->waits.number > WAITS_KEPT && first < feed->waits.number - WAITS_KEPT) {
        first = feed->waits.number - WAITS_KEPT;
    }
    for (uint64_t i = first; i < feed->waits.number; i++) {
        const struct waits_row *row = &feed->waits.rows[i % WAITS_KEPT];

        end_us += end_us == 0 ? longest_us(feed, row->step) : row->total_us;
        for (uint32_t rank = 0; rank < feed->workers; rank++) {
            const struct psi_step_times *times = waits_times(&feed->waits, row->step, rank);

            if (times != NULL) {
                add_step(events, rank, times, end_us);
            }
        }
    }
}

char *
feed_trace(struct feed *feed, uint32_t steps)
{
    json_t *trace = json_object();
    json_t *events = json_array();
    char *document;

    pthread_mutex_lock(&feed->lock);
    add_names(events, feed);
    add_steps(events, feed, steps);
    pthread_mutex_unlock(&feed->lock);
    json_object_set_new(trace, "displayTimeUnit", json_string("ms"));
    json_object_set_new(trace, "traceEvents", events);
    document = json_dumps(trace, JSON_COMPACT);
    json_decref(trace);
    return document;
}
