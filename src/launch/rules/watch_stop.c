/*
 * watch_stop.c - psd_run was asked to stop: at once, or when the job is saved.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_stop.h"

#include <signal.h>

#include "launch/rules/watch_steps.h"

/* Whoever stops a job from outside (a batch system, at its limit) lets it save first; a person's Ctrl-C
 * does not wait. */
static bool
saves_first(struct watch *watch, int number, uint64_t now_ms)
{
    if (number != SIGTERM || watch->config.save_ms == 0 || watch->save_until_ms != 0 ||
        watch->phase != WATCH_RUNNING) {
        return false;
    }
    watch->save_until_ms = now_ms + watch->config.save_ms;
    watch->save_signal = number;
    watch_tell_master(watch, &(struct psi_word){.kind = PSI_WORD_SAVE});
    return true;
}

void
watch_interrupted(struct watch *watch, int number, uint64_t now_ms)
{
    if (watch->phase == WATCH_STOPPING || watch->phase == WATCH_ENDING) {
        watch_end(watch, 0); /* asked twice: now */
        return;
    }
    if (saves_first(watch, number, now_ms)) {
        return;
    }
    watch->cause = WATCH_CAUSE_INTERRUPT;
    watch->cause_code = 128 + number;
    watch_stop_next(watch, now_ms);
}

bool
watch_is_saving(const struct watch *watch)
{
    return watch->save_until_ms != 0 && watch->phase == WATCH_RUNNING;
}

void
watch_saving_over(struct watch *watch, uint64_t now_ms)
{
    if (watch->phase == WATCH_RUNNING) {
        watch_interrupted(watch, watch->save_signal, now_ms);
    }
}
