/*
 * run_state.c - what psd_run knows while a job runs: its beginning and its end, and small steps
 * that several files share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/run_state.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "base/descriptors.h"
#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/agent/agent.h"
#include "launch/rules/watch_workers.h"
#include "launch/system/signal_fd.h"
#include "launch/system/wall_clock.h"
#include "launch/text/memory.h"

static void
listen_to(struct run *run, int fd, uint32_t events, enum run_source source, uint32_t machine)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)source << 32 | machine};

    epoll_ctl(run->epoll, EPOLL_CTL_ADD, fd, &event);
}

struct host *
run_host_of(struct run *run, uint32_t slot)
{
    return &run->hosts[run->layout->machine_of[slot]];
}

void
run_watch_line(struct run *run, struct host *host)
{
    const uint32_t machine = (uint32_t)(host - run->hosts);

    listen_to(run, host->link.in, EPOLLIN, RUN_LINE, machine);
    if (host->stderr_fd >= 0) {
        listen_to(run, host->stderr_fd, EPOLLIN, RUN_STDERR, machine);
    }
}

void
run_watch_page(struct run *run)
{
    if (run->page != NULL) {
        listen_to(run, page_fd(run->page), EPOLLIN, RUN_PAGE, 0);
    }
}

void
run_ask_last(struct run *run)
{
    if (!run->refreshed) {
        run->refreshed = true;
        status_refresh(&run->status);
    }
}

void
run_tell(struct run *run, enum watch_event_kind kind, uint32_t slot, int number)
{
    const struct watch_event event = {.kind = kind, .slot = slot, .signal = number};

    watch_event(&run->watch, &event, psi_monotonic_ms());
}

/* ------------------------------------------------------------------------- begin and end --- */

static void
ask_ssh(struct run *run)
{
    struct ssh_question *questions =
        memory_need(calloc(run->layout->machine_count, sizeof(*questions)));
    size_t count = 0;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (!host->machine->here && !host->machine->joined && host->shell.way == REMOTE_SHELL_SSH) {
            questions[count++] = (struct ssh_question){&host->shell.ssh, &host->shell.defaults};
        }
    }
    ssh_ask_defaults(questions, count);
    free(questions);
}

static psd_status
begin_here(struct run *run, struct host *host, struct psd_error *err)
{
    struct agent_handle agent = run->args->agent;
    psd_status status = PSD_OK;

    if (agent.pid == 0) {
        status = agent_fork(&agent, run->args->environment, run->args->entry_path, 0,
                            run->args->detach_fd >= 0, err);
    }
    if (status == PSD_OK) {
        host_adopt(host, agent.pid, agent.fd);
    }
    if (run->args->advertised != NULL) {
        snprintf(host->advertised, sizeof(host->advertised), "%s", run->args->advertised);
    }
    return status;
}

static psd_status
begin_joined(struct run *run, struct host *host, struct psd_error *err)
{
    struct join_member member;
    const int line = join_take(run->args->join, host->machine->rank, &member);

    if (line < 0) {
        return psi_fail(err, PSD_ERR_PEER_LOST, "%s left before the job began",
                        host->machine->name);
    }
    host_welcome(host, &member, line);
    host->heard_ms = psi_monotonic_ms();
    return PSD_OK;
}

/* The agent here is forked before anything is opened; the others are called later. */
static psd_status
begin_hosts(struct run *run, struct psd_error *err)
{
    psd_status status = PSD_OK;

    run->hosts = memory_need(calloc(run->layout->machine_count, sizeof(*run->hosts)));
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        run->hosts[i] = (struct host){.status = -1,
                                      .machine = &run->layout->machines[i],
                                      .stderr_fd = -1,
                                      .link = {.in = -1, .out = -1, .failed = true}};
    }
    for (uint32_t i = 0; i < run->layout->machine_count && status == PSD_OK; i++) {
        struct host *host = &run->hosts[i];

        if (host->machine->here) {
            status = begin_here(run, host, err);
            continue;
        }
        if (host->machine->joined) {
            status = begin_joined(run, host, err);
            continue;
        }
        host->shell = remote_shell_to(&run->args->shell, host->machine);
    }
    if (status == PSD_OK) {
        ask_ssh(run);
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

static void
init_gather(struct run *run)
{
    if (getcwd(run->here, sizeof(run->here)) == NULL) {
        snprintf(run->here, sizeof(run->here), "/");
    }
    run->gather = (struct gather){.args = run->args,
                                  .plan = run->plan,
                                  .layout = run->layout,
                                  .hosts = run->hosts,
                                  .host_count = run->layout->machine_count,
                                  .directory = run->here,
                                  .sync = run->sync.bytes != NULL ? &run->sync : NULL};
    if (run->directory == NULL || realpath(run->directory, run->logs) == NULL) {
        run->logs[0] = '\0';
    }
    if (run->args->logs_on_nodes && run->logs[0] != '\0') {
        run->gather.logs = run->logs;
        /* Machines that see ours leave the writing to us, if we write. */
        run->gather.logs_token = run->args->logs_here ? ".times" : NULL;
    }
}

psd_status
run_init(struct run *run, const struct run_args *args, const struct watch_ops *ops,
         struct psd_error *err)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
    struct watch_config rules = args->watch;
    psd_status status;

    *run = (struct run){.args = args,
                        .plan = args->plan,
                        .places = layout_copy(args->layout),
                        .epoll = -1,
                        .runlog = {.fd = -1},
                        .begin_ms = psi_monotonic_ms(),
                        .began_wall_ms = wall_clock_ms()};
    run->layout = &run->places;
    rules.machine_of = rules.machine_of != NULL ? run->places.machine_of : NULL;
    run->slots = 1 + args->plan->servers + args->plan->workers;
    run->processes = memory_need(calloc(watch_slots_max(&rules), sizeof(*run->processes)));
    if (!watch_init(&run->watch, &rules, ops, run)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u processes", run->slots);
    }
    for (uint32_t slot = 0; slot < run->slots; slot++) {
        plan_name(args->plan, slot, run->processes[slot].name);
    }
    status = compile_wanted(run, err);
    if (status != PSD_OK) {
        return status;
    }
    run->signals = signal_fd_open(signals, sizeof(signals) / sizeof(signals[0]));
    signal(SIGPIPE, SIG_IGN);
    status = begin_hosts(run, err);
    if (status != PSD_OK) {
        return status;
    }
    /* A log for every process, three pipes for every call, as many for everybody who joins. An
     * agent that was forked before keeps the limit it inherited. */
    (void)psi_descriptors_raise();
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    console_init(&run->console, run->signals, run_pulse, run, args->environment);
    /* A job on this machine alone is open to nobody else: the logs have the warning. */
    run->console.told_root = !layout_is_remote(args->layout);
    if (runlog_open(&run->runlog, args->runlog, err) != PSD_OK) {
        console_say(&run->console, "%s; the job goes on without it", err->text);
    }
    listen_to(run, run->signals, EPOLLIN, RUN_SIGNAL, 0);
    if (args->listener >= 0) {
        listen_to(run, args->listener, EPOLLIN, RUN_CONTROL, 0);
    }
    if (args->join != NULL) {
        listen_to(run, join_fd(args->join), EPOLLIN, RUN_JOIN, 0);
    }
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (run->hosts[i].machine->here || run->hosts[i].machine->joined) {
            run_watch_line(run, &run->hosts[i]);
        }
    }
    status = open_directory(run, err);
    if (status == PSD_OK && args->sync != NULL && layout_is_remote(args->layout)) {
        status = sync_pack(args->sync, &run->sync, err);
    }
    init_gather(run);
    return status;
}

void
run_fini(struct run *run)
{
    for (uint32_t slot = 0; run->processes != NULL && slot < run->slots; slot++) {
        if (run->processes[slot].output != NULL) {
            output_fini(run->processes[slot].output, &run->console);
            free(run->processes[slot].output);
        }
        free(run->processes[slot].command);
        free(run->processes[slot].last_word);
    }
    if (run->epoll >= 0) {
        console_fini(&run->console); /* which may wait, and looks after the rest meanwhile */
    }
    if (run->wanted != NULL) {
        regfree(&run->result_regex);
    }
    sync_fini(&run->sync);
    free(run->status.nodes);
    if (run->args->shown != NULL) {
        run->args->shown->run = NULL;
    }
    for (uint32_t i = 0; run->hosts != NULL && i < run->layout->machine_count; i++) {
        host_fini(&run->hosts[i]); /* an agent that is still there ends with its line */
    }
    if (run->epoll >= 0) {
        close(run->epoll);
        close(run->signals);
    }
    computers_fini(&run->gather.computers);
    free(run->hosts);
    free(run->processes);
    free(run->failovers);
    free(run->moves);
    words_fini(&run->rolling_lines);
    free(run->peers);
    free(run->host_map);
    layout_fini(&run->places);
    psi_tf_config_free(&run->cluster);
    watch_fini(&run->watch);
    runlog_close(&run->runlog);
}
