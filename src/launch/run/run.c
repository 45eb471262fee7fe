/*
 * run.c - carries a plan out.
 *
 * One loop waits for what agents say, signals and the time. What to do about them is decided in
 * gather.c before the job starts and in watch.c from then on; here it is done.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/run.h"
#include "launch/rules/watch_master.h"
#include "launch/rules/watch_stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "base/monotonic.h"
#include "launch/run/control.h"
#include "launch/run/end_text.h"
#include "launch/run/feeding.h"
#include "launch/run/job_json.h"
#include "launch/run/machines.h"
#include "launch/run/messages.h"
#include "launch/run/orders.h"
#include "launch/run/report.h"
#include "launch/run/run_page.h"
#include "launch/run/run_state.h"
#include "launch/system/wall_clock.h"

enum {
    EVENTS_MAX = 64,
    REDRAW_MS = 250,
    CONSOLE_MS = 20,          /* how often a console that takes nothing is tried again */
    PORT_QUICK_MS = 10000,    /* a worker that lives longer did not fail for want of its port ... */
    FOREIGN_QUICK_MS = 60000, /* ... but importing TensorFlow alone may take longer */
    PORT_LINES = 20,
    HANGS_MS =
        3000, /* beyond the silence that counts as death: the master tells us something every second */
};

/* --------------------------------------------------------------------------------- signals --- */

static void
say_stopping(struct run *run)
{
    console_say(&run->console, run->watch.phase < WATCH_STOPPING
                                   ? "stopping the job; Ctrl-C again kills it at once"
                                   : "killing what is left");
}

/* Another one of the job was asked to leave before this one: the checkpoint that is on its way is for both. */
static bool
is_saved_for_another(const struct run *run, int number)
{
    return number == SIGTERM && run->args->signal_p != NULL && *run->args->signal_p == 0 &&
           watch_is_saving(&run->watch);
}

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
        if (is_saved_for_another(run, number)) {
            *run->args->signal_p = number;
            continue;
        }
        if (run->args->signal_p != NULL) {
            *run->args->signal_p = number;
        }
        run_ask_last(run);
        say_stopping(run);
        run_tell(run, WATCH_INTERRUPTED, 0, number);
        if (watch_is_saving(&run->watch)) {
            console_say(&run->console,
                        "... when a checkpoint is written, %u s at most; the signal again stops it "
                        "without",
                        run->watch.config.save_ms / 1000);
        }
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
            messages_read(run, host);
        }
        break;
    case RUN_STDERR:
        host_read_stderr(host);
        break;
    case RUN_CONTROL:
        control_handle(run);
        break;
    case RUN_JOIN:
        machines_join(run);
        break;
    case RUN_PAGE:
        page_turn(run->page);
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
    run->doubt_ms = 0;
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (run->hosts[i].machine->here) {
            run->hosts[i].heard_ms = now_ms;
        }
    }
    if (late_ms >= LINK_LEASE_MS - LINK_PULSE_MS && layout_is_remote(run->layout)) {
        run->watch.woke_ms = now_ms;
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

/* When a machine is lost if nothing more is heard of it; UINT64_MAX: it is not. */
static uint64_t
lease_end_ms(const struct run *run, const struct host *host)
{
    const uint32_t lease_ms = host->machine->here ? LINK_LEASE_HERE_MS : LINK_LEASE_MS;

    return is_leased(run, host) ? host->heard_ms + lease_ms : UINT64_MAX;
}

/* Machines that have been silent for too long are lost. */
static void
check_leases(struct run *run)
{
    const uint64_t now_ms = psi_monotonic_ms();

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (now_ms >= lease_end_ms(run, host) && !has_news(host)) {
            char how[96];

            snprintf(how, sizeof(how), "nothing was heard of it for %llu ms",
                     (unsigned long long)(now_ms - host->heard_ms));
            host_kill(host);
            if (host->machine->joined) {
                join_drop(run->args->join, host->machine->rank);
            }
            machines_lose(run, host, how, true);
        }
    }
}

/* A master that hangs is told from one that has little time by silence twice in a row: the first may be
 * our own. One that never said anything may be out of our reach, and not of others'. */
static void
check_master(struct run *run)
{
    const uint64_t now_ms = psi_monotonic_ms();
    const uint64_t silent_ms = status_silence_ms(&run->status);
    const bool has_spoken = silent_ms < now_ms - run->watch.slots[0].start_ms;

    if (silent_ms < run->watch.config.silence_ms + HANGS_MS || !has_spoken) {
        run->doubt_ms = 0;
    } else if (run->doubt_ms == 0) {
        run->doubt_ms = now_ms + LINK_PULSE_MS;
    } else if (now_ms >= run->doubt_ms) {
        watch_master_hangs(&run->watch, now_ms);
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
        machines_give_up(run, host);
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
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        earlier(&until_ms, lease_end_ms(run, &run->hosts[i]));
    }
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
say_running(struct run *run, uint64_t now_ms, char *text_p, size_t size)
{
    char waiting[64] = "";

    if (run->feed != NULL) {
        feed_waiting(run->feed, waiting, sizeof(waiting));
    }
    status_text(&run->status,
                &(struct status_line){.elapsed_ms = now_ms - run->begin_ms,
                                      .workers = run->plan->workers,
                                      .waiting = waiting,
                                      .columns = console_columns() - 1},
                text_p, size);
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
        say_running(run, now_ms, text, sizeof(text));
        console_status(&run->console, text);
    }
}

static void
loop(struct run *run)
{
    struct epoll_event events[EVENTS_MAX];

    while (run->watch.phase != WATCH_ENDED) {
        int count;

        machines_gather(run);
        machines_return(run);
        run_pulse(run);
        watch_unsent(run);
        redraw(run, psi_monotonic_ms());
        feeding_look(run, psi_monotonic_ms());
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
        check_master(run);
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
    if (!run->watch.config.masterless) {
        status_hear_out(&run->status);
    }
    status_stop(&run->status);
    feeding_end(run);
    console_status(&run->console, "");
    run_page_end(run);
    report_end(run, psi_monotonic_ms() - run->begin_ms);
    if (job_json_write(run, &err) != PSD_OK) {
        console_say(&run->console, "%s", err.text);
    }
    messages_tell_detached(run, "ended");
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

    if (run->watch.cause != WATCH_CAUSE_PROCESS || run->watch.cause_before ||
        !process->port_taken || process->output == NULL ||
        process->end_ms - process->start_ms > quick_ms) {
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

static psd_status
begin_watching(struct run *run, struct psd_error *err)
{
    psd_status status;

    feeding_begin(run);
    status = run_page_open(run, err);
    if (status == PSD_OK) {
        run_watch_page(run);
    }
    return status;
}

int
run_job(const struct run_args *args)
{
    struct psd_error err = {0};
    struct run run;
    int code;

    if (run_init(&run, args, &orders_ops, &err) != PSD_OK ||
        (!args->check && begin_watching(&run, &err) != PSD_OK)) {
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
