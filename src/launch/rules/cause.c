/*
 * cause.c - what ended a job: the verdict on what is known of it (cause_news.c).
 *
 * Only looks at the news and decides, machines first, then processes. Nothing is remembered here, so
 * the same news always give the same verdict.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/cause.h"

#include <signal.h>

#include "base/exit_code.h"

enum {
    LAST_WORD_MS = 1000, /* beyond what a silence takes: for news to travel */
};

/* What the loss of a process costs the job. */
static int
role_code(const struct cause *cause, uint32_t slot)
{
    switch (role_of_slot(slot, cause->config.servers)) {
    case LAUNCH_MASTER:
        return PSI_EXIT_MASTER_LOST;
    case LAUNCH_SERVER:
        return PSI_EXIT_SERVER_LOST;
    case LAUNCH_WORKER:
        break;
    }
    return PSI_EXIT_WORKER_LOST;
}

/* --------------------------------------------------------------------------------- machines --- */

static bool
is_lost(const struct cause_machine *machine)
{
    return machine->lost_at != 0 && !machine->forgiven;
}

static bool
some_machine_is_lost(const struct cause *cause)
{
    for (uint32_t i = 0; i < cause->config.machines; i++) {
        if (is_lost(&cause->machines[i])) {
            return true;
        }
    }
    return false;
}

/* A machine that does not answer will be lost, or answer late. */
static bool
all_have_answered(const struct cause *cause)
{
    for (uint32_t i = 0; i < cause->config.machines; i++) {
        const struct cause_machine *machine = &cause->machines[i];

        if (!machine->answered && machine->lost_at == 0 && !machine->forgiven) {
            return false;
        }
    }
    return true;
}

static bool
has_workers(const struct cause *cause, uint32_t machine)
{
    for (uint32_t slot = 1 + cause->config.servers; slot < cause_slots(cause); slot++) {
        if (cause_machine_of(cause, slot) == machine) {
            return true;
        }
    }
    return false;
}

/* It was lost with its machine, and could have been had elsewhere: it is the workers there who could not. */
static bool
is_not_the_reason(const struct cause *cause, uint32_t slot)
{
    const uint32_t machine = cause_machine_of(cause, slot);

    return slot <= cause->config.servers && cause->machines[machine].movable &&
           has_workers(cause, machine);
}

/* The code of the first role, as master, servers and workers are counted, of what ran on machines that are
 * lost. */
static int
lost_code(const struct cause *cause)
{
    for (uint32_t slot = 0; slot < cause_slots(cause); slot++) {
        const uint32_t machine = cause_machine_of(cause, slot);

        if (machine < cause->config.machines && is_lost(&cause->machines[machine]) &&
            !is_not_the_reason(cause, slot)) {
            return role_code(cause, slot);
        }
    }
    return PSI_EXIT_WORKER_LOST;
}

/* The same of our own machine; if it has nothing of the job, of the whole job. */
static int
cut_off_code(const struct cause *cause)
{
    const uint32_t here = cause->config.here;

    for (uint32_t slot = 0; slot < cause_slots(cause); slot++) {
        const uint32_t machine = cause_machine_of(cause, slot);

        if (machine < cause->config.machines && (here == CAUSE_NOWHERE || here == machine)) {
            return role_code(cause, slot);
        }
    }
    return PSI_EXIT_WORKER_LOST;
}

/* Whether a machine is on the computer of psd_run itself. */
static bool
is_here(const struct cause *cause, const struct cause_machine *machine)
{
    return cause->config.here != CAUSE_NOWHERE &&
           machine->computer == cause->machines[cause->config.here].computer;
}

static uint64_t
last_loss_ms(const struct cause *cause)
{
    uint64_t last_ms = 0;

    for (uint32_t i = 0; i < cause->config.machines; i++) {
        const uint64_t lost_ms = cause->machines[i].lost_ms;

        last_ms = lost_ms > last_ms ? lost_ms : last_ms;
    }
    return last_ms;
}

/* The job was about to go on without it, when the others were lost as well. */
static bool
is_lost_with_others(const struct cause *cause, const struct cause_machine *machine)
{
    return machine->lost_at != 0 && machine->silent &&
           last_loss_ms(cause) - machine->lost_ms < cause->config.lease_ms;
}

/* All others fell silent together, and they are several computers: the fault is on our side. */
static bool
is_cut_off(const struct cause *cause)
{
    uint32_t first = CAUSE_NOWHERE;
    bool several = false;

    for (uint32_t i = 0; i < cause->config.machines; i++) {
        const struct cause_machine *machine = &cause->machines[i];

        if (is_here(cause, machine) ||
            (machine->forgiven && !is_lost_with_others(cause, machine))) {
            continue;
        }
        if (machine->lost_at == 0 || !machine->silent) {
            return false;
        }
        first = first == CAUSE_NOWHERE ? machine->computer : first;
        several = several || machine->computer != first;
    }
    return several;
}

static struct cause_verdict
blame_machine(const struct cause *cause)
{
    uint32_t first = CAUSE_NOWHERE;

    for (uint32_t i = 0; i < cause->config.machines; i++) {
        if (is_lost(&cause->machines[i]) &&
            (first == CAUSE_NOWHERE ||
             cause->machines[i].lost_at < cause->machines[first].lost_at)) {
            first = i;
        }
    }
    if (is_cut_off(cause)) {
        return (struct cause_verdict){
            .kind = CAUSE_CUT_OFF, .slot = first, .code = cut_off_code(cause)};
    }
    return (struct cause_verdict){.kind = CAUSE_MACHINE, .slot = first, .code = lost_code(cause)};
}

/* -------------------------------------------------------------------------------- processes --- */

static bool
has_failed(const struct cause_process *process)
{
    return process->exit_at != 0 && !process->forgiven &&
           (process->code != 0 || process->signal != 0);
}

/* The process that the master blames; false: none. */
static bool
find_blamed(const struct cause *cause, uint32_t *slot_p)
{
    return cause->end_at != 0 && cause->end.role != PSI_TIDING_MASTER &&
           cause_slot_of(&cause->config, &cause->end, slot_p);
}

/* What the master says is of the life before this one: this one has not been let in, or has been told to
 * stand by until the job knows what becomes of the part. */
static bool
is_of_before(const struct cause *cause, uint32_t slot)
{
    const struct cause_process *process = &cause->processes[slot];
    const uint64_t ended = cause->end.life;
    uint32_t blamed;

    if (!process->before.was || !process->joined) {
        return process->before.was;
    }
    return find_blamed(cause, &blamed) && blamed == slot && ended != 0 && process->life != 0 &&
           ended != process->life;
}

static bool
is_daemon(const struct cause *cause, uint32_t slot)
{
    return !cause->config.foreign && slot <= cause->config.servers;
}

/* A server that says that the master is lost: the master itself cannot say anything. */
static bool
misses_master(const struct cause *cause)
{
    for (uint32_t slot = 1; slot <= cause->config.servers; slot++) {
        const struct cause_process *server = &cause->processes[slot];

        if (is_daemon(cause, slot) && has_failed(server) && server->joined &&
            server->code == PSI_EXIT_MASTER_LOST) {
            return true;
        }
    }
    return false;
}

/* A daemon that was part of the job ends with what it heard from the master. */
static bool
passes_on(const struct cause *cause, uint32_t slot)
{
    const struct cause_process *process = &cause->processes[slot];
    uint32_t blamed;

    if (!is_daemon(cause, slot) || process->signal != 0 ||
        (find_blamed(cause, &blamed) && blamed == slot)) {
        return false;
    }
    if (slot == 0 || (cause->end_at != 0 && process->joined)) {
        return cause->end_at != 0 && process->code == cause->end.code;
    }
    return process->joined &&
           ((process->code >= PSI_EXIT_WORKER_LOST && process->code <= PSI_EXIT_MASTER_LOST) ||
            process->code == PSI_EXIT_START_TIMEOUT);
}

/* Started in the place of a member, and sent away, or told to leave, because the job was over. One that fails by itself
 * ends with another code. */
static bool
was_sent_away(const struct cause *cause, uint32_t slot)
{
    const struct cause_process *process = &cause->processes[slot];

    return is_daemon(cause, slot) && is_of_before(cause, slot) && process->signal == 0 &&
           process->code >= PSI_EXIT_WORKER_LOST && process->code <= PSI_EXIT_FENCED;
}

/* Whether it ended after the master had ended the job: the master had not missed it before, or sent it
 * away. */
static bool
ended_after_the_job(const struct cause *cause, uint32_t slot)
{
    const struct cause_process *process = &cause->processes[slot];
    uint32_t blamed;

    if (slot == 0 || cause->end_at == 0) {
        return false;
    }
    return was_sent_away(cause, slot) ||
           (process->joined && !process->done && !(find_blamed(cause, &blamed) && blamed == slot) &&
            (process->cut_at == 0 || process->cut_at > cause->end_at));
}

/* The master will say something about it, in its own order: it was a member, and is gone. Whoever
 * was killed died of no other's death. */
static bool
awaits_word(const struct cause *cause, uint32_t slot)
{
    const struct cause_process *process = &cause->processes[slot];

    return slot != 0 && has_failed(process) && process->joined && !process->done &&
           process->signal != SIGKILL && process->cut_at == 0 && process->loss == PSI_LOSS_NONE;
}

/* Its connection is cut, or the master has not heard of it for a while: it may be back in a moment,
 * be reported as ended, or be lost. */
static bool
is_in_doubt(const struct cause_process *process)
{
    if (process->exit_at != 0 || process->forgiven || process->loss == PSI_LOSS_SILENT) {
        return false;
    }
    return process->quiet || process->cut_at != 0;
}

/* Given up although its process may live: no end of it is awaited. */
static bool
lives_on(enum psi_loss loss)
{
    return loss == PSI_LOSS_SILENT || loss == PSI_LOSS_UNREACHED;
}

static bool
has_questions(const struct cause *cause)
{
    const bool mute =
        cause->end_at != 0 || cause->processes[0].exit_at != 0 || misses_master(cause);
    uint32_t blamed;

    if (cause->config.foreign) {
        return false;
    }
    if (find_blamed(cause, &blamed) && !lives_on(cause->end.loss) &&
        cause->processes[blamed].exit_at == 0 && !cause->processes[blamed].forgiven &&
        !is_of_before(cause, blamed)) {
        return true; /* how it ended is on its way */
    }
    for (uint32_t slot = 0; slot < cause_slots(cause); slot++) {
        if ((!mute && awaits_word(cause, slot)) || is_in_doubt(&cause->processes[slot])) {
            return true;
        }
    }
    return false;
}

/* A process that is still silent; 0: none. The master itself is not heard of by this way. */
static uint32_t
find_silent(const struct cause *cause)
{
    uint32_t blamed;

    if (find_blamed(cause, &blamed) && lives_on(cause->end.loss) &&
        !cause->processes[blamed].forgiven) {
        return blamed;
    }
    for (uint32_t slot = 1; slot < cause_slots(cause); slot++) {
        const struct cause_process *process = &cause->processes[slot];

        if (process->exit_at == 0 && !process->forgiven &&
            (process->quiet || lives_on(process->loss))) {
            return slot;
        }
    }
    return 0;
}

/* When a process failed, by the master's order where it has one. A master that ended the job for no
 * reason dies of nobody. */
static uint64_t
failed_at(const struct cause *cause, uint32_t slot)
{
    const struct cause_process *process = &cause->processes[slot];

    if (slot == 0 && !cause->config.foreign) {
        return 0;
    }
    return process->cut_at != 0 ? process->cut_at : process->exit_at;
}

/* The first that failed by itself. false: none. */
static bool
find_first(const struct cause *cause, uint32_t *slot_p)
{
    uint64_t first_at = UINT64_MAX;

    for (uint32_t slot = 0; slot < cause_slots(cause); slot++) {
        const struct cause_process *process = &cause->processes[slot];

        if (has_failed(process) && !passes_on(cause, slot) && !ended_after_the_job(cause, slot) &&
            failed_at(cause, slot) < first_at) {
            first_at = failed_at(cause, slot);
            *slot_p = slot;
        }
    }
    return first_at != UINT64_MAX;
}

static int
exit_code(const struct cause_process *process)
{
    return process->signal != 0 ? 128 + process->signal : process->code;
}

/* The master lost a server that ended by itself, and another life of it was on its way, or about to be, when
 * the job ended all the same: it is the end of the one that was lost. False: it is no such case. */
static bool
blame_before(const struct cause *cause, uint32_t slot, struct cause_verdict *verdict_p)
{
    const struct cause_process *process = &cause->processes[slot];
    struct cause_before last = process->before;

    if (!is_of_before(cause, slot)) {
        last = (struct cause_before){.ended = process->forgiven && process->joined &&
                                              process->exit_at != 0,
                                     .rolled = process->rolled,
                                     .code = process->code,
                                     .signal = process->signal};
    }
    if (!last.ended || last.rolled || cause->end.loss != PSI_LOSS_CLOSED ||
        !is_daemon(cause, slot)) {
        return false;
    }
    *verdict_p = (struct cause_verdict){.kind = CAUSE_PROCESS,
                                        .slot = slot,
                                        .code = last.signal != 0 ? 128 + last.signal : last.code,
                                        .before = is_of_before(cause, slot)};
    return true;
}

/* What the master said, of whom it blames or of nobody. Who was forgiven has been waited for, and
 * nobody took its place. */
static struct cause_verdict
blame_as_told(const struct cause *cause)
{
    const int code = cause->end.code != 0 ? cause->end.code : PSI_EXIT_INTERNAL;
    struct cause_verdict verdict;
    uint32_t slot;

    if (!find_blamed(cause, &slot)) {
        return (struct cause_verdict){.kind = CAUSE_VERDICT, .slot = 0, .code = code};
    }
    if (cause->processes[slot].forgiven &&
        cause->machines[cause_machine_of(cause, slot)].lost_at != 0) {
        return (struct cause_verdict){
            .kind = CAUSE_MACHINE, .slot = cause_machine_of(cause, slot), .code = code};
    }
    if (blame_before(cause, slot, &verdict)) {
        return verdict;
    }
    if (cause->processes[slot].forgiven || is_of_before(cause, slot) ||
        (cause->end.loss == PSI_LOSS_GAVE_UP && is_daemon(cause, slot))) {
        return (struct cause_verdict){.kind = CAUSE_VERDICT, .slot = slot, .code = code};
    }
    if (cause->processes[slot].exit_at != 0) {
        return (struct cause_verdict){.kind = CAUSE_UNCLOSED, .slot = slot, .code = code};
    }
    return (struct cause_verdict){
        .kind = CAUSE_DISCONNECTED, .slot = slot, .code = role_code(cause, slot)};
}

/* No reason is left but a failure that is not its own: better that than none. */
static struct cause_verdict
blame_anybody(const struct cause *cause)
{
    uint32_t first = 0;

    for (uint32_t slot = 0; slot < cause_slots(cause); slot++) {
        const struct cause_process *process = &cause->processes[slot];

        if (has_failed(process) && (!has_failed(&cause->processes[first]) ||
                                    process->exit_at < cause->processes[first].exit_at)) {
            first = slot;
        }
    }
    return (struct cause_verdict){
        .kind = CAUSE_PROCESS, .slot = first, .code = exit_code(&cause->processes[first])};
}

static struct cause_verdict
blame_process(const struct cause *cause)
{
    const uint32_t silent = cause->config.foreign ? 0 : find_silent(cause);
    const struct cause_process *master = &cause->processes[0];
    uint32_t blamed;
    uint32_t slot;

    if (silent != 0) {
        return (struct cause_verdict){.kind = CAUSE_SILENT,
                                      .slot = silent,
                                      .code = role_code(cause, silent),
                                      .before = is_of_before(cause, silent)};
    }
    if (misses_master(cause) && master->exit_at == 0 && cause->end_at == 0) {
        return (struct cause_verdict){
            .kind = CAUSE_SILENT, .slot = 0, .code = PSI_EXIT_MASTER_LOST};
    }
    if (find_blamed(cause, &blamed) && cause->end.loss == PSI_LOSS_GAVE_UP &&
        is_daemon(cause, blamed)) {
        return blame_as_told(cause);
    }
    if (find_first(cause, &slot)) {
        return (struct cause_verdict){
            .kind = CAUSE_PROCESS, .slot = slot, .code = exit_code(&cause->processes[slot])};
    }
    return cause->end_at != 0 ? blame_as_told(cause) : blame_anybody(cause);
}

/* ---------------------------------------------------------------------------------- verdict --- */

/* Both bounds are beyond what the silence of a process, or of a machine, takes. */
static uint64_t
machines_deadline(const struct cause *cause)
{
    return cause->opened_ms + cause->config.lease_ms + LAST_WORD_MS;
}

static uint64_t
processes_deadline(const struct cause *cause)
{
    return cause->opened_ms + cause->config.silence_ms + LAST_WORD_MS;
}

bool
cause_settled(const struct cause *cause, uint64_t now_ms)
{
    if (!all_have_answered(cause) && now_ms < machines_deadline(cause)) {
        return false;
    }
    return some_machine_is_lost(cause) || now_ms >= processes_deadline(cause) ||
           !has_questions(cause);
}

uint64_t
cause_deadline(const struct cause *cause)
{
    if (cause->opened_ms == UINT64_MAX) {
        return UINT64_MAX;
    }
    if (all_have_answered(cause)) {
        return processes_deadline(cause);
    }
    return some_machine_is_lost(cause) || !has_questions(cause) ||
                   machines_deadline(cause) > processes_deadline(cause)
               ? machines_deadline(cause)
               : processes_deadline(cause);
}

struct cause_verdict
cause_verdict(const struct cause *cause)
{
    return some_machine_is_lost(cause) ? blame_machine(cause) : blame_process(cause);
}
