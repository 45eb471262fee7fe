/*
 * messages.c - what the agents tell psd_run of their processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/messages.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/monotonic.h"
#include "launch/agent/children.h"
#include "launch/run/failovers.h"
#include "launch/run/machines.h"
#include "launch/run/orders.h"
#include "launch/run/report.h"
#include "launch/run/run_page.h"
#include "launch/run/scale_servers.h"
#include "launch/run/scale_workers.h"
#include "launch/system/wall_clock.h"

enum { TELL_MS = 500 }; /* how often the master tells */

static void
handle_exited(struct run *run, uint32_t slot, int status)
{
    struct process *process = &run->processes[slot];
    const struct watch_event event = {.kind = WATCH_EXITED,
                                      .slot = slot,
                                      .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                      .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    const bool is_told = run->watch.slots[slot].makes_room;

    process->end_ms = wall_clock_ms();
    runlog_line(&run->runlog, "EXIT", "%s pid %d code %d signal %d", process->name,
                (int)process->pid, event.code, event.signal);
    watch_event(&run->watch, &event, psi_monotonic_ms());
    if (slot == 0 && run->watch.phase < WATCH_ASKING && !run->watch.slots[0].started && !is_told) {
        failovers_begin(run, slot);
    }
    report_exit(run, &event);
}

void
messages_tell_detached(struct run *run, const char *how)
{
    if (run->args->detach_fd >= 0 && !run->told_detached) {
        const char *directory = run->directory != NULL ? run->directory : "";

        dprintf(run->args->detach_fd, "%s %s%c", how, directory,
                '\0'); /* it may hold anything else */
        run->told_detached = true;
    }
}

static void
handle_ready(struct run *run, const char *address)
{
    const uint32_t servers = plan_start_servers(run->plan);

    snprintf(run->master, sizeof(run->master), "%.127s", address);
    runlog_line(&run->runlog, "READY", "master at %s", run->master);
    console_say(&run->console, "job begins: %u worker%s, %u server%s, master at %s",
                run->plan->workers, run->plan->workers == 1 ? "" : "s", servers,
                servers == 1 ? "" : "s", run->master);
    run_page_begin(run);
    if (!status_start(&run->status, run->master, TELL_MS, run->feed)) {
        runlog_line(&run->runlog, "STATUS", "what the workers do is not known: %s",
                    run->status.trouble);
    }
    run_tell(run, WATCH_READY, 0, 0);
}

/* Members are told before it hears from psd_run what it has to know: both take their time. */
static void
handle_ready_again(struct run *run, const char *address)
{
    const bool same = strcmp(address, run->master) == 0;

    runlog_line(&run->runlog, "READY", "master at %s%s", address, same ? " again" : " now");
    snprintf(run->master, sizeof(run->master), "%.127s", address);
    orders_tell_members(run);
    failovers_end(run, 0);
    if (!same) {
        console_tell(&run->console, CONSOLE_FAILOVER, "the master listens at %s now", address);
        status_move(&run->status, run->master);
    }
    run_tell(run, WATCH_READY, 0, 0);
}

/* First "tcp://127.0.0.1:PORT", in every life, then what tidings.h has. */
static void
handle_master_line(struct run *run, const char *line)
{
    struct psi_tiding tiding;
    uint32_t slot;

    if (!run->master_listens) {
        run->master_listens = true;
        if (run->master[0] == '\0') {
            handle_ready(run, line);
        } else {
            handle_ready_again(run, line);
        }
        return;
    }
    if (!psi_tiding_parse(line, &tiding) ||
        !cause_slot_of(&run->watch.inquest.config, &tiding, &slot)) {
        return;
    }
    if (tiding.kind == PSI_TIDING_DONE) {
        run->processes[slot].last_step = tiding.step;
    } else if (tiding.kind != PSI_TIDING_JOINED) {
        runlog_line(&run->runlog, "MASTER", "%s", line);
    }
    if (tiding.kind == PSI_TIDING_LOST && tiding.role == PSI_TIDING_SERVER) {
        run->server_lost_ms = psi_monotonic_ms();
    }
    if (tiding.kind == PSI_TIDING_SAVED && run->args->saved_p != NULL &&
        run->stopped_by[0] == '\0') {
        *run->args->saved_p = tiding.step; /* nobody wants it stopped for good */
    }
    if (tiding.kind == PSI_TIDING_SAVED && tiding.step > 0) {
        console_say(&run->console, "the job is saved at step %llu: --resume goes on from there",
                    (unsigned long long)tiding.step);
    } else if (tiding.kind == PSI_TIDING_SAVED) {
        console_say(&run->console, "no checkpoint could be written: the master's log says why");
    }
    watch_told(&run->watch, &tiding, psi_monotonic_ms());
    if (tiding.kind == PSI_TIDING_JOINED) {
        failovers_end(run, slot);
    } else if (tiding.kind == PSI_TIDING_HOSTED) {
        failovers_hosted(run, slot);
    } else if (tiding.kind == PSI_TIDING_COPIED) {
        failovers_copied(run, slot);
    }
    if (tiding.kind == PSI_TIDING_COUNTS || tiding.kind == PSI_TIDING_LEFT) {
        scale_workers_told(run, &tiding, slot);
    }
    scale_servers_told(run, &tiding, slot);
    report_told(run, &tiding, slot);
}

/* Of a line that never ends, the master's exit or the start timeout tells the rest. */
static void
follow_master(struct run *run, const struct link_message *message)
{
    for (uint32_t i = 0; i < message->bytes; i++) {
        if (message->data[i] == '\n') {
            run->master_line[run->master_line_bytes] = '\0';
            run->master_line_bytes = 0;
            handle_master_line(run, run->master_line);
        } else if (run->master_line_bytes < sizeof(run->master_line) - 1) {
            run->master_line[run->master_line_bytes++] = message->data[i];
        }
    }
}

static bool
all_started(const struct run *run)
{
    for (uint32_t slot = run->watch.config.masterless ? 1 : 0; slot < run->slots; slot++) {
        if (!run->watch.slots[slot].started) {
            return false;
        }
    }
    return true;
}

/* The console has it once, however many workers say the same. */
static void
handle_note(struct run *run, struct process *process, const struct link_message *message)
{
    char text[NOTES_LINE_MAX + 1];
    const char *last_word;

    notes_clean(message->data, message->bytes, text);
    last_word = notes_last_word(text);
    runlog_line(&run->runlog, "NOTE", "%s: %s", process->name,
                last_word != NULL ? last_word : text);
    if (last_word != NULL) { /* for the console when its end is told: report.c */
        free(process->last_word);
        process->last_word = strdup(last_word);
        return;
    }
    if (strcmp(text, run->note) != 0) {
        console_say(&run->console, "%s: %s", process->name, text);
        snprintf(run->note, sizeof(run->note), "%s", text);
    }
}

/* A process has ended, but somebody else holds its pipe. */
static void
handle_held(struct run *run, const struct process *process, const struct link_message *message)
{
    const bool endless = message->number == CHILDREN_ENDLESS;
    char who[NOTES_LINE_MAX + 1];

    notes_clean(message->data, message->bytes, who);
    runlog_line(&run->runlog, "HELD", "output of %s by %s", process->name, who);
    console_say(&run->console,
                "%s has ended, but its output is still held open by %s, %s: ended, too",
                process->name, who[0] != '\0' ? who : "a process that is not of this job",
                endless ? "which prints on and on" : "which printed nothing for 1 s");
}

/* Agents that read what dead processes left say so, and get the time for it. */
static void
be_patient(struct run *run)
{
    const uint64_t until_ms = psi_monotonic_ms() + ORDERS_ANSWER_MS;

    run->end_ms = run->ending && run->end_ms < until_ms ? until_ms : run->end_ms;
}

static void
handle_started(struct run *run, struct process *process, const struct link_message *message)
{
    orders_open_output(run, message->slot); /* so far the life before may have printed */
    if (message->slot == 0) {
        run->master_line_bytes = 0;
        run->master_listens = false;
        run->master_moved = false;
    }
    process->start_pending = false;
    process->port_taken = false;
    free(process->last_word);
    process->last_word = NULL;
    process->told_last_word = false;
    if (run->args->began_p != NULL) {
        *run->args->began_p = true;
    }
    process->pid = message->number;
    process->start_ms = wall_clock_ms();
    process->end_ms = 0;
    runlog_line(&run->runlog, "PROCESS", "%s pid %d on %s: %.*s", process->name, message->number,
                run_host_of(run, message->slot)->machine->name, (int)message->bytes, message->data);
    run_tell(run, WATCH_STARTED, message->slot, 0);
    if (all_started(run)) {
        messages_tell_detached(run, "started");
    }
}

static void
handle_output(struct run *run, struct process *process, const struct link_message *message)
{
    const struct output_piece piece = {.stream = (uint32_t)message->number & LINK_OUTPUT_STREAM,
                                       .broken = (message->number & LINK_OUTPUT_BROKEN) != 0,
                                       .bytes = message->data,
                                       .count = message->bytes};

    if (process->output != NULL) {
        output_take(process->output, &run->console, &piece, psi_monotonic_ms());
    }
}

static void
handle_process_message(struct run *run, const struct link_message *message)
{
    struct process *process = &run->processes[message->slot];

    switch ((enum link_kind)message->kind) {
    case LINK_STARTED:
        handle_started(run, process, message);
        break;
    case LINK_START_FAILED:
        process->start_pending = false;
        process->error = message->number;
        runlog_line(&run->runlog, "PROCESS", "%s: %s", process->name, strerror(message->number));
        run_tell(run, WATCH_START_FAILED, message->slot, 0);
        break;
    case LINK_OUTPUT:
        handle_output(run, process, message);
        break;
    case LINK_READY:
        follow_master(run, message);
        break;
    case LINK_PORT_TAKEN:
        process->port_taken = true;
        runlog_line(&run->runlog, "PORT", "%s: somebody else has port %d", process->name,
                    message->number);
        break;
    case LINK_LOG_FAILED:
        console_say(&run->console, "%s: its log on %s: %s; the job goes on", process->name,
                    run_host_of(run, message->slot)->machine->name, strerror(message->number));
        break;
    case LINK_HELD:
        handle_held(run, process, message);
        break;
    case LINK_READING:
        be_patient(run);
        break;
    case LINK_NOTE:
        handle_note(run, process, message);
        break;
    case LINK_EXITED:
        handle_exited(run, message->slot, message->number);
        break;
    default:
        break;
    }
}

/* What looks for the master there, does so in vain. */
static void
handle_untold(struct run *run, const struct host *host, const struct link_message *message)
{
    char why[NOTES_LINE_MAX + 1];

    notes_clean(message->data, message->bytes, why);
    runlog_line(&run->runlog, "UNTOLD", "%s: %s", host->machine->name, why);
    console_say(&run->console, "%s: processes there do not learn where the master is now: %s",
                host->machine->name, why);
}

static void
handle_message(struct run *run, struct host *host, const struct link_message *message)
{
    struct psd_error err = {0};

    if (message->kind == LINK_MASTER_UNTOLD) {
        handle_untold(run, host, message);
        return;
    }
    if (message->kind == LINK_PULSE) {
        if (message->number == LINK_PULSE_ROLL) {
            run_tell(run, WATCH_ANSWERED, (uint32_t)(host - run->hosts), 0);
        }
        return;
    }
    if (message->kind == LINK_HELLO || message->kind == LINK_SYNCED ||
        message->kind == LINK_SET_UP || message->kind == LINK_REACHED) {
        if (gather_message(&run->gather, host, message, &err) != PSD_OK) {
            machines_refuse(run, host, &err);
        }
    } else if (message->slot < run->slots) {
        handle_process_message(run, message);
    }
}

void
messages_read(struct run *run, struct host *host)
{
    struct link_message message;
    const int read = link_read(&host->link);
    int result = 0;

    host->heard_ms = read == 1 ? psi_monotonic_ms() : host->heard_ms;
    while (run->watch.phase != WATCH_ENDED && host->state != HOST_GONE &&
           (result = link_next(&host->link, &message)) == 1) {
        handle_message(run, host, &message);
        host->heard_ms = psi_monotonic_ms(); /* the console may have taken its time */
    }
    if ((read < 0 || result < 0) && host->state != HOST_GONE) {
        machines_closed(run, host);
    }
}
