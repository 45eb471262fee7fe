/*
 * watch_steps.c - the steps that the rules are made of. Once a cause is set, it stays.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_steps.h"

#include <signal.h>

enum {
    FAILURE_GRACE_MS = 1000, /* survivors of a failure: TERM, then KILL */
    WORKER_GRACE_MS = 5000,  /* interrupted workers: time to save */
    SERVICE_GRACE_MS = 1000, /* interrupted servers, master */
    ABSENCE_MS = 300,        /* by which news of a joining may be later than that of an end */
};

uint32_t
watch_slot_count(const struct watch *watch)
{
    return 1 + watch->config.servers + watch->config.workers;
}

uint32_t
watch_last_part(const struct watch *watch)
{
    return watch->config.parts != 0 ? watch->config.parts : watch->config.servers;
}

enum launch_role
watch_slot_role(const struct watch *watch, uint32_t slot)
{
    return role_of_slot(slot, watch->config.servers);
}

static uint32_t
alive_count(const struct watch *watch, enum launch_role role)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < watch_slot_count(watch); slot++) {
        count += watch->slots[slot].alive && watch_slot_role(watch, slot) == role;
    }
    return count;
}

uint32_t
watch_leader_count(const struct watch *watch)
{
    return watch->config.leaders > 0 ? watch->config.leaders : watch->config.workers;
}

void
watch_signal_role(struct watch *watch, enum launch_role role, int number)
{
    for (uint32_t slot = 0; slot < watch_slot_count(watch); slot++) {
        if (watch->slots[slot].alive && watch_slot_role(watch, slot) == role) {
            watch->ops->signal(watch->context, slot, number);
        }
    }
}

void
watch_enter(struct watch *watch, enum watch_phase phase, uint64_t deadline_ms)
{
    watch->phase = phase;
    watch->deadline_ms = deadline_ms;
}

void
watch_end(struct watch *watch, uint32_t grace_ms)
{
    watch_enter(watch, WATCH_ENDING, UINT64_MAX);
    watch->ops->end(watch->context, grace_ms);
}

int
watch_shell_code(int code, int number)
{
    return number != 0 ? 128 + number : code;
}

void
watch_fail(struct watch *watch, enum watch_cause cause, uint32_t slot, int code)
{
    if (watch->cause == WATCH_CAUSE_NONE) {
        watch->cause = cause;
        watch->cause_slot = slot;
        watch->cause_code = code;
    }
    watch_end(watch, FAILURE_GRACE_MS);
}

void
watch_ask(struct watch *watch, uint64_t now_ms)
{
    if (watch->phase < WATCH_ASKING) {
        watch_enter(watch, WATCH_ASKING, UINT64_MAX);
        cause_open(&watch->inquest, now_ms);
        watch->ops->ask(watch->context);
    }
}

void
watch_start(struct watch *watch, uint32_t slot)
{
    watch->slots[slot].ordered = true;
    watch->slots[slot].started = false;
    watch->slots[slot].restart_ms = 0;
    watch->slots[slot].doomed_ms = 0;
    cause_started(&watch->inquest, slot);
    watch->ops->start(watch->context, slot, watch->slots[slot].restarts);
}

void
watch_tell_master(struct watch *watch, const struct psi_word *word)
{
    watch->ops->tell_master(watch->context, word);
}

void
watch_stop_next(struct watch *watch, uint64_t now_ms)
{
    static const enum launch_role order[] = {LAUNCH_WORKER, LAUNCH_SERVER, LAUNCH_MASTER};

    for (unsigned i = 0; i < 3; i++) {
        if (alive_count(watch, order[i]) > 0) {
            if (watch->stopping != order[i] || watch->phase != WATCH_STOPPING) {
                watch->stopping = order[i];
                watch->killed = false;
                watch_enter(watch, WATCH_STOPPING,
                            now_ms +
                                (order[i] == LAUNCH_WORKER ? WORKER_GRACE_MS : SERVICE_GRACE_MS));
                watch_signal_role(watch, order[i], SIGTERM);
            }
            return;
        }
    }
    watch_end(watch, WATCH_SWEEP_MS);
}

void
watch_kill_doomed(struct watch *watch, uint64_t now_ms)
{
    for (uint32_t slot = 0; slot < watch_slot_count(watch); slot++) {
        struct watch_slot *state = &watch->slots[slot];

        if (state->doomed_ms != 0 && now_ms >= state->doomed_ms) {
            state->doomed_ms = 0;
            watch->ops->signal(watch->context, slot, SIGKILL);
        }
    }
}

uint32_t
watch_leaders_ended(const struct watch *watch, uint32_t *failed_p)
{
    const uint32_t first = 1 + watch->config.servers;
    uint32_t ended = 0;

    *failed_p = 0;
    for (uint32_t slot = first; slot < first + watch_leader_count(watch); slot++) {
        const struct watch_slot *leader = &watch->slots[slot];

        ended += leader->ended;
        *failed_p += leader->ended && (leader->code != 0 || leader->signal != 0);
    }
    return ended;
}

/* Whether anything runs, or is on its way: workers of a machine may be done before another machine
 * says that it started its servers. */
static bool
some_are_left(const struct watch *watch)
{
    for (uint32_t slot = 0; slot < watch_slot_count(watch); slot++) {
        const struct watch_slot *state = &watch->slots[slot];
        const bool is_on_its_way = state->ordered && !state->started && state->restart_ms == 0;

        if (state->alive || is_on_its_way) {
            return true;
        }
    }
    return false;
}

void
watch_leave_if_done(struct watch *watch, uint64_t now_ms)
{
    uint32_t failed;

    if (watch_leaders_ended(watch, &failed) < watch_leader_count(watch)) {
        return;
    }
    if (!some_are_left(watch)) {
        watch_end(watch, WATCH_SWEEP_MS);
    } else if (watch->phase == WATCH_RUNNING) {
        watch_enter(watch, WATCH_LEAVING, now_ms + watch->config.leave_ms);
    }
}

void
watch_note_absence(struct watch *watch, uint64_t now_ms)
{
    if (!watch->config.foreign) {
        watch->absence_ms = now_ms + ABSENCE_MS;
    }
}

bool
watch_has_all_servers(const struct watch *watch)
{
    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        if (!watch->slots[slot].joined && !watch->slots[slot].is_hosted) {
            return false;
        }
    }
    return true;
}
