/*
 * feed_export.c - a job's metrics in the text of Prometheus, and its curves as CSV.
 *
 * Prometheus wants base units in the names: seconds and bytes; and _total behind counters.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launch/page/feed_state.h"

static bool
is_time(const struct psi_metric_info *info)
{
    return strcmp(info->unit, "nanoseconds") == 0;
}

/* "psd_gradient_bytes_in_total", "psd_add_time_seconds_total", "psd_window_used_bytes". */
static void
prometheus_name(const struct psi_metric_info *info, char *text_p, size_t size)
{
    const bool has_bytes = strstr(info->name, "bytes") != NULL;
    const bool is_bytes = strcmp(info->unit, "bytes") == 0;

    snprintf(text_p, size, "psd_%s%s%s", info->name,
             is_time(info)            ? "_seconds"
             : is_bytes && !has_bytes ? "_bytes"
                                      : "",
             info->kind == PSI_METRIC_COUNTER ? "_total" : "");
}

/* Text from elsewhere, between quotes: a backslash before each that would end it. */
static void
print_label(FILE *stream, const char *name, const char *value)
{
    fprintf(stream, "%s=\"", name);
    for (; *value != '\0'; value++) {
        const unsigned char c = (unsigned char)*value;

        if (c == '\\' || c == '"') {
            fprintf(stream, "\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", stream);
        } else {
            fputc(c < 0x20 || c >= 0x7f ? '?' : c, stream);
        }
    }
    fputc('"', stream);
}

static void
print_labels(FILE *stream, const struct feed *feed, const struct feed_member *member)
{
    static const char *const roles[] = {
        [PSD_ROLE_MASTER] = "master", [PSD_ROLE_SERVER] = "server", [PSD_ROLE_WORKER] = "worker"};

    fputc('{', stream);
    print_label(stream, "job_name", feed->name);
    fputc(',', stream);
    print_label(stream, "role", roles[member->role]);
    fprintf(stream, ",index=\"%u\",", member->index);
    print_label(stream, "host", member->host);
}

static void
print_value(FILE *stream, double value)
{
    if (isnan(value)) {
        fputs(" NaN\n", stream);
    } else if (isinf(value)) {
        fputs(value > 0 ? " +Inf\n" : " -Inf\n", stream);
    } else {
        fprintf(stream, " %.17g\n", value);
    }
}

static unsigned
role_bit(psd_role role)
{
    return role == PSD_ROLE_WORKER   ? PSI_METRIC_WORKER
           : role == PSD_ROLE_SERVER ? PSI_METRIC_LANE
                                     : PSI_METRIC_MASTER;
}

static void
print_metric(FILE *stream, const struct feed *feed, enum psi_metric metric)
{
    const struct psi_metric_info *info = &psi_metric_info[metric];
    char name[96];

    prometheus_name(info, name, sizeof(name));
    fprintf(stream, "# HELP %s %s\n# TYPE %s %s\n", name, info->text, name,
            info->kind == PSI_METRIC_COUNTER ? "counter" : "gauge");
    for (uint32_t slot = 0; slot < feed->slots; slot++) {
        const struct feed_member *member = &feed->members[slot];
        const uint64_t value = feed_metric(member, metric);

        if (member->known && member->count > 0 && (info->who & role_bit(member->role)) != 0) {
            fputs(name, stream);
            print_labels(stream, feed, member);
            fputc('}', stream);
            print_value(stream, is_time(info) ? (double)value / 1e9 : (double)value);
        }
    }
}

static void
print_head_of(FILE *stream, const char *name, const char *kind, const char *text)
{
    fprintf(stream, "# HELP %s %s\n# TYPE %s %s\n", name, text, name, kind);
}

static void
print_head(FILE *stream, const char *name, const char *text)
{
    print_head_of(stream, name, "gauge", text);
}

static void
print_steps(FILE *stream, const struct feed *feed)
{
    print_head(stream, "psd_step", "step of a worker");
    for (uint32_t slot = 1 + feed->servers; slot < feed->slots; slot++) {
        if (feed->members[slot].known) {
            fputs("psd_step", stream);
            print_labels(stream, feed, &feed->members[slot]);
            fputc('}', stream);
            print_value(stream, (double)feed->members[slot].step);
        }
    }
}

/* What programs report has names of its own: they are a label, and cannot collide with ours. */
static void
print_scalars(FILE *stream, const struct feed *feed)
{
    print_head(stream, "psd_scalar", "last value that a worker reported under a name");
    for (uint32_t i = 0; i < feed->curves.count; i++) {
        const struct curve *curve = &feed->curves.curves[i];

        if (curve->worker >= feed->workers) {
            continue; /* of an earlier attempt, which had more of them */
        }
        fputs("psd_scalar", stream);
        print_labels(stream, feed, &feed->members[1 + feed->servers + curve->worker]);
        fputc(',', stream);
        print_label(stream, "name", curve->name);
        fputc('}', stream);
        print_value(stream, curve->last);
    }
}

void
feed_waited(const struct feed_member *server, uint64_t ns_p[PSI_RANKS_MAX])
{
    memset(ns_p, 0, PSI_RANKS_MAX * sizeof(*ns_p));
    for (uint32_t lane = 0; lane < server->count; lane++) {
        const struct feed_counts *counts = &server->counts[lane];

        for (uint32_t i = 0; i < counts->waited; i++) {
            ns_p[counts->wait[i].rank] += counts->wait[i].ns;
        }
    }
}

/* Its own line for each server and worker: which of them is slow for all servers is in the sum. */
static void
print_waited(FILE *stream, const struct feed *feed)
{
    print_head_of(stream, "psd_round_wait_for_seconds_total", "counter",
                  "time in which a server's rounds lacked the gradient of this worker alone");
    for (uint32_t server = 0; server < feed->servers; server++) {
        const struct feed_member *member = &feed->members[1 + server];
        uint64_t waited_ns[PSI_RANKS_MAX];

        feed_waited(member, waited_ns);
        for (uint32_t rank = 0; member->known && rank < PSI_RANKS_MAX; rank++) {
            if (waited_ns[rank] > 0) {
                fputs("psd_round_wait_for_seconds_total", stream);
                print_labels(stream, feed, member);
                fprintf(stream, ",worker=\"%u\"}", rank);
                print_value(stream, (double)waited_ns[rank] / 1e9);
            }
        }
    }
}

/* What is counted of the tables: a member of psi_traffic each. */
static const struct {
    const char *name;
    const char *text;
    size_t member;
} table_counts[] = {
    {"psd_table_gradients_total", "gradients of a table that workers sent",
     offsetof(struct psi_traffic, frames_in)},
    {"psd_table_gradient_bytes_total", "bytes of gradients of a table that workers sent",
     offsetof(struct psi_traffic, bytes_in)},
    {"psd_table_values_total", "values of a table that workers got",
     offsetof(struct psi_traffic, frames_out)},
    {"psd_table_value_bytes_total", "bytes of values of a table that workers got",
     offsetof(struct psi_traffic, bytes_out)},
};

static void
print_tables(FILE *stream, const struct feed *feed, const char *name, const char *text,
             size_t member)
{
    print_head_of(stream, name, "counter", text);
    for (uint32_t i = 0; i < feed->table_count; i++) {
        const struct psi_traffic traffic = feed_table_traffic(feed, feed->tables[i].id);
        uint64_t value;

        fprintf(stream, "%s{", name);
        print_label(stream, "job_name", feed->name);
        fputc(',', stream);
        print_label(stream, "table", feed->tables[i].name);
        fputc('}', stream);
        memcpy(&value, (const uint8_t *)&traffic + member, sizeof(value));
        print_value(stream, (double)value);
    }
}

static void
print_job(FILE *stream, const struct feed *feed)
{
    static const struct {
        enum feed_state state;
        const char *name;
    } states[] = {{FEED_STARTING, "starting"},
                  {FEED_RUNNING, "running"},
                  {FEED_LOST, "lost"},
                  {FEED_ENDED, "ended"},
                  {FEED_FAILED, "failed"}};

    print_head(stream, "psd_processes", "processes of the job by state");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        uint32_t count = 0;

        for (uint32_t slot = 0; slot < feed->slots; slot++) {
            count += feed->members[slot].known && feed->members[slot].state == states[i].state;
        }
        fputs("psd_processes{", stream);
        print_label(stream, "job_name", feed->name);
        fprintf(stream, ",state=\"%s\"} %u\n", states[i].name, count);
    }
    print_head(stream, "psd_elapsed_seconds", "time since the job began");
    fputs("psd_elapsed_seconds{", stream);
    print_label(stream, "job_name", feed->name);
    fputc('}', stream);
    print_value(stream, (double)feed_elapsed_ms(feed) / 1e3);
}

char *
feed_metrics(struct feed *feed)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    if (stream == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&feed->lock);
    print_job(stream, feed);
    print_steps(stream, feed);
    print_scalars(stream, feed);
    print_waited(stream, feed);
    for (size_t i = 0; i < sizeof(table_counts) / sizeof(table_counts[0]); i++) {
        print_tables(stream, feed, table_counts[i].name, table_counts[i].text,
                     table_counts[i].member);
    }
    for (unsigned metric = 0; metric < PSI_METRICS; metric++) {
        print_metric(stream, feed, (enum psi_metric)metric);
    }
    pthread_mutex_unlock(&feed->lock);
    if (fclose(stream) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- CSV ----------------------------------------------------------------------------------- */

/* In quotes, with those inside doubled (RFC 4180). */
static void
print_field(FILE *stream, const char *text)
{
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            fputc('"', stream);
        }
        fputc(*text, stream);
    }
    fputc('"', stream);
}

bool
feed_csv(struct feed *feed, FILE *stream)
{
    pthread_mutex_lock(&feed->lock);
    fputs("worker,name,step,unix_ms,value\n", stream);
    for (uint32_t i = 0; i < feed->curves.count; i++) {
        const struct curve *curve = &feed->curves.curves[i];

        for (uint32_t j = 0; j < curve->count; j++) {
            const struct curve_point *point = &curve->points[j];

            fprintf(stream, "%u,", curve->worker);
            print_field(stream, curve->name);
            fprintf(stream, ",%llu,%llu,%.17g\n", (unsigned long long)point->step,
                    (unsigned long long)point->unix_ms, point->value);
        }
    }
    pthread_mutex_unlock(&feed->lock);
    return fflush(stream) == 0 && ferror(stream) == 0;
}
