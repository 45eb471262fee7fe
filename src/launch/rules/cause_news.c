/*
 * cause_news.c - what is known of the processes and machines of a job, as the news come.
 *
 * Who tells what, and what a later word undoes. Nothing is judged here: cause.c does, once all that
 * matters is in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "launch/rules/cause.h"

bool
cause_init(struct cause *cause, const struct cause_config *config)
{
    *cause = (struct cause){.config = *config, .opened_ms = UINT64_MAX};
    cause->processes = calloc(cause_slots(cause), sizeof(*cause->processes));
    cause->machines = calloc(config->machines, sizeof(*cause->machines));
    for (uint32_t i = 0; cause->machines != NULL && i < config->machines; i++) {
        cause->machines[i].computer = i;
    }
    return cause->processes != NULL && cause->machines != NULL;
}

void
cause_place(struct cause *cause, uint32_t machine, uint32_t computer)
{
    cause->machines[machine].computer = computer;
}

bool
cause_add_workers(struct cause *cause, uint32_t count, const uint32_t *machine_of)
{
    const uint32_t slots = cause_slots(cause);
    struct cause_process *grown =
        realloc(cause->processes, (slots + count) * sizeof(*cause->processes));

    if (grown == NULL) {
        return false;
    }
    cause->processes = grown;
    for (uint32_t i = 0; i < count; i++) {
        grown[slots + i] = (struct cause_process){0};
    }
    cause->config.workers += count;
    cause->config.machine_of = machine_of;
    return true;
}

void
cause_fini(struct cause *cause)
{
    free(cause->processes);
    free(cause->machines);
    cause->processes = NULL;
    cause->machines = NULL;
}

/* ------------------------------------------------------------------------------------ news --- */

void
cause_started(struct cause *cause, uint32_t slot)
{
    const struct cause_process *last = &cause->processes[slot];
    struct cause_before before = last->before;

    if (last->joined) {
        before = (struct cause_before){.was = true,
                                       .ended = last->exit_at != 0,
                                       .rolled = last->rolled,
                                       .code = last->code,
                                       .signal = last->signal};
    }
    cause->processes[slot] = (struct cause_process){.before = before};
}

void
cause_rolled(struct cause *cause, uint32_t slot)
{
    cause->processes[slot].rolled = true;
}

void
cause_exited(struct cause *cause, uint32_t slot, int code, int number)
{
    struct cause_process *process = &cause->processes[slot];

    process->exit_at = ++cause->moment;
    process->code = code;
    process->signal = number;
    process->quiet = false;
    process->forgiven = false; /* whoever is, is forgiven anew */
}

bool
cause_slot_of(const struct cause_config *config, const struct psi_tiding *tiding, uint32_t *slot_p)
{
    switch (tiding->role) {
    case PSI_TIDING_MASTER:
        *slot_p = 0;
        return tiding->rank == 0;
    case PSI_TIDING_SERVER:
        *slot_p = 1 + tiding->rank;
        return tiding->rank < config->servers;
    case PSI_TIDING_WORKER:
        *slot_p = 1 + config->servers + tiding->rank;
        return tiding->rank < config->workers;
    }
    return false;
}

/* News that the master has of members alone. */
static bool
is_of_a_member(enum psi_tiding_kind kind)
{
    return kind == PSI_TIDING_DONE || kind == PSI_TIDING_CUT || kind == PSI_TIDING_BACK ||
           kind == PSI_TIDING_QUIET || kind == PSI_TIDING_HEARD || kind == PSI_TIDING_LOST;
}

void
cause_told(struct cause *cause, const struct psi_tiding *tiding)
{
    struct cause_process *process;
    uint32_t slot;

    if (!cause_slot_of(&cause->config, tiding, &slot)) {
        return;
    }
    process = &cause->processes[slot];
    cause->moment++;
    if (!process->joined && is_of_a_member(tiding->kind)) {
        return; /* of the life before this one: the agent was faster than the master */
    }
    switch (tiding->kind) {
    case PSI_TIDING_JOINED:
        process->joined = true;
        process->life = tiding->life;
        process->cut_at = 0;
        process->quiet = false;
        process->loss = PSI_LOSS_NONE;
        break;
    case PSI_TIDING_HOSTED:
    case PSI_TIDING_COPIED:
    case PSI_TIDING_PLACE:
    case PSI_TIDING_CROSSED:
    case PSI_TIDING_COUNTS:
    case PSI_TIDING_LEFT:
    case PSI_TIDING_MOVED:
    case PSI_TIDING_DRAINED:
    case PSI_TIDING_HELD:
    case PSI_TIDING_SAVED:
    case PSI_TIDING_AWAITED: /* whoever starts it again forgives its end */
        break;
    case PSI_TIDING_DONE:
        process->done = true;
        break;
    case PSI_TIDING_CUT:
        process->cut_at = process->cut_at != 0 ? process->cut_at : cause->moment;
        break;
    case PSI_TIDING_BACK: /* perhaps to another life of the master, which never heard its silence */
        process->cut_at = 0;
        process->quiet = false;
        break;
    case PSI_TIDING_QUIET:
        process->quiet = process->exit_at == 0;
        break;
    case PSI_TIDING_HEARD:
        process->quiet = false;
        break;
    case PSI_TIDING_LOST:
        process->loss = tiding->loss;
        break;
    case PSI_TIDING_END:
        if (cause->end_at == 0) {
            cause->end_at = cause->moment;
            cause->end = *tiding;
        }
        break;
    }
}

void
cause_machine_lost(struct cause *cause, uint32_t machine, const struct cause_loss *loss)
{
    struct cause_machine *lost = &cause->machines[machine];

    lost->lost_at = lost->lost_at != 0 ? lost->lost_at : ++cause->moment;
    lost->lost_ms = loss->now_ms;
    lost->silent = loss->silent;
    lost->movable = loss->movable;
}

void
cause_machine_back(struct cause *cause, uint32_t machine)
{
    cause->machines[machine] =
        (struct cause_machine){.computer = cause->machines[machine].computer};
}

void
cause_answered(struct cause *cause, uint32_t machine)
{
    cause->machines[machine].answered = true;
}

void
cause_forgive(struct cause *cause, uint32_t slot)
{
    cause->processes[slot].forgiven = true;
}

void
cause_forgive_machine(struct cause *cause, uint32_t machine)
{
    cause->machines[machine].forgiven = true;
    for (uint32_t slot = 0; slot < cause_slots(cause); slot++) {
        cause->processes[slot].forgiven |= cause_machine_of(cause, slot) == machine;
    }
}

void
cause_open(struct cause *cause, uint64_t now_ms)
{
    cause->opened_ms = now_ms;
    for (uint32_t i = 0; i < cause->config.machines; i++) {
        cause->machines[i].answered = false;
    }
}
