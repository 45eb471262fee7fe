/*
 * end_text.c - why a job ended, in words, and who ended it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/end_text.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "launch/link/link.h"
#include "launch/link/notes.h"

enum { LAST_LINE_MAX = 200 };

void
end_text_name(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    const uint32_t servers = run->plan->servers;
    const enum launch_role role = role_of_slot(slot, servers);
    const struct plan_task task = plan_task(run->plan, slot);
    const bool several =
        run->layout->machine_count > 1 && run->layout->machine_of[slot] != LAYOUT_NOWHERE;
    char where[192] = "";
    char name[32] = "ps_master";

    if (several) {
        host_describe(&run->hosts[run->layout->machine_of[slot]], where, sizeof(where));
    }
    if (role != LAUNCH_MASTER) {
        snprintf(name, sizeof(name), "%s %u", task.name, task.index);
    } else if (plan_runs_command(run->plan, slot)) {
        snprintf(name, sizeof(name), "%s", task.name);
    }
    if (where[0] != '\0' && where[strlen(where) - 1] == ')') { /* one pair of brackets is enough */
        where[strlen(where) - 1] = '\0';
        snprintf(text_p, size, "%s on %s, pid %d)", name, where, (int)run->processes[slot].pid);
    } else {
        snprintf(text_p, size, "%s%s%s (pid %d)", name, several ? " on " : "", where,
                 (int)run->processes[slot].pid);
    }
}

void
end_text_exit(const struct run *run, uint32_t slot, int code, int number, char *text_p, size_t size)
{
    char who[256];

    end_text_name(run, slot, who, sizeof(who));
    if (number != 0) {
        snprintf(text_p, size, "%s was killed by signal %d (%s)", who, number, strsignal(number));
    } else {
        snprintf(text_p, size, "%s ended with code %d", who, code);
    }
}

/* A daemon that ended with one of these only passes the verdict on the job on. */
static bool
is_verdict(int code)
{
    return (code >= PSI_EXIT_WORKER_LOST && code <= PSI_EXIT_FENCED) ||
           code == PSI_EXIT_START_TIMEOUT;
}

bool
end_text_verdict(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    static const char mark[] = " JOB-END ";
    const struct process *process = &run->processes[slot];
    const struct watch_slot *state = &run->watch.slots[slot];
    char text[OUTPUT_TAIL_BYTES + 1];
    const char *found;

    if (plan_runs_command(run->plan, slot) || state->signal != 0 || !is_verdict(state->code) ||
        process->output == NULL ||
        output_tail(process->output, END_TEXT_TAIL_LINES, text, sizeof(text)) == 0) {
        return false;
    }
    found = strstr(text, mark);
    if (found == NULL) {
        return false;
    }
    found += sizeof(mark) - 1;
    snprintf(text_p, size, "%.*s", (int)strcspn(found, "\n"), found);
    return true;
}

/* The last line of a program is most often the reason, as of an exception in Python. */
static void
add_last_line(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    const struct output *output = run->processes[slot].output;
    const size_t used = strlen(text_p);
    char line[LAST_LINE_MAX + 2];
    char clean[NOTES_LINE_MAX + 1];
    size_t bytes;

    if (!plan_runs_command(run->plan, slot) || run->watch.slots[slot].signal != 0 ||
        output == NULL || output_tail(output, 1, line, sizeof(line)) == 0) {
        return;
    }
    bytes = strcspn(line, "\r\n");
    if (bytes > 0 && bytes <= LAST_LINE_MAX) { /* the end of a longer one says nothing */
        notes_clean(line, bytes, clean);
        snprintf(text_p + used, size - used, "; it printed last: %s", clean);
    }
}

/* Of a server that has died before: why it had no other life this time. */
static void
add_short_lives(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    const struct watch_slot *state = &run->watch.slots[slot];
    const size_t used = strlen(text_p);
    const uint32_t allowed = run->watch.config.server_restarts;

    if (role_of_slot(slot, run->plan->servers) == LAUNCH_SERVER && allowed > 0 &&
        state->hasty >= allowed && state->restart_ms == 0) {
        snprintf(text_p + used, size - used,
                 "; it was not started again: %u short %s before this one (--server_restarts)",
                 state->hasty, state->hasty == 1 ? "life" : "lives");
    }
}

/* What the master says of the loss beyond the loss itself: what it cost. */
static const char *
loss_costs(const struct run *run)
{
    const char *more = strstr(run->watch.inquest.end.text, "; ");

    return more != NULL ? more : "";
}

/* How the last life of a process ended that the job was to go on without; NULL: not known. */
static const char *
why_lost(const struct run *run, uint32_t slot)
{
    const char *why = NULL;

    for (size_t i = 0; i < run->failover_count; i++) {
        why = run->failovers[i].slot == slot ? run->failovers[i].why : why;
    }
    return why;
}

/* A server that had ended, and was being started again when the job ended all the same. */
static void
tell_life_before(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    const char *why = why_lost(run, slot);

    if (why == NULL) {
        snprintf(text_p, size, "%s", run->watch.inquest.end.text);
    } else {
        snprintf(text_p, size, "%s%s", why, loss_costs(run));
    }
}

/* Of a server: what was lost with it, and the option that would have kept it, as the master tells it. */
static void
add_lost_part(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    const char *text = run->watch.inquest.end.text;
    const char *lost = strstr(text, "; its part of ");
    const size_t used = strlen(text_p);

    if (lost == NULL && strstr(text_p, "; it was not started again") == NULL) {
        lost = strstr(text, "; not started again in ");
    }
    if (role_of_slot(slot, run->plan->servers) == LAUNCH_SERVER && lost != NULL) {
        snprintf(text_p + used, size - used, "%s", lost);
    }
}

/* Did somebody else end it? A program that crashes would most likely do so again. */
static bool
was_killed(const struct watch_slot *state)
{
    switch (state->signal) {
    case SIGKILL:
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
    case SIGXCPU:
        return true;
    default:
        return false;
    }
}

/* Was the job under way, and had workers that nobody killed? */
static bool
had_others(const struct run *run)
{
    bool others = false;

    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
        const struct watch_slot *worker = &run->watch.slots[slot];

        if (!worker->joined) {
            return false; /* it would have gone on waiting for this one */
        }
        /* psd_run asks with SIGTERM; who was killed at the same moment did not hear it. */
        others = others || !was_killed(worker) || (worker->asked && worker->signal != SIGKILL);
    }
    return others;
}

/* The option with which the others would have gone on, if nobody has chosen another. */
static void
add_continue(const struct run *run, const char *what, char *text_p, size_t size)
{
    const struct watch_config *config = &run->watch.config;
    const size_t used = strlen(text_p);

    if (config->on_worker_death == WATCH_FAIL && !config->is_policy_told && !config->foreign &&
        !run->args->begins_anew && had_others(run)) {
        snprintf(text_p + used, size - used,
                 "; with --on_worker_death=continue the others would have gone on without %s",
                 what);
    }
}

/* A process failed: itself, or, of a daemon, its last word. */
static void
tell_process_cause(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    const struct watch_slot *state = &run->watch.slots[slot];

    if (!end_text_verdict(run, slot, text_p, size)) {
        end_text_exit(run, slot, state->code, state->signal, text_p, size);
        add_last_line(run, slot, text_p, size);
        add_short_lives(run, slot, text_p, size);
        add_lost_part(run, slot, text_p, size);
        if (role_of_slot(slot, run->plan->servers) == LAUNCH_WORKER && was_killed(state)) {
            add_continue(run, "it", text_p, size);
        }
    }
}

static void
tell_interrupt(int number, char *text_p, size_t size)
{
    if (number == SIGINT) {
        snprintf(text_p, size, "stopped by Ctrl-C (SIGINT)");
    } else if (number == SIGHUP) {
        snprintf(text_p, size, "stopped because its terminal was closed (SIGHUP)");
    } else if (number == SIGTERM) {
        snprintf(text_p, size, "stopped by SIGTERM");
    } else {
        snprintf(text_p, size, "stopped by signal %d (%s)", number, strsignal(number));
    }
}

/* For how long it was, as the master tells it: servers may be waited for longer than others. */
static uint32_t
silence_ms(const struct run *run)
{
    static const char words[] = "silent for ";
    const char *told = strstr(run->watch.inquest.end.text, words);
    const unsigned long ms = told == NULL ? 0 : strtoul(told + sizeof(words) - 1, NULL, 10);

    return ms > 0 && ms < UINT32_MAX ? (uint32_t)ms : run->watch.config.silence_ms;
}

/* Stopped processes look like that, and those whose machine has no time for them. */
static void
tell_silent(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    char who[256];

    if (run->watch.inquest.end.loss == PSI_LOSS_UNREACHED) {
        snprintf(text_p, size, "%s", run->watch.inquest.end.text);
        return;
    }
    end_text_name(run, slot, who, sizeof(who));
    snprintf(text_p, size,
             "%s was silent for %u ms, although its machine answers: it was stopped, gets no time "
             "to run, or its network is cut from the others",
             who, silence_ms(run));
    add_short_lives(run, slot, text_p, size);
    add_lost_part(run, slot, text_p, size);
}

static void
tell_disconnected(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    char who[256];

    end_text_name(run, slot, who, sizeof(who));
    snprintf(text_p, size, "%s still runs, but has lost its connection to the master: %.300s", who,
             run->watch.inquest.end.text);
}

/* Could the job have done without that machine, but for its workers? */
static bool
lacks_workers_alone(const struct run *run, uint32_t machine)
{
    const struct layout_machine *lost = run->hosts[machine].machine;

    return lost->workers > 0 && lost->workers < run->plan->workers &&
           ((lost->servers == 0 && run->layout->machine_of[0] != machine) ||
            run->watch.inquest.machines[machine].movable);
}

/* The machine that was lost, and those that went with it. */
static void
tell_machines(const struct run *run, char *text_p, size_t size)
{
    const uint32_t first = run->watch.cause_slot;
    int used = snprintf(text_p, size, "%s", run->hosts[first].loss);
    bool is_one = true;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        const struct cause_machine *machine = &run->watch.inquest.machines[i];

        if (i != first && machine->lost_at != 0 && !machine->forgiven && used > 0 &&
            (size_t)used < size) {
            used += snprintf(text_p + used, size - (size_t)used, "; so was %s",
                             run->hosts[i].machine->name);
            is_one = false;
        }
    }
    if (is_one && lacks_workers_alone(run, first)) {
        add_continue(run, "its workers", text_p, size);
    }
}

/* Every other machine is gone: which they are. */
static void
tell_cut_off(const struct run *run, char *text_p, size_t size)
{
    char names[200] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < run->layout->machine_count && used < sizeof(names); i++) {
        if (run->hosts[i].lost) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used > 0 ? ", " : "", run->hosts[i].machine->name);
        }
    }
    snprintf(text_p, size,
             "this machine was cut off from all others: nothing was heard of %s for %d ms", names,
             LINK_LEASE_MS);
}

/* ended: how it did, if it began at all. */
static void
tell_not_started(const struct process *process, const char *ended, char *text_p, size_t size)
{
    if (process->error != 0) {
        snprintf(text_p, size, "%s could not be started: %s", process->name,
                 strerror(process->error));
    } else if (process->pid == 0) {
        snprintf(text_p, size, "%s could not be started", process->name);
    } else {
        snprintf(text_p, size, "%s before it was ready", ended);
    }
}

static void
tell_start_timeout(const struct run *run, const struct process *process, char *text_p, size_t size)
{
    const uint32_t timeout_ms = run->watch.config.start_timeout_ms;

    if (process->pid == 0) {
        snprintf(text_p, size, "not ready within %u ms (--start_timeout_ms): %s", timeout_ms,
                 run->obstacle);
    } else {
        snprintf(text_p, size, "ps_master (pid %d) was not ready within %u ms (--start_timeout_ms)",
                 (int)process->pid, timeout_ms);
    }
}

const char *
end_text_last_word(const struct run *run)
{
    return end_text_is_process(run, run->watch.cause_slot)
               ? run->processes[run->watch.cause_slot].last_word
               : NULL;
}

void
end_text(const struct run *run, char *text_p, size_t size)
{
    const struct watch *watch = &run->watch;
    const struct process *process = &run->processes[watch->cause_slot]; /* or a machine's number */
    const struct watch_slot *slot = &watch->slots[watch->cause_slot];
    char text[384];

    if (end_text_last_word(run) != NULL) {
        snprintf(text_p, size, "%s", end_text_last_word(run));
        return;
    }
    end_text_exit(run, watch->cause_slot, slot->code, slot->signal, text, sizeof(text));
    if (watch->cause_before) {
        tell_life_before(run, watch->cause_slot, text_p, size);
        return;
    }
    switch (watch->cause) {
    case WATCH_CAUSE_NONE:
        text_p[0] = '\0';
        break;
    case WATCH_CAUSE_PROCESS:
        tell_process_cause(run, watch->cause_slot, text_p, size);
        break;
    case WATCH_CAUSE_UNCLOSED:
        snprintf(text_p, size,
                 "%s without psd_close(), so the others took it for lost: close at the end "
                 "(Python: poseidon.close())",
                 text);
        break;
    case WATCH_CAUSE_SILENT:
        tell_silent(run, watch->cause_slot, text_p, size);
        break;
    case WATCH_CAUSE_DISCONNECTED:
        tell_disconnected(run, watch->cause_slot, text_p, size);
        break;
    case WATCH_CAUSE_VERDICT:
        snprintf(text_p, size, "%s", watch->inquest.end.text);
        break;
    case WATCH_CAUSE_CUT_OFF:
        tell_cut_off(run, text_p, size);
        break;
    case WATCH_CAUSE_SERVICE_LEFT:
        snprintf(text_p, size, "%s before the workers were done", text);
        break;
    case WATCH_CAUSE_NOT_STARTED:
        tell_not_started(process, text, text_p, size);
        break;
    case WATCH_CAUSE_START_TIMEOUT:
        tell_start_timeout(run, process, text_p, size);
        break;
    case WATCH_CAUSE_TIMEOUT:
        snprintf(text_p, size, "not done within %llu s (--timeout)",
                 (unsigned long long)watch->config.timeout_ms / 1000);
        break;
    case WATCH_CAUSE_INTERRUPT:
        if (run->stopped_by[0] != '\0') {
            snprintf(text_p, size, "stopped by %s", run->stopped_by);
        } else {
            tell_interrupt(watch->cause_code - 128, text_p, size);
        }
        break;
    case WATCH_CAUSE_MACHINE:
        tell_machines(run, text_p, size);
        break;
    case WATCH_CAUSE_NO_MACHINE:
        snprintf(text_p, size, "%s", run->obstacle);
        break;
    case WATCH_CAUSE_NEVER_JOINED:
        snprintf(text_p, size, "%s without joining the job, and the others waited for it", text);
        break;
    }
}

bool
end_text_is_process(const struct run *run, uint32_t slot)
{
    const enum watch_cause cause = run->watch.cause;

    return run->watch.cause_slot == slot &&
           (cause == WATCH_CAUSE_PROCESS || cause == WATCH_CAUSE_SERVICE_LEFT ||
            cause == WATCH_CAUSE_NOT_STARTED || cause == WATCH_CAUSE_NEVER_JOINED ||
            cause == WATCH_CAUSE_UNCLOSED || cause == WATCH_CAUSE_SILENT ||
            cause == WATCH_CAUSE_DISCONNECTED || cause == WATCH_CAUSE_VERDICT);
}

bool
end_text_is_machine(const struct run *run, uint32_t machine)
{
    const enum watch_cause cause = run->watch.cause;

    return (cause == WATCH_CAUSE_CUT_OFF && run->watch.config.here == machine) ||
           ((cause == WATCH_CAUSE_MACHINE || cause == WATCH_CAUSE_NO_MACHINE) &&
            run->watch.cause_slot == machine);
}

void
end_text_delay(uint32_t delay_ms, char *text_p, size_t size)
{
    if (delay_ms == 0) {
        snprintf(text_p, size, "at once");
    } else {
        snprintf(text_p, size, "in %.1f s", (double)delay_ms / 1000);
    }
}
