/*
 * trace_spans.h - pushes, rounds and marks as events of a timeline. For feed_trace.c only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_TRACE_SPANS_H
#define LAUNCH_PAGE_TRACE_SPANS_H

#include <jansson.h>

#include "launch/page/feed_state.h"

/* Numbers of processes and their lines; 0 is none to Perfetto. */
enum {
    TRACE_WORKER_PID = 1,     /* and the rank */
    TRACE_SERVER_PID = 10001, /* and the number of the server; its lines: 1 and the lane */
    TRACE_STEPS_TID = 1,      /* of a worker: the parts of its steps, ... */
    TRACE_PUSHES_TID = 2,     /* ... what it pushed, ... */
    TRACE_MARKS_TID = 3,      /* ... and what its program marked */
};

/* What is shown. */
struct trace_window {
    uint64_t step; /* from this one ... */
    uint64_t last; /* ... to this one */
    uint32_t workers;
    int64_t of_all_us;       /* where the timeline of all whose clocks are known begins ... */
    const int64_t *first_us; /* ... and that of a worker, on its clock */
};

/* With the feed's lock held: the names of processes and lines, and the events. */
void trace_names(json_t *events, const struct feed *feed);
void trace_spans(json_t *events, const struct feed *feed, const struct trace_window *window);

#endif
