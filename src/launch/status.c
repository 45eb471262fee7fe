/*
 * status.c - how the job is doing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ASK_EVERY_MS = 500,
    ANSWER_MS = 400, /* also how long the end of psd_run may wait for the thread */
};

void
status_sum(const struct psd_node *nodes, size_t count, struct status_figures *figures_p)
{
    struct status_figures sum = {.step = UINT64_MAX};
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
            sum.steps_per_s += node->steps_per_s;
        }
        if (node->value_name[0] != '\0' && node->rank < value_rank) {
            value_rank = node->rank;
            sum.value = node->value;
            memcpy(sum.value_name, node->value_name, sizeof(sum.value_name));
        }
    }
    sum.step = sum.step == UINT64_MAX ? 0 : sum.step;
    if (sum.workers_running > 0) {
        sum.steps_per_s /= sum.workers_running;
    }
    *figures_p = sum;
}

static void *
ask(void *context)
{
    struct status *status = context;
    struct psd_node *nodes = calloc(STATUS_NODES_MAX, sizeof(*nodes));
    bool stop = nodes == NULL;

    while (!stop) {
        struct status_figures figures;
        struct timespec until;
        size_t count = 0;
        const bool answered =
            psd_nodes_at(status->address, ANSWER_MS, nodes, STATUS_NODES_MAX, &count) == PSD_OK;

        if (answered) {
            status_sum(nodes, count < STATUS_NODES_MAX ? count : STATUS_NODES_MAX, &figures);
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += ASK_EVERY_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_mutex_lock(&status->mutex);
        if (answered) {
            status->figures = figures;
            status->known = true;
        }
        while (!status->stop &&
               pthread_cond_timedwait(&status->wake, &status->mutex, &until) == 0) {
        }
        stop = status->stop;
        pthread_mutex_unlock(&status->mutex);
    }
    free(nodes);
    return NULL;
}

bool
status_start(struct status *status, const char *master_address)
{
    pthread_condattr_t attributes;

    *status = (struct status){0};
    snprintf(status->address, sizeof(status->address), "%s", master_address);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&status->mutex, NULL);
    pthread_cond_init(&status->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    status->started = pthread_create(&status->thread, NULL, ask, status) == 0;
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
    pthread_cond_signal(&status->wake);
    pthread_mutex_unlock(&status->mutex);
    pthread_join(status->thread, NULL);
    pthread_cond_destroy(&status->wake);
    pthread_mutex_destroy(&status->mutex);
    status->started = false;
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
        used += snprintf(text_p + used, size - (size_t)used, "  step %llu  %.1f steps/s",
                         (unsigned long long)figures.step, figures.steps_per_s);
    }
    if (known && figures.value_name[0] != '\0' && used > 0 && (size_t)used < size) {
        snprintf(text_p + used, size - (size_t)used, "  %.31s %.4g", figures.value_name,
                 figures.value);
    }
}
