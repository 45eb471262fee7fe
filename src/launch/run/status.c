/*
 * status.c - how the job is doing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/status.h"

#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "client/api/observer.h"
#include "launch/page/feed.h"

enum {
    ANSWER_MS = 400,   /* how long status_refresh() and status_hear_out() may take */
    HEAR_OUT_MS = 5,   /* how often the latter looks */
    EAGER_TABLES = 10, /* the first ones come faster: a job may be short */
    EAGER_MS = 100,
};

/* What was last known of a worker, or NULL. The master tells of them in the same order every time. */
static const struct psd_node *
last_known(const struct psd_node *before, size_t count, size_t i, const struct psd_node *node)
{
    const bool is_same = i < count && before[i].role == node->role &&
                         before[i].rank == node->rank &&
                         (before[i].incarnation == node->incarnation ||
                          node->incarnation == 0); /* 0: not back yet */

    return is_same && !isnan(before[i].steps_per_s) ? &before[i] : NULL;
}

void
status_fill(struct psd_node *nodes, size_t count, const struct psd_node *before,
            size_t before_count)
{
    for (size_t i = 0; i < count; i++) {
        struct psd_node *node = &nodes[i];
        const struct psd_node *known =
            isnan(node->steps_per_s) ? last_known(before, before_count, i, node) : NULL;

        if (known != NULL) {
            node->incarnation = known->incarnation; /* so that the next table finds it */
            node->step = known->step;
            node->steps_per_s = known->steps_per_s;
            node->value = known->value;
            memcpy(node->value_name, known->value_name, sizeof(node->value_name));
        }
    }
}

void
status_sum(const struct psd_node *nodes, size_t count, struct status_figures *figures_p)
{
    struct status_figures sum = {.step = UINT64_MAX, .steps_per_s = -1};
    uint32_t value_rank = UINT32_MAX;

    for (size_t i = 0; i < count; i++) {
        const struct psd_node *node = &nodes[i];

        if (node->role != PSD_ROLE_WORKER) {
            continue;
        }
        sum.workers_done += node->state == PSD_NODE_DONE;
        if (node->state == PSD_NODE_RUNNING) {
            sum.workers_running++;
            if (!isnan(node->steps_per_s)) {
                sum.has_step = true;
                sum.step = node->step < sum.step ? node->step : sum.step;
            }
        }
        if (node->value_name[0] != '\0' && node->rank < value_rank) {
            value_rank = node->rank;
            sum.value = node->value;
            memcpy(sum.value_name, node->value_name, sizeof(sum.value_name));
        }
    }
    sum.step = sum.has_step ? sum.step : 0;
    *figures_p = sum;
}

/* A rate of our own: what the master hands on is as old as the workers' last reports. */
static void
measure(struct status_figures *figures, const struct status_figures *before, double seconds)
{
    if (before->workers_running > 0 && seconds > 0 && figures->step >= before->step &&
        before->step > 0) {
        const double rate = (double)(figures->step - before->step) / seconds;

        figures->steps_per_s =
            before->steps_per_s < 0 ? rate : 0.5 * before->steps_per_s + 0.5 * rate;
    }
}

/* Takes a table over. nodes are exchanged with those of the last one. */
static void
keep(struct status *status, struct psd_node **nodes, size_t count)
{
    const uint32_t readers = psi_observer_readers(status->observer);
    const uint64_t now_ns = psi_monotonic_ns();
    struct status_figures figures;
    struct psd_node *old;

    pthread_mutex_lock(&status->mutex);
    status_fill(*nodes, count, status->nodes, status->node_count);
    pthread_mutex_unlock(&status->mutex);
    status_sum(*nodes, count, &figures);
    if (status->feed != NULL) {
        feed_nodes(status->feed, *nodes, count);
    }
    pthread_mutex_lock(&status->mutex);
    old = status->nodes;
    measure(&figures, &status->figures,
            status->known_ns != 0 ? (double)(now_ns - status->known_ns) / 1e9 : 0);
    status->figures = figures;
    status->nodes = *nodes;
    status->node_count = count;
    status->readers = readers;
    status->known_ns = now_ns;
    status->heard_ns = now_ns;
    pthread_mutex_unlock(&status->mutex);
    *nodes = old;
}

/* A master that speaks lives: a table of nodes may wait behind what its members tell. */
static void
heard(struct status *status)
{
    pthread_mutex_lock(&status->mutex);
    status->heard_ns = psi_monotonic_ns();
    pthread_mutex_unlock(&status->mutex);
}

static void
told(void *context, uint8_t role, uint32_t rank, uint32_t lane, const struct psi_telling *telling)
{
    struct status *status = context;

    heard(status);
    feed_told(status->feed, role, rank, lane, telling);
}

static void
table(void *context, const struct psi_table_info *info)
{
    struct status *status = context;

    heard(status);
    feed_table(status->feed, info);
}

static void *
follow(void *context)
{
    struct status *status = context;
    struct psd_node *nodes = calloc(STATUS_NODES_MAX, sizeof(*nodes));
    psd_status came = nodes != NULL ? PSD_OK : PSD_ERR_NO_MEMORY;
    struct psd_error err;
    unsigned tables = 0;
    size_t count = 0;

    while (came == PSD_OK) {
        came =
            psi_observer_next(status->observer, PSD_FOREVER, nodes, STATUS_NODES_MAX, &count, &err);
        if (came == PSD_OK) {
            keep(status, &nodes, count < STATUS_NODES_MAX ? count : STATUS_NODES_MAX);
        }
        if (++tables == EAGER_TABLES) {
            psi_observer_pace(status->observer, status->every_ms);
        }
    }
    pthread_mutex_lock(&status->mutex);
    snprintf(status->trouble, sizeof(status->trouble), "%.150s",
             nodes == NULL ? "no memory for what the master tells" : err.text);
    pthread_mutex_unlock(&status->mutex);
    free(nodes);
    return NULL;
}

/* Returns whether somebody listens now. */
static bool
listen_at(struct status *status, const char *master_address)
{
    struct psd_error err;
    psd_status made;

    pthread_mutex_init(&status->mutex, NULL); /* the observer may hear something at once */
    made = psi_observer_create(master_address, EAGER_MS, ANSWER_MS,
                               status->feed != NULL ? &status->watcher : NULL, &status->observer,
                               &err);
    if (made != PSD_OK) {
        pthread_mutex_destroy(&status->mutex);
        snprintf(status->trouble, sizeof(status->trouble), "%.150s", err.text);
        return false;
    }
    status->trouble[0] = '\0';
    status->started = pthread_create(&status->thread, NULL, follow, status) == 0;
    if (!status->started) {
        snprintf(status->trouble, sizeof(status->trouble), "no thread to listen to the master");
        psi_observer_destroy(status->observer);
        pthread_mutex_destroy(&status->mutex);
    }
    return status->started;
}

bool
status_start(struct status *status, const char *master_address, uint32_t every_ms,
             struct feed *feed)
{
    *status = (struct status){
        .every_ms = every_ms,
        .trouble = "no memory for what the master tells",
        .feed = feed,
        .watcher = {.context = status, .told = told, .table = table},
    };
    status->nodes = calloc(STATUS_NODES_MAX, sizeof(*status->nodes));
    if (status->nodes == NULL) {
        return false;
    }
    return listen_at(status, master_address);
}

void
status_move(struct status *status, const char *master_address)
{
    if (status->started) {
        status_stop(status);
        status->known_ns = 0; /* nothing was heard of this one yet */
        (void)listen_at(status, master_address);
    }
}

void
status_stop(struct status *status)
{
    if (!status->started) {
        return;
    }
    psi_observer_stop(status->observer);
    pthread_join(status->thread, NULL);
    psi_observer_destroy(status->observer);
    pthread_mutex_destroy(&status->mutex);
    status->started = false;
}

void
status_hear_out(struct status *status)
{
    const uint64_t until_ms = psi_monotonic_ms() + ANSWER_MS;

    while (status->started && psi_observer_is_up(status->observer) &&
           psi_monotonic_ms() < until_ms) {
        poll(NULL, 0, HEAR_OUT_MS); /* the observer's thread reads */
    }
}

void
status_refresh(struct status *status)
{
    struct psd_node *nodes = status->started ? calloc(STATUS_NODES_MAX, sizeof(*nodes)) : NULL;
    struct psd_error err;
    size_t count = 0;

    if (nodes != NULL &&
        psi_observer_ask(status->observer, nodes, STATUS_NODES_MAX, &count, &err) == PSD_OK) {
        keep(status, &nodes, count < STATUS_NODES_MAX ? count : STATUS_NODES_MAX);
    }
    free(nodes);
}

uint64_t
status_silence_ms(struct status *status)
{
    uint64_t heard_ns = 0;

    if (status->started) {
        pthread_mutex_lock(&status->mutex);
        heard_ns = status->trouble[0] == '\0' && status->known_ns != 0 ? status->heard_ns : 0;
        pthread_mutex_unlock(&status->mutex);
    }
    return heard_ns == 0 ? 0 : (psi_monotonic_ns() - heard_ns) / 1000000;
}

uint32_t
status_readers(struct status *status)
{
    uint32_t readers;

    if (!status->started) {
        return status->readers;
    }
    pthread_mutex_lock(&status->mutex);
    readers = status->readers;
    pthread_mutex_unlock(&status->mutex);
    return readers;
}

size_t
status_nodes(struct status *status, struct psd_node *nodes_p, size_t capacity)
{
    size_t count = 0;

    if (status->started) {
        pthread_mutex_lock(&status->mutex);
    }
    for (; status->nodes != NULL && count < status->node_count && count < capacity; count++) {
        nodes_p[count] = status->nodes[count];
    }
    if (status->started) {
        pthread_mutex_unlock(&status->mutex);
    }
    return count;
}

/* What a line that is too long does without, the first of them first. */
enum detail { DETAIL_LEFT, DETAIL_VALUE, DETAIL_TOTAL, DETAIL_RATE, DETAIL_DONE, DETAILS };

/* What the line is made of. */
struct parts {
    struct status_figures figures;
    uint64_t elapsed_s;
    uint32_t workers;
    uint64_t total; /* steps; 0: not known */
    const char *waiting;
};

__attribute__((format(printf, 3, 4))) static void
add(char *text_p, size_t size, const char *format, ...)
{
    const size_t used = strlen(text_p);
    va_list args;

    va_start(args, format);
    vsnprintf(text_p + used, size - used, format, args);
    va_end(args);
}

/* "step 140 of 2000  11.2 steps/s, 166 s left": what is not known is not said. */
static void
add_steps(const struct parts *parts, enum detail first, char *text_p, size_t size)
{
    const struct status_figures *figures = &parts->figures;
    const bool has_total = parts->total >= figures->step && parts->total > 0;

    add(text_p, size, "  step %llu", (unsigned long long)figures->step);
    if (has_total && first <= DETAIL_TOTAL) {
        add(text_p, size, " of %llu", (unsigned long long)parts->total);
    }
    if (figures->steps_per_s >= 0 && first <= DETAIL_RATE) {
        add(text_p, size, "  %.1f steps/s", figures->steps_per_s);
    }
    if (has_total && figures->steps_per_s > 0 && first <= DETAIL_LEFT) {
        add(text_p, size, ", %.0f s left",
            (double)(parts->total - figures->step) / figures->steps_per_s);
    }
}

/* The line without the details before `first`. */
static void
compose(const struct parts *parts, enum detail first, char *text_p, size_t size)
{
    const struct status_figures *figures = &parts->figures;

    snprintf(text_p, size, "%llu s  workers %u/%u", (unsigned long long)parts->elapsed_s,
             figures->workers_running, parts->workers);
    if (figures->workers_done > 0 && first <= DETAIL_DONE) {
        add(text_p, size, " (%u done)", figures->workers_done);
    }
    if (figures->has_step) {
        add_steps(parts, first, text_p, size);
    }
    if (figures->value_name[0] != '\0' && first <= DETAIL_VALUE) {
        add(text_p, size, "  %.31s %.4g", figures->value_name, figures->value);
    }
    if (parts->waiting[0] != '\0') {
        add(text_p, size, "  %s", parts->waiting);
    }
}

void
status_text(struct status *status, const struct status_line *line, char *text_p, size_t size)
{
    struct parts parts = {
        .elapsed_s = line->elapsed_ms / 1000, .workers = line->workers, .waiting = line->waiting};
    char trouble[sizeof(status->trouble)] = "";

    if (status->started) {
        pthread_mutex_lock(&status->mutex);
    }
    if (status->known_ns != 0) {
        parts.figures = status->figures;
    } else {
        parts.figures.workers_running = status->figures.workers_running;
    }
    memcpy(trouble, status->trouble, sizeof(trouble));
    if (status->started) {
        pthread_mutex_unlock(&status->mutex);
    }
    if (trouble[0] != '\0') {
        snprintf(text_p, size, "%llu s  (what the workers do is not known: %s)",
                 (unsigned long long)parts.elapsed_s, trouble);
        return;
    }
    parts.total = status->feed != NULL ? feed_steps_total(status->feed) : 0;
    for (enum detail first = 0; first <= DETAILS; first++) {
        compose(&parts, first, text_p, size);
        if (strlen(text_p) <= line->columns) {
            return;
        }
    }
}
