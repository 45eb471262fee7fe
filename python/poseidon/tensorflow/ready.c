/*
 * ready.c - when the gradients of a step became ready in a graph.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime() */

#include "ready.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SHOWN = 24, /* the first so many have a bar each: a worker has 32 names for all of its marks */
    PAUSE_NS =
        5000000, /* between two steps that are told: a call for each gradient is much for less */
};

struct ready {
    struct ready *next;
    char name[PSD_NAME_MAX + 1];
    uint32_t members;
    uint32_t came; /* in this step */
    uint64_t step;
    uint64_t due_ns;  /* steps that begin before are not told */
    bool is_followed; /* this step is told */
    uint64_t first_ns;
    uint64_t last_ns;
    uint32_t bars;
    struct bar {
        uint32_t number;
        uint64_t begin_ns; /* when the one before it came */
        uint64_t end_ns;
    } bar[SHOWN];
};

static struct ready *all;
static psd_context *told;
static psd_status (*tell_mark)(psd_context *, uint64_t, const char *, uint64_t, uint64_t);

void
ready_tell(psd_context *context,
           psd_status (*mark)(psd_context *, uint64_t, const char *, uint64_t, uint64_t))
{
    told = context;
    tell_mark = mark;
}

struct ready *
ready_of(const char *name)
{
    struct ready *ready = all;

    while (ready != NULL && strcmp(ready->name, name) != 0) {
        ready = ready->next;
    }
    if (ready == NULL && (ready = calloc(1, sizeof(*ready))) != NULL) {
        snprintf(ready->name, sizeof(ready->name), "%s", name);
        ready->next = all;
        all = ready;
    }
    return ready;
}

uint32_t
ready_join(struct ready *ready)
{
    return ready->members++;
}

void
ready_forget(void)
{
    told = NULL;
    while (all != NULL) {
        struct ready *ready = all;

        all = ready->next;
        free(ready);
    }
}

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What the job does not take is no reason to stop a training. */
static void
tell_all(const struct ready *ready)
{
    for (uint32_t i = 0; i < ready->bars; i++) {
        const struct bar *bar = &ready->bar[i];
        char name[32];

        snprintf(name, sizeof(name), "gradient %u", bar->number);
        tell_mark(told, ready->step, name, bar->begin_ns, bar->end_ns);
    }
    tell_mark(told, ready->step, "backward", ready->first_ns, ready->last_ns);
}

void
ready_came(struct ready *ready, uint32_t number, uint64_t step)
{
    if (ready->came == 0 || ready->step != step) { /* of a step that failed not all came */
        const uint64_t begun_ns = now_ns();

        ready->came = 0;
        ready->bars = 0;
        ready->step = step;
        ready->is_followed = told != NULL && begun_ns >= ready->due_ns;
    }
    if (ready->is_followed) {
        const uint64_t before_ns = ready->last_ns;

        ready->last_ns = now_ns();
        if (ready->came == 0) {
            ready->first_ns = ready->last_ns;
        } else if (number < SHOWN && ready->bars < SHOWN) { /* whatever came first: names are few */
            ready->bar[ready->bars++] =
                (struct bar){.number = number, .begin_ns = before_ns, .end_ns = ready->last_ns};
        }
    }
    ready->came++;
    if (ready->came == ready->members) {
        if (ready->is_followed) {
            tell_all(ready);
            ready->due_ns = ready->last_ns + PAUSE_NS;
        }
        ready->came = 0;
    }
}
