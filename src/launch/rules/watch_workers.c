/*
 * watch_workers.c - workers that are added to a job that runs, or asked to leave it.
 *
 * A new worker has a slot behind all others: its rank is one that nobody has had. The master lets it join at a
 * step. Until it counts there its end is nobody's failure. One that is to leave gets SIGTERM, and time to
 * finish its step and leave (psd_leave); what it does not use ends in SIGKILL, which is an ordinary death.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_workers.h"

#include <signal.h>
#include <stdio.h>

#include "base/fail.h"
#include "launch/rules/watch_steps.h"

uint32_t
watch_slots_max(const struct watch_config *config)
{
    const uint32_t workers =
        config->max_workers > config->workers ? config->max_workers : config->workers;

    return 1 + config->servers + workers;
}

enum { DROP_MS = 1000 }; /* for those that have just been told that the job is over */

static bool
is_present(const struct watch *watch, uint32_t slot)
{
    const struct watch_slot *state = &watch->slots[slot];

    return state->ordered && !state->ended && !state->is_leaving;
}

uint32_t
watch_workers_present(const struct watch *watch)
{
    uint32_t count = 0;

    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        count += is_present(watch, slot);
    }
    return count;
}

static bool
are_all_joined(const struct watch *watch)
{
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        const struct watch_slot *state = &watch->slots[slot];

        if (!state->joined && !state->ended && !state->is_added) {
            return false;
        }
    }
    return true;
}

static const char *
refusal(const struct watch *watch)
{
    if (watch->config.alone != NULL) {
        return watch->config.alone;
    }
    if (watch->phase != WATCH_RUNNING) {
        return watch->phase < WATCH_RUNNING ? "it has not begun" : "it is about to end";
    }
    return are_all_joined(watch) ? NULL : "it has not begun: not all of its workers have joined";
}

static bool
may_grow(const struct watch *watch, uint32_t more, char *text_p, size_t size)
{
    const struct watch_config *config = &watch->config;

    if (config->max_workers == 0) {
        snprintf(text_p, size,
                 "it has no room for more: a job that workers may join is started with "
                 "--max_workers");
        return false;
    }
    if (config->workers > config->max_workers || more > config->max_workers - config->workers) {
        snprintf(text_p, size,
                 "%u more: %u of --max_workers %u ranks have been used, and none is used twice",
                 more, config->workers, config->max_workers);
        return false;
    }
    return true;
}

static bool
may_shrink(const struct watch *watch, uint32_t present, uint32_t fewer, char *text_p, size_t size)
{
    const struct watch_config *config = &watch->config;

    if (fewer >= present) {
        snprintf(text_p, size, "%u fewer of %u leaves none: psd_run stop ends a job", fewer,
                 present);
        return false;
    }
    if (present - fewer < config->min_workers) {
        snprintf(text_p, size, "%u fewer of %u leaves %u, and --min_workers is %u", fewer, present,
                 present - fewer, config->min_workers);
        return false;
    }
    if (config->on_worker_death != WATCH_CONTINUE) {
        snprintf(text_p, size,
                 "a program that does not leave when it is asked to is killed, and that would end "
                 "the job: start it with --on_worker_death=continue");
        return false;
    }
    return true;
}

bool
watch_workers_plan(const struct watch *watch, const struct watch_workers_ask *ask,
                   struct watch_workers_change *change_p, char *text_p, size_t size)
{
    const uint32_t present = watch_workers_present(watch);
    const char *why = refusal(watch);

    *change_p = (struct watch_workers_change){0};
    if (why != NULL) {
        snprintf(text_p, size, "%s", why);
        return false;
    }
    if (ask->sign == '=' && ask->number == 0) {
        snprintf(text_p, size, "to no workers: psd_run stop ends a job");
        return false;
    }
    if (ask->sign == '+' || (ask->sign == '=' && ask->number > present)) {
        change_p->more = ask->sign == '+' ? ask->number : ask->number - present;
        return change_p->more == 0 || may_grow(watch, change_p->more, text_p, size);
    }
    change_p->fewer = ask->sign == '-' ? ask->number : present - ask->number;
    return change_p->fewer == 0 || may_shrink(watch, present, change_p->fewer, text_p, size);
}

bool
watch_workers_add(struct watch *watch, uint32_t count, const uint32_t *machine_of)
{
    const uint32_t first = watch_slot_count(watch);

    psi_assert(watch->config.workers + count <= watch->config.max_workers);
    if (!cause_add_workers(&watch->inquest, count, machine_of)) {
        return false;
    }
    watch->config.leaders += watch->config.leaders == watch->config.workers ? count : 0;
    watch->config.workers += count;
    watch->config.machine_of = machine_of;
    for (uint32_t slot = first; slot < first + count; slot++) {
        watch->slots[slot].is_added = true;
        watch_start(watch, slot);
    }
    return true;
}

uint32_t
watch_workers_remove(struct watch *watch, uint32_t grace_ms, uint64_t now_ms)
{
    uint32_t slot = watch_slot_count(watch) - 1;

    while (!is_present(watch, slot)) {
        slot--;
    }
    watch->slots[slot].is_leaving = true;
    watch->slots[slot].doomed_ms = now_ms + grace_ms;
    watch->ops->signal(watch->context, slot, SIGTERM);
    return slot;
}

bool
watch_worker_is_new(const struct watch *watch, uint32_t slot)
{
    return watch->slots[slot].is_added && !watch->slots[slot].counts;
}

void
watch_workers_drop_new(struct watch *watch, uint64_t now_ms)
{
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        struct watch_slot *state = &watch->slots[slot];

        if (watch_worker_is_new(watch, slot) && state->alive) {
            state->doomed_ms = now_ms + DROP_MS;
        }
    }
}
