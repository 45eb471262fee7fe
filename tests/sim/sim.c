/*
 * sim.c - virtual time, seeded randomness, the trace and the verdict.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t
scramble(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t
rng_next(struct rng *rng)
{
    rng->state += GOLDEN;
    return scramble(rng->state);
}

uint64_t
rng_below(struct rng *rng, uint64_t bound)
{
    psi_assert(bound > 0);
    return rng_next(rng) % bound;
}

uint64_t
rng_between(struct rng *rng, uint64_t low, uint64_t high)
{
    return low + rng_below(rng, high - low + 1);
}

bool
rng_chance(struct rng *rng, unsigned percent)
{
    return rng_below(rng, 100) < percent;
}

struct rng
rng_split(struct rng *rng)
{
    return (struct rng){.state = rng_next(rng)};
}

uint64_t
sim_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return scramble(scramble(scramble(a + GOLDEN) + b * GOLDEN) + c * GOLDEN + (d << 32 | d >> 32));
}

void
sim_init(struct sim *sim, uint64_t seed, bool trace)
{
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->trace = trace;
    sim->rng.state = scramble(seed + GOLDEN);
    sim->hash = seed;
}

void
sim_fini(struct sim *sim)
{
    free(sim->heap);
}

static bool
earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void
sim_at(struct sim *sim, uint64_t at_ns, sim_event_fn fire, void *object, uint64_t argument)
{
    const struct sim_event event = {.at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns,
                                    .order = sim->order++,
                                    .fire = fire,
                                    .object = object,
                                    .argument = argument};
    size_t i = sim->count++;

    if (sim->count > sim->capacity) {
        sim->capacity = sim->capacity == 0 ? 1024 : 2 * sim->capacity;
        sim->heap = realloc(sim->heap, sim->capacity * sizeof(*sim->heap));
        psi_assert(sim->heap != NULL);
    }
    while (i > 0 && earlier(&event, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = event;
}

static struct sim_event
take_first(struct sim *sim)
{
    const struct sim_event first = sim->heap[0];
    const struct sim_event last = sim->heap[--sim->count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= sim->count) {
            break;
        }
        if (child + 1 < sim->count && earlier(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (!earlier(&sim->heap[child], &last)) {
            break;
        }
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

bool
sim_step(struct sim *sim)
{
    struct sim_event event;

    if (sim->count == 0) {
        return false;
    }
    event = take_first(sim);
    sim->now_ns = event.at_ns;
    sim->counters.events++;
    event.fire(event.object, event.argument);
    return true;
}

void
sim_hash(struct sim *sim, uint64_t value)
{
    sim->hash = scramble(sim->hash ^ value) + GOLDEN;
}

void
sim_trace(struct sim *sim, const char *who, const char *format, ...)
{
    char text[768];
    va_list args;

    sim_hash(sim, sim->now_ns);
    if (!sim->trace) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    printf("%12.6f %-12s %s\n", (double)sim->now_ns / 1e9, who, text);
}

void
sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;

    if (sim->failed) {
        return;
    }
    sim->failed = true;
    va_start(args, format);
    vsnprintf(sim->failure, sizeof(sim->failure), format, args);
    va_end(args);
    sim_trace(sim, "FAILED", "%s", sim->failure);
}
