/*
 * feed_keep.c - what psd_run is told of a job, kept for those who watch it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/feed.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "launch/page/feed_state.h"
#include "launch/system/wall_clock.h"
#include "table/places.h"

static char *
copy_text(const char *text)
{
    return strdup(text != NULL ? text : "");
}

struct feed *
feed_create(const struct feed_job *job)
{
    struct feed *feed = calloc(1, sizeof(*feed));

    if (feed == NULL) {
        return NULL;
    }
    pthread_mutex_init(&feed->lock, NULL);
    feed->name = copy_text(job->name);
    feed->id = copy_text(job->id);
    feed->command = copy_text(job->command);
    feed->log_directory = copy_text(job->log_directory);
    feed->started_unix_ms = job->started_unix_ms;
    feed->begun_ms = psi_monotonic_ms();
    feed->workers = job->workers;
    feed->servers = job->servers;
    feed->slots = 1 + job->servers + job->workers;
    feed->first_line = 1;
    feed->members = calloc(feed->slots, sizeof(*feed->members));
    feed->lines = calloc(FEED_LOGS_MAX, sizeof(*feed->lines));
    feed->events = calloc(FEED_EVENTS_MAX, sizeof(*feed->events));
    feed->tables = calloc(FEED_TABLES_MAX, sizeof(*feed->tables));
    kept_spans_init(&feed->spans);
    if (!waits_init(&feed->waits, job->workers) || feed->members == NULL || feed->lines == NULL ||
        feed->events == NULL || feed->tables == NULL || feed->name == NULL || feed->id == NULL ||
        feed->command == NULL || feed->log_directory == NULL) {
        feed_destroy(feed);
        return NULL;
    }
    return feed;
}

void
feed_destroy(struct feed *feed)
{
    if (feed == NULL) {
        return;
    }
    for (uint32_t slot = 0; feed->members != NULL && slot < feed->slots; slot++) {
        free(feed->members[slot].counts);
    }
    for (uint32_t i = 0; feed->lines != NULL && i < FEED_LOGS_MAX; i++) {
        free(feed->lines[i].text);
    }
    for (uint32_t i = 0; feed->tables != NULL && i < feed->table_count; i++) {
        free(feed->tables[i].places);
    }
    waits_fini(&feed->waits);
    kept_spans_fini(&feed->spans);
    curves_fini(&feed->curves);
    free(feed->members);
    free(feed->lines);
    free(feed->events);
    free(feed->tables);
    free(feed->name);
    free(feed->id);
    free(feed->command);
    free(feed->log_directory);
    pthread_mutex_destroy(&feed->lock);
    free(feed);
}

uint64_t
feed_elapsed_ms(const struct feed *feed)
{
    return feed->ended_ms != 0 ? feed->ended_ms : psi_monotonic_ms() - feed->begun_ms;
}

void
feed_phase(struct feed *feed, enum feed_phase phase)
{
    pthread_mutex_lock(&feed->lock);
    feed->phase = phase;
    if (phase == FEED_PHASE_ENDED && feed->ended_ms == 0) {
        feed->ended_ms = feed_elapsed_ms(feed);
    }
    pthread_mutex_unlock(&feed->lock);
}

void
feed_survived(struct feed *feed, const char *text)
{
    pthread_mutex_lock(&feed->lock);
    snprintf(feed->survived, sizeof(feed->survived), "%s", text);
    pthread_mutex_unlock(&feed->lock);
}

void
feed_load(struct feed *feed, const char *host, double load, uint32_t cores)
{
    pthread_mutex_lock(&feed->lock);
    snprintf(feed->load_host, sizeof(feed->load_host), "%s", host);
    feed->load = load;
    feed->load_cores = cores;
    feed->waits.is_crowded = feed_is_crowded(feed);
    pthread_mutex_unlock(&feed->lock);
}

void
feed_process(struct feed *feed, uint32_t slot, const struct feed_process *process)
{
    struct feed_member *member;

    if (slot >= feed->slots) {
        return;
    }
    pthread_mutex_lock(&feed->lock);
    member = &feed->members[slot];
    if (member->pid != process->pid) { /* another one: it counts from 0 */
        member->count = 0;
    }
    member->known = true;
    member->role = process->role;
    member->index = process->index;
    member->machine = process->machine;
    member->pid = process->pid;
    member->state = process->state;
    snprintf(member->name, sizeof(member->name), "%s", process->name);
    snprintf(member->host, sizeof(member->host), "%s", process->host);
    if (process->role == PSD_ROLE_WORKER) {
        late_place(&feed->waits.late, process->index, process->machine);
    }
    if (process->role == PSD_ROLE_WORKER && process->state > FEED_RUNNING) {
        waits_leave(&feed->waits, process->index);
    }
    pthread_mutex_unlock(&feed->lock);
}

struct feed_member *
feed_member_of(struct feed *feed, psd_role role, uint32_t index)
{
    const uint32_t slot = role == PSD_ROLE_MASTER   ? 0
                          : role == PSD_ROLE_SERVER ? 1 + index
                                                    : 1 + feed->servers + index;
    const bool there = role == PSD_ROLE_MASTER   ? index == 0
                       : role == PSD_ROLE_SERVER ? index < feed->servers
                                                 : index < feed->workers;

    return there ? &feed->members[slot] : NULL;
}

uint64_t
feed_metric(const struct feed_member *member, enum psi_metric metric)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < member->count; i++) {
        sum += member->counts[i].value[metric];
    }
    return sum;
}

uint64_t
feed_server_metric(struct feed *feed, uint32_t server, enum psi_metric metric)
{
    const struct feed_member *member;
    uint64_t sum;

    pthread_mutex_lock(&feed->lock);
    member = feed_member_of(feed, PSD_ROLE_SERVER, server);
    sum = member != NULL ? feed_metric(member, metric) : 0;
    pthread_mutex_unlock(&feed->lock);
    return sum;
}

uint64_t
feed_expected(const struct feed *feed)
{
    uint64_t furthest = 0;

    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        const uint64_t told = feed_metric(&feed->members[slot], PSI_METRIC_STEPS_EXPECTED);

        furthest = told > furthest ? told : furthest;
    }
    return furthest;
}

uint64_t
feed_steps_total(struct feed *feed)
{
    uint64_t steps;

    pthread_mutex_lock(&feed->lock);
    steps = feed_expected(feed);
    pthread_mutex_unlock(&feed->lock);
    return steps;
}

uint64_t
feed_furthest_step(struct feed *feed)
{
    uint64_t furthest = 0;

    pthread_mutex_lock(&feed->lock);
    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        furthest = feed->members[slot].step > furthest ? feed->members[slot].step : furthest;
    }
    pthread_mutex_unlock(&feed->lock);
    return furthest;
}

/* ---- logs and events ----------------------------------------------------------------------- */

static void
drop_line(struct feed *feed)
{
    struct feed_line *line = &feed->lines[feed->first_line % FEED_LOGS_MAX];

    feed->line_bytes -= line->bytes;
    free(line->text);
    line->text = NULL;
    feed->first_line++;
}

void
feed_log(struct feed *feed, const char *process, bool is_error, const char *line, size_t bytes)
{
    const size_t kept = bytes < FEED_LINE_BYTES_MAX ? bytes : FEED_LINE_BYTES_MAX;
    char *text = malloc(kept + 1);
    struct feed_line *slot;

    if (text == NULL) {
        return;
    }
    memcpy(text, line, kept);
    text[kept] = '\0';
    pthread_mutex_lock(&feed->lock);
    while (feed->line_number >= feed->first_line &&
           (feed->line_number + 1 - feed->first_line >= FEED_LOGS_MAX ||
            feed->line_bytes + kept > FEED_LOG_BYTES_MAX)) {
        drop_line(feed);
    }
    slot = &feed->lines[++feed->line_number % FEED_LOGS_MAX];
    *slot = (struct feed_line){.number = feed->line_number,
                               .at_ms = feed_elapsed_ms(feed),
                               .is_error = is_error,
                               .text = text,
                               .bytes = kept};
    snprintf(slot->process, sizeof(slot->process), "%s", process);
    feed->line_bytes += kept;
    pthread_mutex_unlock(&feed->lock);
}

static void
add_event(struct feed *feed, enum feed_kind kind, const char *text)
{
    struct feed_happening *event = &feed->events[++feed->event_number % FEED_EVENTS_MAX];

    *event = (struct feed_happening){
        .number = feed->event_number, .at_ms = feed_elapsed_ms(feed), .kind = kind};
    snprintf(event->text, sizeof(event->text), "%s", text);
}

void
feed_event(struct feed *feed, enum feed_kind kind, const char *format, ...)
{
    char text[FEED_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pthread_mutex_lock(&feed->lock);
    add_event(feed, kind, text);
    pthread_mutex_unlock(&feed->lock);
}

void
feed_cause(struct feed *feed, const char *text, const char *process, int code, bool is_stop)
{
    pthread_mutex_lock(&feed->lock);
    if (!feed->has_cause) {
        feed->has_cause = true;
        feed->cause_code = code;
        feed->cause_is_stop = is_stop;
        feed->cause_ms = feed_elapsed_ms(feed);
        snprintf(feed->cause, sizeof(feed->cause), "%s", text);
        snprintf(feed->cause_process, sizeof(feed->cause_process), "%s", process);
        add_event(feed, FEED_CAUSE, text);
    }
    pthread_mutex_unlock(&feed->lock);
}

/* ---- what the master tells ----------------------------------------------------------------- */

void
feed_nodes(struct feed *feed, const struct psd_node *nodes, size_t count)
{
    pthread_mutex_lock(&feed->lock);
    for (size_t i = 0; i < count; i++) {
        struct feed_member *member = feed_member_of(feed, nodes[i].role, nodes[i].rank);

        if (member == NULL || isnan(nodes[i].steps_per_s)) { /* the master does not know yet */
            continue;
        }
        member->step = nodes[i].step > member->step ? nodes[i].step : member->step;
        member->rate = nodes[i].steps_per_s;
        member->value = nodes[i].value;
        snprintf(member->value_name, sizeof(member->value_name), "%s", nodes[i].value_name);
    }
    pthread_mutex_unlock(&feed->lock);
}

static void
count_places(struct feed_shown_table *table, const struct psi_table_info *info)
{
    struct psi_loads *loads = malloc(sizeof(*loads));
    uint16_t *places = malloc(table->chunks * sizeof(*places));

    table->places = calloc(info->loads.servers, sizeof(*table->places));
    if (loads != NULL && places != NULL && table->places != NULL) {
        *loads = info->loads;
        psi_table_place(&info->spec, psi_spec_all_parts_bytes(&info->spec), loads, places);
        table->servers = info->loads.servers;
        for (uint64_t chunk = 0; chunk < table->chunks; chunk++) {
            uint32_t server = 0;

            while (server + 1 < loads->servers && places[chunk] >= loads->first_place[server + 1]) {
                server++;
            }
            table->places[server]++;
        }
    }
    free(loads);
    free(places);
}

static bool
knows_table(const struct feed *feed, uint32_t id)
{
    for (uint32_t i = 0; i < feed->table_count; i++) {
        if (feed->tables[i].id == id) {
            return true;
        }
    }
    return false;
}

void
feed_table(struct feed *feed, const struct psi_table_info *info)
{
    struct feed_shown_table table = {
        .id = info->id,
        .chunks = psi_table_chunks(&info->spec, &info->loads),
        .bytes = psi_spec_is_sparse(&info->spec)
                     ? 0 /* nobody but the servers knows */
                     : info->spec.count * psi_dtype_bytes(info->spec.dtype),
        .rule = info->spec.rule.rule,
        .sums = info->spec.use == PSD_USE_SUM,
        .staleness = info->spec.staleness,
    };

    snprintf(table.name, sizeof(table.name), "%s", info->spec.name);
    pthread_mutex_lock(&feed->lock);
    feed->waits.ends_together =
        feed->waits.ends_together && table.staleness == 0 && info->spec.backup_workers == 0;
    if (feed->table_count < FEED_TABLES_MAX && !knows_table(feed, info->id)) {
        const bool waits = table.staleness != PSD_STALENESS_UNBOUNDED;

        count_places(&table, info);
        feed->waits.waits_for_workers =
            feed->table_count == 0 ? waits : feed->waits.waits_for_workers || waits;
        feed->tables[feed->table_count++] = table;
    }
    pthread_mutex_unlock(&feed->lock);
}

/* ---- what members tell --------------------------------------------------------------------- */

static struct feed_counts *
counts_of(struct feed_member *member, uint32_t lane)
{
    if (lane >= PSI_LANES_MAX) {
        return NULL;
    }
    if (lane >= member->count) {
        struct feed_counts *grown = realloc(member->counts, (lane + 1) * sizeof(*member->counts));

        if (grown == NULL) {
            return NULL;
        }
        memset(&grown[member->count], 0, (lane + 1 - member->count) * sizeof(*grown));
        member->counts = grown;
        member->count = lane + 1;
    }
    return &member->counts[lane];
}

static double
rate_of(uint64_t before, uint64_t now, uint64_t elapsed_ms)
{
    return now > before && elapsed_ms > 0 ? (double)(now - before) / (double)elapsed_ms : 0;
}

static void
take_counts(struct feed *feed, struct feed_counts *counts, const struct psi_telling *telling)
{
    const struct feed_counts before = *counts;
    const uint64_t now_ms = psi_monotonic_ms();
    const uint64_t elapsed_ms = now_ms - before.told_ms;

    memset(counts->value, 0, sizeof(counts->value));
    for (uint32_t i = 0; i < telling->metrics; i++) {
        if (telling->metric[i].metric < PSI_METRICS) {
            counts->value[telling->metric[i].metric] = telling->metric[i].value;
        }
    }
    counts->told_ms = now_ms;
    counts->step = feed->waits.first;
    counts->waited = telling->waited;
    memcpy(counts->wait, telling->wait, telling->waited * sizeof(telling->wait[0]));
    if (before.told_ms == 0 || elapsed_ms == 0) {
        return;
    }
    counts->has_rates = true;
    counts->cpu =
        rate_of(before.value[PSI_METRIC_CPU_TIME], counts->value[PSI_METRIC_CPU_TIME], elapsed_ms) /
        1e6;
    counts->asleep = rate_of(before.value[PSI_METRIC_SLEEP_TIME],
                             counts->value[PSI_METRIC_SLEEP_TIME], elapsed_ms) /
                     1e6;
    counts->in_bytes_s = 1e3 * rate_of(before.value[PSI_METRIC_GRADIENT_BYTES_IN],
                                       counts->value[PSI_METRIC_GRADIENT_BYTES_IN], elapsed_ms);
    if (counts->step > before.step) {
        const uint64_t now_ns = counts->value[PSI_METRIC_ADD_TIME];
        const uint64_t before_ns = before.value[PSI_METRIC_ADD_TIME];

        counts->apply_us =
            now_ns > before_ns ? (now_ns - before_ns) / 1000 / (counts->step - before.step) : 0;
    }
}

static void
take_lane(struct feed *feed)
{
    uint64_t busiest_us = 0;

    for (uint32_t server = 0; server < feed->servers; server++) {
        const struct feed_member *member = &feed->members[1 + server];

        for (uint32_t lane = 0; lane < member->count; lane++) {
            busiest_us = member->counts[lane].apply_us > busiest_us ? member->counts[lane].apply_us
                                                                    : busiest_us;
        }
    }
    feed->waits.apply_us = busiest_us < UINT32_MAX ? (uint32_t)busiest_us : UINT32_MAX;
}

static void
take_points(struct feed *feed, uint32_t rank, const struct psi_telling *telling)
{
    const uint64_t now_ms = wall_clock_ms();
    uint32_t numbers[PSI_SCALARS_MAX];

    for (uint32_t i = 0; telling->points > 0 && i < telling->names; i++) {
        numbers[i] = curves_open(&feed->curves, rank, telling->name[i]);
    }
    for (uint32_t i = 0; i < telling->points; i++) {
        const struct psi_point *point = &telling->point[i];

        curves_add(
            &feed->curves, numbers[point->name],
            &(struct curve_point){.step = point->step, .unix_ms = now_ms, .value = point->value});
    }
}

static uint64_t
furthest_step(const struct feed *feed)
{
    uint64_t furthest = 0;

    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        furthest = feed->members[slot].step > furthest ? feed->members[slot].step : furthest;
    }
    return furthest;
}

static void
take_worker(struct feed *feed, struct feed_member *member, uint32_t rank,
            const struct psi_telling *telling)
{
    member->step = telling->step > member->step ? telling->step : member->step;
    member->lag = furthest_step(feed) - member->step;
    member->told_ms = psi_monotonic_ms();
    member->servers = telling->servers;
    memcpy(member->server, telling->server, sizeof(member->server));
    member->tables = telling->tables;
    memcpy(member->table, telling->table, sizeof(member->table));
    take_points(feed, rank, telling);
    for (uint32_t i = 0; i < telling->steps; i++) {
        waits_add(&feed->waits, rank, &telling->times[i]);
    }
}

void
feed_told(struct feed *feed, uint8_t role, uint32_t rank, uint32_t lane,
          const struct psi_telling *telling)
{
    struct feed_member *member = NULL;
    struct feed_counts *counts;

    pthread_mutex_lock(&feed->lock);
    if (role >= PSI_ROLE_MASTER && role <= PSI_ROLE_WORKER) {
        member = feed_member_of(feed, (psd_role)role, rank); /* the numbers are the same */
    }
    counts = member != NULL ? counts_of(member, role == PSI_ROLE_SERVER ? lane : 0) : NULL;
    if (counts != NULL) {
        take_counts(feed, counts, telling);
        kept_spans_take(&feed->spans, (uint32_t)(member - feed->members), lane, telling);
        if (role == PSI_ROLE_SERVER) {
            take_lane(feed);
        } else if (role == PSI_ROLE_WORKER) {
            take_worker(feed, member, rank, telling);
        }
    }
    pthread_mutex_unlock(&feed->lock);
}
