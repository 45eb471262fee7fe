/*
 * watch.c - the rules by which a job starts, goes on and ends.
 *
 * What ended a job is not who was first to die: cause.c decides it, once the news are in. Until
 * then nothing is stopped, so that nobody dies of us.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch.h"

#include <signal.h>
#include <stdlib.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "launch/rules/watch_machines.h"
#include "launch/rules/watch_master.h"
#include "launch/rules/watch_restart.h"
#include "launch/rules/watch_rolling.h"
#include "launch/rules/watch_scale.h"
#include "launch/rules/watch_servers.h"
#include "launch/rules/watch_steps.h"
#include "launch/rules/watch_stop.h"
#include "launch/rules/watch_workers.h"

enum {
    SERVER_LEFT_MS = 2000,   /* between a server leaving well and the master doing the same */
    FOREIGN_LEFT_MS = 10000, /* between a user's server leaving well and the workers' end */
    LATE_MS = 30000,         /* for a worker to join after the first one, before it is told; then
                                twice as long, and so on */
    DOOM_MS = 1000,          /* for a worker that the master takes for dead to find out */
};

/* The first of several workers of a job that could do without some of them, but not without all. */
static uint32_t
first_failed(const struct watch *watch, const struct cause_verdict *verdict)
{
    return watch->config.on_worker_death == WATCH_CONTINUE && watch->failed_first != 0 &&
                   watch_slot_role(watch, verdict->slot) == LAUNCH_WORKER
               ? watch->failed_first
               : verdict->slot;
}

static void
conclude(struct watch *watch, uint64_t now_ms)
{
    static const enum watch_cause causes[] = {
        [CAUSE_PROCESS] = WATCH_CAUSE_PROCESS, [CAUSE_UNCLOSED] = WATCH_CAUSE_UNCLOSED,
        [CAUSE_SILENT] = WATCH_CAUSE_SILENT,   [CAUSE_DISCONNECTED] = WATCH_CAUSE_DISCONNECTED,
        [CAUSE_VERDICT] = WATCH_CAUSE_VERDICT, [CAUSE_MACHINE] = WATCH_CAUSE_MACHINE,
        [CAUSE_CUT_OFF] = WATCH_CAUSE_CUT_OFF,
    };
    struct cause_verdict verdict;

    if (watch->phase != WATCH_ASKING || !cause_settled(&watch->inquest, now_ms)) {
        return;
    }
    verdict = cause_verdict(&watch->inquest);
    if (verdict.kind == CAUSE_PROCESS && first_failed(watch, &verdict) != verdict.slot) {
        verdict.slot = watch->failed_first;
        verdict.code =
            watch_shell_code(watch->slots[verdict.slot].code, watch->slots[verdict.slot].signal);
    }
    watch->cause_before = verdict.before;
    watch_fail(watch, causes[verdict.kind], verdict.slot, verdict.code);
}

bool
watch_init(struct watch *watch, const struct watch_config *config, const struct watch_ops *ops,
           void *context)
{
    const struct cause_config inquest = {.servers = config->servers,
                                         .workers = config->workers,
                                         .machine_of = config->machine_of,
                                         .machines = config->machines > 0 ? config->machines : 1,
                                         .here = config->here,
                                         .foreign = config->foreign,
                                         .silence_ms = config->silence_ms,
                                         .lease_ms = config->lease_ms};

    psi_assert(config->servers >= 1 || config->foreign);
    psi_assert(config->workers >= 1 && config->leaders <= config->workers);
    psi_assert(!config->masterless || config->foreign);
    *watch = (struct watch){.config = *config,
                            .ops = ops,
                            .context = context,
                            .deadline_ms = UINT64_MAX,
                            .timeout_ms = UINT64_MAX,
                            .joined_ms = UINT64_MAX,
                            .late_ms = UINT64_MAX,
                            .absence_ms = UINT64_MAX,
                            .service_left_deadline_ms = UINT64_MAX};
    watch->slots = calloc(watch_slots_max(config), sizeof(*watch->slots));
    if (watch->slots != NULL) {
        watch_scale_init(watch);
    }
    return cause_init(&watch->inquest, &inquest) && watch->slots != NULL;
}

void
watch_fini(struct watch *watch)
{
    free(watch->slots);
    watch->slots = NULL;
    cause_fini(&watch->inquest);
}

void
watch_begin(struct watch *watch, uint64_t now_ms)
{
    watch_enter(watch, WATCH_GATHERING, now_ms + watch->config.start_timeout_ms);
    if (watch->config.timeout_ms > 0) {
        watch->timeout_ms = now_ms + watch->config.timeout_ms;
    }
}

void
watch_files_move(struct watch *watch, uint64_t now_ms)
{
    if (watch->phase == WATCH_GATHERING) {
        watch->deadline_ms = now_ms + watch->config.start_timeout_ms;
    }
}

static void
gathered(struct watch *watch, uint64_t now_ms)
{
    if (watch->phase != WATCH_GATHERING) {
        return;
    }
    if (!watch->config.foreign) {
        watch_enter(watch, WATCH_STARTING, now_ms + watch->config.start_timeout_ms);
        watch_start(watch, 0);
        return;
    }
    watch_enter(watch, WATCH_RUNNING, UINT64_MAX);
    for (uint32_t slot = watch->config.masterless ? 1 : 0; slot < watch_slot_count(watch); slot++) {
        watch_start(watch, slot);
    }
}

bool
watch_was_plain(const struct watch *watch)
{
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        if (watch->slots[slot].joined) {
            return false;
        }
    }
    return watch->cause == WATCH_CAUSE_NONE && !watch->config.foreign;
}

/*
 * A worker ended for good and was never a member. The job gathers with all its workers or not at
 * all: those that have joined would wait for it in vain. While none has, they may all be plain
 * programs, which need no job.
 */
static void
settle_absence(struct watch *watch)
{
    uint32_t absent = 0;
    bool joined = false;
    bool running = false;

    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        const struct watch_slot *worker = &watch->slots[slot];

        joined = joined || worker->joined;
        running = running || !worker->ended;
        if (worker->ended && !worker->joined && !worker->is_added && absent == 0) {
            absent = slot;
        }
    }
    watch->absence_ms = UINT64_MAX;
    if (absent == 0 || watch->phase > WATCH_LEAVING) {
        return;
    }
    if (joined && running) {
        const int code = watch_shell_code(watch->slots[absent].code, watch->slots[absent].signal);

        watch_fail(watch, WATCH_CAUSE_NEVER_JOINED, absent,
                   code != 0 ? code : PSI_EXIT_WORKER_LOST);
    } else if (!joined && !running) {
        watch_end(watch, WATCH_SWEEP_MS); /* there is no job that servers could leave */
    }
}

static void
worker_exited(struct watch *watch, const struct watch_event *event, uint64_t now_ms)
{
    struct watch_slot *slot = &watch->slots[event->slot];
    const int code = watch_shell_code(event->code, event->signal);
    uint32_t leaders_failed;

    if (code == 0) {
        slot->ended = true;
        watch->workers_well++;
        watch_note_absence(watch, now_ms);
        watch_leave_if_done(watch, now_ms);
        return;
    }
    if (watch->config.on_worker_death == WATCH_WAIT && !watch->master_left &&
        slot->restarts < watch->config.max_restarts &&
        (!watch->config.restart_signals_only || code >= 128)) {
        watch_start_again(watch, event->slot, now_ms);
        return;
    }
    slot->ended = true;
    if (watch_worker_is_new(watch, event->slot)) {
        cause_forgive(&watch->inquest, event->slot);
        watch_leave_if_done(watch, now_ms);
        return;
    }
    watch->workers_failed++;
    watch->failed_first = watch->failed_first != 0 ? watch->failed_first : event->slot;
    watch_leaders_ended(watch, &leaders_failed);
    if (watch->config.on_worker_death != WATCH_CONTINUE ||
        leaders_failed == watch_leader_count(watch)) {
        watch_ask(watch, now_ms);
        return;
    }
    cause_forgive(&watch->inquest, event->slot);
    watch_note_absence(watch, now_ms);
    watch_leave_if_done(watch, now_ms);
}

/* Whom the master has let in was started, even if the word of its machine is still on the way. */
static bool
all_started(const struct watch *watch)
{
    for (uint32_t slot = watch->config.masterless ? 1 : 0; slot < watch_slot_count(watch); slot++) {
        const struct watch_slot *state = &watch->slots[slot];
        const bool was_there = slot == 0 && state->restarts > 0;

        if (!state->started && !state->joined && !state->is_missing && !was_there &&
            !state->is_added && !state->is_hosted && !state->is_scaled) {
            return false;
        }
    }
    return true;
}

/* A job whose servers may take long to end after the workers has workers that end slowly, too. */
static uint32_t
service_left_ms(const struct watch_config *config)
{
    if (!config->foreign) {
        return SERVER_LEFT_MS;
    }
    return config->leave_ms > FOREIGN_LEFT_MS ? config->leave_ms : FOREIGN_LEFT_MS;
}

/*
 * A service ended while workers run. A master that leaves with 0 says that every worker said done:
 * they are closing their files, and their own codes decide. A server may do so a moment earlier, of a short job even
 * before another machine has said that its workers were started. A server of the user's may have heard of the workers in
 * its own way that they are done.
 */
static void
service_exited(struct watch *watch, const struct watch_event *event, uint64_t now_ms)
{
    const int code = watch_shell_code(event->code, event->signal);

    if (event->slot == 0 && code != 0 && watch_master_exited(watch, now_ms)) {
        return;
    }
    if (watch_slot_role(watch, event->slot) == LAUNCH_SERVER &&
        (code != 0 || watch_server_is_out(watch, event->slot)) &&
        watch_server_exited(watch, event->slot, now_ms)) {
        return;
    }
    if (code != 0) {
        watch_ask(watch, now_ms);
    } else if (!watch->config.foreign && event->slot == 0 && !all_started(watch)) {
        watch_fail(watch, WATCH_CAUSE_SERVICE_LEFT, event->slot, 1);
    } else if (event->slot == 0 && !watch->config.foreign) {
        watch->master_left = true;
        watch_workers_drop_new(watch, now_ms);
        watch->service_left_deadline_ms = UINT64_MAX;
    } else if (!watch->master_left && watch->service_left_deadline_ms == UINT64_MAX) {
        watch->service_left = event->slot;
        watch->service_left_deadline_ms =
            now_ms + service_left_ms(&watch->config) + watch_master_delay_ms(watch, now_ms);
    }
}

static void
exited(struct watch *watch, const struct watch_event *event, uint64_t now_ms)
{
    struct watch_slot *slot = &watch->slots[event->slot];

    slot->alive = false;
    slot->code = event->code;
    slot->signal = event->signal;
    slot->end_ms = now_ms;
    /* Servers and master may end of the workers' end before it is their own turn to be asked. */
    slot->asked = watch->phase >= WATCH_STOPPING;
    slot->doomed_ms = 0;
    cause_exited(&watch->inquest, event->slot, event->code, event->signal);
    watch_server_gone(watch, event->slot);
    switch (watch->phase) {
    case WATCH_GATHERING:
    case WATCH_STARTING:
        watch_fail(watch, WATCH_CAUSE_NOT_STARTED, event->slot, WATCH_CODE_CANNOT_START);
        break;
    case WATCH_RUNNING:
        if (watch_slot_role(watch, event->slot) == LAUNCH_WORKER) {
            worker_exited(watch, event, now_ms);
        } else {
            service_exited(watch, event, now_ms);
        }
        break;
    case WATCH_LEAVING:
        /* Workers that ended with 0 without saying done to the job did not end well. Of foreign
         * jobs we know no more than that the workers did. */
        if (event->slot != 0 && (watch_server_is_spare(slot) || slot->is_scaled)) {
            cause_forgive(&watch->inquest, event->slot);
            watch_leave_if_done(watch, now_ms);
        } else if (watch_shell_code(event->code, event->signal) != 0 && !watch->config.foreign &&
                   !(event->slot == 0 && watch_master_exited(watch, now_ms))) {
            watch_ask(watch, now_ms);
        } else {
            watch_leave_if_done(watch, now_ms);
        }
        break;
    case WATCH_ASKING:
        slot->ended = true;
        break;
    case WATCH_STOPPING:
        watch_stop_next(watch, now_ms);
        break;
    case WATCH_ENDING:
    case WATCH_ENDED:
        break;
    }
}

static void
ready(struct watch *watch)
{
    if (watch->phase != WATCH_STARTING) {
        watch_master_remind(watch);
        return;
    }
    watch_enter(watch, WATCH_RUNNING, UINT64_MAX);
    for (uint32_t slot = 1; slot <= watch_last_part(watch); slot++) {
        watch_start(watch, slot);
    }
}

/* Workers start when all servers are there; that they come in time is the master's to see to. */
static void
server_joined(struct watch *watch)
{
    if (!watch_has_all_servers(watch)) {
        return;
    }
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        if (!watch->slots[slot].ordered && !watch->slots[slot].away) {
            watch_start(watch, slot);
        }
    }
}

/* The slot of a worker that runs and has not joined; 0: none. */
static uint32_t
first_late(const struct watch *watch)
{
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        if (watch->slots[slot].alive && !watch->slots[slot].joined &&
            !watch->slots[slot].is_added) {
            return slot;
        }
    }
    return 0;
}

/* It may have data to prepare, or somebody stopped it: nothing is done about it but that people
 * learn whom the others wait for. */
static void
tell_late(struct watch *watch, uint64_t now_ms)
{
    const uint32_t slot = first_late(watch);

    watch->late_ms = UINT64_MAX;
    if (slot != 0 && watch->phase == WATCH_RUNNING) {
        watch->ops->tell_late(watch->context, slot, now_ms - watch->joined_ms);
        watch->late_ms = now_ms + (now_ms - watch->joined_ms);
    }
}

static void
joined(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    watch->slots[slot].joined = true;
    watch->slots[slot].is_missing = false;
    if (role_of_slot(slot, watch->config.servers) == LAUNCH_WORKER) {
        if (watch->joined_ms == UINT64_MAX) {
            watch->joined_ms = now_ms;
            watch->late_ms = now_ms + LATE_MS;
        }
        watch_note_absence(watch, now_ms);
    } else if (watch->phase == WATCH_RUNNING) {
        server_joined(watch);
    }
}

/* The master takes a worker for dead, and the job goes on: it is not to live on unknown. Who has
 * only lost its connection finds out by itself, and then its own end counts. One that has not
 * joined yet has taken the place of the dead one: the news was slower than its start. */
static void
worker_lost(struct watch *watch, uint32_t slot, enum psi_loss loss, uint64_t now_ms)
{
    struct watch_slot *state = &watch->slots[slot];

    if (watch->config.on_worker_death == WATCH_FAIL || watch->phase > WATCH_LEAVING ||
        !watch->inquest.processes[slot].joined) {
        return;
    }
    cause_forgive(&watch->inquest, slot);
    if (state->alive && loss != PSI_LOSS_GAVE_UP) {
        state->doomed_ms = now_ms + DOOM_MS;
    }
}

void
watch_told(struct watch *watch, const struct psi_tiding *tiding, uint64_t now_ms)
{
    uint32_t slot;

    if (!cause_slot_of(&watch->inquest.config, tiding, &slot)) {
        return;
    }
    cause_told(&watch->inquest, tiding);
    if (tiding->role == PSI_TIDING_SERVER) {
        watch_server_told(watch, tiding, slot, now_ms);
    }
    if (tiding->kind == PSI_TIDING_JOINED && slot != 0) {
        watch->slots[slot].life = tiding->life;
        joined(watch, slot, now_ms);
    } else if (tiding->kind == PSI_TIDING_COUNTS) {
        watch->slots[slot].counts = true;
    } else if (tiding->kind == PSI_TIDING_LOST && tiding->role == PSI_TIDING_WORKER) {
        worker_lost(watch, slot, tiding->loss, now_ms);
    } else if (tiding->kind == PSI_TIDING_SAVED && watch->save_until_ms != 0) {
        watch->saved_step = tiding->step;
        watch_saving_over(watch, now_ms);
    } else if (tiding->kind == PSI_TIDING_END && watch->phase >= WATCH_RUNNING) {
        watch_ask(watch, now_ms);
    }
    conclude(watch, now_ms);
    watch_rolling_step(watch, now_ms);
}

void
watch_event(struct watch *watch, const struct watch_event *event, uint64_t now_ms)
{
    psi_assert(event->slot < watch_slot_count(watch));
    switch (event->kind) {
    case WATCH_GATHERED:
        gathered(watch, now_ms);
        break;
    case WATCH_CANNOT_START:
        if (watch->phase < WATCH_ASKING) {
            watch_fail(watch, WATCH_CAUSE_NO_MACHINE, event->slot, WATCH_CODE_CANNOT_START);
        }
        break;
    case WATCH_READY:
        ready(watch);
        break;
    case WATCH_STARTED:
        watch->slots[event->slot].started = true;
        watch->slots[event->slot].alive = true;
        watch->slots[event->slot].start_ms = now_ms;
        if (watch->slots[event->slot].is_hosted) { /* it comes too late, and has no place */
            watch->slots[event->slot].doomed_ms = now_ms;
        }
        if (watch->phase == WATCH_STOPPING) { /* it was on its way when the stop came */
            watch->ops->signal(watch->context, event->slot, SIGTERM);
        }
        break;
    case WATCH_START_FAILED:
        if (watch_worker_is_new(watch, event->slot)) {
            watch->slots[event->slot].ended = true;
            watch_leave_if_done(watch, now_ms);
        } else if (watch->slots[event->slot].is_scaled && !watch->slots[event->slot].joined) {
            watch_server_not_come(watch, event->slot);
        } else if (watch->phase < WATCH_ASKING) {
            watch_fail(watch, WATCH_CAUSE_NOT_STARTED, event->slot, WATCH_CODE_CANNOT_START);
        }
        break;
    case WATCH_EXITED:
        exited(watch, event, now_ms);
        break;
    case WATCH_INTERRUPTED:
        watch_interrupted(watch, event->signal, now_ms);
        break;
    case WATCH_MACHINE_LOST:
        watch_machine_lost(watch, event, now_ms);
        break;
    case WATCH_MACHINE_BACK:
        watch_machine_back(watch, event->slot);
        break;
    case WATCH_ANSWERED:
        cause_answered(&watch->inquest, event->slot);
        break;
    case WATCH_ALL_GONE:
        watch_enter(watch, WATCH_ENDED, UINT64_MAX);
        break;
    }
    conclude(watch, now_ms);
    watch_rolling_step(watch, now_ms);
}

void
watch_tick(struct watch *watch, uint64_t now_ms)
{
    uint64_t away_ms;
    const uint32_t away = watch_first_away(watch, &away_ms);

    if (watch_replaces(watch) && now_ms >= away_ms) {
        watch_fail(watch, WATCH_CAUSE_MACHINE, watch_machine_of(watch, away), PSI_EXIT_WORKER_LOST);
    }
    if (watch->phase == WATCH_RUNNING && now_ms >= watch->service_left_deadline_ms &&
        !watch_server_left_idle(watch, watch->service_left, now_ms)) {
        watch_fail(watch, WATCH_CAUSE_SERVICE_LEFT, watch->service_left, 1);
    }
    if (now_ms >= watch->absence_ms) {
        settle_absence(watch);
    }
    if (now_ms >= watch->late_ms) {
        tell_late(watch, now_ms);
    }
    watch_late_words(watch, now_ms);
    if (watch->save_until_ms != 0 && now_ms >= watch->save_until_ms) {
        watch_saving_over(watch, now_ms);
    }
    if (watch->phase == WATCH_LEAVING) {
        watch_master_spare(watch, now_ms);
    }
    watch_start_due(watch, now_ms);
    watch_kill_doomed(watch, now_ms);
    conclude(watch, now_ms);
    watch_rolling_step(watch, now_ms);
    if (now_ms >= watch->timeout_ms && watch->phase < WATCH_LEAVING) {
        watch_fail(watch, WATCH_CAUSE_TIMEOUT, 0, WATCH_CODE_START_TIMEOUT);
    }
    if (now_ms < watch->deadline_ms) {
        return;
    }
    if (watch->phase == WATCH_GATHERING || watch->phase == WATCH_STARTING) {
        watch_fail(watch, WATCH_CAUSE_START_TIMEOUT, 0, WATCH_CODE_START_TIMEOUT);
    } else if (watch->phase == WATCH_LEAVING) {
        watch_end(watch, WATCH_SWEEP_MS);
    } else if (watch->phase == WATCH_STOPPING && !watch->killed) {
        watch->killed = true;
        watch->deadline_ms = UINT64_MAX;
        watch_signal_role(watch, watch->stopping, SIGKILL);
    }
}

static void
earlier(uint64_t *until_ms, bool counts, uint64_t ms)
{
    *until_ms = counts && ms < *until_ms ? ms : *until_ms;
}

uint64_t
watch_deadline(const struct watch *watch)
{
    const enum watch_phase phase = watch->phase;
    uint64_t until_ms = watch->deadline_ms;
    uint64_t away_ms;
    const uint32_t away = watch_first_away(watch, &away_ms);

    earlier(&until_ms, away != 0 && watch_replaces(watch), away_ms);
    earlier(&until_ms, phase == WATCH_ASKING, cause_deadline(&watch->inquest));
    for (uint32_t slot = 0; slot < watch_slot_count(watch); slot++) {
        earlier(&until_ms, watch->slots[slot].doomed_ms != 0, watch->slots[slot].doomed_ms);
    }
    earlier(&until_ms, phase == WATCH_RUNNING && first_late(watch) != 0, watch->late_ms);
    earlier(&until_ms, phase == WATCH_RUNNING, watch->service_left_deadline_ms);
    earlier(&until_ms, phase == WATCH_RUNNING && watch->save_until_ms != 0, watch->save_until_ms);
    earlier(&until_ms, true, watch_next_due(watch));
    earlier(&until_ms, watch_is_rolling(watch), watch->rolling.deadline_ms);
    earlier(&until_ms, watch_is_rolling(watch) && watch->rolling.settled_ms != 0,
            watch->rolling.settled_ms);
    earlier(&until_ms, phase < WATCH_STOPPING, watch->absence_ms);
    earlier(&until_ms, phase < WATCH_LEAVING, watch->timeout_ms);
    return until_ms;
}

int
watch_exit_code(const struct watch *watch)
{
    return watch->cause_code;
}
