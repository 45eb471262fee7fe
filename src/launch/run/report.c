/*
 * report.c - what psd_run says about a job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/wait.h>

#include "base/exit_code.h"
#include "base/monotonic.h"
#include "launch/link/link.h"
#include "launch/rules/watch_elsewhere.h"
#include "launch/rules/watch_machines.h"
#include "launch/run/end_text.h"
#include "launch/run/failovers.h"
#include "launch/run/scale_servers.h"
#include "launch/run/scale_workers.h"

enum {
    CLOCK_MS_MAX = 2000,
    PARTS_MAX = 8,    /* chief, worker, evaluator, ps; scheduler, server */
    CAUSE_MAX = 1024, /* who, and a last word (notes.h) */
};

void
report_begin(const struct run *run)
{
    const struct plan *plan = run->plan;

    runlog_line(&run->runlog, "JOB", "%s: %u workers, %u servers; logs in %s", run->args->job,
                plan->workers, plan_start_servers(plan), run->directory);
    if (plan->replicas_why[0] != '\0') {
        runlog_line(&run->runlog, "JOB", "replicas %u (%s)", plan->replicas, plan->replicas_why);
    }
}

/* Parts of a job that are called alike. */
struct part {
    const char *name;
    uint32_t count;
};

static void
count_part(struct part *parts, size_t *count, const char *name)
{
    size_t i = 0;

    while (i < *count && strcmp(parts[i].name, name) != 0) {
        i++;
    }
    parts[i] = (struct part){.name = name, .count = i < *count ? parts[i].count + 1 : 1};
    *count += i == *count;
}

void
report_parts(const struct run *run, char *text_p, size_t size)
{
    struct part parts[PARTS_MAX];
    size_t count = 0;
    size_t used = 0;

    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
        count_part(parts, &count, plan_task(run->plan, slot).name);
    }
    for (uint32_t slot = 1; slot <= plan_start_servers(run->plan); slot++) {
        count_part(parts, &count, plan_task(run->plan, slot).name);
    }
    if (run->watch.config.foreign && !run->watch.config.masterless) {
        count_part(parts, &count, plan_task(run->plan, 0).name);
    }
    text_p[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        const bool plain = parts[i].count == 1 || strcmp(parts[i].name, "ps") == 0;

        used += (size_t)snprintf(text_p + used, size - used, "%s%u %s%s", i > 0 ? ", " : "",
                                 parts[i].count, parts[i].name, plain ? "" : "s");
    }
}

/* Two names in the cluster file, one computer. Those that joined are often several on one. */
static void
tell_of_same(struct run *run, const struct host *host)
{
    const struct host *first = host_first_of_computer(run->hosts, host);

    if (first != host && !host->machine->joined) {
        console_say(&run->console,
                    "%s and %s are one computer (%s): their processes count as neighbours there",
                    first->machine->name, host->machine->name, host->hostname);
    }
}

void
report_gathered(struct run *run)
{
    const uint32_t workers = 1 + run->plan->servers;
    const char *reason = "";
    bool flags;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        const struct host *host = &run->hosts[i];

        runlog_line(&run->runlog, "MACHINE", "%s is %s, address %s, %u cores, clock %+lld ms",
                    host->machine->name, host->hostname, host->address, host->cores,
                    (long long)host->clock_ahead_ms);
        tell_of_same(run, host);
        for (size_t k = 0; k < host->notes.count; k++) {
            runlog_line(&run->runlog, "MACHINE", "%s: %s", host->machine->name,
                        host->notes.list[k]);
        }
    }
    flags = plan_adds_flags(run->plan, 0,
                            run->hosts[run->layout->machine_of[workers]].knows_flags[0], &reason);
    runlog_line(&run->runlog, "FLAGS", "%s: %s", flags ? "flags" : "no flags", reason);
}

/* What runs on a machine, in words: "worker 1, worker 4, server 0". */
static void
list_processes(const struct run *run, const struct host *host, char *text_p, size_t size)
{
    const uint32_t machine = (uint32_t)(host - run->hosts);
    size_t used = 0;

    text_p[0] = '\0';
    for (uint32_t slot = 0; slot < run->slots && used < size; slot++) {
        if (run->layout->machine_of[slot] == machine) {
            used += (size_t)snprintf(text_p + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     run->processes[slot].name);
        }
    }
}

/* How the process behind the line of a machine ended. */
static void
describe_end(const struct host *host, pid_t pid, char *text_p, size_t size)
{
    char said[160];

    remote_shell_last_words(&host->shell, host->stderr_tail, said, sizeof(said));
    if (host->status != -1 && WIFSIGNALED(host->status)) {
        snprintf(text_p, size, "its %s (pid %d here) was killed by signal %d",
                 remote_shell_program(&host->shell), (int)pid, WTERMSIG(host->status));
    } else if (host->status != -1 && WIFEXITED(host->status) && WEXITSTATUS(host->status) > 128 &&
               WEXITSTATUS(host->status) < 255) {
        snprintf(text_p, size, "its agent (psd_agent there) was killed by signal %d",
                 WEXITSTATUS(host->status) - 128);
    } else if (said[0] != '\0') {
        snprintf(text_p, size, "%s says: %s", remote_shell_program(&host->shell), said);
    } else {
        snprintf(text_p, size, "its agent ended");
    }
}

/* The agent here: what it was parent of was killed with it. */
static void
describe_end_here(const struct host *host, pid_t pid, const char *how, char *text_p, size_t size)
{
    const int number = host->status != -1 && WIFSIGNALED(host->status) ? WTERMSIG(host->status) : 0;
    char ended[96] = "ended";

    if (how != NULL) {
        snprintf(ended, sizeof(ended), "does not answer (%.60s)", how);
    } else if (number != 0) {
        snprintf(ended, sizeof(ended), "was killed by somebody (%s)", strsignal(number));
    }
    snprintf(text_p, size,
             "psd_run's helper process on this machine (psd_agent, pid %d), the parent of all "
             "processes of the job here, %s; they were killed with it",
             (int)pid, ended);
}

void
report_lost(struct run *run, struct host *host, pid_t pid, const char *how)
{
    char ended[256];
    char processes[128];
    char where[192];

    if (host->machine->here) {
        describe_end_here(host, pid, how, host->loss, sizeof(host->loss));
        runlog_line(&run->runlog, "MACHINE-LOST", "%s", host->loss);
        return;
    }
    describe_end(host, pid, ended, sizeof(ended));
    host_describe(host, where, sizeof(where));
    list_processes(run, host, processes, sizeof(processes));
    snprintf(host->loss, sizeof(host->loss), "%s was lost: %.200s; it had %s", where,
             how != NULL ? how : ended, processes);
    runlog_line(&run->runlog, "MACHINE-LOST", "%s", host->loss);
    if (run->watch.config.on_worker_death == WATCH_CONTINUE ||
        watch_elsewhere_may(&run->watch, (uint32_t)(host - run->hosts), psi_monotonic_ms())) {
        console_tell(&run->console, CONSOLE_LOSS, "%s", host->loss);
    } else if (host->machine->workers > 0 && watch_replaces(&run->watch)) {
        console_tell(&run->console, CONSOLE_LOSS, "%s; the job waits until it is started again",
                     host->loss);
    }
}

void
report_given_up(struct run *run, const struct host *host)
{
    char where[192];

    host_describe(host, where, sizeof(where));
    runlog_line(&run->runlog, "MACHINE-SILENT", "%s", where);
    console_say(&run->console,
                "%s does not answer; what still runs there ends by itself within %d s of the cut",
                where, LINK_LEASE_MS / 1000 + 1);
}

/* " (why)", where the process has told it. */
static void
add_last_word(const struct run *run, uint32_t slot, char *text_p, size_t size)
{
    const size_t used = strlen(text_p);

    if (run->processes[slot].last_word != NULL) {
        snprintf(text_p + used, size - used, " (%s)", run->processes[slot].last_word);
        run->processes[slot].told_last_word = true;
    }
}

void
report_exit(struct run *run, const struct watch_event *event)
{
    const bool worker = role_of_slot(event->slot, run->plan->servers) == LAUNCH_WORKER;
    const bool failed = event->code != 0 || event->signal != 0;
    const bool leaving = run->watch.phase == WATCH_LEAVING && run->watch.config.foreign;
    char text[CAUSE_MAX];

    if ((!worker && !leaving) || !failed || run->watch.phase >= WATCH_ASKING) {
        return;
    }
    end_text_exit(run, event->slot, event->code, event->signal, text, sizeof(text));
    add_last_word(run, event->slot, text, sizeof(text));
    if (leaving) {
        console_say(&run->console, "%s when the job was done", text);
    } else if (run->watch.config.on_worker_death == WATCH_WAIT) {
        const struct watch_slot *slot = &run->watch.slots[event->slot];
        char when[32];

        end_text_delay(slot->delay_ms, when, sizeof(when));
        console_tell(&run->console, CONSOLE_FAILOVER, "%s; restart %u of %u, %s", text,
                     slot->restarts, run->watch.config.max_restarts, when);
    } else {
        console_tell(&run->console, CONSOLE_LOSS, "%s; the job goes on without it", text);
    }
}

void
report_told(struct run *run, const struct psi_tiding *tiding, uint32_t slot)
{
    char who[256];

    if (tiding->kind == PSI_TIDING_LOST && run->watch.slots[slot].doomed_ms != 0) {
        end_text_name(run, slot, who, sizeof(who));
        console_tell(&run->console, CONSOLE_LOSS,
                     "%s counts as dead: %s; it is killed if it does not end", who, tiding->text);
    }
}

/* A worker runs and has not joined, while others wait for it. */
void
report_late(struct run *run, uint32_t slot, uint64_t waited_ms)
{
    char who[256];

    end_text_name(run, slot, who, sizeof(who));
    console_say(&run->console,
                "%s has not joined the job %llu s after the first worker, and the others wait for "
                "it: it is still busy with something else, or somebody has stopped it",
                who, (unsigned long long)(waited_ms / 1000));
    runlog_line(&run->runlog, "LATE", "%s has not joined after %llu s", who,
                (unsigned long long)(waited_ms / 1000));
}

void
report_check(const struct run *run)
{
    printf("%-20s %-24s %-16s %5s %9s  %s\n", "MACHINE", "ADDRESS", "PROCESSES", "CORES", "CLOCK",
           "STATUS");
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        const struct host *host = &run->hosts[i];
        const struct layout_machine *machine = host->machine;
        const bool met = host->hostname[0] != '\0';
        char processes[64];
        char clock[24] = "-";
        char cores[16] = "-";

        snprintf(processes, sizeof(processes), "%s%uw %us",
                 run->layout->machine_of[0] == i ? "m " : "", machine->workers, machine->servers);
        if (met) {
            snprintf(clock, sizeof(clock), "%+.3f s", (double)host->clock_ahead_ms / 1000);
            snprintf(cores, sizeof(cores), "%u", host->cores);
        }
        printf("%-20s %-24s %-16s %5s %9s  %s\n", machine->name,
               host->address[0] != '\0' ? host->address : "-", processes, cores, clock,
               met && host->problems.count == 0 ? "ready" : "NOT READY");
        for (size_t k = 0; k < host->problems.count; k++) {
            printf("    %s\n", host->problems.list[k]);
        }
        if (host_first_of_computer(run->hosts, host) != host) {
            printf("    the same computer as %s\n",
                   host_first_of_computer(run->hosts, host)->machine->name);
        }
        if (llabs(host->clock_ahead_ms) > CLOCK_MS_MAX) {
            printf("    its clock differs by %.1f s: times in logs will not agree\n",
                   (double)host->clock_ahead_ms / 1000);
        }
    }
    if (run->plan->replicas_why[0] != '\0') {
        printf("replicas %u (%s)\n", run->plan->replicas, run->plan->replicas_why);
    }
}

static void
show_tail(struct run *run, uint32_t slot)
{
    const struct process *process = &run->processes[slot];
    char text[OUTPUT_TAIL_BYTES + 1];
    char *line = text;

    if (process->output == NULL ||
        output_tail(process->output, END_TEXT_TAIL_LINES, text, sizeof(text)) == 0) {
        console_say(&run->console, "%s printed nothing", process->name);
        return;
    }
    console_say(&run->console, "the last lines that %s printed:", process->name);
    while (line != NULL && *line != '\0') {
        char *next = strchr(line, '\n');

        if (next != NULL) {
            *next++ = '\0';
        }
        console_say(&run->console, "  | %.900s", line);
        line = next;
    }
}

/* Last words of others that are not the cause. */
static void
show_other_words(struct run *run)
{
    const char *cause = end_text_last_word(run);

    for (uint32_t slot = 0; slot < run->slots; slot++) {
        const struct process *process = &run->processes[slot];

        if (process->last_word != NULL && !process->told_last_word &&
            (cause == NULL || strcmp(process->last_word, cause) != 0)) {
            console_say(&run->console, "%s: %s", process->name, process->last_word);
        }
    }
}

static void
report_result(struct run *run)
{
    if (run->result[0] != '\0') {
        console_say(&run->console, "result: %s", run->result);
    } else if (run->wanted != NULL) {
        console_say(&run->console, "result: no line of a worker matches --result_regex '%.200s'",
                    run->args->result_regex);
    }
}

/* " (worker 1 died on the way)", with all their numbers; "" if nobody did. */
static void
name_lost_workers(const struct run *run, char *text_p, size_t size)
{
    uint32_t left = run->watch.workers_failed;
    size_t used = 0;

    text_p[0] = '\0';
    if (left > 0) {
        used = (size_t)snprintf(text_p, size, " (worker%s", left > 1 ? "s" : "");
    }
    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots && left > 0; slot++) {
        const struct watch_slot *worker = &run->watch.slots[slot];

        if (!worker->ended || (worker->code == 0 && worker->signal == 0)) {
            continue;
        }
        left--;
        used += (size_t)snprintf(text_p + used, size - used, " %u%s", slot - 1 - run->plan->servers,
                                 left == 0  ? " died on the way)"
                                 : left > 1 ? ","
                                            : " and");
        if (left > 0 && size - used < 48) { /* room for the end, whatever the numbers are */
            snprintf(text_p + used, size - used, " %u more died on the way)", left);
            return;
        }
    }
}

static void
report_success(struct run *run, double seconds)
{
    const struct watch *watch = &run->watch;
    char parts[128];
    char lost[160];
    char died[512];

    report_result(run);
    name_lost_workers(run, lost, sizeof(lost));
    if (watch_was_plain(watch) && watch->config.workers > 1) { /* one has nobody to train with */
        console_say(&run->console,
                    "no worker joined the job: each ran the command by itself, as a plain program; "
                    "to take part, a program trains with PyTorch or TensorFlow, links libpsd or "
                    "imports poseidon");
    }
    failovers_text(run, died, sizeof(died));
    if (died[0] != '\0') {
        console_say(&run->console, "%s", died);
    }
    scale_workers_text(run, died, sizeof(died));
    if (died[0] != '\0') {
        console_say(&run->console, "%s", died);
    }
    scale_servers_text(run, died, sizeof(died));
    if (died[0] != '\0') {
        console_say(&run->console, "%s", died);
    }
    report_parts(run, parts, sizeof(parts));
    console_say(&run->console, "job ended well in %.1f s: %s%s; logs in %s", seconds, parts, lost,
                run->directory);
    runlog_line(&run->runlog, "END", "well in %.1f s%s", seconds, lost);
}

static void
say_problem(void *context, const char *problem)
{
    console_say(context, "%.1000s", problem);
}

static void
ignore_problem(void *context, const char *problem)
{
    (void)context;
    (void)problem;
}

/* One problem is the cause and stands in the last line; of several, each has a line of its own. */
static void
report_problems(struct run *run, char *text_p, size_t size)
{
    const size_t count = run->watch.cause == WATCH_CAUSE_NO_MACHINE
                             ? gather_tell_problems(&run->gather, ignore_problem, NULL)
                             : 0;

    if (count > 1) {
        gather_tell_problems(&run->gather, say_problem, &run->console);
        snprintf(text_p, size, "%zu problems, listed above", count);
    }
}

/* What a server had is lost, and the master has said so. What workers have saved is not. */
static void
tell_of_saves(struct run *run)
{
    const struct cause *inquest = &run->watch.inquest;

    if (inquest->end_at != 0 && inquest->end.role == PSI_TIDING_SERVER &&
        inquest->end.code == PSI_EXIT_SERVER_LOST && !run->args->begins_anew) {
        console_say(&run->console, "to begin such a job anew by itself, from what its workers have "
                                   "saved: --restart=on-failure --restart_scope=group");
    }
}

void
report_end(struct run *run, uint64_t elapsed_ms)
{
    const double seconds = (double)elapsed_ms / 1000.0;
    const enum watch_cause cause = run->watch.cause;
    char text[CAUSE_MAX];
    char verdict[640];

    if (cause == WATCH_CAUSE_NONE) {
        report_success(run, seconds);
        return;
    }
    end_text(run, text, sizeof(text));
    show_other_words(run);
    if (end_text_last_word(run) == NULL && !run->watch.cause_before &&
        (cause == WATCH_CAUSE_PROCESS || cause == WATCH_CAUSE_SERVICE_LEFT ||
         cause == WATCH_CAUSE_NEVER_JOINED || cause == WATCH_CAUSE_UNCLOSED ||
         (cause == WATCH_CAUSE_NOT_STARTED && run->processes[run->watch.cause_slot].pid != 0)) &&
        !(cause == WATCH_CAUSE_PROCESS &&
          end_text_verdict(run, run->watch.cause_slot, verdict, sizeof(verdict)))) {
        show_tail(run, run->watch.cause_slot);
    }
    runlog_line(&run->runlog, "END", "code %d after %.1f s: %s", watch_exit_code(&run->watch),
                seconds, text);
    report_problems(run, text, sizeof(text));
    if (cause == WATCH_CAUSE_NO_MACHINE) {
        console_say(&run->console, "the job did not start (code %d): %s; logs in %s",
                    watch_exit_code(&run->watch), text, run->directory);
        return;
    }
    tell_of_saves(run);
    if (cause == WATCH_CAUSE_INTERRUPT) { /* its text says by whom */
        console_say(&run->console, "job was %s after %.1f s (code %d); logs in %s", text, seconds,
                    watch_exit_code(&run->watch), run->directory);
        return;
    }
    console_say(&run->console, "job ended after %.1f s with code %d: %s; logs in %s", seconds,
                watch_exit_code(&run->watch), text, run->directory);
}
