/*
 * watch_master.c - a master that dies while its job can wait for it.
 *
 * Servers and workers go on, and tell another life of the master what it has to know. So it is
 * started again at the address of the last one: at once the first time, later each time if lives
 * are short. If its machine is gone it is started on another one, and if it did not come to listen
 * where the last one had, at another port: agents tell members where (base/master_file.h). Lives of
 * a minute do not count against the number of restarts. One that had told that the job is over died
 * of nothing, and is not missed. One that says nothing any more is killed first: only one may be
 * there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_master.h"

#include <signal.h>

#include "base/exit_code.h"
#include "launch/rules/watch_elsewhere.h"
#include "launch/rules/watch_restart.h"
#include "launch/rules/watch_scale.h"
#include "launch/rules/watch_steps.h"

enum {
    RETURN_MS = 15000,   /* for it to hear from all servers, or to give them up */
    DELAY_MAX_MS = 2000, /* others wait for it meanwhile, and not for ever */
};

/* All servers that are left have heard from the master that all workers are done. */
static bool
have_servers_left(const struct watch *watch)
{
    bool well = false;

    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        const struct watch_slot *server = &watch->slots[slot];

        if (watch_server_is_out(watch, slot)) {
            continue;
        }
        if (server->alive || !server->started) {
            return false;
        }
        well = well || (server->code == 0 && server->signal == 0);
    }
    return well;
}

static void
postpone_words(struct watch *watch)
{
    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        struct watch_slot *server = &watch->slots[slot];

        server->word_ms += server->word_ms != 0 ? RETURN_MS : 0;
    }
}

static uint32_t
delay_ms(const struct watch *watch)
{
    uint32_t hasty = watch->slots[0].hasty;
    uint32_t ms = 0;

    if (hasty > 0) {
        hasty--;
        ms = watch_restart_delay_ms(watch->config.restart_delay_ms, 0, &hasty);
    }
    return ms < DELAY_MAX_MS ? ms : DELAY_MAX_MS;
}

/* The next life is on its way, or will be. */
static void
live_again(struct watch *watch, uint64_t now_ms)
{
    struct watch_slot *master = &watch->slots[0];

    if (now_ms - master->start_ms >= WATCH_SERVED_MS) {
        master->hasty = 0;
    }
    master->restarts++;
    master->delay_ms = delay_ms(watch);
    master->hasty++;
    watch->service_left_deadline_ms = UINT64_MAX; /* a server that left hears it from the next */
    postpone_words(watch);
    cause_forgive(&watch->inquest, 0);
}

static void
start_when_due(struct watch *watch, uint64_t now_ms)
{
    struct watch_slot *master = &watch->slots[0];

    watch_elsewhere_move(watch, 0);
    if (master->delay_ms == 0) {
        watch_start(watch, 0);
    } else {
        master->started = false; /* on its way, as if it were ordered */
        master->restart_ms = now_ms + master->delay_ms;
    }
}

bool
watch_master_exited(struct watch *watch, uint64_t now_ms)
{
    struct watch_slot *master = &watch->slots[0];

    master->makes_room = false;
    if (watch->config.foreign || watch->inquest.end_at != 0 || master->code == PSI_EXIT_FENCED) {
        return false;
    }
    if (have_servers_left(watch)) {
        cause_forgive(&watch->inquest, 0);
        watch->master_left = true;
        watch->service_left_deadline_ms = UINT64_MAX;
        return true;
    }
    if (!watch_may_restart_master(watch, now_ms)) {
        return false;
    }
    live_again(watch, now_ms);
    start_when_due(watch, now_ms);
    return true;
}

/* What it had told is known here; what it would have told, its next life finds out. */
void
watch_master_machine_lost(struct watch *watch, uint64_t now_ms)
{
    struct watch_slot *master = &watch->slots[0];
    const bool is_told = master->makes_room;

    master->makes_room = false;
    if (have_servers_left(watch)) {
        watch->master_left = true;
        watch->service_left_deadline_ms = UINT64_MAX;
        return;
    }
    live_again(watch, now_ms);
    if (!is_told) {
        watch->ops->tell_failover(watch->context, 0);
    }
    start_when_due(watch, now_ms);
}

void
watch_master_hangs(struct watch *watch, uint64_t now_ms)
{
    struct watch_slot *master = &watch->slots[0];
    const bool works = watch->phase == WATCH_RUNNING || watch->phase == WATCH_LEAVING;

    if (!works || watch->config.foreign || !master->alive || master->makes_room ||
        watch->inquest.end_at != 0 || watch_master_delay_ms(watch, now_ms) > 0 ||
        !watch_may_restart_master(watch, now_ms)) {
        return;
    }
    master->makes_room = true;
    master->doomed_ms = now_ms;
    watch->ops->tell_failover(watch->context, 0);
}

/* Which copies of the server's lanes were given up. */
static void
remind_of_crossed(struct watch *watch, uint32_t slot)
{
    for (uint32_t lane = 0; lane < PSI_TIDING_LANES; lane++) {
        const uint64_t number = watch->slots[slot].crossed[lane];

        if (number != 0) {
            watch_tell_master(watch, &(struct psi_word){.kind = PSI_WORD_CROSSED,
                                                        .rank = slot - 1,
                                                        .lane = lane,
                                                        .number = number});
        }
    }
}

/* It begins with nothing, and those who know may have died with the last one. */
void
watch_master_remind(struct watch *watch)
{
    for (uint32_t slot = 1; slot < watch_slot_count(watch); slot++) {
        const struct watch_slot *state = &watch->slots[slot];
        const bool is_server = slot <= watch->config.servers;

        if (is_server && state->last_life != 0) {
            watch_tell_master(watch, &(struct psi_word){.kind = PSI_WORD_GONE,
                                                        .rank = slot - 1,
                                                        .number = state->last_life});
        }
        if (is_server) {
            remind_of_crossed(watch, slot);
            watch_server_remind(watch, slot);
        }
        if (!is_server && watch->inquest.processes[slot].done) {
            watch_tell_master(watch, &(struct psi_word){.kind = PSI_WORD_DONE,
                                                        .rank = slot - 1 - watch->config.servers});
        } else if (!is_server && state->ended && (state->code != 0 || state->signal != 0)) {
            watch_tell_master(watch, &(struct psi_word){.kind = PSI_WORD_DEAD,
                                                        .rank = slot - 1 - watch->config.servers});
        }
    }
    watch_tell_master(watch, &(struct psi_word){.kind = PSI_WORD_ALL});
}

static bool
have_workers_ended(const struct watch *watch)
{
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        if (watch->slots[slot].alive || watch->slots[slot].restart_ms != 0) {
            return false;
        }
    }
    return true;
}

void
watch_master_spare(struct watch *watch, uint64_t now_ms)
{
    struct watch_slot *master = &watch->slots[0];

    if (master->restarts == 0 || master->is_spare || !have_servers_left(watch) ||
        !have_workers_ended(watch)) {
        return;
    }
    if (master->restart_ms != 0) {
        master->restart_ms = 0;
        master->started = true; /* no life of it is on its way any more */
        master->is_spare = true;
        watch->master_left = true;
        watch_leave_if_done(watch, now_ms);
    } else if (master->alive) {
        master->is_spare = true;
        master->doomed_ms = now_ms;
    }
}

uint64_t
watch_master_delay_ms(const struct watch *watch, uint64_t now_ms)
{
    const struct watch_slot *master = &watch->slots[0];
    const bool young = !master->alive || now_ms - master->start_ms < RETURN_MS;

    return master->restarts > 0 && young ? RETURN_MS : 0;
}
