/*
 * trace_spans.c - pushes, rounds and marks as events of a timeline.
 *
 * They overlap, so they are asynchronous events: Perfetto puts them beside each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/trace_spans.h"

#include <stdlib.h>

#include "launch/page/clocks.h"
#include "launch/text/json_text.h"

/* ---- names --------------------------------------------------------------------------------- */

static void
add_name(json_t *events, const char *what, int pid, int tid, const char *name)
{
    json_array_append_new(events,
                          json_pack("{s:s,s:s,s:i,s:i,s:{s:o}}", "ph", "M", "name", what, "pid",
                                    pid, "tid", tid, "args", "name", json_text(name)));
}

static void
add_names_of(json_t *events, const struct feed_member *member, const char *role, uint32_t index,
             int pid)
{
    char name[FEED_HOST_BYTES + 48];

    snprintf(name, sizeof(name), member->host[0] != '\0' ? "%s %u on %s" : "%s %u", role, index,
             member->host);
    add_name(events, "process_name", pid, 1, name);
}

void
trace_names(json_t *events, const struct feed *feed)
{
    for (uint32_t rank = 0; rank < feed->workers; rank++) {
        const int pid = TRACE_WORKER_PID + (int)rank;

        add_names_of(events, &feed->members[1 + feed->servers + rank], "worker", rank, pid);
        add_name(events, "thread_name", pid, TRACE_STEPS_TID, "steps");
        add_name(events, "thread_name", pid, TRACE_PUSHES_TID, "pushes");
        add_name(events, "thread_name", pid, TRACE_MARKS_TID, "program");
    }
    for (uint32_t server = 0; server < feed->servers; server++) {
        const struct feed_member *member = &feed->members[1 + server];
        const int pid = TRACE_SERVER_PID + (int)server;

        add_names_of(events, member, "server", server, pid);
        for (uint32_t lane = 0; lane < member->count; lane++) {
            char name[32];

            snprintf(name, sizeof(name), "lane %u", lane);
            add_name(events, "thread_name", pid, 1 + (int)lane, name);
        }
    }
}

/* ---- spans --------------------------------------------------------------------------------- */

static void
name_span(const struct feed *feed, const struct kept_span *kept, char *text_p, size_t size)
{
    const char *verb = kept->span.kind == PSI_SPAN_PUSH ? "push" : "round";

    if (kept->span.kind == PSI_SPAN_MARK) {
        snprintf(text_p, size, "%s", kept->mark);
        return;
    }
    snprintf(text_p, size, "%s table %u", verb, kept->span.what);
    for (uint32_t i = 0; i < feed->table_count; i++) {
        if (feed->tables[i].id == kept->span.what) {
            snprintf(text_p, size, "%s %s", verb, feed->tables[i].name);
        }
    }
}

static json_t *
details_of(const struct psi_span *span)
{
    json_t *details = json_pack("{s:I}", "step", (json_int_t)span->step);
    char name[32];

    if (span->kind == PSI_SPAN_ROUND) {
        json_object_set_new(details, "apply_us", json_integer(span->apply_us));
        if (span->who != UINT32_MAX) {
            snprintf(name, sizeof(name), "worker %u", span->who);
            json_object_set_new(details, "last", json_string(name));
        }
    }
    return details;
}

/* Where a span stands. */
struct place {
    int pid;
    int tid;
    int64_t at_us;
};

static void
add_event(json_t *events, const struct feed *feed, const struct kept_span *kept,
          const struct place *place)
{
    static const char *const kinds[] = {
        [PSI_SPAN_PUSH] = "push", [PSI_SPAN_ROUND] = "round", [PSI_SPAN_MARK] = "program"};
    const char *kind = kinds[kept->span.kind];
    const json_int_t id = (json_int_t)json_array_size(events); /* of no other */
    char name[PSD_NAME_MAX + 32];

    name_span(feed, kept, name, sizeof(name));
    json_array_append_new(events, json_pack("{s:s,s:s,s:I,s:i,s:i,s:I,s:o,s:o}", "ph", "b", "cat",
                                            kind, "id", id, "pid", place->pid, "tid", place->tid,
                                            "ts", (json_int_t)place->at_us, "name", json_text(name),
                                            "args", details_of(&kept->span)));
    json_array_append_new(events, json_pack("{s:s,s:s,s:I,s:i,s:i,s:I,s:o}", "ph", "e", "cat", kind,
                                            "id", id, "pid", place->pid, "tid", place->tid, "ts",
                                            (json_int_t)(place->at_us + kept->span.us), "name",
                                            json_text(name)));
}

static struct place
place_of_worker(const struct feed *feed, const struct trace_window *window,
                const struct kept_span *kept)
{
    const uint32_t rank = kept->slot - 1 - feed->servers;
    const struct clock_offset clock = clocks_worker(feed, rank);

    return (struct place){.pid = TRACE_WORKER_PID + (int)rank,
                          .tid =
                              kept->span.kind == PSI_SPAN_PUSH ? TRACE_PUSHES_TID : TRACE_MARKS_TID,
                          .at_us = (int64_t)kept->span.begin_us - (clock.known ? clock.us : 0) -
                                   window->first_us[rank]};
}

/* How far servers' clocks are from the beginning of the timeline. */
static int64_t *
find_server_beginnings(const struct feed *feed, const struct trace_window *window)
{
    int64_t *begin_us = calloc(feed->servers > 0 ? feed->servers : 1, sizeof(*begin_us));

    for (uint32_t server = 0; begin_us != NULL && server < feed->servers; server++) {
        const struct clock_offset clock = clocks_server(feed, server);
        const struct kept_span *kept;
        uint64_t at = feed->spans.number;

        begin_us[server] = clock.known ? window->of_all_us + clock.us : INT64_MAX;
        while (!clock.known && (kept = kept_spans_before(&feed->spans, &at)) != NULL) {
            if (kept->slot == 1 + server && kept->span.step >= window->step &&
                (int64_t)kept->span.begin_us < begin_us[server]) {
                begin_us[server] = (int64_t)kept->span.begin_us; /* it begins at 0 */
            }
        }
    }
    return begin_us;
}

void
trace_spans(json_t *events, const struct feed *feed, const struct trace_window *window)
{
    const bool is_empty = window->step > window->last;
    int64_t *server_us = is_empty ? NULL : find_server_beginnings(feed, window);
    const struct kept_span *kept;
    uint64_t at = feed->spans.number;

    while (server_us != NULL && (kept = kept_spans_before(&feed->spans, &at)) != NULL) {
        const bool is_server = kept->slot >= 1 && kept->slot <= feed->servers;
        const bool is_worker =
            kept->slot > feed->servers && kept->slot - 1 - feed->servers < window->workers;
        struct place place = {0};

        if (kept->span.step < window->step || kept->span.step > window->last ||
            (!is_server && !is_worker)) {
            continue;
        }
        if (is_worker) {
            place = place_of_worker(feed, window, kept);
        } else {
            place =
                (struct place){.pid = TRACE_SERVER_PID + (int)kept->slot - 1,
                               .tid = 1 + (int)kept->lane,
                               .at_us = (int64_t)kept->span.begin_us - server_us[kept->slot - 1]};
        }
        if (place.at_us >= 0) { /* what was before is of a step that is not shown */
            add_event(events, feed, kept, &place);
        }
    }
    free(server_us);
}
