/*
 * machines.c - machines come into a job, are lost, and come back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/machines.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/monotonic.h"
#include "launch/agent/keeper.h"
#include "launch/rules/watch_machines.h"
#include "launch/rules/watch_stop.h"
#include "launch/run/orders.h"
#include "launch/run/report.h"
#include "launch/run/run_page.h"
#include "launch/run/tf_files.h"

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
        cause_place(&run->watch.inquest, i, run->gather.computers.node_of[i]);
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
        run_page_begin(run);
    }
}

void
machines_gather(struct run *run)
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
drop(struct host *host)
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

void
machines_lose(struct run *run, struct host *host, const char *how, bool silent)
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
    drop(host);
}

void
machines_give_up(struct run *run, struct host *host)
{
    host_kill(host);
    if (host->machine->here) {
        bury_local(run, host);
    } else {
        host->lost = true;
        report_given_up(run, host);
    }
    drop(host);
}

void
machines_closed(struct run *run, struct host *host)
{
    struct psd_error err = {0};

    if (run->watch.phase == WATCH_GATHERING && !run->ending) {
        if (gather_closed(&run->gather, host, psi_monotonic_ms(), &err) != PSD_OK) {
            snprintf(run->obstacle, sizeof(run->obstacle), "%s", err.text);
            run_tell(run, WATCH_CANNOT_START, (uint32_t)(host - run->hosts), 0);
            drop(host);
        }
    } else if (run->ending) {
        const pid_t pid = host->pid;

        host_close(host);
        if (host->machine->here && (host->status == -1 || !WIFEXITED(host->status))) {
            host->pid = pid;
            bury_local(run, host);
            host->pid = 0;
        }
        drop(host);
    } else {
        const char *why =
            host->machine->joined ? join_why_left(run->args->join, host->machine->rank) : "";

        machines_lose(run, host, why[0] != '\0' ? why : NULL, false);
    }
}

/* A machine that was lost came back, or came before its loss was heard of. */
static void
welcome_back(struct run *run, struct host *host, const struct join_member *member, int line)
{
    if (host->state != HOST_GONE) {
        machines_lose(run, host, "its psd_run was started anew", false);
    }
    if (!watch_replaces(&run->watch)) {
        close(line);
        return;
    }
    console_tell(&run->console, CONSOLE_FAILOVER, "%s is back, on %s", host->machine->name,
                 member->host);
    runlog_line(&run->runlog, "MACHINE-BACK", "%s on %s, pid %d", host->machine->name, member->host,
                member->pid);
    host_welcome(host, member, line);
    host->heard_ms = psi_monotonic_ms();
    host->returning = true;
    run_watch_line(run, host);
    free(run->peers); /* it may have another address now */
    run->peers = NULL;
}

/* A batch system takes a machine away: the job is saved, and stopped; it begins anew when all are back. */
static void
save_for(struct run *run, uint32_t rank)
{
    console_say(&run->console,
                "rank %u was asked to leave: the job is saved, and begins again when all are back",
                rank);
    if (run->args->asked_p != NULL) {
        *run->args->asked_p = true;
    }
    if (run->watch.phase < WATCH_STOPPING && !watch_is_saving(&run->watch)) {
        run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    }
}

void
machines_join(struct run *run)
{
    struct join_member member;
    char refusal[512];
    uint32_t rank;
    int line;

    join_turn(run->args->join);
    while ((rank = join_next_asked(run->args->join)) != 0) {
        save_for(run, rank);
    }
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
    machines_lose(run, host, why, false);
}

void
machines_return(struct run *run)
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

void
machines_refuse(struct run *run, struct host *host, const struct psd_error *why)
{
    if (host->returning) {
        turn_away(run, host, why->text);
        return;
    }
    gather_refuse(&run->gather, host, why->text, psi_monotonic_ms());
    drop(host);
}
