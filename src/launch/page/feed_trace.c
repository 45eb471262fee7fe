/*
 * feed_trace.c - the last steps of all workers as a timeline, in the JSON that Perfetto reads.
 *
 * Machines have clocks of their own. But the workers of a step end it together, when its rounds have
 * closed: so it is known how far their clocks are apart (late.h), and all stand on one. Within a step,
 * parts stand in the order compute, encode, send, wait, receive, each once: workers tell how long, not
 * when.
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
add_span(json_t *events, uint32_t worker, const char *name, int64_t *at_us, uint32_t us,
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
add_step(json_t *events, uint32_t worker, const struct psi_step_times *times, int64_t at_us)
{
    add_span(events, worker, "compute", &at_us, times->compute_us, times->step);
    add_span(events, worker, "encode", &at_us, times->encode_us, times->step);
    add_span(events, worker, "send", &at_us, times->send_us, times->step);
    add_span(events, worker, "wait", &at_us, times->wait_us, times->step);
    add_span(events, worker, "receive", &at_us, times->receive_us, times->step);
}

/* The rows of the last steps: [from, to). */
struct span {
    uint64_t from;
    uint64_t to;
};

static struct span
last_rows(const struct waits *waits, uint32_t count)
{
    const uint64_t kept = waits->number > WAITS_KEPT ? waits->number - WAITS_KEPT : 0;
    const uint64_t wanted = waits->number > count ? waits->number - count : 0;

    return (struct span){.from = wanted > kept ? wanted : kept, .to = waits->number};
}

/* When a worker began a step, on the clock of all. False: it has not told of it, or not when. */
static bool
begin_of(const struct feed *feed, uint64_t row, uint32_t rank, int64_t *at_us_p)
{
    const struct waits *waits = &feed->waits;
    const struct psi_step_times *times =
        waits_times(waits, waits->rows[row % WAITS_KEPT].step, rank);
    const int64_t end_us = times != NULL ? late_end_us(&waits->late, rank, times) : 0;

    if (end_us == 0) {
        return false;
    }
    *at_us_p = end_us - times->total_us;
    return true;
}

/* The first of them all: there the timeline begins. */
static int64_t
find_beginning(const struct feed *feed, struct span rows)
{
    int64_t first_us = INT64_MAX;
    int64_t at_us;

    for (uint64_t row = rows.from; row < rows.to; row++) {
        for (uint32_t rank = 0; rank < feed->workers; rank++) {
            if (begin_of(feed, row, rank, &at_us) && at_us < first_us) {
                first_us = at_us;
            }
        }
    }
    return first_us;
}

static void
add_steps(json_t *events, const struct feed *feed, uint32_t count)
{
    const struct span rows = last_rows(&feed->waits, count);
    const int64_t beginning_us = find_beginning(feed, rows);
    int64_t at_us;

    for (uint64_t row = rows.from; row < rows.to; row++) {
        for (uint32_t rank = 0; rank < feed->workers; rank++) {
            if (begin_of(feed, row, rank, &at_us)) {
                add_step(events, rank,
                         waits_times(&feed->waits, feed->waits.rows[row % WAITS_KEPT].step, rank),
                         at_us - beginning_us);
            }
        }
    }
}

/* How far each clock was found to be ahead of the one that counts. */
static json_t *
tell_clocks(const struct feed *feed)
{
    json_t *clocks = json_object();
    char name[32];

    for (uint32_t rank = 0; rank < feed->workers && rank < feed->waits.workers; rank++) {
        snprintf(name, sizeof(name), "worker %u", rank);
        json_object_set_new(clocks, name,
                            json_integer((json_int_t)late_offset_us(&feed->waits.late, rank)));
    }
    return clocks;
}

char *
feed_trace(struct feed *feed, uint32_t steps)
{
    json_t *trace = json_object();
    json_t *events = json_array();
    json_t *other = json_object();
    char *document;

    pthread_mutex_lock(&feed->lock);
    add_names(events, feed);
    add_steps(events, feed, steps);
    json_object_set_new(other, "clock_offsets_us", tell_clocks(feed));
    pthread_mutex_unlock(&feed->lock);
    json_object_set_new(trace, "displayTimeUnit", json_string("ms"));
    json_object_set_new(trace, "otherData", other);
    json_object_set_new(trace, "traceEvents", events);
    document = json_dumps(trace, JSON_COMPACT);
    json_decref(trace);
    return document;
}
