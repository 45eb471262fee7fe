/*
 * feed_trace.c - the last steps of all processes as a timeline, in the JSON that Perfetto reads.
 *
 * The processes of a machine have one clock. Machines have clocks of their own; where the workers of a step
 * end it together, when its rounds have closed, it is known how far these are apart (clocks.h), and all
 * stand on one. Where they do not, each machine whose clock is not known begins at 0. Within a step, parts
 * stand in the order compute, encode, send, wait, receive, each once: workers tell how long, not when.
 * Pushes, rounds and what programs mark stand where they were (trace_spans.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <stdlib.h>

#include "launch/page/clocks.h"
#include "launch/page/trace_spans.h"

static json_t *
event(const char *kind, uint32_t worker, const char *name)
{
    json_t *value = json_object();

    json_object_set_new(value, "ph", json_string(kind));
    json_object_set_new(value, "pid", json_integer(TRACE_WORKER_PID + (json_int_t)worker));
    json_object_set_new(value, "tid", json_integer(TRACE_STEPS_TID));
    json_object_set_new(value, "name", json_string(name));
    return value;
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

/* When a worker began a step, on the clock that counts, or its own if that is not known. */
static int64_t
begin_of(const struct feed *feed, uint32_t rank, const struct psi_step_times *times)
{
    int64_t offset_us;

    if (!late_offset_us(&feed->waits.late, rank, &offset_us)) {
        offset_us = 0;
    }
    return (int64_t)(times->end_us - (uint64_t)offset_us) - times->total_us;
}

/* What all workers told of the step of a row, by rank; NULL: it is too long ago. */
static const struct psi_step_times *
times_of(const struct feed *feed, uint64_t row)
{
    return waits_times(&feed->waits, feed->waits.rows[row % WAITS_KEPT].step);
}

static bool
has_told(const struct psi_step_times *times)
{
    return times->total_us > 0 && times->end_us > 0;
}

/* Whose timeline a worker shares: WAITS_NOBODY, that of all whose clocks are known. */
static uint32_t
line_of(const struct feed *feed, uint32_t rank)
{
    int64_t offset_us;

    return late_offset_us(&feed->waits.late, rank, &offset_us) ? WAITS_NOBODY
                                                               : late_home(&feed->waits.late, rank);
}

/* Where the timeline begins that a worker shares: with the first step of them all. Returns that of those
 * whose clocks are known. */
static int64_t
find_beginnings(const struct feed *feed, struct span rows, uint32_t workers, int64_t *first_us)
{
    int64_t of_all_us = INT64_MAX;

    for (uint32_t rank = 0; rank < workers; rank++) {
        first_us[rank] = INT64_MAX;
    }
    for (uint64_t row = rows.from; row < rows.to; row++) {
        const struct psi_step_times *times = times_of(feed, row);

        for (uint32_t rank = 0; times != NULL && rank < workers; rank++) {
            const uint32_t line = line_of(feed, rank);
            int64_t *first = line == WAITS_NOBODY ? &of_all_us : &first_us[line];
            const int64_t at_us = begin_of(feed, rank, &times[rank]);

            *first = has_told(&times[rank]) && at_us < *first ? at_us : *first;
        }
    }
    for (uint32_t rank = 0; rank < workers; rank++) {
        const uint32_t line = line_of(feed, rank);

        first_us[rank] = line == WAITS_NOBODY ? of_all_us : first_us[line]; /* it comes before */
    }
    return of_all_us;
}

static void
add_steps(json_t *events, const struct feed *feed, uint32_t workers, uint32_t count)
{
    const struct span rows = last_rows(&feed->waits, count);
    int64_t *first_us = calloc(workers > 0 ? workers : 1, sizeof(*first_us));
    struct trace_window window = {.workers = workers, .first_us = first_us, .step = UINT64_MAX};

    if (first_us == NULL) {
        return;
    }
    window.of_all_us = find_beginnings(feed, rows, workers, first_us);
    for (uint64_t row = rows.from; row < rows.to; row++) {
        const struct psi_step_times *times = times_of(feed, row);
        const uint64_t step = feed->waits.rows[row % WAITS_KEPT].step;

        if (times != NULL) {
            window.step = step < window.step ? step : window.step;
            window.last = step > window.last ? step : window.last;
        }
        for (uint32_t rank = 0; times != NULL && rank < workers; rank++) {
            if (has_told(&times[rank])) {
                add_step(events, rank, &times[rank],
                         begin_of(feed, rank, &times[rank]) - first_us[rank]);
            }
        }
    }
    trace_spans(events, feed, &window);
    free(first_us);
}

static void
tell_clock(json_t *clocks, json_t *doubts, const char *name, struct clock_offset offset)
{
    json_object_set_new(clocks, name,
                        offset.known ? json_integer((json_int_t)offset.us) : json_null());
    if (offset.doubt_us > 0) {
        json_object_set_new(doubts, name, json_integer((json_int_t)offset.doubt_us));
    }
}

/* How far each clock is ahead of the one that counts, null: nobody knows; and how sure that is. */
static json_t *
tell_clocks(const struct feed *feed, uint32_t workers)
{
    json_t *clocks = json_object();
    json_t *doubts = json_object();
    char name[32];

    for (uint32_t rank = 0; rank < workers; rank++) {
        snprintf(name, sizeof(name), "worker %u", rank);
        tell_clock(clocks, doubts, name, clocks_worker(feed, rank));
    }
    for (uint32_t server = 0; server < feed->servers; server++) {
        snprintf(name, sizeof(name), "server %u", server);
        tell_clock(clocks, doubts, name, clocks_server(feed, server));
    }
    return json_pack("{s:o,s:o}", "clock_offsets_us", clocks, "clock_doubts_us", doubts);
}

char *
feed_trace(struct feed *feed, uint32_t steps)
{
    json_t *trace = json_object();
    json_t *events = json_array();
    json_t *other;
    uint32_t workers;
    char *document;

    pthread_mutex_lock(&feed->lock);
    workers = feed->workers < feed->waits.workers ? feed->workers : feed->waits.workers;
    trace_names(events, feed);
    add_steps(events, feed, workers, steps);
    other = tell_clocks(feed, workers);
    pthread_mutex_unlock(&feed->lock);
    json_object_set_new(trace, "displayTimeUnit", json_string("ms"));
    json_object_set_new(trace, "otherData", other);
    json_object_set_new(trace, "traceEvents", events);
    document = json_dumps(trace, JSON_COMPACT);
    json_decref(trace);
    return document;
}
