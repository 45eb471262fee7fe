/*
 * watch_machines.c - what becomes of a job whose machines are lost, and come back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_machines.h"

#include <signal.h>

#include "launch/rules/watch_elsewhere.h"
#include "launch/rules/watch_master.h"
#include "launch/rules/watch_scale.h"
#include "launch/rules/watch_servers.h"
#include "launch/rules/watch_steps.h"

uint32_t
watch_machine_of(const struct watch *watch, uint32_t slot)
{
    return watch->config.machine_of != NULL ? watch->config.machine_of[slot] : 0;
}

/* Whether a machine has workers and nothing else: a job may go on without it. */
static bool
has_workers_alone(const struct watch *watch, uint32_t machine)
{
    for (uint32_t slot = 0; slot <= watch->config.servers; slot++) {
        if (watch_machine_of(watch, slot) == machine && !watch_server_is_out(watch, slot)) {
            return false;
        }
    }
    return true;
}

/* Workers of a machine that may come back are waited for; those that have ended are not missed. */
static void
await_machine(struct watch *watch, uint32_t machine, uint64_t now_ms)
{
    cause_forgive_machine(&watch->inquest, machine);
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        struct watch_slot *state = &watch->slots[slot];

        if (watch_machine_of(watch, slot) == machine && !state->ended) {
            state->alive = false;
            state->restart_ms = 0;
            state->away = true;
            state->away_until_ms = now_ms + watch->config.replace_ms;
        }
    }
}

void
watch_machine_back(struct watch *watch, uint32_t machine)
{
    cause_machine_back(&watch->inquest, machine);
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        struct watch_slot *state = &watch->slots[slot];

        if (watch_machine_of(watch, slot) != machine || !state->away) {
            continue;
        }
        state->away = false;
        state->restarts += state->ordered;
        if (watch->phase == WATCH_RUNNING && watch_has_all_servers(watch)) {
            watch_start(watch, slot);
        }
    }
}

uint32_t
watch_first_away(const struct watch *watch, uint64_t *until_ms_p)
{
    uint32_t first = 0;

    *until_ms_p = UINT64_MAX;
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        if (watch->slots[slot].away && watch->slots[slot].away_until_ms < *until_ms_p) {
            *until_ms_p = watch->slots[slot].away_until_ms;
            first = slot;
        }
    }
    return first;
}

bool
watch_replaces(const struct watch *watch)
{
    return watch->config.replace_ms > 0 && watch->phase >= WATCH_STARTING &&
           watch->phase <= WATCH_LEAVING;
}

/* Its servers are dead, as far as the job is concerned, and so is its master. */
static void
lose_services(struct watch *watch, uint32_t machine, uint64_t now_ms)
{
    if (watch_machine_of(watch, 0) == machine && !watch->master_left) {
        watch_master_machine_lost(watch, now_ms);
    }
    if (watch->phase != WATCH_RUNNING) {
        return; /* nobody needs the servers any more */
    }
    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        if (watch_machine_of(watch, slot) == machine && !watch_server_is_out(watch, slot) &&
            !watch_server_exited(watch, slot, now_ms)) {
            watch_ask(watch, now_ms);
        }
    }
}

void
watch_machine_lost(struct watch *watch, const struct watch_event *event, uint64_t now_ms)
{
    const enum watch_phase phase = watch->phase;
    const bool spare = has_workers_alone(watch, event->slot);
    const bool movable = !spare && watch_elsewhere_may(watch, event->slot, now_ms);
    bool go_on = movable || (phase == WATCH_RUNNING && spare &&
                             watch->config.on_worker_death == WATCH_CONTINUE);
    const struct cause_loss loss = {
        .now_ms = now_ms,
        .silent = event->silent,
        .movable = watch_elsewhere_misses_workers(watch, event->slot, now_ms),
    };
    uint32_t leaders_failed;

    cause_machine_lost(&watch->inquest, event->slot, &loss);
    if (spare && watch_replaces(watch)) {
        await_machine(watch, event->slot, now_ms);
        return;
    }
    for (uint32_t slot = 0; slot < watch_slot_count(watch); slot++) {
        struct watch_slot *state = &watch->slots[slot];

        if (watch_machine_of(watch, slot) != event->slot || (!state->alive && state->started)) {
            continue;
        }
        state->alive = false;
        state->restart_ms = 0;
        state->signal = SIGKILL;
        state->end_ms = now_ms;
        state->doomed_ms = 0;
        /* That it has ended is not certain: the master finds out by itself. But the next one has nothing
         * to find out by, and what psd_run does not wait for it need not wait for, either. */
        state->last_life = state->life != 0 ? state->life : state->last_life;
        state->life = 0;
        if (go_on && !state->ended && watch_slot_role(watch, slot) == LAUNCH_WORKER) {
            state->ended = true;
            watch->workers_failed++;
            watch->failed_first = watch->failed_first != 0 ? watch->failed_first : slot;
        }
    }
    watch_leaders_ended(watch, &leaders_failed);
    go_on = go_on && leaders_failed < watch_leader_count(watch);
    if (phase == WATCH_STOPPING) {
        watch_stop_next(watch, now_ms);
    } else if (go_on) {
        cause_forgive_machine(&watch->inquest, event->slot);
        lose_services(watch, event->slot, now_ms);
        watch_note_absence(watch, now_ms);
        watch_leave_if_done(watch, now_ms);
    } else if (phase == WATCH_GATHERING) {
        watch_fail(watch, WATCH_CAUSE_NO_MACHINE, event->slot, WATCH_CODE_CANNOT_START);
    } else {
        watch_ask(watch, now_ms);
    }
}
