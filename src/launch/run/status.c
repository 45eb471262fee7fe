/*
 * status.c - how the job is doing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ANSWER_MS = 400, /* also how long the end of psd_run may wait for the thread */
    EAGER_ASKS = 10, /* the first ones come faster: a job may be short */
    EAGER_MS = 100,
};

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
            sum.step = node->step < sum.step ? node->step : sum.step;
        }
        if (node->value_name[0] != '\0' && node->rank < value_rank) {
            value_rank = node->rank;
            sum.value = node->value;
            memcpy(sum.value_name, node->value_name, sizeof(sum.value_name));
        }
    }
    sum.step = sum.step == UINT64_MAX ? 0 : sum.step;
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

/* Takes an answer over. nodes are exchanged with those of the last one. */
static void
keep(struct status *status, struct psd_node **nodes, size_t count, double seconds)
{
    struct psd_node *old = status->nodes;
    struct status_figures figures;

    status_sum(*nodes, count, &figures);
    measure(&figures, &status->figures, status->known ? seconds : 0);
    status->figures = figures;
    status->nodes = *nodes;
    status->node_count = count;
    status->known = true;
    *nodes = old;
}

static struct timespec
later(struct timespec moment, uint32_t ms)
{
    moment.tv_nsec += (long)(ms % 1000) * 1000000L;
    moment.tv_sec += (time_t)(ms / 1000) + moment.tv_nsec / 1000000000L;
    moment.tv_nsec %= 1000000000L;
    return moment;
}

static unsigned
tickets_wanted(struct status *status)
{
    unsigned wanted;

    pthread_mutex_lock(&status->mutex);
    wanted = status->wanted;
    pthread_mutex_unlock(&status->mutex);
    return wanted;
}

static void *
ask(void *context)
{
    struct status *status = context;
    struct psd_node *nodes = calloc(STATUS_NODES_MAX, sizeof(*nodes));
    struct timespec last = {0};
    bool stop = nodes == NULL;
    unsigned asks = 0;

    while (!stop) {
        const uint32_t pause_ms = asks++ < EAGER_ASKS ? EAGER_MS : status->every_ms;
        struct timespec now;
        struct timespec until;
        size_t count = 0;
        const unsigned ticket = tickets_wanted(status);
        const bool answered =
            psd_nodes_at(status->address, ANSWER_MS, nodes, sizeof(struct psd_node),
                         STATUS_NODES_MAX, &count) == PSD_OK;

        clock_gettime(CLOCK_MONOTONIC, &now);
        until = later(now, pause_ms);
        pthread_mutex_lock(&status->mutex);
        if (answered) {
            keep(status, &nodes, count < STATUS_NODES_MAX ? count : STATUS_NODES_MAX,
                 (double)(now.tv_sec - last.tv_sec) + (double)(now.tv_nsec - last.tv_nsec) / 1e9);
            last = now;
        }
        status->served = ticket;
        pthread_cond_broadcast(&status->wake);
        while (!status->stop && status->wanted == status->served &&
               pthread_cond_timedwait(&status->wake, &status->mutex, &until) == 0) {
        }
        stop = status->stop;
        pthread_mutex_unlock(&status->mutex);
    }
    free(nodes);
    return NULL;
}

bool
status_start(struct status *status, const char *master_address, uint32_t every_ms)
{
    pthread_condattr_t attributes;

    *status = (struct status){.every_ms = every_ms};
    status->nodes = calloc(STATUS_NODES_MAX, sizeof(*status->nodes));
    snprintf(status->address, sizeof(status->address), "%s", master_address);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&status->mutex, NULL);
    pthread_cond_init(&status->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    status->started =
        status->nodes != NULL && pthread_create(&status->thread, NULL, ask, status) == 0;
    return status->started;
}

void
status_stop(struct status *status)
{
    if (!status->started) {
        return;
    }
    pthread_mutex_lock(&status->mutex);
    status->stop = true;
    pthread_cond_broadcast(&status->wake);
    pthread_mutex_unlock(&status->mutex);
    pthread_join(status->thread, NULL);
    pthread_cond_destroy(&status->wake);
    pthread_mutex_destroy(&status->mutex);
    status->started = false;
}

void
status_refresh(struct status *status)
{
    struct timespec until;

    if (!status->started) {
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until = later(until, ANSWER_MS);
    pthread_mutex_lock(&status->mutex);
    status->wanted++;
    pthread_cond_broadcast(&status->wake);
    while (status->served != status->wanted &&
           pthread_cond_timedwait(&status->wake, &status->mutex, &until) == 0) {
    }
    pthread_mutex_unlock(&status->mutex);
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

void
status_text(struct status *status, uint64_t elapsed_ms, uint32_t workers, char *text_p, size_t size)
{
    struct status_figures figures = {0};
    bool known = false;
    int used;

    if (status->started) {
        pthread_mutex_lock(&status->mutex);
        figures = status->figures;
        known = status->known;
        pthread_mutex_unlock(&status->mutex);
    }
    used = snprintf(text_p, size, "%llu s  workers %u/%u", (unsigned long long)elapsed_ms / 1000,
                    figures.workers_running, workers);
    if (known && figures.workers_done > 0 && used > 0 && (size_t)used < size) {
        used += snprintf(text_p + used, size - (size_t)used, " (%u done)", figures.workers_done);
    }
    if (known && figures.workers_running > 0 && used > 0 && (size_t)used < size) {
        used += snprintf(text_p + used, size - (size_t)used, "  step %llu",
                         (unsigned long long)figures.step);
    }
    if (known && figures.steps_per_s >= 0 && used > 0 && (size_t)used < size) {
        used += snprintf(text_p + used, size - (size_t)used, "  %.1f steps/s", figures.steps_per_s);
    }
    if (known && figures.value_name[0] != '\0' && used > 0 && (size_t)used < size) {
        snprintf(text_p + used, size - (size_t)used, "  %.31s %.4g", figures.value_name,
                 figures.value);
    }
}
