/*
 * run.c - carries a plan out.
 *
 * One loop waits for what agents say, signals and the time. What to do about them is decided in
 * gather.c before the job starts and in watch.c from then on; here it is done.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "launch/agent.h"
#include "launch/report.h"
#include "launch/run_state.h"
#include "launch/story.h"

enum {
    EVENTS_MAX = 64,
    REDRAW_MS = 250,
    VISITOR_MS = 300,
    SHOWN_MS = 500,   /* how often the master is asked, for a terminal ... */
    ASKED_MS = 1000,  /* ... and for those who may ask us */
    ANSWER_MS = 2000, /* for an agent to end after the last of its processes should have */
};

/* What an event of the loop is about: kind in the upper half, machine in the lower. */
enum source { SOURCE_SIGNAL, SOURCE_LINE, SOURCE_UNSENT, SOURCE_COMPLAINT, SOURCE_VISITOR };

static uint64_t
clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t
wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void
listen_to(struct run *run, int fd, uint32_t events, enum source source, uint32_t machine)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)source << 32 | machine};

    epoll_ctl(run->epoll, EPOLL_CTL_ADD, fd, &event);
}

static struct host *
host_of(struct run *run, uint32_t slot)
{
    return &run->hosts[run->layout->machine_of[slot]];
}

/* ------------------------------------------------------------------------ orders of watch.c --- */

static void
log_path(const char *directory, const struct process *process, char *path_p, size_t size)
{
    char life[16] = "";

    if (process->restart > 0) {
        snprintf(life, sizeof(life), ".%u", process->restart);
    }
    snprintf(path_p, size, "%s/%s%s.log", directory, process->name, life);
}

/* Whether a rank is in a list like "0,2-5". */
static bool
is_listed(const char *list, uint32_t rank)
{
    while (*list != '\0') {
        char *end;
        const unsigned long first = strtoul(list, &end, 10);
        const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;

        if (end == list) {
            return false;
        }
        if (rank >= first && rank <= last) {
            return true;
        }
        list = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* Where what a process prints goes. */
static void
open_output(struct run *run, uint32_t slot)
{
    struct process *process = &run->processes[slot];
    struct psd_error err;
    char path[4096];

    if (process->output != NULL) { /* of the life before */
        output_fini(process->output, &run->console);
    } else {
        process->output = malloc(sizeof(*process->output));
    }
    if (process->output == NULL) {
        return;
    }
    log_path(run->directory, process, path, sizeof(path));
    if (output_init(process->output, role_of_slot(slot, run->plan->servers), process->name, path,
                    &err) != PSD_OK) {
        console_say(&run->console, "%s; the job goes on", err.text);
    }
    if (role_of_slot(slot, run->plan->servers) == LAUNCH_WORKER) {
        process->output->wanted = run->wanted;
        process->output->hidden = run->args->show != NULL && strcmp(run->args->show, "all") != 0 &&
                                  !is_listed(run->args->show, role_index(slot, run->plan->servers));
    }
    snprintf(path, sizeof(path), "%s/.times/%s.%u", run->directory, process->name,
             process->restart);
    output_keep_times(process->output, path);
}

static void
take_seat(struct run *run, uint32_t slot, struct plan_seat *seat_p)
{
    const struct host *host = host_of(run, slot);
    const enum launch_role role = role_of_slot(slot, run->plan->servers);
    const uint32_t rank = role_index(slot, run->plan->servers);

    *seat_p = (struct plan_seat){.master = run->master,
                                 .address = host->address,
                                 .job = run->args->job,
                                 .restart = run->processes[slot].restart,
                                 .local_rank = run->layout->local_rank[slot],
                                 .local_size = role == LAUNCH_WORKER ? host->machine->workers
                                                                     : host->machine->servers,
                                 .machine = run->layout->machine_of[slot],
                                 .machines = run->layout->machine_count,
                                 .cores = host->cores,
                                 .gpus = run->layout->gpus[slot]};
    if (role == LAUNCH_WORKER) {
        seat_p->knows_flags = host->knows_flags[plan_command(run->plan, rank)];
    }
}

static psd_status
send_start(struct run *run, uint32_t slot, struct psd_error *err)
{
    struct process *process = &run->processes[slot];
    struct host *host = host_of(run, slot);
    struct words environment = {0};
    struct words strings = {0};
    struct words argv = {0};
    struct plan_seat seat;
    char text[1024];
    psd_status status;

    take_seat(run, slot, &seat);
    status = plan_process(run->plan, slot, &seat, &argv, &environment, err);
    if (status != PSD_OK) {
        return status;
    }
    runlog_mask(&argv, text, sizeof(text));
    runlog_line(&run->runlog, "START", "%s: %s", process->name, text);
    open_output(run, slot);
    free(process->command);
    process->command = strdup(text);
    log_path(".", process, text, sizeof(text));
    status = words_add(&strings, role_name(role_of_slot(slot, run->plan->servers)), err);
    status = status == PSD_OK ? words_add(&strings, text, err) : status;
    status = status == PSD_OK ? words_add_all(&strings, &argv, err) : status;
    status = status == PSD_OK ? words_add_all(&strings, &environment, err) : status;
    if (status == PSD_OK) {
        link_send_words(&host->link, LINK_START, slot, (int32_t)argv.count, &strings);
        process->start_pending = true;
    }
    words_fini(&strings);
    words_fini(&argv);
    words_fini(&environment);
    return status;
}

static void
order_start(void *context, uint32_t slot, uint32_t restart)
{
    struct run *run = context;
    struct psd_error err = {0};

    run->processes[slot].restart = run->args->attempt + restart;
    if (send_start(run, slot, &err) != PSD_OK) {
        console_say(&run->console, "%s", err.text);
        link_send(&host_of(run, slot)->link, LINK_START, slot, 0, NULL, 0); /* which is refused */
    }
}

static void
order_signal(void *context, uint32_t slot, int number)
{
    struct run *run = context;

    runlog_line(&run->runlog, "SIGNAL", "%d to %s", number, run->processes[slot].name);
    run->console.daemons_quiet = run->console.daemons_quiet || run->watch.phase >= WATCH_STOPPING;
    link_send(&host_of(run, slot)->link, LINK_SIGNAL, slot, number, NULL, 0);
}

static void
order_end(void *context, uint32_t grace_ms)
{
    struct run *run = context;

    runlog_line(&run->runlog, "STOP", "what is left has %u ms", grace_ms);
    run->ending = true;
    run->console.daemons_quiet = true;
    run->end_ms = clock_ms() + grace_ms + ANSWER_MS;
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (host->state == HOST_CALLING && !host->machine->here) {
            kill(host->pid, SIGKILL); /* nothing runs there yet */
        } else if (host->state == HOST_AWAY) {
            host->state = HOST_GONE;
        } else {
            link_send(&host->link, LINK_END, 0, (int32_t)grace_ms, NULL, 0);
        }
    }
}

static const struct watch_ops watch_ops = {
    .start = order_start, .signal = order_signal, .end = order_end};

/* ------------------------------------------------------------------------ lines of machines --- */

static void
watch_line(struct run *run, struct host *host)
{
    const uint32_t machine = (uint32_t)(host - run->hosts);

    listen_to(run, host->link.in, EPOLLIN, SOURCE_LINE, machine);
    if (host->complaint_fd >= 0) {
        listen_to(run, host->complaint_fd, EPOLLIN, SOURCE_COMPLAINT, machine);
    }
}

static void
on_new_call(void *context, struct host *host)
{
    struct run *run = context;

    runlog_line(&run->runlog, "SSH", "%s, try %u, pid %d", host->machine->name, host->tries,
                (int)host->pid);
    watch_line(run, host);
}

static void
tell(struct run *run, enum watch_event_kind kind, uint32_t slot, int number)
{
    const struct watch_event event = {.kind = kind, .slot = slot, .signal = number};

    watch_event(&run->watch, &event, clock_ms());
}

static void
go_on_gathering(struct run *run)
{
    struct psd_error err = {0};
    uint32_t machine = 0;

    if (run->watch.phase != WATCH_GATHERING || run->checked) {
        return;
    }
    switch (gather_step(&run->gather, clock_ms(), on_new_call, run, &machine, &err)) {
    case GATHER_WAIT:
        break;
    case GATHER_READY:
        if (run->args->check) {
            run->checked = true;
            order_end(run, 0);
            break;
        }
        report_gathered(run);
        tell(run, WATCH_GATHERED, 0, 0);
        break;
    case GATHER_FAILED:
        snprintf(run->obstacle, sizeof(run->obstacle), "%s", err.text);
        tell(run, WATCH_CANNOT_START, machine, 0);
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
        agent_bury(local->pid, kept, count);
    }
    free(kept);
}

static void
lose_machine(struct run *run, struct host *host, const char *how)
{
    const uint32_t machine = (uint32_t)(host - run->hosts);
    const pid_t pid = host->pid;
    int number = 0;

    host_close(host);
    host->lost = true;
    if (host->machine->here) {
        host->pid = pid;
        bury_local(run, host);
        host->pid = 0;
        number = host->status != -1 && WIFSIGNALED(host->status) ? WTERMSIG(host->status) : 0;
    }
    report_lost(run, host, pid, how);
    tell(run, WATCH_MACHINE_LOST, machine, number);
    drop_machine(host);
}

/* The line of a machine has closed. */
static void
handle_closed(struct run *run, struct host *host)
{
    struct psd_error err = {0};

    if (run->watch.phase == WATCH_GATHERING && !run->ending) {
        if (gather_closed(&run->gather, host, clock_ms(), &err) != PSD_OK) {
            snprintf(run->obstacle, sizeof(run->obstacle), "%s", err.text);
            tell(run, WATCH_CANNOT_START, (uint32_t)(host - run->hosts), 0);
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
        lose_machine(run, host, NULL);
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

    process->end_ms = wall_ms();
    runlog_line(&run->runlog, "EXIT", "%s pid %d code %d signal %d", process->name,
                (int)process->pid, event.code, event.signal);
    watch_event(&run->watch, &event, clock_ms());
    report_exit(run, &event);
}

/* Who started us in the background is told how the start went, once. */
static void
tell_detached(struct run *run, const char *how)
{
    if (run->args->detach_fd >= 0 && !run->told_detached) {
        dprintf(run->args->detach_fd, "%s %s\n", how, run->directory != NULL ? run->directory : "");
        run->told_detached = true;
    }
}

/* "tcp://127.0.0.1:PORT\n" */
static void
handle_ready(struct run *run, const struct link_message *message)
{
    const size_t used = strlen(run->master);
    char *newline;

    snprintf(run->master + used, sizeof(run->master) - used, "%.*s", (int)message->bytes,
             message->data);
    newline = strchr(run->master, '\n');
    if (newline == NULL) {
        return; /* if nothing more comes, its exit or the start timeout tells the rest */
    }
    *newline = '\0';
    runlog_line(&run->runlog, "READY", "master at %s", run->master);
    console_say(&run->console, "job begins: %u worker%s, %u server%s, master at %s",
                run->plan->workers, run->plan->workers == 1 ? "" : "s", run->plan->servers,
                run->plan->servers == 1 ? "" : "s", run->master);
    status_start(&run->status, run->master, run->console.terminal ? SHOWN_MS : ASKED_MS);
    tell_detached(run, "started");
    tell(run, WATCH_READY, 0, 0);
}

/* Who has joined stands in the master's log. */
static void
read_master_line(struct run *run)
{
    const char *mark = strstr(run->master_line, " MEMBER-JOINED worker ");
    unsigned rank;

    if (mark != NULL && sscanf(mark, " MEMBER-JOINED worker %u joined", &rank) == 1 &&
        rank < run->plan->workers) {
        tell(run, WATCH_JOINED, 1 + run->plan->servers + rank, 0);
    }
}

static void
follow_master(struct run *run, const struct link_message *message)
{
    for (uint32_t i = 0; i < message->bytes; i++) {
        if (message->data[i] == '\n') {
            run->master_line[run->master_line_bytes] = '\0';
            read_master_line(run);
            run->master_line_bytes = 0;
        } else if (run->master_line_bytes < sizeof(run->master_line) - 1) {
            run->master_line[run->master_line_bytes++] = message->data[i];
        }
    }
}

static void
handle_process_message(struct run *run, const struct link_message *message)
{
    struct process *process = &run->processes[message->slot];

    switch ((enum link_kind)message->kind) {
    case LINK_STARTED:
        process->start_pending = false;
        process->pid = message->number;
        process->start_ms = wall_ms();
        process->end_ms = 0;
        runlog_line(&run->runlog, "PROCESS", "%s pid %d on %s: %.*s", process->name,
                    message->number, host_of(run, message->slot)->machine->name,
                    (int)message->bytes, message->data);
        tell(run, WATCH_STARTED, message->slot, 0);
        break;
    case LINK_START_FAILED:
        process->start_pending = false;
        process->error = message->number;
        runlog_line(&run->runlog, "PROCESS", "%s: %s", process->name, strerror(message->number));
        tell(run, WATCH_START_FAILED, message->slot, 0);
        break;
    case LINK_OUTPUT:
        if (process->output != NULL) {
            output_take(process->output, &run->console, message->data, message->bytes, clock_ms());
        }
        if (message->slot == 0) {
            follow_master(run, message);
        }
        break;
    case LINK_READY:
        handle_ready(run, message);
        break;
    case LINK_EXITED:
        handle_exited(run, message->slot, message->number);
        break;
    default:
        break;
    }
}

static void
handle_message(struct run *run, struct host *host, const struct link_message *message)
{
    struct psd_error err = {0};

    if (message->kind == LINK_HELLO || message->kind == LINK_SYNCED ||
        message->kind == LINK_SET_UP || message->kind == LINK_REACHED) {
        if (gather_message(&run->gather, host, message, &err) != PSD_OK) {
            snprintf(run->obstacle, sizeof(run->obstacle), "%s", err.text);
            tell(run, WATCH_CANNOT_START, (uint32_t)(host - run->hosts), 0);
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

    host->heard_ms = read == 1 ? clock_ms() : host->heard_ms;
    while (run->watch.phase != WATCH_ENDED && (result = link_next(&host->link, &message)) == 1) {
        handle_message(run, host, &message);
        host->heard_ms = clock_ms(); /* the console may have taken its time */
    }
    if ((read < 0 || result < 0) && host->state != HOST_GONE) {
        handle_closed(run, host);
    }
}

/* -------------------------------------------------------------------------------- visitors --- */

static void
stop_for_visitor(struct run *run, bool at_once)
{
    runlog_line(&run->runlog, "INTERRUPT", "psd_run stop");
    console_say(&run->console, "stopping the job: psd_run stop");
    tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    if (at_once) {
        tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    }
}

/* One question, one answer: "show", "stop", "stop now". Only our own user gets this far. */
static void
answer_visitor(struct run *run, int fd)
{
    const struct timeval limit = {.tv_usec = VISITOR_MS * 1000};
    char line[64] = "";
    char *answer = NULL;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (read(fd, line, sizeof(line) - 1) <= 0) {
        return; /* somebody who only wanted to know whether we are here */
    }
    if (strcmp(line, "show\n") == 0) {
        answer = story_tell(run);
    } else if (strcmp(line, "stop\n") == 0 || strcmp(line, "stop now\n") == 0) {
        stop_for_visitor(run, strcmp(line, "stop now\n") == 0);
        answer = strdup("stopping\n");
    }
    for (size_t at = 0, bytes = answer != NULL ? strlen(answer) : 0; at < bytes;) {
        const ssize_t written = send(fd, answer + at, bytes - at, MSG_NOSIGNAL);

        if (written <= 0) {
            break;
        }
        at += (size_t)written;
    }
    free(answer);
}

static void
handle_visitor(struct run *run)
{
    const int fd = accept4(run->args->listener, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    if (fd < 0) {
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid()) {
        answer_visitor(run, fd);
    }
    close(fd);
}

/* --------------------------------------------------------------------------------- signals --- */

static void
handle_signals(struct run *run)
{
    struct signalfd_siginfo info;

    while (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        const int number = (int)info.ssi_signo;

        if (number == SIGUSR1 || number == SIGUSR2) {
            for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
                order_signal(run, slot, number);
            }
            continue;
        }
        if (number == SIGTSTP) {
            console_say(&run->console,
                        "a job cannot be suspended; Ctrl-C stops it, psd_run --detach leaves it "
                        "alone");
            continue;
        }
        runlog_line(&run->runlog, "INTERRUPT", "signal %d", number);
        console_say(&run->console, run->watch.phase < WATCH_STOPPING
                                       ? "stopping the job (once more: at once)"
                                       : "killing what is left");
        tell(run, WATCH_INTERRUPTED, 0, number);
    }
}

/* ------------------------------------------------------------------------------------ loop --- */

static void
handle_event(struct run *run, uint64_t data)
{
    struct host *host = &run->hosts[(uint32_t)data];

    switch ((enum source)(data >> 32)) {
    case SOURCE_SIGNAL:
        handle_signals(run);
        break;
    case SOURCE_LINE:
        if (host->state != HOST_GONE && host->link.in >= 0) {
            handle_line(run, host);
        }
        break;
    case SOURCE_COMPLAINT:
        host_read_complaint(host);
        break;
    case SOURCE_VISITOR:
        handle_visitor(run);
        break;
    case SOURCE_UNSENT:
        break; /* pulse() sends */
    }
}

/* Says to every agent that we are here, and sends what could not be sent before. */
static void
pulse(void *context)
{
    struct run *run = context;
    const uint64_t now_ms = clock_ms();
    const bool due = now_ms >= run->pulse_ms;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (due && host->state > HOST_CALLING && host->state < HOST_GONE && !host->machine->here) {
            link_send(&host->link, LINK_PULSE, 0, 0, NULL, 0);
        }
        link_flush(&host->link);
    }
    run->pulse_ms = due ? now_ms + AGENT_PULSE_MS : run->pulse_ms;
}

/* Something came that nobody has had the time to read. */
static bool
has_news(const struct host *host)
{
    return poll(&(struct pollfd){.fd = host->link.in, .events = POLLIN}, 1, 0) > 0;
}

/* Machines that have been silent for too long are lost. */
static void
check_leases(struct run *run)
{
    const uint64_t now_ms = clock_ms();

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (host->machine->here || host->state <= HOST_CALLING || host->state == HOST_GONE) {
            continue;
        }
        if (now_ms >= host->heard_ms + AGENT_LEASE_MS && !run->ending && !has_news(host)) {
            char how[96];

            snprintf(how, sizeof(how), "nothing was heard of it for %llu ms",
                     (unsigned long long)(now_ms - host->heard_ms));
            kill(host->pid, SIGKILL);
            lose_machine(run, host, how);
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
        tell(run, WATCH_ALL_GONE, 0, 0);
    }
    if (!run->ending || clock_ms() < run->end_ms) {
        return;
    }
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (host->state == HOST_GONE) {
            continue;
        }
        if (host->pid > 0) {
            kill(host->pid, SIGKILL);
        }
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
wait_ms(const struct run *run, uint64_t now_ms)
{
    uint64_t until_ms = watch_deadline(&run->watch);

    if (run->watch.phase == WATCH_GATHERING) {
        earlier(&until_ms, gather_deadline(&run->gather));
    }
    if (run->console.terminal) {
        earlier(&until_ms, run->redraw_ms);
    }
    if (run->ending) {
        earlier(&until_ms, run->end_ms);
    }
    if (layout_is_remote(run->layout)) {
        earlier(&until_ms, run->pulse_ms);
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
        struct epoll_event event = {.data.u64 =
                                        (uint64_t)(same ? SOURCE_LINE : SOURCE_UNSENT) << 32 | i};

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
        pulse(run);
        watch_unsent(run);
        redraw(run, clock_ms());
        if (run->watch.phase == WATCH_ENDED) {
            return;
        }
        count = epoll_wait(run->epoll, events, EVENTS_MAX, wait_ms(run, clock_ms()));
        for (int i = 0; i < count && run->watch.phase != WATCH_ENDED; i++) {
            handle_event(run, events[i].data.u64);
        }
        if (run->watch.phase == WATCH_GATHERING) {
            gather_missing(&run->gather, run->obstacle, sizeof(run->obstacle));
        }
        watch_tick(&run->watch, clock_ms());
        check_leases(run);
        check_end(run);
    }
}

/* ------------------------------------------------------------------------- begin and end --- */

/* Takes the signals that ask psd_run for something, save those it was told to ignore (nohup). */
static int
take_signals(void)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};
    struct sigaction action;
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (sigaction(wanted[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&set, wanted[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A log for every process, three pipes for every ssh. The agent keeps the limit it inherited. */
static void
raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The agent here is forked before anything is opened; the others are called later. */
static psd_status
begin_hosts(struct run *run, struct psd_error *err)
{
    struct agent agent;
    psd_status status = PSD_OK;

    run->hosts = calloc(run->layout->machine_count, sizeof(*run->hosts));
    if (run->hosts == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the machines");
    }
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        run->hosts[i] = (struct host){.status = -1,
                                      .machine = &run->layout->machines[i],
                                      .complaint_fd = -1,
                                      .link = {.in = -1, .out = -1, .failed = true}};
    }
    for (uint32_t i = 0; i < run->layout->machine_count && status == PSD_OK; i++) {
        struct host *host = &run->hosts[i];

        if (host->machine->here) {
            status = agent_fork(&agent, run->args->environment, err);
            if (status == PSD_OK) {
                host_adopt(host, agent.pid, agent.fd);
            }
            continue;
        }
        host->target =
            (struct ssh_target){.host = host->machine->name,
                                .user = host->machine->user[0] != '\0' ? host->machine->user
                                        : run->args->username != NULL  ? run->args->username
                                                                       : "",
                                .port = host->machine->ssh_port,
                                .pem_file = run->args->pem_file,
                                .options = run->args->ssh_options,
                                .program = run->args->program};
        ssh_ask_defaults(&host->target, &host->defaults);
    }
    return status;
}

/* The directory of the logs: made by the first attempt, shared by all. */
static psd_status
open_directory(struct run *run, struct psd_error *err)
{
    char path[4096];
    psd_status status = PSD_OK;

    if (run->args->check) {
        return PSD_OK;
    }
    if (*run->args->directory_p == NULL) {
        status = runlog_make_directory(run->args->out, run->args->directory_p, err);
    }
    run->directory = *run->args->directory_p;
    if (status == PSD_OK) {
        snprintf(path, sizeof(path), "%s/.times", run->directory);
        mkdir(path, 0755);
    }
    if (status == PSD_OK && run->args->detach_fd >= 0) {
        snprintf(path, sizeof(path), "%s/console.log", run->directory);
        status = console_redirect(&run->console, path, err);
    }
    return status;
}

static psd_status
compile_wanted(struct run *run, struct psd_error *err)
{
    char why[128];
    int code;

    if (run->args->result_regex == NULL) {
        return PSD_OK;
    }
    code = regcomp(&run->result_regex, run->args->result_regex, REG_EXTENDED | REG_NOSUB);
    if (code != 0) {
        regerror(code, &run->result_regex, why, sizeof(why));
        return psi_fail(err, PSD_ERR_INVALID, "result_regex '%.100s': %s", run->args->result_regex,
                        why);
    }
    run->wanted = &run->result_regex;
    return PSD_OK;
}

static psd_status
run_init(struct run *run, const struct run_args *args, struct psd_error *err)
{
    psd_status status;

    *run = (struct run){.args = args,
                        .plan = args->plan,
                        .layout = args->layout,
                        .epoll = -1,
                        .runlog = {.fd = -1},
                        .begin_ms = clock_ms(),
                        .began_wall_ms = wall_ms()};
    run->slots = 1 + args->plan->servers + args->plan->workers;
    run->processes = calloc(run->slots, sizeof(*run->processes));
    if (run->processes == NULL || !watch_init(&run->watch, &args->watch, &watch_ops, run)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u processes", run->slots);
    }
    for (uint32_t slot = 0; slot < run->slots; slot++) {
        plan_name(args->plan, slot, run->processes[slot].name);
    }
    status = compile_wanted(run, err);
    if (status != PSD_OK) {
        return status;
    }
    run->signals = take_signals();
    status = begin_hosts(run, err);
    if (status != PSD_OK) {
        return status;
    }
    raise_descriptor_limit();
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    console_init(&run->console, run->signals, pulse, run, args->environment);
    if (runlog_open(&run->runlog, args->runlog, err) != PSD_OK) {
        console_say(&run->console, "%s; the job goes on without it", err->text);
    }
    listen_to(run, run->signals, EPOLLIN, SOURCE_SIGNAL, 0);
    if (args->listener >= 0) {
        listen_to(run, args->listener, EPOLLIN, SOURCE_VISITOR, 0);
    }
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (run->hosts[i].machine->here) {
            watch_line(run, &run->hosts[i]);
        }
    }
    status = open_directory(run, err);
    if (status == PSD_OK && args->sync != NULL && layout_is_remote(args->layout)) {
        status = sync_pack(args->sync, &run->sync, err);
    }
    return status;
}

static void
run_fini(struct run *run)
{
    for (uint32_t slot = 0; run->processes != NULL && slot < run->slots; slot++) {
        if (run->processes[slot].output != NULL) {
            output_fini(run->processes[slot].output, &run->console);
            free(run->processes[slot].output);
        }
        free(run->processes[slot].command);
    }
    if (run->wanted != NULL) {
        regfree(&run->result_regex);
    }
    sync_fini(&run->sync);
    free(run->status.nodes);
    for (uint32_t i = 0; run->hosts != NULL && i < run->layout->machine_count; i++) {
        host_fini(&run->hosts[i]); /* an agent that is still there ends with its line */
    }
    if (run->epoll >= 0) {
        close(run->epoll);
        close(run->signals);
    }
    free(run->hosts);
    free(run->processes);
    watch_fini(&run->watch);
    runlog_close(&run->runlog);
}

static void
gather_init(struct run *run, char *directory, size_t size)
{
    run->gather = (struct gather){.plan = run->plan,
                                  .layout = run->layout,
                                  .hosts = run->hosts,
                                  .host_count = run->layout->machine_count,
                                  .interface = run->args->interface,
                                  .check = run->args->check,
                                  .directory = getcwd(directory, size) != NULL ? directory : "/",
                                  .sync = run->sync.bytes != NULL ? &run->sync : NULL,
                                  .secret_fd = run->args->secret_fd};
    if (run->args->logs_on_nodes && run->directory != NULL &&
        realpath(run->directory, run->logs) != NULL) {
        run->gather.logs = run->logs;
        run->gather.logs_token = ".times"; /* machines that see ours leave the writing to us */
    }
}

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
    run->ended_wall_ms = wall_ms();
    find_result(run);
    status_stop(&run->status);
    console_status(&run->console, "");
    report_end(run, clock_ms() - run->begin_ms);
    if (story_write(run, &err) != PSD_OK) {
        console_say(&run->console, "%s", err.text);
    }
    tell_detached(run, "ended");
}

static int
finish_check(struct run *run)
{
    char text[640];
    int code = watch_exit_code(&run->watch);

    console_status(&run->console, "");
    report_check(run);
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        code = run->hosts[i].problems.count > 0 ? WATCH_CODE_CANNOT_START : code;
    }
    if (run->watch.cause == WATCH_CAUSE_START_TIMEOUT ||
        run->watch.cause == WATCH_CAUSE_INTERRUPT) {
        report_cause(run, text, sizeof(text));
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
    char directory[4096];
    int code;

    if (run_init(&run, args, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        run_fini(&run);
        return err.status == PSD_ERR_INVALID ? WATCH_CODE_USAGE : WATCH_CODE_CANNOT_START;
    }
    gather_init(&run, directory, sizeof(directory));
    if (!args->check) {
        report_begin(&run);
    }
    watch_begin(&run.watch, clock_ms());
    loop(&run);
    if (args->check) {
        code = finish_check(&run);
    } else {
        finish(&run);
        code = watch_exit_code(&run.watch);
    }
    run_fini(&run);
    return code;
}
