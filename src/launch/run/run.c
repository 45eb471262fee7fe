/*
 * run.c - carries a plan out.
 *
 * One loop waits for what agents say, signals and the time. What to do about them is decided in
 * gather.c before the job starts and in watch.c from then on; here it is done.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "base/monotonic.h"
#include "launch/agent/children.h"
#include "launch/agent/keeper.h"
#include "launch/run/control.h"
#include "launch/run/end_text.h"
#include "launch/run/job_json.h"
#include "launch/run/orders.h"
#include "launch/run/report.h"
#include "launch/run/run_state.h"
#include "launch/run/tf_files.h"
#include "launch/system/wall_clock.h"

enum {
    EVENTS_MAX = 64,
    REDRAW_MS = 250,
    CONSOLE_MS = 20,          /* how often a console that takes nothing is tried again */
    SHOWN_MS = 500,           /* how often the master is asked, for a terminal ... */
    ASKED_MS = 1000,          /* ... and for those who may ask us */
    PORT_QUICK_MS = 10000,    /* a worker that lives longer did not fail for want of its port ... */
    FOREIGN_QUICK_MS = 60000, /* ... but importing TensorFlow alone may take longer */
    PORT_LINES = 20,
};

/* ------------------------------------------------------------------------ lines of machines --- */

static void
on_new_call(void *context, struct host *host)
{
    struct run *run = context;

    runlog_line(&run->runlog, host->shell.way == REMOTE_SHELL_SRUN ? "SRUN" : "SSH",
                "%s, try %u, pid %d", host->machine->name, host->tries, (int)host->pid);
    run_watch_line(run, host);
}

/* All machines are ready. */
static void
begin_processes(struct run *run)
{
    struct psd_error err = {0};
    psd_status status = orders_describe_cluster(run, &err);

    report_gathered(run);
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        cause_place(&run->watch.inquest, i, run->hosts[i].node);
    }
    console_status(&run->console, ""); /* nobody is waited for any longer */
    if (status == PSD_OK && run->args->tf_config_dir != NULL) {
        status = tf_files_write(run, run->args->tf_config_dir, &err);
    }
    if (status != PSD_OK) {
        snprintf(run->obstacle, sizeof(run->obstacle), "%s", err.text);
        run_tell(run, WATCH_CANNOT_START, 0, 0);
        return;
    }
    run_tell(run, WATCH_GATHERED, 0, 0);
    if (run->watch.config.foreign) { /* otherwise the master says when */
        char parts[128];

        report_parts(run, parts, sizeof(parts));
        console_say(&run->console, "job begins: %s", parts);
    }
}

static void
go_on_gathering(struct run *run)
{
    struct psd_error err = {0};
    uint32_t machine = 0;

    if (run->watch.phase != WATCH_GATHERING || run->checked ||
        psi_monotonic_ms() < run->begin_ms + run->args->delay_ms) {
        return;
    }
    switch (gather_step(&run->gather, psi_monotonic_ms(), on_new_call, run, &machine, &err)) {
    case GATHER_WAIT:
        if (gather_files_move(&run->gather)) {
            watch_files_move(&run->watch, psi_monotonic_ms());
        }
        break;
    case GATHER_READY:
        if (run->args->check) {
            run->checked = true;
            orders_end(run, 0);
            break;
        }
        begin_processes(run);
        break;
    case GATHER_FAILED:
        snprintf(run->obstacle, sizeof(run->obstacle), "%s", err.text);
        run_tell(run, WATCH_CANNOT_START, machine, 0);
        break;
    }
}

/* The machine is gone from the job, one way or the other. */
static void
drop_machine(struct host *host)
{
    host_close(host);
    host->state = HOST_GONE;
}

/* An agent of this machine that was killed leaves its children to us. */
static void
bury_local(struct run *run, const struct host *local)
{
    pid_t *kept = calloc(run->layout->machine_count, sizeof(*kept));
    size_t count = 0;

    for (uint32_t i = 0; kept != NULL && i < run->layout->machine_count; i++) {
        if (&run->hosts[i] != local && run->hosts[i].pid > 0) {
            kept[count++] = run->hosts[i].pid;
        }
    }
    if (kept != NULL) {
        keeper_bury(local->pid, kept, count);
    }
    free(kept);
}

/* how: in words; NULL: its line was closed. */
static void
lose_machine(struct run *run, struct host *host, const char *how, bool silent)
{
    const struct watch_event event = {
        .kind = WATCH_MACHINE_LOST, .slot = (uint32_t)(host - run->hosts), .silent = silent};
    const pid_t pid = host->pid;

    host_close(host);
    host->lost = true;
    if (host->machine->here) {
        host->pid = pid;
        bury_local(run, host);
        host->pid = 0;
    }
    report_lost(run, host, pid, how);
    watch_event(&run->watch, &event, psi_monotonic_ms());
    drop_machine(host);
}

/* The line of a machine has closed. */
static void
handle_closed(struct run *run, struct host *host)
{
    struct psd_error err = {0};

    if (run->watch.phase == WATCH_GATHERING && !run->ending) {
        if (gather_closed(&run->gather, host, psi_monotonic_ms(), &err) != PSD_OK) {
            snprintf(run->obstacle, sizeof(run->obstacle), "%s", err.text);
            run_tell(run, WATCH_CANNOT_START, (uint32_t)(host - run->hosts), 0);
            drop_machine(host);
        }
    } else if (run->ending) {
        const pid_t pid = host->pid;

        host_close(host);
        if (host->machine->here && (host->status == -1 || !WIFEXITED(host->status))) {
            host->pid = pid;
            bury_local(run, host);
            host->pid = 0;
        }
        drop_machine(host);
    } else {
        const char *why =
            host->machine->joined ? join_why_left(run->args->join, host->machine->rank) : "";

        lose_machine(run, host, why[0] != '\0' ? why : NULL, false);
    }
}

/* A machine that was lost came back, or came before its loss was heard of. */
static void
welcome_back(struct run *run, struct host *host, const struct join_member *member, int line)
{
    if (host->state != HOST_GONE) {
        lose_machine(run, host, "its psd_run was started anew", false);
    }
    if (!watch_replaces(&run->watch)) {
        close(line);
        return;
    }
    console_say(&run->console, "%s is back, on %s", host->machine->name, member->host);
    runlog_line(&run->runlog, "MACHINE-BACK", "%s on %s, pid %d", host->machine->name, member->host,
                member->pid);
    host_welcome(host, member, line);
    host->heard_ms = psi_monotonic_ms();
    host->returning = true;
    run_watch_line(run, host);
    free(run->peers); /* it may have another address now */
    run->peers = NULL;
}

static void
handle_join(struct run *run)
{
    struct join_member member;
    char refusal[512];
    int line;

    join_turn(run->args->join);
    while (join_next_refusal(run->args->join, refusal, sizeof(refusal))) {
        runlog_line(&run->runlog, "REFUSED", "%s", refusal);
    }
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        line =
            host->machine->joined ? join_take(run->args->join, host->machine->rank, &member) : -1;
        if (line >= 0) {
            welcome_back(run, host, &member, line);
        }
    }
}

/* A machine that is back cannot be used; another may still come in its place. */
static void
turn_away(struct run *run, struct host *host, const char *why)
{
    console_say(&run->console, "%s", why);
    host->returning = false;
    join_refuse(run->args->join, host->machine->rank, why);
    lose_machine(run, host, why, false);
}

/* Machines that are back get what they need; then their workers start. */
static void
go_on_returning(struct run *run)
{
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct psd_error err = {0};

        if (!run->hosts[i].returning || run->ending) {
            continue;
        }
        switch (gather_return(&run->gather, i, &err)) {
        case GATHER_WAIT:
            break;
        case GATHER_READY:
            run->hosts[i].returning = false;
            run->hosts[i].lost = false;
            run_tell(run, WATCH_MACHINE_BACK, i, 0);
            break;
        case GATHER_FAILED:
            turn_away(run, &run->hosts[i], err.text);
            break;
        }
    }
}

/* ------------------------------------------------------------------------ messages of agents ---
 */

static void
handle_exited(struct run *run, uint32_t slot, int status)
{
    struct process *process = &run->processes[slot];
    const struct watch_event event = {.kind = WATCH_EXITED,
                                      .slot = slot,
                                      .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                      .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};

    process->end_ms = wall_clock_ms();
    runlog_line(&run->runlog, "EXIT", "%s pid %d code %d signal %d", process->name,
                (int)process->pid, event.code, event.signal);
    watch_event(&run->watch, &event, psi_monotonic_ms());
    report_exit(run, &event);
}

/* Who started us in the background is told how the start went, once. */
static void
tell_detached(struct run *run, const char *how)
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
    snprintf(run->master, sizeof(run->master), "%.127s", address);
    runlog_line(&run->runlog, "READY", "master at %s", run->master);
    console_say(&run->console, "job begins: %u worker%s, %u server%s, master at %s",
                run->plan->workers, run->plan->workers == 1 ? "" : "s", run->plan->servers,
                run->plan->servers == 1 ? "" : "s", run->master);
    status_start(&run->status, run->master, run->console.terminal ? SHOWN_MS : ASKED_MS);
    run_tell(run, WATCH_READY, 0, 0);
}

/* First "tcp://127.0.0.1:PORT", then what tidings.h has. */
static void
handle_master_line(struct run *run, const char *line)
{
    struct psi_tiding tiding;
    uint32_t slot;

    if (run->master[0] == '\0') {
        handle_ready(run, line);
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
    watch_told(&run->watch, &tiding, psi_monotonic_ms());
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
handle_process_message(struct run *run, const struct link_message *message)
{
    struct process *process = &run->processes[message->slot];

    switch ((enum link_kind)message->kind) {
    case LINK_STARTED:
        orders_open_output(run, message->slot); /* so far the life before may have printed */
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
        runlog_line(&run->runlog, "PROCESS", "%s pid %d on %s: %.*s", process->name,
                    message->number, run_host_of(run, message->slot)->machine->name,
                    (int)message->bytes, message->data);
        run_tell(run, WATCH_STARTED, message->slot, 0);
        if (all_started(run)) {
            tell_detached(run, "started");
        }
        break;
    case LINK_START_FAILED:
        process->start_pending = false;
        process->error = message->number;
        runlog_line(&run->runlog, "PROCESS", "%s: %s", process->name, strerror(message->number));
        run_tell(run, WATCH_START_FAILED, message->slot, 0);
        break;
    case LINK_OUTPUT:
        if (process->output != NULL) {
            const struct output_piece piece = {
                .stream = (uint32_t)message->number & LINK_OUTPUT_STREAM,
                .broken = (message->number & LINK_OUTPUT_BROKEN) != 0,
                .bytes = message->data,
                .count = message->bytes};

            output_take(process->output, &run->console, &piece, psi_monotonic_ms());
        }
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

/* A machine cannot be used. The others may have something to tell as well. */
static void
refuse_machine(struct run *run, struct host *host, const struct psd_error *why)
{
    if (host->returning) {
        turn_away(run, host, why->text);
        return;
    }
    if (gather_refuse(&run->gather, host, why->text, psi_monotonic_ms(), NULL) == PSD_OK) {
        drop_machine(host);
        return;
    }
    snprintf(run->obstacle, sizeof(run->obstacle), "%s", why->text);
    run_tell(run, WATCH_CANNOT_START, (uint32_t)(host - run->hosts), 0);
}

static void
handle_message(struct run *run, struct host *host, const struct link_message *message)
{
    struct psd_error err = {0};

    if (message->kind == LINK_PULSE) {
        if (message->number == LINK_PULSE_ROLL) {
            run_tell(run, WATCH_ANSWERED, (uint32_t)(host - run->hosts), 0);
        }
        return;
    }
    if (message->kind == LINK_HELLO || message->kind == LINK_SYNCED ||
        message->kind == LINK_SET_UP || message->kind == LINK_REACHED) {
        if (gather_message(&run->gather, host, message, &err) != PSD_OK) {
            refuse_machine(run, host, &err);
        }
    } else if (message->slot < run->slots) {
        handle_process_message(run, message);
    }
}

static void
handle_line(struct run *run, struct host *host)
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
        handle_closed(run, host);
    }
}

/* --------------------------------------------------------------------------------- signals --- */

static void
handle_signals(struct run *run)
{
    struct signalfd_siginfo info;

    while (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        const int number = (int)info.ssi_signo;

        if (number == SIGUSR1 || number == SIGUSR2 || number == SIGTSTP || number == SIGCONT) {
            for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
                orders_signal(run, slot, number);
            }
            if (number == SIGTSTP) { /* what sleeps is lost to the others, so the job goes on */
                console_say(
                    &run->console,
                    "a job cannot be suspended: its workers got the signal, and go on unless they "
                    "handle it; Ctrl-C stops the job, --detach runs one in the background");
            }
            continue;
        }
        runlog_line(&run->runlog, "INTERRUPT", "signal %d", number);
        if (run->args->signal_p != NULL) {
            *run->args->signal_p = number;
        }
        console_say(&run->console, run->watch.phase < WATCH_STOPPING
                                       ? "stopping the job; Ctrl-C again kills it at once"
                                       : "killing what is left");
        run_ask_last(run);
        run_tell(run, WATCH_INTERRUPTED, 0, number);
    }
}

/* ------------------------------------------------------------------------------------ loop --- */

static void
handle_event(struct run *run, uint64_t data)
{
    struct host *host = &run->hosts[(uint32_t)data];

    switch ((enum run_source)(data >> 32)) {
    case RUN_SIGNAL:
        handle_signals(run);
        break;
    case RUN_LINE:
        if (host->state != HOST_GONE && host->link.in >= 0) {
            handle_line(run, host);
        }
        break;
    case RUN_STDERR:
        host_read_stderr(host);
        break;
    case RUN_CONTROL:
        control_handle(run);
        break;
    case RUN_JOIN:
        handle_join(run);
        break;
    case RUN_UNSENT:
        break; /* run_pulse() sends */
    }
}

/* We were stopped, or the machine slept: what was silent meanwhile is us. Agents elsewhere may have
 * taken us for dead. */
static void
notice_sleep(struct run *run, uint64_t now_ms)
{
    const uint64_t late_ms = now_ms - run->pulse_ms;

    if (run->pulse_ms == 0 || now_ms < run->pulse_ms || late_ms < LINK_PULSE_MS) {
        return;
    }
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (run->hosts[i].machine->here) {
            run->hosts[i].heard_ms = now_ms;
        }
    }
    if (late_ms >= LINK_LEASE_MS - LINK_PULSE_MS && layout_is_remote(run->layout)) {
        runlog_line(&run->runlog, "SLEPT", "%llu ms", (unsigned long long)late_ms);
        console_say(&run->console,
                    "psd_run itself was stopped for %llu s; agents end what they started when they "
                    "have heard nothing for %d s",
                    (unsigned long long)late_ms / 1000, LINK_LEASE_MS / 1000);
    }
}

/* Says to every agent that we are here, and sends what could not be sent before. */
void
run_pulse(void *context)
{
    struct run *run = context;
    const uint64_t now_ms = psi_monotonic_ms();
    const bool due = now_ms >= run->pulse_ms;

    notice_sleep(run, now_ms);
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (due && host->state > HOST_CALLING && host->state < HOST_GONE) {
            /* The agent here lives without a lease, and says nothing by itself. */
            link_send(&host->link, LINK_PULSE, 0, host->machine->here ? LINK_PULSE_HERE : 0, NULL,
                      0);
        }
        link_flush(&host->link);
    }
    run->pulse_ms = due ? now_ms + LINK_PULSE_MS : run->pulse_ms;
    if (run->args->join != NULL) {
        join_turn(run->args->join);
    }
    if (run->args->tick != NULL && now_ms >= run->tick_ms) {
        run->tick_ms = now_ms + LINK_PULSE_MS;
        run->args->tick(run->args->tick_context);
    }
}

/* Something came that nobody has had the time to read. */
static bool
has_news(const struct host *host)
{
    return poll(&(struct pollfd){.fd = host->link.in, .events = POLLIN}, 1, 0) > 0;
}

/* Before the start the agent here may be busy with what is to be made ready. */
static bool
is_leased(const struct run *run, const struct host *host)
{
    return host->state > HOST_CALLING && host->state < HOST_GONE && !run->ending &&
           (!host->machine->here || run->watch.phase > WATCH_GATHERING);
}

/* Machines that have been silent for too long are lost. */
static void
check_leases(struct run *run)
{
    const uint64_t now_ms = psi_monotonic_ms();

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];
        const uint32_t lease_ms = host->machine->here ? LINK_LEASE_HERE_MS : LINK_LEASE_MS;

        if (is_leased(run, host) && now_ms >= host->heard_ms + lease_ms && !has_news(host)) {
            char how[96];

            snprintf(how, sizeof(how), "nothing was heard of it for %llu ms",
                     (unsigned long long)(now_ms - host->heard_ms));
            host_kill(host);
            if (host->machine->joined) {
                join_drop(run->args->join, host->machine->rank);
            }
            lose_machine(run, host, how, true);
        }
    }
}

static bool
all_gone(const struct run *run)
{
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (run->hosts[i].state != HOST_GONE) {
            return false;
        }
    }
    return true;
}

/* After an end: who does not end in time is given up. */
static void
check_end(struct run *run)
{
    if (run->ending && all_gone(run)) {
        run_tell(run, WATCH_ALL_GONE, 0, 0);
    }
    if (!run->ending || psi_monotonic_ms() < run->end_ms) {
        return;
    }
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (host->state == HOST_GONE || (host->link.in >= 0 && has_news(host))) {
            continue;
        }
        host_kill(host);
        if (host->machine->here) {
            bury_local(run, host);
        } else {
            host->lost = true;
            report_given_up(run, host);
        }
        drop_machine(host);
    }
}

static void
earlier(uint64_t *until_ms, uint64_t ms)
{
    *until_ms = ms < *until_ms ? ms : *until_ms;
}

static int
wait_ms(struct run *run, uint64_t now_ms)
{
    uint64_t until_ms = watch_deadline(&run->watch);

    if (!console_flush(&run->console)) {
        earlier(&until_ms, now_ms + CONSOLE_MS);
    }
    if (run->watch.phase == WATCH_GATHERING && now_ms < run->begin_ms + run->args->delay_ms) {
        earlier(&until_ms, run->begin_ms + run->args->delay_ms);
    } else if (run->watch.phase == WATCH_GATHERING) {
        earlier(&until_ms, gather_deadline(&run->gather));
    }
    if (run->console.terminal) {
        earlier(&until_ms, run->redraw_ms);
    }
    if (run->ending) {
        earlier(&until_ms, run->end_ms);
    }
    earlier(&until_ms, run->pulse_ms);
    if (run->args->join != NULL) {
        earlier(&until_ms, join_deadline_ms(run->args->join));
    }
    if (run->args->tick != NULL) {
        earlier(&until_ms, run->tick_ms);
    }
    if (until_ms == UINT64_MAX) {
        return -1;
    }
    return until_ms <= now_ms ? 0 : until_ms - now_ms > 60000 ? 60000 : (int)(until_ms - now_ms);
}

/* Waits for room where something is left to be sent. */
static void
watch_unsent(struct run *run)
{
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];
        const bool same = host->link.in == host->link.out;
        struct epoll_event event = {.data.u64 = (uint64_t)(same ? RUN_LINE : RUN_UNSENT) << 32 | i};

        if (host->link.out < 0 || host->state == HOST_GONE || host->state == HOST_AWAY) {
            continue;
        }
        event.events = (same ? EPOLLIN : 0) | (link_pending(&host->link) > 0 ? EPOLLOUT : 0);
        if (epoll_ctl(run->epoll, EPOLL_CTL_MOD, host->link.out, &event) != 0 && errno == ENOENT &&
            event.events != 0) {
            epoll_ctl(run->epoll, EPOLL_CTL_ADD, host->link.out, &event);
        }
    }
}

/* How long those who were asked to stop may still take. */
static unsigned long long
seconds_left(const struct run *run, uint64_t now_ms)
{
    const uint64_t until_ms =
        run->watch.phase == WATCH_STOPPING ? run->watch.deadline_ms : run->end_ms;

    return until_ms == UINT64_MAX || until_ms <= now_ms ? 0 : (until_ms - now_ms + 999) / 1000;
}

static uint32_t
workers_alive(const struct run *run)
{
    uint32_t count = 0;

    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
        count += run->watch.slots[slot].alive;
    }
    return count;
}

static void
redraw(struct run *run, uint64_t now_ms)
{
    char missing[200];
    char text[256];

    if (!run->console.terminal || now_ms < run->redraw_ms) {
        return;
    }
    run->redraw_ms = now_ms + REDRAW_MS;
    if (run->watch.phase == WATCH_GATHERING) {
        gather_missing(&run->gather, missing, sizeof(missing));
        snprintf(text, sizeof(text), "%llu s  waiting for %s",
                 (unsigned long long)(now_ms - run->begin_ms) / 1000, missing);
        console_status(&run->console, missing[0] != '\0' ? text : "");
    } else if (run->watch.phase == WATCH_ASKING) {
        snprintf(text, sizeof(text), "%llu s  something failed: finding out what",
                 (unsigned long long)(now_ms - run->begin_ms) / 1000);
        console_status(&run->console, text);
    } else if (run->watch.phase == WATCH_STOPPING || run->watch.phase == WATCH_ENDING) {
        snprintf(text, sizeof(text), "%llu s  stopping, %llu s left",
                 (unsigned long long)(now_ms - run->begin_ms) / 1000, seconds_left(run, now_ms));
        console_status(&run->console, text);
    } else if (run->watch.config.foreign) { /* nobody there to ask for more */
        snprintf(text, sizeof(text), "%llu s  workers %u/%u",
                 (unsigned long long)(now_ms - run->begin_ms) / 1000, workers_alive(run),
                 run->plan->workers);
        console_status(&run->console, text);
    } else {
        status_text(&run->status, now_ms - run->begin_ms, run->plan->workers, text, sizeof(text));
        console_status(&run->console, text);
    }
}

static void
loop(struct run *run)
{
    struct epoll_event events[EVENTS_MAX];

    while (run->watch.phase != WATCH_ENDED) {
        int count;

        go_on_gathering(run);
        go_on_returning(run);
        run_pulse(run);
        watch_unsent(run);
        redraw(run, psi_monotonic_ms());
        if (run->watch.phase == WATCH_ENDED) {
            return;
        }
        count = epoll_wait(run->epoll, events, EVENTS_MAX, wait_ms(run, psi_monotonic_ms()));
        for (int i = 0; i < count && run->watch.phase != WATCH_ENDED; i++) {
            handle_event(run, events[i].data.u64);
        }
        if (run->watch.phase == WATCH_GATHERING) {
            gather_missing(&run->gather, run->obstacle, sizeof(run->obstacle));
        }
        watch_tick(&run->watch, psi_monotonic_ms());
        check_leases(run);
        check_end(run);
    }
}

/* ------------------------------------------------------------------------------- the end --- */

/* The result line of the lowest rank that printed one. */
static void
find_result(struct run *run)
{
    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots && run->result[0] == '\0';
         slot++) {
        const struct process *process = &run->processes[slot];

        if (process->output != NULL && process->output->result[0] != '\0') {
            snprintf(run->result, sizeof(run->result), "%s: %s", process->name,
                     process->output->result);
        }
    }
}

static void
finish(struct run *run)
{
    struct psd_error err = {0};

    for (uint32_t slot = 0; slot < run->slots; slot++) {
        if (run->processes[slot].output != NULL) {
            output_flush(run->processes[slot].output, &run->console);
        }
    }
    run->ended_wall_ms = wall_clock_ms();
    find_result(run);
    status_stop(&run->status);
    console_status(&run->console, "");
    report_end(run, psi_monotonic_ms() - run->begin_ms);
    if (job_json_write(run, &err) != PSD_OK) {
        console_say(&run->console, "%s", err.text);
    }
    tell_detached(run, "ended");
}

/* A worker failed at once, says why, and its port is taken: other ports are worth a try. */
static bool
lacked_a_port(const struct run *run)
{
    /* The system's words; gRPC's, which keeps these to itself. */
    static const char *const complaints[] = {"address already in use",
                                             "could not start grpc server"};
    const struct process *process = &run->processes[run->watch.cause_slot];
    const uint64_t quick_ms = run->watch.config.foreign ? FOREIGN_QUICK_MS : PORT_QUICK_MS;
    char tail[OUTPUT_TAIL_BYTES];
    bool said = false;

    if (run->watch.cause != WATCH_CAUSE_PROCESS || !process->port_taken ||
        process->output == NULL || process->end_ms - process->start_ms > quick_ms) {
        return false;
    }
    output_tail(process->output, PORT_LINES, tail, sizeof(tail));
    for (size_t i = 0; i < sizeof(complaints) / sizeof(complaints[0]); i++) {
        said = said || strcasestr(tail, complaints[i]) != NULL;
    }
    return said;
}

static int
finish_check(struct run *run)
{
    char text[640];
    int code = watch_exit_code(&run->watch);

    console_status(&run->console, "");
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        code = run->hosts[i].problems.count > 0 ? WATCH_CODE_CANNOT_START : code;
        if (run->args->addresses_p != NULL) {
            memcpy(run->args->addresses_p[i], run->hosts[i].address, HOST_ADDRESS_BYTES);
        }
    }
    if (run->args->addresses_p != NULL && code == 0) {
        return code;
    }
    report_check(run);
    if (run->watch.cause != WATCH_CAUSE_NONE) { /* it ended before all had told what is missing */
        end_text(run, text, sizeof(text));
        fprintf(stderr, "psd_run: %s\n", text);
    }
    printf("%s\n", code == 0 ? "everything is ready" : "not everything is ready");
    return code;
}

int
run_job(const struct run_args *args)
{
    struct psd_error err = {0};
    struct run run;
    int code;

    if (run_init(&run, args, &orders_ops, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        run_fini(&run);
        return err.status == PSD_ERR_INVALID ? WATCH_CODE_USAGE : WATCH_CODE_CANNOT_START;
    }
    if (!args->check) {
        report_begin(&run);
    }
    watch_begin(&run.watch, psi_monotonic_ms() + args->delay_ms);
    loop(&run);
    if (args->check) {
        code = finish_check(&run);
    } else {
        finish(&run);
        code = watch_exit_code(&run.watch);
        *args->port_taken_p = lacked_a_port(&run);
    }
    run_fini(&run);
    return code;
}
