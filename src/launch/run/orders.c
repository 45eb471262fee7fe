/*
 * orders.c - the orders of watch.c, given to the agents.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/orders.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "launch/plan/process.h"
#include "launch/run/failovers.h"
#include "launch/run/host_setup.h"
#include "launch/run/report.h"
#include "launch/run/rolling.h"
#include "launch/run/run_state.h"
#include "launch/run/scale_servers.h"
#include "launch/text/mask.h"
#include "launch/text/memory.h"

enum {
    ADDRESS_BYTES = HOST_ADDRESS_BYTES + 16,
};

/* The texts that a facts borrows. */
struct facts_texts {
    char port[8];
    char root_port[8];
    char store_port[8];
    char interface[32];
};

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

void
orders_open_output(struct run *run, uint32_t slot)
{
    const bool kept_here = run->args->logs_here || run_host_of(run, slot)->machine->here;
    struct process *process = &run->processes[slot];
    struct psd_error err;
    char path[4096];

    if (process->output != NULL) { /* of the life before */
        output_fini(process->output, &run->console);
    } else {
        process->output = memory_need(malloc(sizeof(*process->output)));
    }
    log_path(run->directory, process, path, sizeof(path));
    /* What runs the user's command is shown as workers are. */
    if (output_init(process->output,
                    plan_runs_command(run->plan, slot) ? LAUNCH_WORKER
                                                       : role_of_slot(slot, run->plan->servers),
                    process->name, kept_here ? path : NULL, &err) != PSD_OK) {
        console_say(&run->console, "%s; the job goes on", err.text);
    }
    process->output->listener = run->listener;
    if (plan_runs_command(run->plan, slot)) {
        const bool worker = role_of_slot(slot, run->plan->servers) == LAUNCH_WORKER;

        process->output->wanted = worker ? run->wanted : NULL;
        process->output->hidden =
            run->args->show != NULL && strcmp(run->args->show, "all") != 0 &&
            !(worker && is_listed(run->args->show, role_index(slot, run->plan->servers)));
    }
    if (kept_here) {
        snprintf(path, sizeof(path), "%s/.times/%s.%u", run->directory, process->name,
                 process->restart);
        output_keep_times(process->output, path);
    }
}

/* "10.0.0.1:20017", "[fd00::1]:20017": where a process may listen. */
static void
write_address(struct run *run, uint32_t slot, char text_p[ADDRESS_BYTES])
{
    const char *address = run_host_of(run, slot)->address;
    const bool v6 = strchr(address, ':') != NULL;

    snprintf(text_p, ADDRESS_BYTES, "%s%s%s:%u", v6 ? "[" : "", address, v6 ? "]" : "",
             host_setup_port(&run->gather, slot));
}

/* "tcp://10.0.0.1:20017,tcp://...": where the workers may listen, by rank. */
static void
describe_peers(struct run *run)
{
    size_t bytes = 0;
    FILE *stream = memory_need(open_memstream(&run->peers, &bytes));

    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
        char address[ADDRESS_BYTES];

        write_address(run, slot, address);
        fprintf(stream, "%stcp://%s", slot > 1 + run->plan->servers ? "," : "", address);
    }
    fclose(stream);
}

/* "master=10.0.0.1,server0=10.0.0.2,worker0=...": what is where, for whoever wants names. */
static void
describe_hosts(struct run *run)
{
    size_t bytes = 0;
    FILE *stream = memory_need(open_memstream(&run->host_map, &bytes));
    bool first = true;

    for (uint32_t slot = 0; slot < run->slots; slot++) {
        if (run->layout->machine_of[slot] != LAYOUT_NOWHERE) {
            fprintf(stream, "%s%s=%s", first ? "" : ",", run->processes[slot].name,
                    run_host_of(run, slot)->address);
            first = false;
        }
    }
    fclose(stream);
}

/* What other personalities need to know beyond what Poseidon's processes do. */
static void
learn_foreign_facts(struct run *run, uint32_t slot, struct process_facts *facts,
                    struct facts_texts *texts)
{
    const uint32_t first = 1 + run->plan->servers; /* rank 0 */
    const struct host *host = run_host_of(run, slot);

    facts->cluster = run->plan->given != NULL ? &run->plan->given[slot] : &run->cluster;
    if (personality_has(run->plan->personality, PERSONALITY_HAS_SCHEDULER)) {
        snprintf(texts->root_port, sizeof(texts->root_port), "%u",
                 host_setup_port(&run->gather, 0));
        facts->root_address = run_host_of(run, 0)->address;
        facts->root_port = texts->root_port;
    }
    if (personality_has(run->plan->personality, PERSONALITY_HAS_STORE)) {
        snprintf(texts->store_port, sizeof(texts->store_port), "%u",
                 host_setup_store_port(&run->gather));
        facts->store_address = run_host_of(run, first)->address;
        facts->store_port = texts->store_port;
    }
    facts->interface =
        host_interface(host, texts->interface, sizeof(texts->interface)) ? texts->interface : NULL;
    facts->remote = layout_is_remote(run->layout);
}

/* Another life listens where the last one did, because everybody knows that address. On another machine it
 * has the port that the configuration names, if any; and where the last life did not come to listen,
 * whichever is free. */
static uint16_t
master_port(const struct run *run)
{
    const char *port = strrchr(run->master, ':');

    if (run->master_moved) {
        return (uint16_t)run->plan->master_port;
    }
    return port != NULL && run->master_listens ? (uint16_t)strtoul(port + 1, NULL, 10) : 0;
}

static void
learn_facts(struct run *run, uint32_t slot, struct process_facts *facts_p,
            struct facts_texts *texts)
{
    const struct host *host = run_host_of(run, slot);
    const uint32_t rank = role_index(slot, run->plan->servers);

    *facts_p = (struct process_facts){
        .master = run->master,
        .address = host->address,
        .job = run->args->job,
        .restart = run->args->requeues + run->processes[slot].restart,
        .join_step = run->processes[slot].join_step,
        .term = 1 + run->watch.slots[0].restarts,
        .master_port = master_port(run),
        .place = neighbours_find(&run->gather.computers, run->plan->servers, slot),
        .cores = host->cores,
        .lanes = run->processes[slot].lanes,
        .gpus = run->layout->gpus[slot]};
    if (host->machine->here || run->gather.logs != NULL) {
        facts_p->logs = run->logs;
    }
    if (plan_runs_command(run->plan, slot)) {
        if (run->peers == NULL && run->plan->given == NULL) {
            describe_peers(run);
        }
        if (run->host_map == NULL) {
            describe_hosts(run);
        }
        facts_p->hosts = run->host_map;
        if (run->plan->given == NULL) {
            snprintf(texts->port, sizeof(texts->port), "%u", host_setup_port(&run->gather, slot));
            facts_p->port = texts->port;
        }
        facts_p->peers = run->peers;
        facts_p->knows_flags = host->knows_flags[plan_command(run->plan, rank)];
        learn_foreign_facts(run, slot, facts_p, texts);
    }
}

/* "20001,20002": the ports that a process may bind. */
static void
list_ports(const struct run *run, uint32_t slot, char text_p[24])
{
    const bool store = personality_has(run->plan->personality, PERSONALITY_HAS_STORE) &&
                       slot == 1 + run->plan->servers;

    snprintf(text_p, 24, "%u,%u",
             plan_runs_command(run->plan, slot) ? host_setup_port(&run->gather, slot) : 0,
             store ? host_setup_store_port(&run->gather) : 0);
}

static void
send_start(struct run *run, uint32_t slot)
{
    struct process *process = &run->processes[slot];
    struct host *host = run_host_of(run, slot);
    struct words environment = {0};
    struct words strings = {0};
    struct words argv = {0};
    struct facts_texts texts;
    struct process_facts facts;
    char text[1024];
    char ports[24];

    learn_facts(run, slot, &facts, &texts);
    if (process->lanes == 0 && role_of_slot(slot, run->plan->servers) == LAUNCH_SERVER) {
        process->lanes = process_lanes(&facts);
    }
    process_words(run->plan, slot, &facts, &argv, &environment);
    mask_words(&argv, text, sizeof(text));
    runlog_line(&run->runlog, "START", "%s: %s", process->name, text);
    free(process->command);
    process->command = memory_need(strdup(text));
    log_path(".", process, text, sizeof(text));
    list_ports(run, slot, ports);
    words_add(&strings, plan_runs_command(run->plan, slot)
                            ? role_name(LAUNCH_WORKER)
                            : role_name(role_of_slot(slot, run->plan->servers)));
    words_add(&strings, text);
    words_add(&strings, ports);
    words_add_all(&strings, &argv);
    words_add_all(&strings, &environment);
    link_send_words(&host->link, LINK_START, slot, (int32_t)argv.count, &strings);
    process->start_pending = true;
    words_fini(&strings);
    words_fini(&argv);
    words_fini(&environment);
}

psd_status
orders_describe_cluster(struct run *run, struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (!personality_is_tensorflow(run->plan->personality) || run->plan->given != NULL) {
        return PSD_OK;
    }
    for (uint32_t slot = 1; slot < run->slots && status == PSD_OK; slot++) {
        const struct plan_task task = plan_task(run->plan, slot);
        char address[ADDRESS_BYTES];

        write_address(run, slot, address);
        if (task.type != PSI_TF_EVALUATOR) { /* nobody talks to it */
            status = psi_tf_config_add(&run->cluster, task.type, task.index, address, err);
        }
    }
    return status;
}

static void
order_start(void *context, uint32_t slot, uint32_t restart)
{
    struct run *run = context;

    run->processes[slot].restart = run->args->attempt + restart;
    send_start(run, slot);
}

/* Its machine is lost. */
static void
order_move(void *context, uint32_t slot, uint32_t machine)
{
    struct run *run = context;
    const struct host *to = &run->hosts[machine];

    console_tell(&run->console, CONSOLE_FAILOVER, "%s goes from %s to %s",
                 run->processes[slot].name, run_host_of(run, slot)->machine->name,
                 to->machine->name);
    runlog_line(&run->runlog, "MOVE", "%s from %s to %s", run->processes[slot].name,
                run_host_of(run, slot)->machine->name, to->machine->name);
    failovers_move(run, slot, to);
    if (slot == 0) {
        layout_move_master(run->layout, machine);
        run->master_moved = true;
    } else {
        layout_move_server(run->layout, slot, machine);
    }
    free(run->host_map); /* where it was */
    run->host_map = NULL;
}

void
orders_signal(void *context, uint32_t slot, int number)
{
    struct run *run = context;

    runlog_line(&run->runlog, "SIGNAL", "%d to %s", number, run->processes[slot].name);
    run->console.daemons_quiet = run->console.daemons_quiet || run->watch.phase >= WATCH_STOPPING;
    link_send(&run_host_of(run, slot)->link, LINK_SIGNAL, slot, number, NULL, 0);
}

static void
order_ask(void *context)
{
    struct run *run = context;

    runlog_line(&run->runlog, "ASK",
                "something failed: every machine is asked whether it is there");
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        link_send(&run->hosts[i].link, LINK_PULSE, 0, LINK_PULSE_ROLL, NULL, 0);
    }
}

void
orders_tell_members(struct run *run)
{
    struct words words = {0};

    words_add(&words, run->master);
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (run->hosts[i].state > HOST_CALLING && run->hosts[i].state < HOST_GONE) {
            link_send_words(&run->hosts[i].link, LINK_MASTER, 0,
                            (int32_t)(1 + run->watch.slots[0].restarts), &words);
        }
    }
    words_fini(&words);
}

void
orders_end(void *context, uint32_t grace_ms)
{
    struct run *run = context;

    if (run->watch.cause != WATCH_CAUSE_NONE) {
        run_ask_last(run);
    }
    runlog_line(&run->runlog, "STOP", "what is left has %u ms", grace_ms);
    run->ending = true;
    run->console.daemons_quiet = true;
    run->end_ms = psi_monotonic_ms() + grace_ms + ORDERS_ANSWER_MS;
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        struct host *host = &run->hosts[i];

        if (host->state == HOST_CALLING && !host->machine->here && !host->machine->joined) {
            host_kill(host); /* nothing runs there yet */
        } else if (host->state == HOST_AWAY) {
            host->state = HOST_GONE;
        } else {
            link_send(&host->link, LINK_END, 0, (int32_t)grace_ms, NULL, 0);
        }
    }
}

static void
order_tell_late(void *context, uint32_t slot, uint64_t waited_ms)
{
    report_late(context, slot, waited_ms);
}

static void
order_tell_failover(void *context, uint32_t slot)
{
    failovers_begin(context, slot);
}

static void
order_tell_master(void *context, const struct psi_word *word)
{
    struct run *run = context;
    char line[PSI_TIDING_LINE];
    const size_t bytes = psi_word_format(word, line);

    link_send(&run_host_of(run, 0)->link, LINK_TELL, 0, 0, line, bytes);
}

static void
order_tell_drained(void *context, uint32_t slot)
{
    scale_servers_drained(context, slot);
}

static void
order_tell_not_come(void *context, uint32_t slot)
{
    scale_servers_not_come(context, slot);
}

static void
order_tell_rolling(void *context)
{
    rolling_tell(context);
}

const struct watch_ops orders_ops = {.start = order_start,
                                     .move = order_move,
                                     .signal = orders_signal,
                                     .ask = order_ask,
                                     .tell_late = order_tell_late,
                                     .tell_failover = order_tell_failover,
                                     .tell_master = order_tell_master,
                                     .tell_not_come = order_tell_not_come,
                                     .tell_drained = order_tell_drained,
                                     .tell_rolling = order_tell_rolling,
                                     .end = orders_end};
