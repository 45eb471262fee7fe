/*
 * feed_json.c - a snapshot of a job, as JSON: docs/waiting.md.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <math.h>

#include "base/monotonic.h"
#include "launch/page/feed_state.h"
#include "launch/text/json_text.h"
#include "table/rule.h"

enum { SILENT_MS = 2000 }; /* workers tell of themselves twice a second */

static void
set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

/* A number that is too large stays large, and does not become negative. */
static json_t *
number(uint64_t value)
{
    return json_integer(value < INT64_MAX ? (json_int_t)value : INT64_MAX);
}

/* JSON has no NaN: a loss that is none is told as null. */
static json_t *
real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static bool
is_running(const struct feed_member *member)
{
    return member->known && member->role == PSD_ROLE_WORKER && member->state == FEED_RUNNING;
}

/* The slowest worker's step and rate, and the furthest step. */
static void
find_steps(const struct feed *feed, uint64_t *slowest_p, uint64_t *furthest_p, double *rate_p)
{
    bool any = false;

    *slowest_p = 0;
    *furthest_p = 0;
    *rate_p = 0;
    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        const struct feed_member *member = &feed->members[slot];

        *furthest_p = member->step > *furthest_p ? member->step : *furthest_p;
        if (is_running(member) && (!any || member->step < *slowest_p)) {
            *slowest_p = member->step;
            *rate_p = member->rate;
            any = true;
        }
    }
    *slowest_p = any ? *slowest_p : *furthest_p;
}

static json_t *
tell_job(const struct feed *feed)
{
    static const char *const phases[] = {"starting", "running", "ending", "ended"};
    const uint64_t expected = feed_expected(feed);
    json_t *job = json_object();
    uint64_t slowest;
    uint64_t furthest;
    double rate;

    find_steps(feed, &slowest, &furthest, &rate);
    set(job, "name", json_text(feed->name));
    set(job, "id", json_text(feed->id));
    set(job, "phase", json_string(phases[feed->phase]));
    set(job, "started_unix_ms", number(feed->started_unix_ms));
    set(job, "elapsed_ms", number(feed_elapsed_ms(feed)));
    set(job, "command", json_text(feed->command));
    set(job, "workers", number(feed->workers));
    set(job, "servers", number(feed->servers));
    set(job, "version", json_string(PSD_VERSION));
    set(job, "steps_total", expected > 0 ? number(expected) : json_null());
    set(job, "step", number(slowest));
    set(job, "rate", real(rate));
    set(job, "survived", json_text(feed->survived));
    set(job, "log_directory", json_text(feed->log_directory));
    return job;
}

static json_t *
tell_cause(const struct feed *feed)
{
    json_t *cause;

    if (!feed->has_cause) {
        return json_null();
    }
    cause = json_object();
    set(cause, "text", json_text(feed->cause));
    set(cause, "process", json_text(feed->cause_process));
    set(cause, "code", json_integer(feed->cause_code));
    set(cause, "at_ms", number(feed->cause_ms));
    set(cause, "stopped", json_boolean(feed->cause_is_stop));
    return cause;
}

/* ---- processes ----------------------------------------------------------------------------- */

static json_t *
tell_metrics(const struct feed_member *member)
{
    json_t *metrics = json_object();

    for (unsigned metric = 0; metric < PSI_METRICS; metric++) {
        const uint64_t value = feed_metric(member, (enum psi_metric)metric);

        if (value != 0) {
            set(metrics, psi_metric_info[metric].name, number(value));
        }
    }
    return metrics;
}

static json_t *
tell_scalars(const struct feed *feed, const struct feed_member *member)
{
    json_t *scalars = json_object();
    json_t *name;

    if (member->value_name[0] != '\0') {
        name = json_text(member->value_name);
        set(scalars, json_string_value(name), real(member->value));
        json_decref(name);
    }
    for (uint32_t i = 0; i < feed->curves.count; i++) {
        const struct curve *curve = &feed->curves.curves[i];

        if (curve->worker == member->index) {
            name = json_text(curve->name);
            set(scalars, json_string_value(name), real(curve->last));
            json_decref(name);
        }
    }
    return scalars;
}

/* Others may have told of themselves since, and then they are further only because they told later. If it
 * has not told for long, they really are. */
static uint64_t
lag_of(const struct feed_member *member, uint64_t furthest)
{
    const bool is_silent =
        member->told_ms == 0 ||
        (member->state <= FEED_LOST && psi_monotonic_ms() - member->told_ms > SILENT_MS);

    return is_silent ? furthest - member->step : member->lag;
}

static void
tell_worker(json_t *process, const struct feed *feed, const struct feed_member *member,
            uint64_t furthest)
{
    const struct curve *gpu = curves_find(&feed->curves, member->index, "gpu_bytes");

    set(process, "step", number(member->step));
    set(process, "lag", number(lag_of(member, furthest)));
    set(process, "rate", real(member->rate));
    set(process, "memory_bytes", number(feed_metric(member, PSI_METRIC_MEMORY)));
    set(process, "gpu_bytes", gpu != NULL ? real(gpu->last) : json_null());
    set(process, "bytes_in", number(feed_metric(member, PSI_METRIC_VALUE_BYTES_IN)));
    set(process, "bytes_out", number(feed_metric(member, PSI_METRIC_GRADIENT_BYTES_OUT)));
    set(process, "scalars", tell_scalars(feed, member));
}

/* By rank, as text: microseconds. */
static json_t *
tell_waited(const struct feed_member *server)
{
    json_t *waited = json_object();
    uint64_t waited_ns[PSI_RANKS_MAX];
    char name[16];

    feed_waited(server, waited_ns);
    for (uint32_t rank = 0; rank < PSI_RANKS_MAX; rank++) {
        if (waited_ns[rank] > 0) {
            snprintf(name, sizeof(name), "%u", rank);
            set(waited, name, number(waited_ns[rank] / 1000));
        }
    }
    return waited;
}

/* A worker's own memory is in MEMORY: it shares libraries with other programs, and tables with servers. */
static void
tell_resident(json_t *process, const struct feed_member *member)
{
    set(process, "memory_bytes", number(feed_metric(member, PSI_METRIC_RESIDENT)));
}

static void
tell_server(json_t *process, const struct feed_member *member)
{
    set(process, "bytes_in", number(feed_metric(member, PSI_METRIC_GRADIENT_BYTES_IN)));
    set(process, "bytes_out", number(feed_metric(member, PSI_METRIC_VALUE_BYTES_OUT)));
}

/* What no page draws: it is told to those who ask for everything, not twice a second. */
static void
tell_counts(json_t *process, const struct feed_member *member)
{
    set(process, "metrics", tell_metrics(member));
    if (member->role == PSD_ROLE_SERVER) {
        set(process, "waited_for_us", tell_waited(member));
    }
}

static json_t *
tell_process(const struct feed *feed, const struct feed_member *member, uint64_t furthest,
             bool whole)
{
    static const char *const roles[] = {
        [PSD_ROLE_MASTER] = "master", [PSD_ROLE_SERVER] = "server", [PSD_ROLE_WORKER] = "worker"};
    static const char *const states[] = {"starting", "running", "lost", "ended", "failed"};
    json_t *process = json_object();
    double cpu = 0;

    for (uint32_t i = 0; i < member->count; i++) {
        cpu += member->counts[i].cpu;
    }
    set(process, "name", json_text(member->name));
    set(process, "role", json_string(roles[member->role]));
    set(process, "index", number(member->index));
    set(process, "host", json_text(member->host));
    set(process, "pid", json_integer((json_int_t)member->pid));
    set(process, "state", json_string(states[member->state]));
    set(process, "cpu", member->count > 0 ? real(cpu) : json_null());
    if (member->role == PSD_ROLE_WORKER) {
        tell_worker(process, feed, member, furthest);
    } else {
        tell_resident(process, member);
    }
    if (member->role == PSD_ROLE_SERVER) {
        tell_server(process, member);
    }
    if (whole) {
        tell_counts(process, member);
    }
    return process;
}

static json_t *
tell_processes(const struct feed *feed, bool whole)
{
    json_t *processes = json_array();
    uint64_t slowest;
    uint64_t furthest;
    double rate;

    find_steps(feed, &slowest, &furthest, &rate);
    for (uint32_t slot = 0; slot < feed->slots; slot++) {
        if (feed->members[slot].known) {
            json_array_append_new(processes,
                                  tell_process(feed, &feed->members[slot], furthest, whole));
        }
    }
    return processes;
}

/* ---- tables and traffic -------------------------------------------------------------------- */

/* Of a table, over all workers. */
struct psi_traffic
feed_table_traffic(const struct feed *feed, uint32_t id)
{
    struct psi_traffic sum = {.id = id};

    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        const struct feed_member *member = &feed->members[slot];

        for (uint32_t i = 0; i < member->tables; i++) {
            if (member->table[i].id == id) {
                sum.bytes_in += member->table[i].bytes_out; /* a table gets what workers send */
                sum.bytes_out += member->table[i].bytes_in;
                sum.frames_in += member->table[i].frames_out;
                sum.frames_out += member->table[i].frames_in;
            }
        }
    }
    return sum;
}

static json_t *
tell_tables(const struct feed *feed)
{
    json_t *tables = json_array();

    for (uint32_t i = 0; i < feed->table_count; i++) {
        const struct feed_shown_table *shown = &feed->tables[i];
        const struct psi_traffic traffic = feed_table_traffic(feed, shown->id);
        json_t *table = json_object();
        json_t *places = json_array();

        for (uint32_t server = 0; server < shown->servers; server++) {
            json_array_append_new(places, number(shown->places[server]));
        }
        set(table, "name", json_text(shown->name));
        set(table, "bytes", number(shown->bytes));
        set(table, "chunks", number(shown->chunks));
        set(table, "rule", json_string(shown->sums ? "sum" : psi_rule_name(shown->rule)));
        set(table, "staleness",
            shown->staleness == PSD_STALENESS_UNBOUNDED ? json_null() : number(shown->staleness));
        set(table, "places", places);
        set(table, "bytes_in", number(traffic.bytes_in));
        set(table, "bytes_out", number(traffic.bytes_out));
        set(table, "frames_in", number(traffic.frames_in));
        set(table, "frames_out", number(traffic.frames_out));
        json_array_append_new(tables, table);
    }
    return tables;
}

static json_t *
tell_edges(const struct feed *feed)
{
    json_t *edges = json_array();

    for (uint32_t rank = 0; rank < feed->workers; rank++) {
        const struct feed_member *member = &feed->members[1 + feed->servers + rank];

        for (uint32_t i = 0; i < member->servers; i++) {
            json_t *edge = json_object();

            set(edge, "worker", number(rank));
            set(edge, "server", number(member->server[i].id));
            set(edge, "bytes_in", number(member->server[i].bytes_in));
            set(edge, "bytes_out", number(member->server[i].bytes_out));
            json_array_append_new(edges, edge);
        }
    }
    return edges;
}

/* ---- what is new to the reader ------------------------------------------------------------- */

static json_t *
tell_row(const struct waits_row *row)
{
    json_t *wait = json_object();

    set(wait, "step", number(row->step));
    set(wait, "total_us", number(row->total_us));
    set(wait, "compute_us", number(row->compute_us));
    set(wait, "encode_us", number(row->encode_us));
    set(wait, "send_us", number(row->send_us));
    set(wait, "server_us", number(row->server_us));
    set(wait, "worker_us", number(row->worker_us));
    set(wait, "worker", row->worker != WAITS_NOBODY ? number(row->worker) : json_null());
    set(wait, "ratio", real((double)row->ratio));
    set(wait, "server", row->server != WAITS_NOBODY ? number(row->server) : json_null());
    set(wait, "receive_us", number(row->receive_us));
    set(wait, "apply_us", number(row->apply_us));
    return wait;
}

static json_t *
tell_waits(const struct feed *feed, uint64_t *since)
{
    const uint64_t end = feed->waits.number;
    uint64_t at = end > WAITS_KEPT ? end - WAITS_KEPT : 0;
    json_t *waits = json_array();

    for (at = *since > at ? *since : at; at < end; at++) {
        json_array_append_new(waits, tell_row(&feed->waits.rows[at % WAITS_KEPT]));
    }
    *since = end;
    return waits;
}

static json_t *
tell_curve(const struct curve *curve, uint64_t since)
{
    json_t *points = json_array();
    json_t *told;
    uint32_t first = curve->count;

    while (first > 0 && curve->points[first - 1].number > since) {
        first--;
    }
    for (uint32_t i = first; i < curve->count; i++) {
        const struct curve_point *point = &curve->points[i];
        json_t *three = json_array();

        json_array_append_new(three, number(point->step));
        json_array_append_new(three, number(point->unix_ms));
        json_array_append_new(three, real(point->value));
        json_array_append_new(points, three);
    }
    if (first == curve->count) {
        json_decref(points);
        return NULL;
    }
    told = json_object();
    set(told, "name", json_text(curve->name));
    set(told, "worker", number(curve->worker));
    set(told, "points", points);
    return told;
}

static json_t *
tell_curves(const struct feed *feed, uint64_t *since)
{
    json_t *curves = json_array();

    for (uint32_t i = 0; i < feed->curves.count; i++) {
        json_t *told = tell_curve(&feed->curves.curves[i], *since);

        if (told != NULL) {
            json_array_append_new(curves, told);
        }
    }
    *since = feed->curves.number;
    return curves;
}

static json_t *
tell_logs(const struct feed *feed, uint64_t *since)
{
    uint64_t at = *since + 1 > feed->first_line ? *since + 1 : feed->first_line;
    json_t *logs = json_array();

    for (; at <= feed->line_number; at++) {
        const struct feed_line *line = &feed->lines[at % FEED_LOGS_MAX];
        json_t *told = json_object();

        set(told, "n", number(line->number));
        set(told, "at_ms", number(line->at_ms));
        set(told, "process", json_text(line->process));
        set(told, "stream", json_string(line->is_error ? "err" : "out"));
        set(told, "line", json_text(line->text));
        json_array_append_new(logs, told);
    }
    *since = feed->line_number;
    return logs;
}

static json_t *
tell_events(const struct feed *feed, uint64_t *since)
{
    static const char *const kinds[] = {"start", "lost", "failover", "cause", "end", "note"};
    const uint64_t end = feed->event_number;
    const uint64_t first = end > FEED_EVENTS_MAX ? end - FEED_EVENTS_MAX + 1 : 1;
    json_t *events = json_array();

    for (uint64_t at = *since + 1 > first ? *since + 1 : first; at <= end; at++) {
        const struct feed_happening *event = &feed->events[at % FEED_EVENTS_MAX];
        json_t *told = json_object();

        set(told, "n", number(event->number));
        set(told, "at_ms", number(event->at_ms));
        set(told, "kind", json_string(kinds[event->kind]));
        set(told, "text", json_text(event->text));
        json_array_append_new(events, told);
    }
    *since = end;
    return events;
}

static json_t *
tell_waited_for(const struct feed *feed)
{
    json_t *told;
    psd_role role;
    uint32_t index;
    double share;

    if (!feed_waited_for(feed, &role, &index, &share)) {
        return json_null();
    }
    told = json_object();
    set(told, "role", json_string(role == PSD_ROLE_WORKER ? "worker" : "server"));
    set(told, "index", number(index));
    set(told, "share", real(share));
    return told;
}

char *
feed_json(struct feed *feed, struct feed_since *since)
{
    const bool whole = since->scalars == 0 && since->waits == 0;
    json_t *snapshot = json_object();
    char sentence[FEED_TEXT_BYTES];
    char *document;

    pthread_mutex_lock(&feed->lock);
    feed_say(feed, sentence, sizeof(sentence));
    set(snapshot, "job", tell_job(feed));
    set(snapshot, "cause", tell_cause(feed));
    set(snapshot, "sentence", json_text(sentence));
    set(snapshot, "waited_for", tell_waited_for(feed));
    feed_say_whole(feed, sentence, sizeof(sentence));
    set(snapshot, "whole", json_text(sentence));
    feed_say_verdict(feed, sentence, sizeof(sentence));
    set(snapshot, "verdict", json_text(sentence));
    set(snapshot, "processes", tell_processes(feed, whole));
    set(snapshot, "tables", tell_tables(feed));
    set(snapshot, "edges", tell_edges(feed));
    set(snapshot, "waits", tell_waits(feed, &since->waits));
    set(snapshot, "scalars", tell_curves(feed, &since->scalars));
    set(snapshot, "logs", tell_logs(feed, &since->logs));
    set(snapshot, "events", tell_events(feed, &since->events));
    pthread_mutex_unlock(&feed->lock);
    document = json_dumps(snapshot, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(snapshot);
    return document;
}
