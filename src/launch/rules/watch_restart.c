/*
 * watch_restart.c - workers that failed live again, after a while.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_restart.h"

#include "launch/rules/watch_steps.h"

enum {
    LIVED_MS = 10000,       /* who lives longer is restarted at once */
    RESTART_MAX_MS = 30000, /* before the restart of those that do not */
};

bool
watch_may_restart_master(const struct watch *watch, uint64_t now_ms)
{
    const struct watch_slot *master = &watch->slots[0];
    const uint32_t short_lives = now_ms - master->start_ms < WATCH_SERVED_MS ? master->hasty : 0;

    return short_lives < watch->config.master_restarts;
}

uint32_t
watch_restart_delay_ms(uint32_t delay_ms, uint64_t lived_ms, uint32_t *hasty_p)
{
    if (lived_ms >= LIVED_MS) {
        *hasty_p = 0;
        return 0;
    }
    for (uint32_t i = 0; i < *hasty_p && delay_ms < RESTART_MAX_MS; i++) {
        delay_ms *= 2;
    }
    (*hasty_p)++;
    return delay_ms < RESTART_MAX_MS ? delay_ms : RESTART_MAX_MS;
}

void
watch_start_again(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    struct watch_slot *state = &watch->slots[slot];
    const uint32_t delay_ms = watch_restart_delay_ms(watch->config.restart_delay_ms,
                                                     now_ms - state->start_ms, &state->hasty);

    state->restarts++;
    state->delay_ms = delay_ms;
    if (delay_ms == 0) {
        watch_start(watch, slot);
        return;
    }
    state->started = false; /* on its way, as if it were ordered */
    state->restart_ms = now_ms + delay_ms;
    cause_forgive(&watch->inquest, slot);
}

/* The master may be needed when all workers have ended: servers hear from it that the job is over. */
static bool
is_wanted(const struct watch *watch, uint32_t slot)
{
    return watch->phase == WATCH_RUNNING || (watch->phase == WATCH_LEAVING && slot == 0);
}

uint64_t
watch_next_due(const struct watch *watch)
{
    uint64_t until_ms = UINT64_MAX;

    for (uint32_t slot = 0; slot < watch_slot_count(watch) && is_wanted(watch, slot); slot++) {
        const uint64_t restart_ms = watch->slots[slot].restart_ms;
        const uint64_t word_ms = watch->slots[slot].word_ms;

        until_ms = restart_ms > 0 && restart_ms < until_ms ? restart_ms : until_ms;
        until_ms = word_ms > 0 && word_ms < until_ms ? word_ms : until_ms;
    }
    return until_ms;
}

void
watch_start_due(struct watch *watch, uint64_t now_ms)
{
    for (uint32_t slot = 0; slot < watch_slot_count(watch) && is_wanted(watch, slot); slot++) {
        const uint64_t ms = watch->slots[slot].restart_ms;

        if (ms > 0 && now_ms >= ms) {
            watch_start(watch, slot);
        }
    }
}
