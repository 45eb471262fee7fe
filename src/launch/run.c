/*
 * run.c - carries a plan out.
 *
 * One loop waits for the agent's reports, the processes' output, signals and the time. What to do
 * about them is decided in watch.c; here it is done. Processes are started one by one, each after
 * the report of the last, so that neither side of the line can fill it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "launch/link.h"
#include "launch/report.h"
#include "launch/run_state.h"

enum {
    EVENTS_MAX = 64,
    DRAIN_READS_MAX = 64, /* of a dead process's pipe, in case somebody else still fills it */
    REDRAW_MS = 250,
};

/* What an event of the loop is about: kind in the upper half, slot in the lower. */
enum source { SOURCE_SIGNAL, SOURCE_LINE, SOURCE_READY, SOURCE_OUTPUT };

static uint64_t
clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void
listen_to(struct run *run, int fd, enum source source, uint32_t slot)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)source << 32 | slot};

    epoll_ctl(run->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* ------------------------------------------------------------------------ orders of watch.c --- */

static void
order_start(void *context, uint32_t slot, uint32_t restart)
{
    struct run *run = context;

    psi_assert(run->queue_count < run->slots);
    run->processes[slot].restart = restart;
    run->queue[(run->queue_first + run->queue_count++) % run->slots] = slot;
}

static void
order_signal(void *context, uint32_t slot, int number)
{
    struct run *run = context;
    const struct link_request request = {.kind = LINK_SIGNAL, .slot = slot, .signal = number};

    runlog_line(&run->runlog, "SIGNAL", "%d to %s", number, run->processes[slot].name);
    link_send_request(run->agent.fd, &request, NULL);
}

static void
order_end(void *context, uint32_t grace_ms)
{
    struct run *run = context;
    const struct link_request request = {.kind = LINK_END, .grace_ms = grace_ms};

    runlog_line(&run->runlog, "STOP", "what is left has %u ms", grace_ms);
    link_send_request(run->agent.fd, &request, NULL);
}

static const struct watch_ops watch_ops = {
    .start = order_start, .signal = order_signal, .end = order_end};

/* ------------------------------------------------------------------------------- processes --- */

static void
log_path(const struct run *run, const struct process *process, char *path_p, size_t size)
{
    if (process->restart == 0) {
        snprintf(path_p, size, "%s/%s.log", run->directory, process->name);
    } else {
        snprintf(path_p, size, "%s/%s.%u.log", run->directory, process->name, process->restart);
    }
}

/* Reads until nothing is there; closes at the end of the stream. */
static void
drain(struct run *run, struct output *output, int reads_max)
{
    int64_t bytes = 1;

    for (int i = 0; i < reads_max && output->fd >= 0 && bytes > 0; i++) {
        bytes = output_read(output, &run->console, clock_ms());
    }
    if (bytes < 0) {
        close(output->fd); /* leaves the epoll set by itself */
        output->fd = -1;
    }
}

/* The pipe that a process writes to. Returns its write end, or -1. */
static int
open_output(struct run *run, uint32_t slot)
{
    struct process *process = &run->processes[slot];
    struct psd_error err;
    char path[4096];
    int pipes[2];

    if (process->output != NULL) { /* of the life before */
        drain(run, process->output, DRAIN_READS_MAX);
        output_fini(process->output, &run->console);
    } else {
        process->output = malloc(sizeof(*process->output));
    }
    if (process->output == NULL || pipe2(pipes, O_CLOEXEC) != 0) {
        return -1;
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    log_path(run, process, path, sizeof(path));
    if (output_init(process->output, pipes[0], role_of_slot(slot, run->plan->servers),
                    process->name, path, &err) != PSD_OK) {
        console_say(&run->console, "%s; the job goes on", err.text);
    }
    listen_to(run, pipes[0], SOURCE_OUTPUT, slot);
    return pipes[1];
}

/* The master says on this pipe where it listens. Returns its write end, or -1. */
static int
open_ready(struct run *run)
{
    int pipes[2];

    if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0) {
        return -1;
    }
    run->ready_fd = pipes[0];
    listen_to(run, pipes[0], SOURCE_READY, 0);
    return pipes[1];
}

static psd_status
send_start(struct run *run, uint32_t slot, struct psd_error *err)
{
    struct link_request request = {.kind = LINK_START, .slot = slot};
    struct process *process = &run->processes[slot];
    int fds[LINK_FDS] = {-1, -1, -1};
    struct words environment = {0};
    struct words argv = {0};
    char text[1024];
    psd_status status =
        plan_process(run->plan, slot, process->restart, run->master, &argv, &environment, err);

    if (status != PSD_OK) {
        return status;
    }
    runlog_mask(&argv, text, sizeof(text));
    runlog_line(&run->runlog, "START", "%s: %s", process->name, text);
    fds[LINK_FD_BLOCK] = link_pack(argv.list, environment.list, &request);
    fds[LINK_FD_OUTPUT] = open_output(run, slot);
    fds[LINK_FD_EXTRA] = slot == 0 ? open_ready(run) : -1;
    if (fds[LINK_FD_BLOCK] < 0 || fds[LINK_FD_OUTPUT] < 0 ||
        link_send_request(run->agent.fd, &request, fds) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "start %s", process->name);
    }
    for (size_t i = 0; i < LINK_FDS; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    words_fini(&argv);
    words_fini(&environment);
    return status;
}

static void
start_next(struct run *run)
{
    struct psd_error err = {0};

    while (!run->start_pending && run->queue_count > 0 && run->watch.phase < WATCH_STOPPING) {
        const uint32_t slot = run->queue[run->queue_first];

        run->queue_first = (run->queue_first + 1) % run->slots;
        run->queue_count--;
        if (send_start(run, slot, &err) == PSD_OK) {
            run->start_pending = true;
        } else {
            const struct watch_event event = {.kind = WATCH_START_FAILED, .slot = slot};

            console_say(&run->console, "%s", err.text);
            watch_event(&run->watch, &event, clock_ms());
        }
    }
}

/* ---------------------------------------------------------------------------------- events --- */

static void
handle_report(struct run *run, const struct link_report *report)
{
    struct process *process = &run->processes[report->slot];
    struct watch_event event = {
        .slot = report->slot, .code = report->code, .signal = report->signal};

    if (report->kind == LINK_STARTED) {
        event.kind = WATCH_STARTED;
        process->pid = report->pid;
        runlog_line(&run->runlog, "PROCESS", "%s pid %d", process->name, report->pid);
    } else if (report->kind == LINK_START_FAILED) {
        event.kind = WATCH_START_FAILED;
        process->error = report->code;
        runlog_line(&run->runlog, "PROCESS", "%s: %s", process->name, strerror(report->code));
    } else {
        event.kind = WATCH_EXITED;
        drain(run, process->output, DRAIN_READS_MAX);
        runlog_line(&run->runlog, "EXIT", "%s pid %d code %d signal %d", process->name, report->pid,
                    report->code, report->signal);
    }
    if (report->kind != LINK_EXITED) {
        run->start_pending = false;
    }
    watch_event(&run->watch, &event, clock_ms());
    if (event.kind == WATCH_EXITED) {
        report_exit(run, &event);
    }
}

/* The line closed: the agent is gone. After an end() nothing is left; else everything is ours. */
static void
handle_line_closed(struct run *run)
{
    struct watch_event event = {.kind = WATCH_ALL_GONE};
    int status = 0;

    waitpid(run->agent.pid, &status, 0);
    if (run->watch.phase != WATCH_ENDING || status != 0) {
        event.kind = WATCH_AGENT_LOST;
        event.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        runlog_line(&run->runlog, "AGENT-LOST", "status %d", status);
        agent_bury(&run->agent);
    }
    watch_event(&run->watch, &event, clock_ms());
}

static void
handle_line(struct run *run)
{
    struct link_report report;
    int result;

    while ((result = link_next_report(run->agent.fd, &report)) == 1) {
        psi_assert(report.slot < run->slots);
        handle_report(run, &report);
    }
    if (result < 0) {
        handle_line_closed(run);
    }
}

/* "tcp://127.0.0.1:PORT\n" */
static void
handle_ready(struct run *run)
{
    const size_t used = strlen(run->master);
    const ssize_t bytes = read(run->ready_fd, run->master + used, sizeof(run->master) - used - 1);
    char *newline;

    if (bytes < 0 && errno == EAGAIN) {
        return;
    }
    run->master[used + (size_t)(bytes > 0 ? bytes : 0)] = '\0';
    newline = strchr(run->master, '\n');
    if (newline == NULL && bytes > 0 && used + (size_t)bytes < sizeof(run->master) - 1) {
        return;
    }
    close(run->ready_fd);
    run->ready_fd = -1;
    if (newline == NULL) {
        return; /* it closed without a word: its exit, or the start timeout, tells the rest */
    }
    *newline = '\0';
    runlog_line(&run->runlog, "READY", "master at %s", run->master);
    console_say(&run->console, "job begins: %u worker%s, %u server%s, master at %s",
                run->plan->workers, run->plan->workers == 1 ? "" : "s", run->plan->servers,
                run->plan->servers == 1 ? "" : "s", run->master);
    if (run->console.terminal) {
        status_start(&run->status, run->master);
    }
    watch_event(&run->watch, &(struct watch_event){.kind = WATCH_READY}, clock_ms());
}

static void
handle_signals(struct run *run)
{
    struct signalfd_siginfo info;

    while (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        const int number = (int)info.ssi_signo;
        const struct watch_event event = {.kind = WATCH_INTERRUPTED, .signal = number};

        if (number == SIGUSR1 || number == SIGUSR2) {
            for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
                order_signal(run, slot, number);
            }
            continue;
        }
        runlog_line(&run->runlog, "INTERRUPT", "signal %d", number);
        console_say(&run->console, run->watch.phase < WATCH_STOPPING
                                       ? "stopping the job (once more: at once)"
                                       : "killing what is left");
        watch_event(&run->watch, &event, clock_ms());
    }
}

static void
handle_event(struct run *run, uint64_t data)
{
    struct output *output;

    switch ((enum source)(data >> 32)) {
    case SOURCE_SIGNAL:
        handle_signals(run);
        break;
    case SOURCE_LINE:
        handle_line(run);
        break;
    case SOURCE_READY:
        if (run->ready_fd >= 0) {
            handle_ready(run);
        }
        break;
    case SOURCE_OUTPUT:
        output = run->processes[(uint32_t)data].output;
        drain(run, output, 1);
        break;
    }
}

static int
wait_ms(const struct run *run, uint64_t now_ms)
{
    uint64_t until = watch_deadline(&run->watch);

    if (run->console.terminal && run->redraw_ms < until) {
        until = run->redraw_ms;
    }
    if (until == UINT64_MAX) {
        return -1;
    }
    return until <= now_ms ? 0 : until - now_ms > 60000 ? 60000 : (int)(until - now_ms);
}

static void
redraw(struct run *run, uint64_t now_ms)
{
    char text[256];

    if (run->console.terminal && now_ms >= run->redraw_ms) {
        run->redraw_ms = now_ms + REDRAW_MS;
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

        start_next(run);
        redraw(run, clock_ms());
        count = epoll_wait(run->epoll, events, EVENTS_MAX, wait_ms(run, clock_ms()));
        for (int i = 0; i < count && run->watch.phase != WATCH_ENDED; i++) {
            handle_event(run, events[i].data.u64);
        }
        watch_tick(&run->watch, clock_ms());
    }
}

/* ------------------------------------------------------------------------- begin and end --- */

/* Takes the signals that ask psd_run for something, save those it was told to ignore (nohup). */
static int
take_signals(void)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
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

/* A pipe and a log for every process. The agent, and so the job, keeps the limit it inherited. */
static void
raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static psd_status
run_init(struct run *run, const struct run_args *args, struct psd_error *err)
{
    psd_status status;

    *run = (struct run){.plan = args->plan, .ready_fd = -1, .begin_ms = clock_ms()};
    run->slots = 1 + args->plan->servers + args->plan->workers;
    run->processes = calloc(run->slots, sizeof(*run->processes));
    run->queue = calloc(run->slots, sizeof(*run->queue));
    if (run->processes == NULL || run->queue == NULL ||
        !watch_init(&run->watch, &args->watch, &watch_ops, run)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u processes", run->slots);
    }
    for (uint32_t slot = 0; slot < run->slots; slot++) {
        plan_name(args->plan, slot, run->processes[slot].name);
    }
    run->signals = take_signals();
    status = agent_fork(&run->agent, args->secret_fd, err);
    if (status != PSD_OK) {
        return status;
    }
    raise_descriptor_limit();
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    console_init(&run->console, run->signals, args->environment);
    if (runlog_open(&run->runlog, args->runlog, err) != PSD_OK) {
        console_say(&run->console, "%s; the job goes on without it", err->text);
    }
    listen_to(run, run->signals, SOURCE_SIGNAL, 0);
    listen_to(run, run->agent.fd, SOURCE_LINE, 0);
    return runlog_make_directory(args->out, &run->directory, err);
}

static void
run_fini(struct run *run)
{
    for (uint32_t slot = 0; run->processes != NULL && slot < run->slots; slot++) {
        if (run->processes[slot].output != NULL) {
            output_fini(run->processes[slot].output, &run->console);
            free(run->processes[slot].output);
        }
    }
    if (run->agent.pid > 0) {
        close(run->agent.fd); /* an agent that is still there ends with it */
    }
    free(run->processes);
    free(run->queue);
    free(run->directory);
    watch_fini(&run->watch);
    runlog_close(&run->runlog);
}

int
run_job(const struct run_args *args)
{
    struct psd_error err = {0};
    struct run run;
    int code = WATCH_CODE_CANNOT_START;

    if (run_init(&run, args, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        run_fini(&run);
        return code;
    }
    report_begin(&run);
    watch_begin(&run.watch, clock_ms());
    loop(&run);
    for (uint32_t slot = 0; slot < run.slots; slot++) {
        if (run.processes[slot].output != NULL) {
            drain(&run, run.processes[slot].output, DRAIN_READS_MAX);
            output_flush(run.processes[slot].output, &run.console);
        }
    }
    status_stop(&run.status);
    console_status(&run.console, "");
    report_end(&run, clock_ms() - run.begin_ms);
    code = watch_exit_code(&run.watch);
    run_fini(&run);
    return code;
}
